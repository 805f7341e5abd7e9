//! Shared by the kernel tests: reproducible numbers, comparisons, and every instruction set in turn.
#![allow(dead_code, reason = "each test file uses a part")]

use spinec_exec::kernels::simd::{Path, Real};

/// Numbers in -1..1, the same in every run.
pub fn numbers<T: Real>(n: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            T::from_f64((state >> 40) as f64 / f64::from(1 << 23) - 1.0)
        })
        .collect()
}

pub fn bf16(x: &[f32]) -> Vec<u16> {
    x.iter().map(|x| (x.to_bits() >> 16) as u16).collect()
}

pub fn widen(bits: &[u16]) -> Vec<f32> {
    bits.iter().map(|b| f32::from_bits(u32::from(*b) << 16)).collect()
}

/// `max |a - b| <= tolerance * max |b|`; fails on NaN.
#[track_caller]
pub fn assert_close<T: Real>(got: &[T], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().fold(0.0_f64, |m, w| m.max(w.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let error = (g.to_f64() - w).abs();
        assert!(error <= tolerance * scale, "element {i}: {g:?} against {w}, scale {scale}");
    }
}

#[track_caller]
pub fn assert_bits<T: Real>(got: &[T], want: &[T], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(g.to_f64().to_bits() == w.to_f64().to_bits(), "{what}: element {i}: {g:?} against {w:?}");
    }
}

/// What `f` gives on every instruction set of this processor, each forced in turn.
pub fn on_every_path<R>(mut f: impl FnMut() -> R) -> Vec<(Path, R)> {
    Path::ALL
        .into_iter()
        .filter_map(|path| {
            let _forced = path.force()?;
            Some((path, f()))
        })
        .collect()
}
