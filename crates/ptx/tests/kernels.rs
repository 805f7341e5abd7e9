//! Kernels compiled by NVRTC against references in f64, with every check on: right results and no findings.

mod common;
use common::*;
use spinec_ptx::{Options, Report};

fn clean(what: &str, r: &Report) {
    assert!(r.findings.is_empty(), "{what}: {}", r.findings.iter().map(|f| format!("\n{f}")).collect::<String>());
}

/// Runs a case for an architecture with checks, and without; both must give the reference result.
fn check(file: &str, make: impl Fn() -> Case) {
    let c = make();
    let p = load(file, c.entry);
    let r = c.run(&p, Options::default());
    clean(file, &r);
    (c.verify)(&c.mem, &r);
    for id in c.mem.ids() {
        assert_eq!(c.mem.unwritten(id), 0, "{file}: {}", c.mem.name(id));
    }
    let c = make();
    let r = c.run(&p, Options::unchecked());
    clean(file, &r);
    (c.verify)(&c.mem, &r);
    // Several threads change nothing.
    let c = make();
    let r = c.run(&p, Options { threads: 3, ..Options::default() });
    clean(file, &r);
    (c.verify)(&c.mem, &r);
}

fn all(name: &str, make: impl Fn() -> Case) {
    for arch in ["sm_80", "sm_90a", "sm_100a"] {
        check(&format!("{name}.{arch}.ptx"), &make);
    }
}

#[test]
fn rmsnorm_rows() {
    all("rmsnorm", || rmsnorm(5, 4096));
    all("rmsnorm", || rmsnorm(3, 1000));
}

#[test]
fn gemm_by_mma() {
    all("gemm_mma", || gemm_mma(200, 264, 136));
}

#[test]
fn gemm_by_wgmma() {
    check("gemm_wgmma.sm_90a.ptx", || gemm_wgmma(200, 264, 200));
    check("gemm_wgmma.sm_90a.ptx", || gemm_wgmma(72, 136, 520));
}

#[test]
fn router_topk() {
    all("topk", || topk(20, 200, 8));
    all("topk", || topk(7, 256, 5));
}

#[test]
fn split_attention() {
    for arch in ["sm_80", "sm_90a", "sm_100a"] {
        let file = format!("attn.{arch}.ptx");
        let a = attention(&[37, 100, 1]);
        let r = a.split.run(&load(&file, "attn_split"), Options::default());
        clean(&file, &r);
        let r = load(&file, "attn_merge").run(&a.split.mem, &a.merge).expect("launches");
        clean(&file, &r);
        (a.split.verify)(&a.split.mem, &r);
    }
}

#[test]
fn delta_rule() {
    all("gdn", || gdn(3));
}

#[test]
fn sampling() {
    all("sample", || sample(3, 5000));
}

#[test]
fn quantisation() {
    all("fp8quant", || fp8quant(50));
}

#[test]
fn local_memory_calls_and_printf() {
    all("misc", || misc(100));
}

#[test]
fn ticket_of_the_last_block() {
    all("lastblock", || lastblock(5000, 13));
}

#[test]
fn transposition() {
    all("transpose", || transpose(70, 100));
}

#[test]
fn tensor_copies_both_ways() {
    check("tmastore.sm_90a.ptx", || tmastore(72, 136));
}

#[test]
fn clusters() {
    check("cluster.sm_90a.ptx", || cluster(3, 300));
}
