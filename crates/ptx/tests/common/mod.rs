//! What the tests share: stored PTX, random data, reference values and launches of the test kernels.
#![allow(dead_code)]

use spinec_ptx::{Access, Arg, BufferId, Launch, Memory, Options, Program, Report, TensorMap, TensorType, parse};
use std::path::PathBuf;

pub fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The kernel `entry` of a stored PTX file.
pub fn load(file: &str, entry: &str) -> Program {
    let text = std::fs::read_to_string(data(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let module = parse(&text).unwrap_or_else(|e| panic!("{file}:{e}"));
    Program::load(&module, entry).unwrap_or_else(|e| panic!("{file}:{}", e[0]))
}

/// xorshift64*: small, seeded, the same everywhere.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform().max(1e-300), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
    pub fn bf16(&mut self, n: usize) -> Vec<u16> {
        (0..n).map(|_| half::bf16::from_f64(self.normal()).to_bits()).collect()
    }
    pub fn f32(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal() as f32).collect()
    }
}

pub fn bf(v: u16) -> f64 {
    f64::from(half::bf16::from_bits(v).to_f32())
}

pub trait Bytes {
    fn bytes(&self) -> Vec<u8>;
}
macro_rules! bytes {
    ($($t:ty),*) => { $(impl Bytes for [$t] {
        fn bytes(&self) -> Vec<u8> {
            self.iter().flat_map(|v| v.to_le_bytes()).collect()
        }
    })* };
}
bytes!(u8, u16, u32, u64, i32, f32, f64);

pub fn f32s(b: &[u8]) -> Vec<f32> {
    b.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}
pub fn u32s(b: &[u8]) -> Vec<u32> {
    b.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}
pub fn bfs(b: &[u8]) -> Vec<f64> {
    b.chunks_exact(2).map(|c| bf(u16::from_le_bytes([c[0], c[1]]))).collect()
}

/// ||got - want|| / ||want||, NaN when anything is NaN.
pub fn rel(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let d: f64 = got.iter().zip(want).map(|(a, b)| (a - b) * (a - b)).sum();
    let n: f64 = want.iter().map(|b| b * b).sum();
    (d / n.max(1e-300)).sqrt()
}

pub fn close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    let r = rel(got, want);
    assert!(r <= tolerance, "{what}: relative error {r} exceeds {tolerance}");
}

/// Checks the outputs of a launch.
pub type Verify = Box<dyn Fn(&Memory, &Report)>;

/// One prepared launch of a test kernel, with what its outputs must be.
pub struct Case {
    pub entry: &'static str,
    pub mem: Memory,
    pub launch: Launch,
    pub verify: Verify,
}

impl Case {
    pub fn run(&self, p: &Program, options: Options) -> Report {
        let launch = self.launch.clone().options(options);
        p.run(&self.mem, &launch).unwrap_or_else(|e| panic!("{}: {e}", self.entry))
    }
}

fn case(entry: &'static str, mem: Memory, launch: Launch, verify: impl Fn(&Memory, &Report) + 'static) -> Case {
    Case { entry, mem, launch, verify: Box::new(verify) }
}

pub fn rmsnorm(rows: usize, n: usize) -> Case {
    let mut r = Rng(1);
    let (x, w) = (r.bf16(rows * n), r.bf16(n));
    let mut m = Memory::new();
    let ids = [m.add("x", &x.bytes(), Access::In), m.add("w", &w.bytes(), Access::In)];
    let y = m.add_output("y", rows * n * 2);
    let launch = Launch::new([rows as u32, 1, 1], [256, 1, 1])
        .arg(ids[0])
        .arg(ids[1])
        .arg(y)
        .arg(Arg::I32(n as i32))
        .arg(Arg::F32(1e-6));
    case("rmsnorm", m, launch, move |m, _| {
        let mut want = Vec::new();
        for row in x.chunks(n) {
            let s: f64 = row.iter().map(|v| bf(*v) * bf(*v)).sum::<f64>() / n as f64;
            want.extend(row.iter().zip(&w).map(|(v, g)| bf(*v) / (s + 1e-6).sqrt() * bf(*g)));
        }
        close("rmsnorm", &bfs(&m.bytes(y)), &want, 5e-3);
    })
}

