//! Hostile input: random bytes, damaged PTX and random programs end with an error, a finding or a result; never with a
//! panic, a hang or an access outside the caller's buffers.

mod common;

use common::{Rng, data};
use proptest::prelude::*;
use spinec_ptx::{Access, Arg, Launch, LaunchError, Memory, Options, Program, parse};

/// Parses and loads whatever it is given, and runs each kernel briefly.
fn digest(text: &str) {
    let Ok(module) = parse(text) else { return };
    // What parses also prints and parses again.
    let printed = module.to_string();
    let again = parse(&printed);
    assert!(again.as_ref() == Ok(&module), "{printed}");
    let entries: Vec<String> = module.entries().map(str::to_string).collect();
    for e in entries.iter().take(2) {
        let Ok(p) = Program::load(&module, e) else { continue };
        run(&p);
    }
}

/// Runs with buffers for 8-byte parameters and small integers for the rest.
fn run(p: &Program) {
    let mut m = Memory::new();
    let inputs = [m.add("a", &[1; 512], Access::In), m.add("b", &[2; 512], Access::InOut)];
    let out = m.add_output("c", 512);
    let mut launch = Launch::new([2, 1, 1], [40, 1, 1]).shared(4096);
    for (k, q) in p.params().iter().enumerate() {
        launch = launch.arg(match q.size {
            8 => Arg::from([inputs[0], inputs[1], out][k % 3]),
            4 => Arg::U32(9),
            n => Arg::Bytes(vec![0; n as usize]),
        });
    }
    let options = Options { instruction_budget: 2000, idle_rounds: 20, threads: 2, ..Options::default() };
    match p.run(&m, &launch.options(options)) {
        Ok(r) => drop(r),
        Err(LaunchError::Config(_) | LaunchError::Argument { .. } | LaunchError::ArgumentCount { .. }) => {}
    }
    // Inputs are never changed.
    assert_eq!(m.bytes(inputs[0]), [1; 512]);
}

fn seeds() -> Vec<String> {
    [
        "fp8quant.sm_80",
        "lastblock.sm_90a",
        "misc.sm_100a",
        "tmastore.sm_90a",
        "cluster.sm_90a",
        "transpose.sm_80",
        "topk.sm_90a",
    ]
    .iter()
    .map(|f| std::fs::read_to_string(data(&format!("{f}.ptx"))).expect("stored PTX"))
    .collect()
}

