//! Random weights that depend on the seed and each tensor's name alone.
//!
//! Element `i` of a tensor is made from word `i % 4` of Philox block `i / 4` under key `seed` and a counter that holds
//! the block number and a hash of the name. Neither the order of the tensors nor the platform changes a value: only
//! correctly rounded operations and the pure functions of `libm` are used.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::convert::{encode_f64, is_float};
use super::write::{NewCheckpoint, TensorSpec, WriteError, WriteErrorKind, write_marked};
use crate::philox::{key_of_seed, philox4x32_10};

/// How a tensor is filled. Values are made in f64 and rounded once to the tensor's dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Normal with this mean and standard deviation.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Rows (last axis) of normal direction and unit Euclidean norm.
    UnitRows,
    /// Uniform in `[low, high)`.
    Uniform {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// The natural logarithm of a number uniform in `(low, high)`; both bounds positive.
    LogUniform {
        /// Lower bound of the number.
        low: f64,
        /// Upper bound of the number.
        high: f64,
    },
    /// The same value everywhere.
    Constant(f64),
}

/// A tensor to be invented.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthTensor {
    /// Name, type and shape; the type must be F64, F32, F16 or BF16.
    pub spec: TensorSpec,
    /// Its values.
    pub init: Init,
}

/// Metadata of invented weights, so that they are told from trained ones.
const MARK: (&str, &str) = ("spinec.synth", "1");

/// Elements made before they are handed on, unless a row is longer.
const CHUNK: usize = 1 << 14;

/// Writes a checkpoint directory with random weights.
///
/// # Errors
/// As [`write_checkpoint`](super::write_checkpoint); for a dtype that is no floating-point type; and where the directory
/// holds a checkpoint that was not written by this function.
pub fn write_synth_checkpoint(
    dir: &Path,
    config: &str,
    generation_config: Option<&str>,
    tensors: &[SynthTensor],
    seed: u64,
) -> Result<(), WriteError> {
    write_synth_checkpoint_unless(dir, config, generation_config, tensors, seed, &AtomicBool::new(false))
}

/// [`write_synth_checkpoint`], given up once `stopped` is set: nothing half written is left.
///
/// # Errors
/// As there, and an [`io::Error`] if it was stopped.
pub fn write_synth_checkpoint_unless(
    dir: &Path,
    config: &str,
    generation_config: Option<&str>,
    tensors: &[SynthTensor],
    seed: u64,
    stopped: &AtomicBool,
) -> Result<(), WriteError> {
    if let Some(t) = tensors.iter().find(|t| !is_float(t.spec.dtype)) {
        let kind = WriteErrorKind::Dtype { tensor: t.spec.name.clone(), dtype: t.spec.dtype };
        return Err(WriteError::new(dir, kind));
    }
    let specs: Vec<TensorSpec> = tensors.iter().map(|t| t.spec.clone()).collect();
    let inits: std::collections::BTreeMap<&str, Init> =
        tensors.iter().map(|t| (t.spec.name.as_str(), t.init)).collect();
    write_marked(dir, &NewCheckpoint { config, generation_config, tensors: &specs }, Some(MARK), |spec, out| {
        fill_synth(seed, spec, inits[spec.name.as_str()], &mut Unless { out, stopped })
    })
}

/// A writer that fails once it is stopped.
struct Unless<'a> {
    out: &'a mut dyn Write,
    stopped: &'a AtomicBool,
}

impl Write for Unless<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The kind `Interrupted` would be tried again.
        if self.stopped.load(Ordering::Relaxed) { Err(io::Error::other("stopped")) } else { self.out.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes the bytes of one invented tensor.
///
/// # Errors
/// `out` failed; or the dtype is no floating-point type or the shape overflows ([`io::ErrorKind::InvalidInput`]).
pub fn fill_synth(seed: u64, spec: &TensorSpec, init: Init, out: &mut dyn Write) -> io::Result<()> {
    let overflow = || io::Error::new(io::ErrorKind::InvalidInput, "the shape overflows");
    let len = spec.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).ok_or_else(overflow)?;
    let mut words = Words::new(seed, &spec.name);
    let row = spec.shape.last().copied().unwrap_or(1).max(1);
    let step = match init {
        Init::UnitRows => row * (CHUNK / row).max(1),
        _ => CHUNK,
    };
    let (mut values, mut bytes) = (Vec::with_capacity(step.min(len)), Vec::new());
    let mut done = 0;
    while done < len {
        values.clear();
        values.extend((0..step.min(len - done)).map(|_| one(init, &mut words)));
        if init == Init::UnitRows {
            values.chunks_mut(row).for_each(normalise);
        }
        bytes.clear();
        encode_f64(spec.dtype, &values, &mut bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        out.write_all(&bytes)?;
        done += values.len();
    }
    Ok(())
}

fn one(init: Init, words: &mut Words) -> f64 {
    match init {
        Init::Normal { mean, std } => mean + std * normal(open_unit(words.next())),
        Init::UnitRows => normal(open_unit(words.next())),
        Init::Uniform { low, high } => low + (high - low) * (f64::from(words.next()) * TWO_POW_MINUS_32),
        Init::LogUniform { low, high } => libm::log(low + (high - low) * open_unit(words.next())),
        Init::Constant(c) => c,
    }
}

const TWO_POW_MINUS_32: f64 = 1.0 / 4_294_967_296.0;

/// A number strictly between 0 and 1, symmetric about 1/2.
fn open_unit(word: u32) -> f64 {
    (f64::from(word) + 0.5) * TWO_POW_MINUS_32
}

fn normalise(row: &mut [f64]) {
    let norm = row.iter().map(|v| v * v).sum::<f64>().sqrt();
    if norm > 0.0 {
        row.iter_mut().for_each(|v| *v /= norm);
    }
}

/// The quantile function of the standard normal distribution, by Acklam's rational approximation (relative error below
/// 1.2e-9). `p` lies strictly between 0 and 1.
fn normal(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] =
        [7.784_695_709_041_462e-3, 3.224_671_290_700_398e-1, 2.445_134_137_142_996, 3.754_408_661_907_416, 1.0];
    const TAIL: f64 = 0.02425;
    fn horner(coefficients: &[f64], x: f64) -> f64 {
        coefficients.iter().fold(0.0, |acc, c| acc * x + c)
    }
    if (TAIL..=1.0 - TAIL).contains(&p) {
        let q = p - 0.5;
        let r = q * q;
        return horner(&A, r) * q / horner(&B, r);
    }
    let (tail, sign) = if p < 0.5 { (p, 1.0) } else { (1.0 - p, -1.0) };
    let q = (-2.0 * libm::log(tail)).sqrt();
    sign * horner(&C, q) / horner(&D, q)
}