fn product(a: &[u16], b: &[u16], m: usize, n: usize, k: usize) -> Vec<f64> {
    let (a, b): (Vec<f64>, Vec<f64>) = (a.iter().map(|v| bf(*v)).collect(), b.iter().map(|v| bf(*v)).collect());
    let mut c = Vec::with_capacity(m * n);
    for row in a.chunks(k) {
        c.extend(b.chunks(k).map(|col| row.iter().zip(col).map(|(x, y)| x * y).sum::<f64>()));
    }
    assert_eq!(c.len(), m * n);
    c
}

pub fn gemm_mma(m: usize, n: usize, k: usize) -> Case {
    let mut r = Rng(2);
    let (a, b) = (r.bf16(m * k), r.bf16(n * k));
    let mut mem = Memory::new();
    let (ia, ib) = (mem.add("A", &a.bytes(), Access::In), mem.add("B", &b.bytes(), Access::In));
    let c = mem.add_output("C", m * n * 2);
    let launch = Launch::new([n.div_ceil(128) as u32, m.div_ceil(128) as u32, 1], [256, 1, 1])
        .shared(3 * 2 * 128 * 32 * 2)
        .arg(ia)
        .arg(ib)
        .arg(c)
        .arg(Arg::I32(m as i32))
        .arg(Arg::I32(n as i32))
        .arg(Arg::I32(k as i32));
    case("gemm_mma", mem, launch, move |mem, _| {
        close("gemm_mma", &bfs(&mem.bytes(c)), &product(&a, &b, m, n, k), 5e-3);
    })
}

pub fn matrix_map(mem: &Memory, id: BufferId, rows: usize, cols: usize, box_cols: u32, box_rows: u32) -> TensorMap {
    TensorMap {
        ty: TensorType::BF16,
        base: mem.address(id, 0),
        dims: vec![cols as u64, rows as u64],
        strides: vec![2 * cols as u64],
        box_dims: vec![box_cols, box_rows],
        element_strides: vec![],
        swizzle: 128,
        nan_fill: false,
    }
}

pub fn gemm_wgmma(m: usize, n: usize, k: usize) -> Case {
    let mut r = Rng(3);
    let (a, b) = (r.bf16(m * k), r.bf16(n * k));
    let mut mem = Memory::new();
    let (ia, ib) = (mem.add("A", &a.bytes(), Access::In), mem.add("B", &b.bytes(), Access::In));
    let c = mem.add_output("C", m * n * 2);
    let launch = Launch::new([n.div_ceil(128) as u32, m.div_ceil(128) as u32, 1], [384, 1, 1])
        .shared(4 * 2 * 128 * 64 * 2)
        .arg(Arg::Map(matrix_map(&mem, ia, m, k, 64, 128)))
        .arg(Arg::Map(matrix_map(&mem, ib, n, k, 64, 128)))
        .arg(c)
        .arg(Arg::I32(m as i32))
        .arg(Arg::I32(n as i32))
        .arg(Arg::I32(k as i32));
    case("gemm_wgmma", mem, launch, move |mem, _| {
        close("gemm_wgmma", &bfs(&mem.bytes(c)), &product(&a, &b, m, n, k), 5e-3);
    })
}

