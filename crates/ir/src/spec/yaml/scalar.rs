//! The core schema: which value a plain scalar is, and where a text stands byte for byte.

use granit_parser::ScalarStyle;
use serde_yaml::granit_parser;

use super::{Text, Value};

/// The core-schema value of a plain scalar; `None` if it is text. `Err` says why a number cannot be represented.
pub(super) fn resolve(text: &str) -> Result<Option<Value>, &'static str> {
    Ok(Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Value::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Value::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Value::Float(f64::NEG_INFINITY),
        _ => return number(text),
    }))
}

fn number(text: &str) -> Result<Option<Value>, &'static str> {
    const WIDE: &str = "does not fit a signed 64-bit integer";
    let radix = |digits: &str, radix: u32| {
        let known = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        known.then(|| i64::from_str_radix(digits, radix).map(Value::Int).map_err(|_| WIDE)).transpose()
    };
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map(|i| Some(Value::Int(i))).map_err(|_| WIDE);
    }
    if !is_float(digits) {
        return Ok(None);
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Some(Value::Float(value))),
        _ => Err("does not fit a 64-bit floating-point number"),
    }
}

/// `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_ok = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['-', '+']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    (!whole.is_empty() || !fraction.is_empty()) && digits(whole) && digits(fraction) && exponent_ok
}

/// The text of a scalar whose bytes, quotes included, are `raw` and stand at `start`.
pub(super) fn text(value: String, style: ScalarStyle, raw: &str, start: u32) -> Text {
    let quote = matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted);
    let inner = if quote { raw.get(1..).unwrap_or("") } else { raw };
    let verbatim = inner.starts_with(&value) && (!quote || inner.len() == value.len() + 1);
    let verbatim_at = verbatim.then_some(start + u32::from(quote));
    Text { value, verbatim_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_schema() {
        let value = |s: &str| resolve(s).unwrap();
        for null in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(value(null), Some(Value::Null));
        }
        assert_eq!(value("True"), Some(Value::Bool(true)));
        assert_eq!(value("-12"), Some(Value::Int(-12)));
        assert_eq!(value("+12"), Some(Value::Int(12)));
        assert_eq!(value("007"), Some(Value::Int(7)));
        assert_eq!(value("0x1F"), Some(Value::Int(31)));
        assert_eq!(value("0o17"), Some(Value::Int(15)));
        assert_eq!(value("1e-6"), Some(Value::Float(1e-6)));
        assert_eq!(value("1."), Some(Value::Float(1.0)));
        assert_eq!(value(".5"), Some(Value::Float(0.5)));
        assert_eq!(value("-.inf"), Some(Value::Float(f64::NEG_INFINITY)));
        for text in ["yes", "no", "on", "nULL", "1_000", "1e", "e5", ".", "-", "+", "0x", "0xg", "0b1", "1.2.3", "inf"]
        {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_errors() {
        assert!(resolve("9223372036854775807").is_ok());
        assert!(resolve("9223372036854775808").is_err());
        assert!(resolve("0xffffffffffffffff").is_err());
        assert!(resolve("1e999").is_err());
    }

    #[test]
    fn verbatim_offsets() {
        let at = |value: &str, style, raw: &str| text(value.to_owned(), style, raw, 10).verbatim_at;
        assert_eq!(at("a b", ScalarStyle::Plain, "a b"), Some(10));
        assert_eq!(at("a b", ScalarStyle::Plain, "a\n  b"), None);
        assert_eq!(at("ab", ScalarStyle::DoubleQuoted, "\"ab\""), Some(11));
        assert_eq!(at("it's", ScalarStyle::SingleQuoted, "'it''s'"), None);
        assert_eq!(at("", ScalarStyle::SingleQuoted, "''"), Some(11));
        assert_eq!(at("x\n", ScalarStyle::Literal, "x\n\n"), Some(10));
        assert_eq!(at("x\ny\n", ScalarStyle::Literal, "x\n  y\n"), None);
    }
}
