//! Numbers of the command line, with what is expected where they are none.

/// A count.
pub fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let n = text.trim().parse::<u64>().ok().and_then(|n| T::try_from(n).ok());
    n.ok_or_else(|| "a whole number from 0 on is expected".to_string())
}

/// Most threads that may be asked for, whatever the machine.
pub const MAX_THREADS: usize = 256;

/// A number of threads; 0 is all cores. The limit does not depend on the machine.
pub fn threads(text: &str) -> Result<usize, String> {
    let n = text.trim().parse::<usize>().ok().filter(|n| *n <= MAX_THREADS);
    n.ok_or_else(|| format!("a whole number from 0 to {MAX_THREADS} is expected; 0 is all cores"))
}

/// A whole number; whether it is in range is judged by who takes it.
pub fn integer<T: TryFrom<i64>>(text: &str) -> Result<T, String> {
    let n = text.trim().parse::<i64>().ok().and_then(|n| T::try_from(n).ok());
    n.ok_or_else(|| "a whole number is expected".to_string())
}

/// A real number; whether it is in range is judged by who takes it.
pub fn real(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| "a number is expected, such as 0.7".to_string())
}

/// A number of bytes: `1500000`, `512MiB`, `1.5GB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 9] = [
        ("KiB", 1024.0),
        ("MiB", 1048576.0),
        ("GiB", 1073741824.0),
        ("TiB", 1099511627776.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("B", 1.0),
    ];
    let wrong = || {
        "bytes are a whole number, or a number with KiB, MiB, GiB, TiB, kB, MB, GB or TB: 500000, 1.5GiB".to_string()
    };
    let text = text.trim();
    if let Ok(n) = text.parse::<u64>() {
        return Ok(n);
    }
    let (digits, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?.trim_end(), *unit))).ok_or_else(wrong)?;
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let n = digits.parse::<f64>().ok().filter(|_| plain).ok_or_else(wrong)? * unit;
    // The largest number below 2^64 that a float holds exactly is far above any memory.
    if n <= 1e18 { Ok(n.round() as u64) } else { Err("that is more than any memory holds".to_string()) }
}

#[cfg(test)]
mod tests {
    use super::{bytes, integer, real, threads, whole};

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("1500"), Ok(1500));
        assert_eq!(bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(bytes("2kB"), Ok(2000));
        assert_eq!(bytes("7B"), Ok(7));
        for wrong in ["1x", "", "MiB", "-5", "1e3MB", "1.2.3MB", "nanMB", "5 5MB", "-1GB"] {
            assert!(bytes(wrong).is_err_and(|e| e.contains("1.5GiB")), "{wrong}");
        }
        assert!(bytes("99999999999999TB").is_err());
    }

    #[test]
    fn numbers_are_asked_for() {
        assert_eq!(whole::<usize>("3"), Ok(3));
        assert!(whole::<u64>("-1").is_err_and(|e| e.contains("from 0 on")));
        assert_eq!((threads("0"), threads("256")), (Ok(0), Ok(256)));
        for wrong in ["257", "20000", "-1", "99999999999999999999"] {
            assert!(threads(wrong).is_err_and(|e| e.contains("from 0 to 256")), "{wrong}");
        }
        assert_eq!(integer::<i32>("-1"), Ok(-1));
        assert!(integer::<i32>("99999999999").is_err());
        assert_eq!(real("-1"), Ok(-1.0));
        assert!(real("x").is_err_and(|e| e.contains("number")));
    }
}