pub fn topk(tokens: usize, experts: usize, k: usize) -> Case {
    let mut r = Rng(4);
    let logits = r.f32(tokens * experts);
    let bias: Vec<f32> = r.f32(experts).iter().map(|b| b * 0.1).collect();
    let mut m = Memory::new();
    let (l, b) = (m.add("logits", &logits.bytes(), Access::In), m.add("bias", &bias.bytes(), Access::In));
    let (idx, wts) = (m.add_output("index", tokens * k * 4), m.add_output("weight", tokens * k * 4));
    let counts = m.add("counts", &vec![0u8; experts * 4], Access::InOut);
    let launch = Launch::new([tokens as u32, 1, 1], [256, 1, 1])
        .arg(l)
        .arg(b)
        .arg(idx)
        .arg(wts)
        .arg(counts)
        .arg(Arg::I32(experts as i32))
        .arg(Arg::I32(k as i32));
    case("topk", m, launch, move |m, _| {
        let (got, weights) = (u32s(&m.bytes(idx)), f32s(&m.bytes(wts)));
        let mut counted = vec![0u32; experts];
        let mut want_w = Vec::new();
        for t in 0..tokens {
            let s: Vec<f64> =
                logits[t * experts..][..experts].iter().map(|l| 1.0 / (1.0 + (-f64::from(*l)).exp())).collect();
            let mut order: Vec<usize> = (0..experts).collect();
            order.sort_by(|x, y| (s[*y] + f64::from(bias[*y])).total_cmp(&(s[*x] + f64::from(bias[*x]))));
            let total: f64 = order[..k].iter().map(|e| s[*e]).sum();
            for (j, e) in order[..k].iter().enumerate() {
                assert_eq!(got[t * k + j], *e as u32, "token {t} choice {j}");
                counted[*e] += 1;
                want_w.push(s[*e] / total);
            }
        }
        assert_eq!(u32s(&m.bytes(counts)), counted);
        close("weights", &weights.iter().map(|w| f64::from(*w)).collect::<Vec<_>>(), &want_w, 1e-5);
    })
}

pub struct Attention {
    pub split: Case,
    pub merge: Launch,
}

pub fn attention(p_lens: &[i32]) -> Attention {
    let (heads, group, d, pages, chunk, splits) = (2usize, 3usize, 128usize, 8usize, 32usize, 4usize);
    let (batch, all) = (p_lens.len(), 2 * 3);
    let mut r = Rng(5);
    let total = batch * pages;
    let mut page: Vec<i32> = (0..total as i32).collect();
    for k in (1..total).rev() {
        page.swap(k, r.below(k as u64 + 1) as usize);
    }
    let q = r.bf16(batch * all * d);
    let (kc, vc) = (r.bf16(total * 16 * heads * d), r.bf16(total * 16 * heads * d));
    let lens = p_lens.to_vec();
    let mut m = Memory::new();
    let ids = [
        m.add("q", &q.bytes(), Access::In),
        m.add("k", &kc.bytes(), Access::In),
        m.add("v", &vc.bytes(), Access::In),
        m.add("page", &page.bytes(), Access::In),
        m.add("lens", &lens.bytes(), Access::In),
    ];
    let rows = batch * all;
    let po = m.add_output("po", rows * splits * d * 4);
    let (pm, pl) = (m.add_output("pm", rows * splits * 4), m.add_output("pl", rows * splits * 4));
    let out = m.add_output("out", rows * d * 2);
    let mut launch = Launch::new([splits as u32, heads as u32, batch as u32], [32 * group as u32, 1, 1]);
    for id in ids.into_iter().chain([po, pm, pl]) {
        launch = launch.arg(id);
    }
    let scale = 1.0 / (d as f64).sqrt();
    for v in [heads, group, pages, chunk] {
        launch = launch.arg(Arg::I32(v as i32));
    }
    let launch = launch.arg(Arg::F32(scale as f32));
    let merge = Launch::new([rows as u32, 1, 1], [d as u32, 1, 1])
        .arg(po)
        .arg(pm)
        .arg(pl)
        .arg(out)
        .arg(Arg::I32(splits as i32));
    let split = case("attn_split", m, launch, move |m, _| {
        let mut want = Vec::new();
        for b in 0..batch {
            for h in 0..all {
                let at = |t: usize| ((page[b * pages + t / 16] as usize * 16 + t % 16) * heads + h / group) * d;
                let n = lens[b] as usize;
                let s: Vec<f64> = (0..n)
                    .map(|t| (0..d).map(|c| bf(q[(b * all + h) * d + c]) * bf(kc[at(t) + c])).sum::<f64>() * scale)
                    .collect();
                let top = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let p: Vec<f64> = s.iter().map(|v| (v - top).exp()).collect();
                let total: f64 = p.iter().sum();
                want.extend((0..d).map(|c| (0..n).map(|t| p[t] * bf(vc[at(t) + c])).sum::<f64>() / total));
            }
        }
        close("attention", &bfs(&m.bytes(out)), &want, 5e-3);
    });
    Attention { split, merge }
}

