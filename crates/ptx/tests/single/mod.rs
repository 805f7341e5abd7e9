//! Runs single instructions on many inputs: each lane loads its operands from 64-bit slots and stores its result in one.
#![allow(dead_code)]

use spinec_ptx::{Access, Arg, Launch, Memory, Program, parse};

/// A register class of an operand: `h` 16 bits, `r` 32 bits, `d` 64 bits, `p` predicate.
pub type Class = char;

fn register(class: Class, k: usize) -> String {
    format!("%{class}{k}")
}

/// Applies `op` to each row of operands. `text` names the operands `$d`, `$0`, `$1`, ...; literals stand as they are.
pub fn apply(text: &str, dst: Class, src: &[Class], inputs: &[Vec<u64>]) -> Vec<u64> {
    let mut body = text.replace("$d", &register(dst, 0));
    let mut loads = String::new();
    for (k, class) in src.iter().enumerate() {
        let reg = register(*class, k + 1);
        body = body.replace(&format!("${k}"), &reg);
        let at = 8 * k;
        loads += &match class {
            'h' => format!("ld.global.u16 {reg}, [%d21+{at}];\n"),
            'r' => format!("ld.global.b32 {reg}, [%d21+{at}];\n"),
            'd' => format!("ld.global.b64 {reg}, [%d21+{at}];\n"),
            _ => format!("ld.global.b32 %r31, [%d21+{at}];\nsetp.ne.b32 {reg}, %r31, 0;\n"),
        };
    }
    let result = match dst {
        'h' => "cvt.u64.u16 %d22, %h0;",
        'r' => "cvt.u64.u32 %d22, %r0;",
        'd' => "mov.b64 %d22, %d0;",
        _ => "selp.b64 %d22, 1, 0, %p0;",
    };
    let width = src.len().max(1) * 8;
    let ptx = format!(
        ".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n) {{\n\
         .reg .pred %p<12>; .reg .b16 %h<12>; .reg .b32 %r<40>; .reg .b64 %d<40>;\n\
         mov.u32 %r20, %ctaid.x; mov.u32 %r21, %ntid.x; mov.u32 %r22, %tid.x; mad.lo.s32 %r23, %r20, %r21, %r22;\n\
         ld.param.u32 %r24, [n]; setp.ge.u32 %p11, %r23, %r24; @%p11 exit;\n\
         ld.param.u64 %d20, [in]; mad.wide.u32 %d21, %r23, {width}, %d20;\n\
         ld.param.u64 %d23, [out]; mad.wide.u32 %d24, %r23, 8, %d23;\n\
         {loads}\n{body}\n{result}\nst.global.b64 [%d24], %d22;\nret;\n}}"
    );
    let module = parse(&ptx).unwrap_or_else(|e| panic!("{text}: {e}"));
    let program = Program::load(&module, "k").unwrap_or_else(|e| panic!("{text}: {}", e[0]));
    let bytes: Vec<u8> = inputs.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    let mut m = Memory::new();
    let input = m.add("in", &bytes, Access::In);
    let out = m.add_output("out", 8 * inputs.len());
    let launch = Launch::new([inputs.len().div_ceil(256) as u32, 1, 1], [256, 1, 1])
        .arg(input)
        .arg(out)
        .arg(Arg::U32(inputs.len() as u32));
    let report = program.run(&m, &launch).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert!(report.is_clean(), "{text}: {:?}", report.findings);
    m.bytes(out).chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes"))).collect()
}

/// One operand.
pub fn apply1(text: &str, dst: Class, src: Class, inputs: impl IntoIterator<Item = u64>) -> (Vec<u64>, Vec<u64>) {
    let rows: Vec<Vec<u64>> = inputs.into_iter().map(|v| vec![v]).collect();
    let out = apply(text, dst, &[src], &rows);
    (rows.into_iter().map(|r| r[0]).collect(), out)
}
