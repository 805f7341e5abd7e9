//! Parsing, printing, and the places of errors.

mod common;

use common::data;
use spinec_ptx::{DiagnosticKind, Program, parse};
use std::path::PathBuf;

/// Every stored PTX file.
fn files() -> Vec<PathBuf> {
    let mut out = Vec::new();
    for folder in ["", "triton", "mutants"] {
        let entries = std::fs::read_dir(data(folder)).expect("data folder").filter_map(Result::ok);
        out.extend(entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "ptx")));
    }
    out.sort();
    assert!(out.len() > 80, "{}", out.len());
    out
}

#[test]
fn stored_files_print_back() {
    for path in files() {
        let text = std::fs::read_to_string(&path).expect("readable");
        let first = parse(&text).unwrap_or_else(|e| panic!("{}:{e}", path.display()));
        let printed = first.to_string();
        let second = parse(&printed).unwrap_or_else(|e| panic!("{} printed:{e}", path.display()));
        assert!(first == second, "{} changes when printed and parsed", path.display());
        assert_eq!(printed, second.to_string(), "{}", path.display());
    }
}

#[test]
fn every_kernel_of_the_stored_files_loads() {
    for path in files() {
        let module = parse(&std::fs::read_to_string(&path).expect("readable")).expect("parses");
        assert!(module.entries().count() > 0);
        for e in module.entries() {
            Program::load(&module, e).unwrap_or_else(|d| panic!("{}:{}", path.display(), d[0]));
        }
    }
}