pub fn gdn(steps: usize) -> Case {
    let (hk, hv, d) = (1usize, 2usize, 128usize);
    let mut r = Rng(6);
    let (q, k, v) = (r.bf16(steps * hk * d), r.bf16(steps * hk * d), r.bf16(steps * hv * d));
    let (a, b) = (r.f32(steps * hv), r.f32(steps * hv));
    let alog: Vec<f32> = r.f32(hv).iter().map(|x| x * 0.3).collect();
    let dt = r.f32(hv);
    let state: Vec<f32> = r.f32(hv * d * d).iter().map(|x| x * 0.1).collect();
    let mut m = Memory::new();
    let mut launch = Launch::new([hv as u32, 1, 1], [128, 1, 1]);
    for (name, bytes) in [
        ("q", q.bytes()),
        ("k", k.bytes()),
        ("v", v.bytes()),
        ("a", a.bytes()),
        ("b", b.bytes()),
        ("A_log", alog.bytes()),
        ("dt", dt.bytes()),
    ] {
        launch = launch.arg(m.add(name, &bytes, Access::In));
    }
    let st = m.add("state", &state.bytes(), Access::InOut);
    let out = m.add_output("o", steps * hv * d * 2);
    let launch = launch.arg(st).arg(out).arg(Arg::I32(steps as i32)).arg(Arg::I32(hk as i32)).arg(Arg::I32(hv as i32));
    case("gdn", m, launch, move |m, _| {
        let mut s: Vec<f64> = state.iter().map(|x| f64::from(*x)).collect();
        let mut want = Vec::new();
        for t in 0..steps {
            for h in 0..hv {
                let unit = |x: &[u16], scale: f64| -> Vec<f64> {
                    let n: f64 = x.iter().map(|v| bf(*v) * bf(*v)).sum::<f64>() + 1e-6;
                    x.iter().map(|v| bf(*v) / n.sqrt() * scale).collect()
                };
                let qq = unit(&q[t * d..][..d], 1.0 / (d as f64).sqrt());
                let kk = unit(&k[t * d..][..d], 1.0);
                let g = (-(f64::from(alog[h]).exp()) * (1.0 + f64::from(a[t * hv + h] + dt[h]).exp()).ln()).exp();
                let beta = 1.0 / (1.0 + (-f64::from(b[t * hv + h])).exp());
                let s = &mut s[h * d * d..][..d * d];
                s.iter_mut().for_each(|x| *x *= g);
                for c in 0..d {
                    let kv: f64 = (0..d).map(|i| kk[i] * s[i * d + c]).sum();
                    let delta = (bf(v[(t * hv + h) * d + c]) - kv) * beta;
                    for i in 0..d {
                        s[i * d + c] += kk[i] * delta;
                    }
                    want.push((0..d).map(|i| qq[i] * s[i * d + c]).sum());
                }
            }
        }
        close("gdn output", &bfs(&m.bytes(out)), &want, 5e-3);
        let got: Vec<f64> = f32s(&m.bytes(st)).iter().map(|x| f64::from(*x)).collect();
        close("gdn state", &got, &s, 1e-5);
    })
}

