//! Runs instruction sequences on whole warps: each lane has 64-bit slots of input and of output.
#![allow(dead_code)]

use spinec_ptx::{Access, Launch, Memory, Program, Report, parse};

/// Runs `body` with 32 lanes times `warps`; `%d1` addresses this lane's 64-bit slots of `input`, `%d2` those of the output.
pub fn run(declare: &str, body: &str, warps: usize, input: &[Vec<u64>], outputs: usize) -> (Vec<Vec<u64>>, Report) {
    let (lanes, width) = (32 * warps, input[0].len() * 8);
    let ptx = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out) {{\n\
         .reg .pred %p<9>; .reg .b16 %h<40>; .reg .b32 %r<200>; .reg .b64 %d<60>; .reg .f32 %f<140>;\n{declare}\n\
         mov.u32 %r0, %tid.x; ld.param.u64 %d0, [in]; mad.wide.u32 %d1, %r0, {width}, %d0;\n\
         ld.param.u64 %d0, [out]; mad.wide.u32 %d2, %r0, {}, %d0;\n{body}\nret;\n}}",
        8 * outputs
    );
    let module = parse(&ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
    let p = Program::load(&module, "k").unwrap_or_else(|e| panic!("{}\n{ptx}", e[0]));
    let bytes: Vec<u8> = input.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    let mut m = Memory::new();
    let i = m.add("in", &bytes, Access::In);
    let o = m.add_output("out", 8 * outputs * lanes);
    let report = p.run(&m, &Launch::new([1; 3], [lanes as u32, 1, 1]).arg(i).arg(o)).expect("launches");
    let words: Vec<u64> =
        m.bytes(o).chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes"))).collect();
    (words.chunks(outputs).map(<[u64]>::to_vec).collect(), report)
}

pub fn clean(r: &Report) {
    assert!(r.is_clean(), "{:?}", r.findings);
}