/// The stream of random words of one tensor.
struct Words {
    key: [u32; 2],
    name: [u32; 2],
    block: u64,
    words: [u32; 4],
    used: usize,
}

impl Words {
    fn new(seed: u64, name: &str) -> Self {
        let hash = fnv1a(name.as_bytes());
        Self { key: key_of_seed(seed), name: [hash as u32, (hash >> 32) as u32], block: 0, words: [0; 4], used: 4 }
    }

    fn next(&mut self) -> u32 {
        if self.used == 4 {
            let counter = [self.block as u32, (self.block >> 32) as u32, self.name[0], self.name[1]];
            self.words = philox4x32_10(counter, self.key);
            self.block += 1;
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }
}

/// The 64-bit FNV-1a hash.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;

    use super::*;

    fn values(seed: u64, name: &str, shape: &[usize], init: Init) -> Vec<f64> {
        let spec = TensorSpec { name: name.into(), dtype: Dtype::F64, shape: shape.into() };
        let mut bytes = Vec::new();
        fill_synth(seed, &spec, init, &mut bytes).unwrap();
        bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect()
    }

    const STANDARD: Init = Init::Normal { mean: 0.0, std: 1.0 };

    #[test]
    fn known_hashes() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn known_quantiles() {
        for (p, z) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.001, -3.090_232_306_167_813),
            (1e-9, -5.997_807_015_008_182),
        ] {
            assert!((normal(p) - z).abs() < 1e-8, "{p}");
            assert!((normal(1.0 - p) + z).abs() < 1e-7, "{p}");
        }
    }

    #[test]
    fn moments_are_right() {
        let v = values(1, "w", &[200_000], Init::Normal { mean: 3.0, std: 0.5 });
        let n = v.len() as f64;
        let mean = v.iter().sum::<f64>() / n;
        let moment = |k: i32| v.iter().map(|x| ((x - mean) / 0.5).powi(k)).sum::<f64>() / n;
        assert!((mean - 3.0).abs() < 0.005, "{mean}");
        assert!((moment(2) - 1.0).abs() < 0.02 && moment(3).abs() < 0.03 && (moment(4) - 3.0).abs() < 0.1);
        let u = values(1, "w", &[100_000], Init::Uniform { low: -2.0, high: 6.0 });
        assert!(u.iter().all(|x| (-2.0..6.0).contains(x)));
        assert!((u.iter().sum::<f64>() / 100_000.0 - 2.0).abs() < 0.03);
    }

    #[test]
    fn rows_have_unit_norm_and_differ() {
        let v = values(1, "w", &[7, 3, 40_000], Init::UnitRows);
        for row in v.chunks(40_000) {
            assert!((row.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-12);
        }
        assert_ne!(v[..40_000], v[40_000..80_000]);
    }

    #[test]
    fn log_uniform_stays_in_its_bounds() {
        let v = values(1, "w", &[1000], Init::LogUniform { low: 1.0, high: 16.0 });
        assert!(v.iter().all(|x| (0.0..=16f64.ln()).contains(x)));
        assert_eq!(values(1, "w", &[2], Init::Constant(0.25)), [0.25, 0.25]);
    }

    #[test]
    fn a_value_depends_on_seed_name_and_index_alone() {
        let v = values(1, "w", &[100], STANDARD);
        assert_eq!(v, values(1, "w", &[100], STANDARD));
        assert_eq!(v[..50], values(1, "w", &[50], STANDARD)[..]);
        assert_ne!(v, values(2, "w", &[100], STANDARD));
        assert_ne!(v, values(1, "x", &[100], STANDARD));
        assert!(values(1, "w", &[3, 0], STANDARD).is_empty());
    }

    /// Frozen values: a change here changes every synthetic checkpoint.
    #[test]
    fn the_stream_is_frozen() {
        let word = |i: usize| {
            philox4x32_10([(i / 4) as u32, 0, fnv1a(b"w") as u32, (fnv1a(b"w") >> 32) as u32], [5, 0])[i % 4]
        };
        let v = values(5, "w", &[9], Init::Uniform { low: 0.0, high: 1.0 });
        assert!(v.iter().enumerate().all(|(i, x)| *x == f64::from(word(i)) * TWO_POW_MINUS_32));
    }
}