#[test]
fn damaged_files() {
    let seeds = seeds();
    let mut r = Rng(0xfeed);
    for round in 0..1000 {
        let mut bytes = seeds[round % seeds.len()].clone().into_bytes();
        for _ in 0..=r.below(4) {
            let at = r.below(bytes.len() as u64) as usize;
            match r.below(5) {
                0 => bytes[at] = r.next() as u8,
                1 => bytes[at] = b"0123456789{}[]();,.%@!-+|<>:\"rfdps"[r.below(34) as usize],
                2 => drop(bytes.drain(at..(at + r.below(40) as usize).min(bytes.len()))),
                3 => {
                    let to = r.below(bytes.len() as u64) as usize;
                    let piece = bytes[at..(at + r.below(60) as usize).min(bytes.len())].to_vec();
                    bytes.splice(to..to, piece);
                }
                _ => bytes.truncate(at.max(1)),
            }
        }
        digest(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn lines_dropped_and_exchanged() {
    let seeds = seeds();
    let mut r = Rng(0xbeef);
    for round in 0..1000 {
        let mut lines: Vec<&str> = seeds[round % seeds.len()].lines().collect();
        for _ in 0..=r.below(6) {
            let (a, b) = (r.below(lines.len() as u64) as usize, r.below(lines.len() as u64) as usize);
            match r.below(3) {
                0 => drop(lines.remove(a)),
                1 => lines.swap(a, b),
                _ => lines.insert(a, lines[b]),
            }
        }
        digest(&lines.join("\n"));
    }
}

/// One random instruction that loads: every class of operation the interpreter has.
fn instruction(r: &mut Rng) -> String {
    let reg = |r: &mut Rng, c: char| format!("%{c}{}", r.below(6));
    let (d, a, b, c) = (reg(r, 'r'), reg(r, 'r'), reg(r, 'r'), reg(r, 'r'));
    let (x, y) = (reg(r, 'd'), reg(r, 'd'));
    let (p, q) = (reg(r, 'p'), reg(r, 'p'));
    let space = ["global", "shared", "local"][r.below(3) as usize];
    let address = match r.below(4) {
        0 => format!("%d7+{}", r.below(600)),
        1 => format!("{x}+{}", r.below(64)),
        2 => format!("tile+{}", r.below(520)),
        _ => format!("%d8+{}", 4 * r.below(130)),
    };
    let guard =
        if r.below(4) == 0 { format!("@{}{p} ", if r.below(2) == 0 { "!" } else { "" }) } else { String::new() };
    let label = r.below(4);
    let text = match r.below(34) {
        0 => format!("add.s32 {d}, {a}, {b};"),
        1 => format!("mad.lo.s32 {d}, {a}, {b}, {c};"),
        2 => format!("mul.wide.u32 {x}, {a}, {b};"),
        3 => format!("fma.rn.f32 {d}, {a}, {b}, {c};"),
        4 => format!("setp.lt.s32 {p}|{q}, {a}, {b};"),
        5 => format!("selp.b32 {d}, {a}, {b}, {p};"),
        6 => format!("cvt.rn.f16x2.f32 {d}, {a}, {b};"),
        7 => format!("ld.{space}.b32 {d}, [{address}];"),
        8 => format!("st.{space}.b32 [{address}], {a};"),
        9 => format!("ld.b64 {x}, [{address}];"),
        10 => format!("ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [{address}];"),
        11 => format!("atom.shared.add.u32 {d}, [{address}], {b};"),
        12 => format!("atom.global.cas.b32 {d}, [{address}], {a}, {b};"),
        13 => format!("shfl.sync.idx.b32 {d}|{p}, {a}, {b}, {c}, {};", if r.below(2) == 0 { "-1" } else { "%r9" }),
        14 => format!("vote.sync.ballot.b32 {d}, {p}, -1;"),
        15 => "bar.sync 0;".into(),
        16 => format!("bar.sync {}, {};", r.below(3), 32 * r.below(3)),
        17 => format!("bar.arrive {}, 64;", r.below(2)),
        18 => format!("bra L{label};"),
        19 => format!("mbarrier.init.shared.b64 [tile+{}], {};", 8 * r.below(4), r.below(3)),
        20 => format!("mbarrier.arrive.shared.b64 {x}, [tile+{}];", 8 * r.below(4)),
        21 => format!("mbarrier.try_wait.parity.shared.b64 {p}, [tile+{}], {};", 8 * r.below(4), r.below(2)),
        22 => format!("cp.async.ca.shared.global [tile+{}], [%d8+{}], 4;", 4 * r.below(100), 4 * r.below(130)),
        23 => "cp.async.commit_group;".into(),
        24 => format!("cp.async.wait_group {};", r.below(2)),
        25 => format!("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{{d}}}, [{a}];"),
        26 => {
            "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%r0}, {%r1,%r2,%r3,%r4};"
                .into()
        }
        27 => format!("cp.async.bulk.global.shared::cta.bulk_group [%d8], [tile], {};", 16 * r.below(4)),
        28 => "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;".into(),
        29 => format!(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile+256], [%d8], 32, [tile+{}];",
            8 * r.below(3)
        ),
        30 => format!("brx.idx {a}, table;"),
        31 => format!("div.s32 {d}, {a}, {b};"),
        32 => format!("mov.b64 {x}, {{{a}, {b}}};"),
        _ => format!("mov.b64 {{{d}, {c}}}, {y};"),
    };
    guard + &text
}

#[test]
fn random_programs() {
    let mut r = Rng(0xc0de);
    for _ in 0..1500 {
        let n = 3 + r.below(40) as usize;
        let mut body: Vec<String> = (0..n).map(|_| instruction(&mut r)).collect();
        for k in 0..4 {
            body.insert(r.below(body.len() as u64) as usize, format!("L{k}:"));
        }
        let text = format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b) {{\n\
             .reg .pred %p<8>; .reg .b32 %r<10>; .reg .b64 %d<10>; .shared .align 128 .b8 tile[512]; .local .align 8 .b8 loc[64];\n\
             table: .branchtargets L0, L1, L2;\n\
             ld.param.u64 %d7, [a]; ld.param.u64 %d8, [b]; mov.u32 %r0, %tid.x; mov.u32 %r1, %laneid; mov.u32 %r9, %lanemask_le;\n\
             setp.lt.u32 %p1, %r0, 16; and.b32 %r2, %r0, 1; setp.ne.u32 %p2, %r2, 0; mov.u64 %d1, tile; mov.u64 %d2, loc;\n{}\n}}",
            body.join("\n")
        );
        let module = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let p = Program::load(&module, "k").unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        run(&p);
    }
}

