//! The 8-bit float e4m3: sign, 4 exponent bits with bias 7, 3 mantissa bits; no infinities, one NaN of each sign.

use super::number::round_significand;

/// The largest finite number.
pub const MAX: f64 = 448.0;

/// The value of a code. Exact.
pub fn decode(code: u8) -> f32 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(code >> 3 & 15);
    let mantissa = f32::from(code & 7);
    match (exponent, code & 7) {
        (15, 7) => f32::NAN.copysign(sign),
        (0, _) => sign * mantissa * 2f32.powi(-9),
        _ => sign * (8.0 + mantissa) * 2f32.powi(exponent - 10),
    }
}

/// The code of the nearest number, ties to the even code; beyond 448 that of 448 with the sign; NaN is kept.
pub fn encode(x: f64) -> u8 {
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    if x.is_nan() {
        return sign | 0x7f;
    }
    let r = round_significand(x, 4, -6).abs().min(MAX);
    if r < 2f64.powi(-6) {
        return sign | (r * 512.0) as u8;
    }
    let exponent = (r.to_bits() >> 52) as i32 - 1023;
    let mantissa = (r / 2f64.powi(exponent - 3)) as u8 - 8;
    sign | ((exponent + 7) as u8) << 3 | mantissa
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nearest of all finite codes by search; of two equally near ones the even code.
    fn nearest(x: f64) -> u8 {
        let codes = (0..=0x7eu8).map(|c| if x.is_sign_negative() { c | 0x80 } else { c });
        let distance = |c: u8| (f64::from(decode(c)) - x).abs();
        codes
            .min_by(|a, b| distance(*a).total_cmp(&distance(*b)).then((a & 1).cmp(&(b & 1))))
            .expect("there are finite codes")
    }

    #[test]
    fn every_code_survives() {
        for code in 0..=255u8 {
            assert_eq!(encode(f64::from(decode(code))), code, "{code:#x}");
        }
        assert_eq!(decode(0x01), 0.001953125);
        assert_eq!(decode(0x08), 0.015625);
        assert_eq!(decode(0x38), 1.0);
        assert_eq!(decode(0xc1), -2.25);
        assert_eq!(decode(0x7e), 448.0);
        assert!(decode(0x7f).is_nan() && decode(0xff).is_nan());
    }

    #[test]
    fn encoding_is_nearest_even_on_every_bfloat16() {
        for bits in 0..=u16::MAX {
            let x = half::bf16::from_bits(bits).to_f64();
            if x.is_nan() {
                assert_eq!(encode(x) & 0x7f, 0x7f);
            } else if x.abs() > MAX {
                assert_eq!(encode(x) & 0x7f, 0x7e);
            } else {
                assert_eq!(encode(x), nearest(x), "{x:e}");
            }
        }
    }

    #[test]
    fn middles_go_to_the_even_code_and_their_neighbours_do_not() {
        for code in 0..0x7eu8 {
            let middle = (f64::from(decode(code)) + f64::from(decode(code + 1))) / 2.0;
            assert_eq!(encode(middle), code + (code & 1));
            assert_eq!(encode(middle.next_up()), code + 1);
            assert_eq!(encode(middle.next_down()), code);
            assert_eq!(encode(-middle.next_up()), 0x80 | (code + 1));
        }
        assert_eq!(encode(1e9), 0x7e);
        assert_eq!(encode(-1e9), 0xfe);
    }
}
