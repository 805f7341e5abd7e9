//! Random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and the coins made
//! from it.

use super::call::Call;
use super::index::count;
use super::number::ints;
use crate::tensor::Tensor;

/// Ten rounds of Philox4x32: 128 random bits that depend on counter and key alone.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut c = counter;
    let mut k = key;
    for round in 0..10 {
        if round > 0 {
            k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
        }
        let a = u64::from(c[0]) * 0xD251_1F53;
        let b = u64::from(c[2]) * 0xCD9E_8D57;
        let (a_high, a_low) = ((a >> 32) as u32, a as u32);
        let (b_high, b_low) = ((b >> 32) as u32, b as u32);
        c = [b_high ^ c[1] ^ k[0], b_low, a_high ^ c[3] ^ k[1], a_low];
    }
    c
}

/// A number in [0, 1): the upper 24 bits of word 0 under key `seed` (low, high word) and counter
/// (`at`, `purpose`, `anchor`, 0).
pub fn coin(seed: [u32; 2], at: u32, purpose: u32, anchor: u32) -> f64 {
    f64::from(philox4x32_10([at, purpose, anchor, 0], seed)[0] >> 8) / f64::from(1 << 24)
}

/// Integers enter as the 32 bits they have.
pub(super) fn coins(call: &Call) -> Result<Tensor, String> {
    let (seed, at, anchor) = (ints(call.tensor(0)?)?, call.tensor(1)?, ints(call.tensor(2)?)?);
    let purpose = u32::try_from(call.int("purpose")?).map_err(|_| "a purpose is not negative")?;
    let Some((n, further)) = at.shape.split_first() else {
        return Err("`at` has one axis at least".into());
    };
    if seed.len() != 2 * n || anchor.len() != *n {
        return Err(format!("{} seed words and {} anchors for {n} requests", seed.len(), anchor.len()));
    }
    let per_request = count(further);
    let one = |(i, at): (usize, i32)| {
        let request = i / per_request;
        coin([seed[2 * request] as u32, seed[2 * request + 1] as u32], at as u32, purpose, anchor[request] as u32)
    };
    let coins = ints(at)?.into_iter().enumerate().map(one).collect();
    Ok(Tensor::f64(at.shape.clone(), coins))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers published with Random123 (`kat_vectors`, philox4x32 10 rounds).
    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
        assert_eq!(philox4x32_10([u32::MAX; 4], [u32::MAX; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            philox4x32_10([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn coins_are_multiples_below_one() {
        let mean = (0..4096).map(|i| coin([7, 9], i, 1, 3)).sum::<f64>() / 4096.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert_eq!(coin([0, 0], 0, 0, 0), f64::from(0x6627e8_u32) / 16777216.0);
        assert_ne!(coin([1, 0], 5, 2, 3), coin([1, 0], 5, 3, 3));
        assert_ne!(coin([1, 0], 5, 2, 3), coin([0, 1], 5, 2, 3));
    }
}