/// Opcodes with their modifiers as compilers write them, beside the bare forms.
const WRITTEN: &str = "ld.global.v4.b32 ld.param.u64 ld.shared.b128 st.global.v2.f32 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 \
    atom.global.cas.b32 atom.shared.add.u32 red.global.add.f32 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 \
    mbarrier.arrive.shared.b64 mbarrier.arrive.expect_tx.shared::cta.b64 mbarrier.init.shared.b64 mbarrier.try_wait.parity.shared.b64 \
    mbarrier.arrive_drop.noComplete.shared.b64 mbarrier.pending_count.b64 mbarrier.inval.shared.b64 mbarrier.complete_tx.relaxed.cta.shared.b64 \
    cp.async.ca.shared.global cp.async.cg.shared.global.L2::cache_hint cp.async.wait_group cp.async.mbarrier.arrive.noinc.shared.b64 \
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster cp.async.bulk.global.shared::cta.bulk_group \
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
    cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group cp.async.bulk.prefetch.tensor.2d.L2.global \
    cp.async.bulk.prefetch.L2.global cp.async.bulk.wait_group.read bar.red.popc.u32 bar.red.and.pred barrier.cluster.arrive.release.aligned \
    bar.warp.sync fence.proxy.tensormap::generic.acquire.gpu setmaxnreg.inc.sync.aligned.u32 shfl.sync.idx.b32 vote.sync.ballot.b32 \
    match.any.sync.b32 redux.sync.add.u32 elect.sync ldmatrix.sync.aligned.m8n8.x4.shared.b16 stmatrix.sync.aligned.m8n8.x2.shared.b16 \
    movmatrix.sync.aligned.m8n8.trans.b16 mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 wgmma.wait_group.sync.aligned \
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 isspacep.global mapa.shared::cluster.u32 getctarank.u64 cvta.to.global.u64 \
    prefetch.global.L2 createpolicy.fractional.L2::evict_first.b64 mov.b128 mov.b64 mov.b32 setp.lt.and.s32 set.lt.u32.f32 selp.b32 \
    wmma.load.a.sync.aligned.row.m16n16k16.global.f16 wmma.store.d.sync.aligned.row.m16n16k16.f32 \
    wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 call call.uni brx.idx bra lop3.b32 bfi.b64 madc.hi.cc.u32";

