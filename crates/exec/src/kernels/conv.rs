//! Causal depthwise convolution over a window of earlier inputs.
//!
//! `y[t, c]` starts from 0 and takes `fma(tap[c, i], input, y)` for `i` ascending; the last tap multiplies row `t`.

use super::simd::{Kernel, LANES, Real, Simd, load_lanes, store_lanes};

/// Taps `[channels, taps]` held as `[taps, channels]`.
#[derive(Clone, Debug)]
pub struct Taps<T> {
    data: Vec<T>,
    channels: usize,
}

impl<T: Real> Taps<T> {
    /// From row-major `[channels, taps]`, newest input last.
    ///
    /// # Panics
    /// If `channels` is 0 or does not divide the length.
    #[must_use]
    pub fn new(taps: &[T], channels: usize) -> Self {
        assert!(channels > 0 && taps.len().is_multiple_of(channels), "taps are not [channels, taps]");
        let width = taps.len() / channels;
        let data = (0..width).flat_map(|i| (0..channels).map(move |c| taps[c * width + i])).collect();
        Self { data, channels }
    }

    /// Taps of a channel.
    #[must_use]
    pub fn width(&self) -> usize {
        self.data.len() / self.channels
    }

    /// Tap `i` of a channel.
    ///
    /// # Panics
    /// If there is no such tap.
    #[must_use]
    pub fn at(&self, channel: usize, i: usize) -> T {
        self.data[i * self.channels + channel]
    }

    /// Channels.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }
}

/// Convolves rows `x` `[rows, channels]` that follow the inputs `window` `[taps - 1, channels]`, oldest first, into `y`
/// of the shape of `x`.
///
/// # Panics
/// If shapes disagree.
pub fn causal_conv<T: Real>(taps: &Taps<T>, window: &[T], x: &[T], y: &mut [T]) {
    let earlier = taps.width().saturating_sub(1) * taps.channels;
    assert!(x.len().is_multiple_of(taps.channels) && x.len() == y.len(), "x and y are not [rows, channels]");
    assert_eq!(window.len(), earlier, "window is not [taps - 1, channels]");
    T::dispatch(Conv { taps, window, x, y });
}

/// The window after the first `rows` rows of `x`: the last `taps - 1` inputs of `window` followed by those rows.
///
/// # Panics
/// If shapes disagree or `x` has fewer rows.
pub fn window_after<T: Real>(taps: &Taps<T>, window: &[T], x: &[T], rows: usize, next: &mut [T]) {
    let earlier = taps.width().saturating_sub(1) * taps.channels;
    let new = rows * taps.channels;
    assert!(window.len() == earlier && next.len() == earlier, "window is not [taps - 1, channels]");
    assert!(new <= x.len(), "more rows than x holds");
    let kept = earlier.saturating_sub(new);
    next[..kept].copy_from_slice(&window[earlier - kept..]);
    next[kept..].copy_from_slice(&x[new - (earlier - kept)..new]);
}

struct Conv<'a, T> {
    taps: &'a Taps<T>,
    window: &'a [T],
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Kernel<T> for Conv<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        let channels = self.taps.channels;
        let width = self.taps.width();
        for (t, y) in self.y.chunks_exact_mut(channels).enumerate() {
            for c in (0..channels).step_by(LANES) {
                let mut sum = s.splat(T::ZERO);
                for i in 0..width {
                    let row = t + i;
                    let input = if row + 1 < width {
                        &self.window[row * channels..][..channels]
                    } else {
                        &self.x[(row + 1 - width) * channels..][..channels]
                    };
                    let tap = load_lanes(s, &self.taps.data[i * channels..][..channels], c, T::ZERO);
                    sum = s.fma(tap, load_lanes(s, input, c, T::ZERO), sum);
                }
                store_lanes(s, y, c, sum);
            }
        }
    }
}
