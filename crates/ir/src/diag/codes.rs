//! The table of stable diagnostic codes.

/// A stable diagnostic code such as `E0102`.
pub type Code = &'static str;

macro_rules! codes {
    ($($name:ident $code:literal $title:literal;)*) => {
        $(#[doc = $title] pub const $name: Code = $code;)*
        /// Every code with its one-line meaning, in code order.
        pub const CODES: &[(Code, &str)] = &[$(($code, $title)),*];
    };
}

codes! {
    YAML_SYNTAX "E0101" "the text is not valid YAML";
    YAML_DUPLICATE_KEY "E0102" "a mapping has the same key twice";
    YAML_BUDGET "E0103" "the file exceeds a size, depth or alias limit";
    YAML_ENCODING "E0104" "the file is not valid UTF-8";
    YAML_KEY "E0105" "a mapping key is not a plain string";
    YAML_ALIAS "E0106" "anchors, aliases, merge keys and tags are not part of the language";
    YAML_SHAPE "E0107" "a mapping, sequence or scalar stands where another kind of value is expected";
    EXPR_SYNTAX "E0110" "an expression cannot be parsed";
    TYPE_SYNTAX "E0111" "a type cannot be parsed";
}

/// The meaning of a code.
pub fn code_info(code: &str) -> Option<&'static str> {
    CODES.iter().find(|(c, _)| *c == code).map(|(_, t)| *t)
}
