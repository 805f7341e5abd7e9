use spinec_ir::*;
struct H; impl spec::Host for H { fn read(&self,p:&str)->Result<Vec<u8>,String>{std::fs::read(p).map_err(|e|e.to_string())} }
fn main(){ for p in std::env::args().skip(1){ let t=std::time::Instant::now();
 match spec::load(&p,&H,&Default::default()){
  spec::Loaded::Graph{sources,diags}=>{ println!("{}",diag::render(&diags.into_sorted(),&sources,false,120)); }
  spec::Loaded::System(l)=>{ println!("{}",diag::render(&l.diags.into_sorted(),&l.sources,false,120));
   if let Some(s)=l.system{ println!("weights {} states {}", s.weights.len(), s.states.len());
     for law in ["greedy","sampled","mixed"]{ let c=[("law".to_string(),law.to_string()),("candidates".to_string(),"coarse".to_string())].into();
       match s.phase_module(&c,&|_,_|true){Ok(m)=>println!("{law}: {:?}",m.module.funcs.iter().map(|f|(f.name.clone(),f.regions.iter().map(|r|r.ops.len()).sum::<usize>(),f.inputs.clone())).collect::<Vec<_>>()),Err(d)=>println!("{}",diag::render(&d.into_sorted(),&l.sources,false,120))}}
     for e in s.entries(){ match s.entry_module(e,None,None){Ok(m)=>println!("entry {e}: {:?} {:?}",m.module.funcs[0].inputs,m.module.funcs[0].outputs.len()),Err(d)=>println!("{}",diag::render(&d.into_sorted(),&l.sources,false,120))}}
   } } }
 println!("{p} {:?}",t.elapsed()); } }