/// Any number of any operands after any opcode: an error or a program, never a panic.
#[test]
fn operands_of_every_kind_and_number() {
    let mut r = Rng(0xf00d);
    let operands = [
        "%r1",
        "%d1",
        "%p1",
        "!%p1",
        "%q1",
        "_",
        "5",
        "-1",
        "0f3F800000",
        "1.5",
        "[%d1]",
        "[%r1+4]",
        "[tile]",
        "[tile+8]",
        "[7]",
        "{%r1}",
        "{%r1, %r2}",
        "{%r1, %r2, %r3, %r4}",
        "{%d1, %d2}",
        "{%f1, %f2, %f3, %f4}",
        "{}",
        "[%d1, {%r1, %r2}]",
        "[%d1, {}]",
        "%r1|%p1",
        "%p1|%p2",
        "tile",
        "tile+4",
        "L",
        "table",
        "%tid.x",
        "(%r1)",
        "(x)",
        "-%r1",
        "f",
        "WARP_SZ",
    ];
    let forms: Vec<String> = spinec_ptx::opcode_forms().into_iter().map(|f| f.text).collect();
    let opcodes: Vec<&str> = forms.iter().map(String::as_str).chain(WRITTEN.split_whitespace()).collect();
    let written = opcodes.len() - WRITTEN.split_whitespace().count();
    for (k, op) in opcodes.iter().enumerate() {
        for _ in 0..if k < written { 4 } else { 150 } {
            let list: Vec<&str> = (0..r.below(7)).map(|_| operands[r.below(operands.len() as u64) as usize]).collect();
            let guard = if r.below(5) == 0 { "@%p1 " } else { "" };
            digest(&format!(
                ".version 9.0\n.target sm_90a\n.func f(.param .b64 a) {{ ret; }}\n.visible .entry k(.param .u64 a) {{\n.reg .pred %p<4>; \
                 .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .b128 %q<2>; .reg .f32 %f<8>; .shared .align 16 .b8 tile[64]; .param .b64 x;\n\
                 table: .branchtargets L;\n{guard}{op} {};\nL: ret;\n}}",
                list.join(", ")
            ));
        }
    }
}

/// The same program gives the same report on any number of threads.
#[test]
fn threads_do_not_show() {
    let mut r = Rng(0xabcd);
    for _ in 0..200 {
        let body: Vec<String> = (0..20).map(|_| instruction(&mut r)).filter(|t| !t.contains("bra L")).collect();
        let text = format!(
            ".version 9.0\n.target sm_90a\n.visible .entry k(.param .u64 a, .param .u64 b) {{\n\
             .reg .pred %p<8>; .reg .b32 %r<10>; .reg .b64 %d<10>; .shared .align 128 .b8 tile[512];\n\
             table: .branchtargets L0;\nld.param.u64 %d7, [a]; ld.param.u64 %d8, [b]; mov.u32 %r0, %ctaid.x;\n{}\nL0: ret;\n}}",
            body.join("\n")
        );
        let p = Program::load(&parse(&text).expect("parses"), "k").unwrap_or_else(|e| panic!("{}\n{text}", e[0]));
        let result = |threads: usize| {
            let mut m = Memory::new();
            let (a, b) = (m.add("a", &[1; 512], Access::In), m.add_output("b", 512));
            let options = Options { threads, instruction_budget: 2000, idle_rounds: 20, ..Options::default() };
            let launch = Launch::new([7, 1, 1], [40, 1, 1]).arg(a).arg(b).options(options);
            let r = p.run(&m, &launch).expect("launches");
            (r.findings, r.counters, m.bytes(b))
        };
        let one = result(1);
        assert!(one == result(2) && one == result(5), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text(text in "\\PC{0,200}") {
        digest(&text);
    }

    #[test]
    fn random_words(words in proptest::collection::vec(
        prop_oneof![
            Just(".entry"), Just(".func"), Just("k"), Just("("), Just(")"), Just("{"), Just("}"), Just(";"), Just(","),
            Just(".reg"), Just(".b32"), Just("%r<4>"), Just("%r1"), Just("add.u32"), Just("["), Just("]"), Just("+"),
            Just("-"), Just("7"), Just("0x1F"), Just("@"), Just("!"), Just("%p"), Just("bra"), Just("L"), Just(":"),
            Just(".loc"), Just(".global"), Just("="), Just("1.5"), Just("0f3F800000"), Just(".align"), Just(".section"),
            Just("|"), Just("ret"), Just(".param"), Just("\"s\""), Just("<"), Just(">"), Just("//"), Just("\n"),
        ], 0..60)) {
        digest(&words.join(" "));
    }
}