#[test]
fn forms_of_the_language() {
    let text = r#"
.version 8.7
.target sm_90a, debug
.address_size 64
.file 1 "a.cu", 12, 34
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.visible .global .align 16 .f32 table[2][3] = {{0f3F800000, 2.5, 1}, {0, 0, 0}};
.global .u64 pointer = generic(table)+8;
.const .v2 .f32 pair;
.extern .shared .align 1024 .b8 dynamic[];
.pragma "nounroll";
.func (.param .b32 out) f(.param .align 8 .b8 s[16])
.noreturn
{ ret; }
.visible .entry k(.param .u64 .ptr .global .align 16 x, .param .align 64 .b8 map[128])
.maxntid 256, 1, 1
.minnctapersm 2
.pragma "something";
{
	.reg .pred %p, %q<4>;
	.reg .v4 .f32 vec;
	.loc 1 7 3, function_name $L__info+4, inlined_at 1 20 5
	{ .reg .b32 %r<3>; LAB: @!%p bra LAB; }
	ts: .branchtargets A, B;
	proto: .callprototype (.param .b32 _) _ (.param .b64 _);
A:	brx.idx %r1, ts;
B:	ld.global.v4.f32 {%f1, _, %f3, %f4}, [%rd1+-16];
	shfl.sync.bfly.b32 %r1|%q1, %r2, 0x10, 037, -1;
	call (out), f, (s), proto;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [map, {%r2, -3}], [%r3+8];
	mov.u64 %rd1, table+4;
	setp.eq.and.s32 %p|%q2, %r1, 0b101, !%q3; // comment
	/* a
	   comment */ add.f64 %fd1, %fd1, -0d3FF0000000000000;
}
.section .debug_str { .b8 1,2 { nested } }
"#;
    let m = parse(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(m.version, (8, 7));
    assert_eq!(m.file(1), Some("a.cu"));
    assert_eq!(m.entries().collect::<Vec<_>>(), ["k"]);
    let printed = m.to_string();
    assert!(m == parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}")), "{printed}");
    for part in
        ["[%rd1+-16]", "{%f1, _, %f3, %f4}", "%r1|%q1", "inlined_at 1 20 5", ".ptr .global .align 16", "{ nested }"]
    {
        assert!(printed.contains(part), "{part} is missing in {printed}");
    }
}

#[test]
fn syntax_errors_have_places() {
    for (text, line, column, part) in [
        (".version 9.0\n.target sm_80\n.entry k() { mov.u32 %r1 %r2; }", 3, 26, "expected `,` or `;`, found `%r2`"),
        (".entry k() { /* open", 1, 14, "comment is not closed"),
        (".entry k() {\n add.u32 %a, %b, 0xg;\n}", 2, 18, "`0xg` is not a number"),
        (".entry k() {\n { ret;\n", 3, 1, "found the end of the text"),
        ("\n\n  frob", 3, 3, "`frob` cannot start a module item"),
        (".global .q32 x;", 1, 9, "`.q32` is not a type"),
        (".entry k() {\n .reg .b32 %r<99999999>; }", 2, 15, "more than"),
        (".entry k() {\n .local .align 3 .b8 x[4]; }", 2, 16, "alignment 3"),
        (".pragma \"open\n", 1, 9, "string is not closed"),
    ] {
        let e = parse(text).expect_err(text);
        assert_eq!((e.pos.line, e.pos.column), (line, column), "{text}: {e}");
        assert!(e.kind == DiagnosticKind::Syntax && e.message.contains(part), "{text}: {e}");
    }
    let deep = format!(".entry k() {}", "{".repeat(5000));
    assert!(parse(&deep).is_err_and(|e| e.message.contains("nesting")));
}

/// Errors of loading a kernel whose body is given, as (line in the body, column, message).
fn load(body: &str) -> Vec<(u32, u32, String, DiagnosticKind)> {
    let text = format!(
        ".version 9.0\n.target sm_90a\n.shared .align 4 .b8 s[8];\n.func rec() {{ call rec; ret; }}\n.entry k(.param .u64 x) {{\n\
         .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;\n{body}\n}}"
    );
    let m = parse(&text).unwrap_or_else(|e| panic!("{body}: {e}"));
    match Program::load(&m, "k") {
        Ok(_) => Vec::new(),
        Err(list) => {
            list.into_iter().map(|d| (d.pos.line.saturating_sub(6), d.pos.column, d.message, d.kind)).collect()
        }
    }
}

#[test]
fn what_cannot_run_is_refused_with_its_place() {
    use DiagnosticKind::{Resolve, Unsupported};
    let mut wrong = Vec::new();
    for (body, kind, column, part) in [
        ("frob.u32 %r1, %r2;", Unsupported, 1, "instruction `frob.u32` is not supported"),
        ("add.u31 %r1, %r2, %r3;", Unsupported, 1, "`add.u31`"),
        ("ld.global.frob.u32 %r1, [%rd1];", Unsupported, 1, "modifier `.frob`"),
        ("tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [s, {%f5,%f6}];", Unsupported, 1, "`tex.2d.v4.f32.f32`"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 128;", Unsupported, 1, "tcgen05.alloc"),
        ("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r1}, {%r1}, {%r1}, {%r1};", Unsupported, 1, "m16n8k64"),
        (
            "wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;",
            Unsupported,
            1,
            "m64n12k16",
        ),
        ("cvt.rs.f16x2.f32 %r1, %f1, %f2, %r2;", Unsupported, 1, "cvt.rs"),
        ("cvt.f16.f32.f64 %h1, %f1;", Unsupported, 1, "cvt.f16.f32.f64"),
        ("atom.global.add.s64 %rd1, [%rd2], %rd3;", Unsupported, 1, "atom.global.add.s64"),
        ("setp.lt.b32 %p1, %r1, %r2;", Unsupported, 1, "setp.lt.b32"),
        ("fence.acq_rel.frob;", Unsupported, 1, "fence.acq_rel.frob"),
        ("call rec;", Unsupported, 15, "recursion through `rec`"),
        ("call nowhere;", Unsupported, 1, "function `nowhere` has no body"),
        ("add.u32 %r1, %r2;", Resolve, 1, "2 operands given, 3 expected"),
        ("add.u32 %r1, %r2, %rd3;", Resolve, 19, "`%rd3` is declared .b64"),
        ("add.u32 %r1, %r2, %r33;", Resolve, 19, "`%r33` is not declared"),
        ("mov.u32 %r1, %frob;", Resolve, 14, "`%frob` is neither declared"),
        ("add.f32 %f1, %f2, {%f3};", Resolve, 19, "expected a register or a literal"),
        ("bra NOWHERE;", Resolve, 5, "label `NOWHERE` is not defined here"),
        ("{ L: ret; } bra L;", Resolve, 17, "label `L` is not defined here"),
        ("L: L: ret;", Resolve, 4, "label `L` is defined twice"),
        ("@%r1 ret;", Resolve, 1, "`%r1` is not a predicate"),
        ("ld.shared.u32 %r1, %r2;", Resolve, 20, "expected an address in brackets"),
        ("ld.global.v2.u32 {%r1}, [%rd1];", Resolve, 18, "1 registers given, 2 expected"),
        ("st.param.b32 [x], %r1;", Resolve, 14, "takes a parameter of a call"),
        ("setmaxnreg.inc.sync.aligned.u32 33;", Resolve, 33, "multiple of 8"),
        ("cp.async.cg.shared.global [%r1], [%rd1], 8;", Resolve, 42, "copy size"),
        ("wgmma.wait_group.sync.aligned 9;", Resolve, 31, "0 to 7"),
        ("mov.b64 {%r1, %r2, %r3}, %rd1;", Unsupported, 1, "mov.b64"),
    ] {
        let list = load(body);
        // A recursion is found inside the function, above the kernel.
        let ok = list.first().is_some_and(|(line, at, message, k)| {
            (*line == 1 || body.starts_with("call rec")) && (*k, *at) == (kind, column) && message.contains(part)
        });
        if !ok {
            wrong.push(format!("{body}: {list:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn all_errors_are_listed() {
    let list = load("add.u32 %r1, %r2, %r33;\nadd.u32 %r1, %r2, %r3;\nfrob;\nbra X;");
    let lines: Vec<u32> = list.iter().map(|e| e.0).collect();
    assert_eq!(lines, [1, 3, 4], "{list:?}");
}