fn philox(seed: u64, c0: u32, c1: u32) -> (u32, u32) {
    let (mut k0, mut k1, mut x) = (seed as u32, (seed >> 32) as u32, [c0, c1, 0, 0]);
    for _ in 0..10 {
        let (p, q) = (0xD251_1F53u64 * u64::from(x[0]), 0xCD9E_8D57u64 * u64::from(x[2]));
        x = [(q >> 32) as u32 ^ x[1] ^ k0, q as u32, (p >> 32) as u32 ^ x[3] ^ k1, p as u32];
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    (x[0], x[1])
}

pub fn sample(rows: usize, v: usize) -> Case {
    let mut r = Rng(7);
    let logits: Vec<f32> = r.f32(rows * v).iter().map(|x| 3.0 * x).collect();
    let (seed, step, temperature) = (0x0123_4567_89ab_cdefu64, 7u32, 0.8f64);
    let mut m = Memory::new();
    let l = m.add("logits", &logits.bytes(), Access::In);
    let out = m.add_output("out", rows * 4);
    let launch = Launch::new([rows as u32, 1, 1], [1024, 1, 1])
        .arg(l)
        .arg(out)
        .arg(Arg::F64(temperature))
        .arg(Arg::U64(seed))
        .arg(Arg::U32(step))
        .arg(Arg::I32(v as i32));
    case("sample", m, launch, move |m, _| {
        let mut want = Vec::new();
        for (row, l) in logits.chunks(v).enumerate() {
            let top = l.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let p: Vec<f64> = l.iter().map(|x| ((f64::from(*x) - f64::from(top)) / temperature).exp()).collect();
            let (a, b) = philox(seed, step, row as u32);
            let u = (((u64::from(a) << 32) | u64::from(b)) >> 11) as f64 / (1u64 << 53) as f64;
            let target = u * p.iter().sum::<f64>();
            let mut sum = 0.0;
            want.push(p.iter().position(|x| {
                sum += x;
                sum > target
            }));
        }
        let got: Vec<_> = u32s(&m.bytes(out)).iter().map(|t| Some(*t as usize)).collect();
        assert_eq!(got, want);
    })
}

pub fn fp8quant(groups: usize) -> Case {
    let mut r = Rng(8);
    let x: Vec<u16> = (0..groups)
        .flat_map(|_| {
            let scale = r.normal().exp();
            (0..128).map(|_| half::bf16::from_f64(r.normal() * scale).to_bits()).collect::<Vec<_>>()
        })
        .collect();
    let mut m = Memory::new();
    let ix = m.add("x", &x.bytes(), Access::In);
    let (y, sc) = (m.add_output("y", groups * 128), m.add_output("scale", groups * 4));
    let launch =
        Launch::new([groups.div_ceil(4) as u32, 1, 1], [128, 1, 1]).arg(ix).arg(y).arg(sc).arg(Arg::I32(groups as i32));
    case("fp8quant", m, launch, move |m, _| {
        let (got, scales) = (m.bytes(y), f32s(&m.bytes(sc)));
        // Values of e4m3 by enumeration, nearest with ties to the even code.
        let code = |v: f32| -> u8 {
            let value = |c: u8| {
                let (e, f) = (i32::from(c >> 3), f64::from(c & 7));
                if e == 0 { f / 8.0 * 2f64.powi(-6) } else { (1.0 + f / 8.0) * 2f64.powi(e - 7) }
            };
            let a = f64::from(v.abs());
            let best = (0..0x7fu8)
                .min_by(|p, q| {
                    let (dp, dq) = ((value(*p) - a).abs(), (value(*q) - a).abs());
                    dp.total_cmp(&dq).then((p & 1).cmp(&(q & 1)))
                })
                .unwrap_or(0);
            best | if v.is_sign_negative() { 0x80 } else { 0 }
        };
        for (g, row) in x.chunks(128).enumerate() {
            let top = row.iter().map(|v| bf(*v).abs() as f32).fold(0f32, f32::max).max(1e-10);
            assert_eq!(scales[g], top / 448.0);
            for (c, v) in row.iter().enumerate() {
                let want = code(bf(*v) as f32 * (1.0 / scales[g]));
                assert_eq!(got[g * 128 + c], want, "group {g} element {c}");
            }
        }
    })
}

pub fn misc(n: usize) -> Case {
    let mut r = Rng(9);
    let x = r.f32(n);
    let sel: Vec<i32> = (0..n).map(|_| r.below(64) as i32).collect();
    let mut m = Memory::new();
    let ix = m.add("x", &x.bytes(), Access::In);
    let y = m.add_output("y", n * 4);
    let is = m.add("sel", &sel.bytes(), Access::In);
    let launch = Launch::new([n.div_ceil(32) as u32, 1, 1], [32, 1, 1]).arg(ix).arg(y).arg(is).arg(Arg::I32(n as i32));
    case("misc", m, launch, move |m, report| {
        let mut want = Vec::new();
        for i in 0..n {
            let buf: Vec<f32> = (0..16).map(|j| x[(i + j) % n] * j as f32).collect();
            let s = sel[i] as usize;
            want.push(match s & 7 {
                0 => f64::from(buf[s & 15]),
                1 => buf.iter().rev().fold(0.0, |r, c| r * 0.5 + f64::from(*c)),
                2 => f64::from(buf[3] * 1e5).sin(),
                3 => f64::from(buf[2]).abs().powf(1.5),
                4 => f64::from(buf[s >> 3 & 15]),
                5 => erf(f64::from(buf[1])),
                6 => f64::from(buf[1]).tanh(),
                _ => -1.0,
            });
        }
        let got: Vec<f64> = f32s(&m.bytes(y)).iter().map(|v| f64::from(*v)).collect();
        close("misc", &got, &want, 1e-5);
        assert_eq!(report.output, format!("thread 3 of {n}: {:.3} ok\n", f32s(&m.bytes(y))[3]));
    })
}

/// Error function by its series.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for k in 1..200 {
        term *= -x * x / f64::from(k);
        sum += term / f64::from(2 * k + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

pub fn lastblock(n: usize, blocks: u32) -> Case {
    let mut r = Rng(10);
    let x = r.f32(n);
    let mut m = Memory::new();
    let ix = m.add("x", &x.bytes(), Access::In);
    let part = m.add_output("part", blocks as usize * 4);
    let out = m.add_output("out", 4);
    let ticket = m.add("ticket", &[0; 4], Access::InOut);
    let launch =
        Launch::new([blocks, 1, 1], [128, 1, 1]).arg(ix).arg(part).arg(out).arg(ticket).arg(Arg::I32(n as i32));
    case("lastblock", m, launch, move |m, _| {
        let want: f64 = x.iter().map(|v| f64::from(*v)).sum();
        assert!((f64::from(f32s(&m.bytes(out))[0]) - want).abs() < 1e-2);
        assert_eq!(u32s(&m.bytes(ticket)), [blocks]);
    })
}

pub fn transpose(rows: usize, cols: usize) -> Case {
    let x = Rng(11).f32(rows * cols);
    let mut m = Memory::new();
    let ix = m.add("x", &x.bytes(), Access::In);
    let y = m.add_output("y", rows * cols * 4);
    let launch = Launch::new([cols.div_ceil(32) as u32, rows.div_ceil(32) as u32, 1], [256, 1, 1])
        .arg(ix)
        .arg(y)
        .arg(Arg::I32(rows as i32))
        .arg(Arg::I32(cols as i32));
    case("transpose", m, launch, move |m, _| {
        let got = f32s(&m.bytes(y));
        for r in 0..rows {
            for c in 0..cols {
                assert_eq!(got[c * rows + r], x[r * cols + c]);
            }
        }
    })
}

pub fn tmastore(rows: usize, cols: usize) -> Case {
    let x = Rng(12).bf16(rows * cols);
    let mut m = Memory::new();
    let ix = m.add("x", &x.bytes(), Access::In);
    let y = m.add_output("y", rows * cols * 2);
    let (a, b) = (matrix_map(&m, ix, rows, cols, 64, 32), matrix_map(&m, y, rows, cols, 64, 32));
    let launch = Launch::new([cols.div_ceil(64) as u32, rows.div_ceil(32) as u32, 1], [128, 1, 1])
        .arg(Arg::Map(a))
        .arg(Arg::Map(b));
    case("tmastore", m, launch, move |m, _| {
        let want: Vec<f64> = x.iter().map(|v| 2.0 * bf(*v)).collect();
        assert_eq!(bfs(&m.bytes(y)), want);
    })
}

pub fn cluster(rows: usize, half: usize) -> Case {
    let mut r = Rng(13);
    let x = r.f32(rows * 2 * half);
    let factor = r.f32(rows * 4);
    let mut m = Memory::new();
    let (ix, f) = (m.add("x", &x.bytes(), Access::In), m.add("factor", &factor.bytes(), Access::In));
    let y = m.add_output("y", rows * 2 * half * 4);
    let launch = Launch::new([2 * rows as u32, 1, 1], [128, 1, 1]).arg(ix).arg(f).arg(y).arg(Arg::I32(half as i32));
    case("cluster", m, launch, move |m, _| {
        let mut want = Vec::new();
        for (k, row) in x.chunks(2 * half).enumerate() {
            let s: f64 = row.iter().map(|v| f64::from(*v)).sum::<f64>() * f64::from(factor[4 * k]);
            want.extend(row.iter().map(|v| f64::from(*v) * s));
        }
        let got: Vec<f64> = f32s(&m.bytes(y)).iter().map(|v| f64::from(*v)).collect();
        close("cluster", &got, &want, 1e-5);
    })
}
