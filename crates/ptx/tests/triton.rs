//! PTX from Triton, a code generator this project did not write: it agrees with the interpreter's reading of fragment
//! layouts, descriptors and swizzles, and raises no finding.

mod common;
use common::*;
use spinec_ptx::{Access, Arg, Launch, Memory, Options, Program};

/// Runs with the extra (scratch) parameters Triton appends set to zero.
fn run(file: &str, entry: &str, mem: &Memory, mut launch: Launch) -> Program {
    let p = load(&format!("triton/{file}"), entry);
    while launch.args.len() < p.params().len() {
        launch = launch.arg(Arg::U64(0));
    }
    for options in [Options::default(), Options::unchecked()] {
        let r = p.run(mem, &launch.clone().options(options)).unwrap_or_else(|e| panic!("{file}: {e}"));
        let list: String = r.findings.iter().map(|f| format!("\n{f}")).collect();
        assert!(r.is_clean(), "{file}:{list}");
    }
    p
}

#[test]
fn rms_norm() {
    for cc in [80, 90] {
        let (rows, n) = (5, 2000);
        let mut r = Rng(21);
        let (x, w) = (r.bf16(rows * n), r.bf16(n));
        let mut m = Memory::new();
        let (ix, iw) = (m.add("x", &x.bytes(), Access::In), m.add("w", &w.bytes(), Access::In));
        let y = m.add_output("y", rows * n * 2);
        let launch = Launch::new([rows as u32, 1, 1], [128, 1, 1])
            .shared(16)
            .arg(ix)
            .arg(iw)
            .arg(y)
            .arg(Arg::I32(n as i32))
            .arg(Arg::F32(1e-6));
        run(&format!("rms.sm_{cc}.ptx"), "rms", &m, launch);
        let mut want = Vec::new();
        for row in x.chunks(n) {
            let s: f64 = row.iter().map(|v| bf(*v) * bf(*v)).sum::<f64>() / n as f64;
            want.extend(row.iter().zip(&w).map(|(v, g)| bf(*v) / (s + 1e-6).sqrt() * bf(*g)));
        }
        close("rms", &bfs(&m.bytes(y)), &want, 5e-3);
    }
}

#[test]
fn gemm_by_mma_and_by_wgmma() {
    for (cc, shared) in [(80, 65536), (90, 98304)] {
        let (rows, cols, k) = (176, 272, 208);
        let mut r = Rng(22);
        let (a, b) = (r.bf16(rows * k), r.bf16(cols * k));
        let mut m = Memory::new();
        let (ia, ib) = (m.add("a", &a.bytes(), Access::In), m.add("b", &b.bytes(), Access::In));
        let c = m.add_output("c", rows * cols * 2);
        let launch = Launch::new([2, 3, 1], [256, 1, 1])
            .shared(shared)
            .arg(ia)
            .arg(ib)
            .arg(c)
            .arg(Arg::I32(rows as i32))
            .arg(Arg::I32(cols as i32))
            .arg(Arg::I32(k as i32));
        run(&format!("gemm.sm_{cc}.ptx"), "gemm", &m, launch);
        let mut want = Vec::new();
        for i in 0..rows {
            want.extend((0..cols).map(|j| (0..k).map(|t| bf(a[i * k + t]) * bf(b[j * k + t])).sum::<f64>()));
        }
        close("gemm", &bfs(&m.bytes(c)), &want, 5e-3);
    }
}

#[test]
fn flash_attention() {
    for (cc, shared) in [(80, 90112), (90, 114688)] {
        let (heads, len, d) = (2, 160, 128);
        let mut r = Rng(23);
        let (q, k, v) = (r.bf16(heads * len * d), r.bf16(heads * len * d), r.bf16(heads * len * d));
        let mut m = Memory::new();
        let ids = [("q", &q), ("k", &k), ("v", &v)].map(|(n, x)| m.add(n, &x.bytes(), Access::In));
        let o = m.add_output("o", heads * len * d * 2);
        let scale = 1.0 / (d as f64).sqrt();
        let mut launch = Launch::new([3, heads as u32, 1], [128, 1, 1]).shared(shared);
        for id in ids {
            launch = launch.arg(id);
        }
        let launch = launch.arg(o).arg(Arg::I32(len as i32)).arg(Arg::F32((scale * std::f64::consts::LOG2_E) as f32));
        run(&format!("attn.sm_{cc}.ptx"), "attn", &m, launch);
        let mut want = Vec::new();
        for h in 0..heads {
            let at = |x: &[u16], t: usize, c: usize| bf(x[(h * len + t) * d + c]);
            for i in 0..len {
                let s: Vec<f64> =
                    (0..=i).map(|j| (0..d).map(|c| at(&q, i, c) * at(&k, j, c)).sum::<f64>() * scale).collect();
                let top = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let p: Vec<f64> = s.iter().map(|x| (x - top).exp()).collect();
                let total: f64 = p.iter().sum();
                want.extend((0..d).map(|c| (0..=i).map(|j| p[j] * at(&v, j, c)).sum::<f64>() / total));
            }
        }
        close("attention", &bfs(&m.bytes(o)), &want, 6e-3);
    }
}
