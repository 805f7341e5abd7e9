//! Philox4x32-10, the counter-based random number generator behind every random choice.
//!
//! A draw is a pure function of its key and counter, so results depend neither on the order of the draws nor on batch
//! mates or threads. Definition: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The four random words of `counter` under `key`.
#[inline]
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut c = counter;
    let mut k = key;
    for round in 0..ROUNDS {
        if round > 0 {
            k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
        }
        let p0 = u64::from(MULTIPLIERS[0]) * u64::from(c[0]);
        let p1 = u64::from(MULTIPLIERS[1]) * u64::from(c[2]);
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
    }
    c
}

/// The key of a 64-bit seed: low word, high word.
#[inline]
pub fn key_of_seed(seed: u64) -> [u32; 2] {
    [seed as u32, (seed >> 32) as u32]
}

/// The uniform draw in `[0, 1)` of one decision of a request: `(word0 >> 8) * 2^-24`.
///
/// `position` is the absolute position of the token decided, `purpose` separates draws for the same token, `anchor` is
/// the position of the cycle's anchor.
#[inline]
pub fn uniform(seed: u64, position: u32, purpose: u32, anchor: u32) -> f64 {
    let word = philox4x32_10([position, purpose, anchor, 0], key_of_seed(seed))[0];
    f64::from(word >> 8) * (1.0 / 16_777_216.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors published with Random123 (`kat_vectors`, lines `philox4x32 10`).
    #[test]
    fn known_answers() {
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32_10([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32_10([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn uniform_takes_the_top_24_bits_of_word_0() {
        // Key and counter all zero: word 0 is 0x6627e8d5.
        assert_eq!(uniform(0, 0, 0, 0), f64::from(0x66_27e8_u32) / f64::from(1 << 24));
        let seed = 0x299f_31d0_a409_3822;
        let word = philox4x32_10([7, 3, 5, 0], [0xa409_3822, 0x299f_31d0])[0];
        assert_eq!(uniform(seed, 7, 3, 5), f64::from(word >> 8) / f64::from(1 << 24));
    }

    #[test]
    fn uniform_separates_its_arguments_and_stays_below_one() {
        let base = uniform(1, 2, 3, 4);
        assert!(
            [uniform(2, 2, 3, 4), uniform(1, 3, 3, 4), uniform(1, 2, 4, 4), uniform(1, 2, 3, 5)]
                .iter()
                .all(|u| *u != base)
        );
        let mean =
            (0..4096).map(|p| uniform(9, p, 0, 0)).inspect(|u| assert!((0.0..1.0).contains(u))).sum::<f64>() / 4096.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }
}
