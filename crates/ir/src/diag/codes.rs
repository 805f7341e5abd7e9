//! The table of stable diagnostic codes.

/// A stable diagnostic code such as `E0102`.
pub type Code = &'static str;

macro_rules! codes {
    ($($name:ident $code:literal $title:literal;)*) => {
        $(#[doc = $title] pub const $name: Code = $code;)*
        /// Every code with its one-line meaning, in code order.
        pub const CODES: &[(Code, &str)] = &[$(($name, $title)),*];
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

    UNKNOWN_KEY "E0201" "a key is not part of the language";
    MISSING_KEY "E0202" "a key that must be given is missing";
    UNKNOWN_NAME "E0203" "a name is not defined here";
    UNUSED "E0204" "something is declared and never used";
    SHADOWED "E0205" "a name is defined twice or hides another";
    CYCLE "E0206" "nodes depend on each other in a cycle";
    BAD_NAME "E0207" "a name is not an identifier or is reserved";
    UNKNOWN_FUNCTION "E0208" "no operation or graph has this name";
    FILE "E0209" "a file that is referred to cannot be read";
    RECURSION "E0210" "a graph calls itself";

    DIM_MISMATCH "E0301" "two dims that must agree differ";
    RANK_MISMATCH "E0302" "a value has the wrong number of axes";
    DTYPE_MISMATCH "E0303" "a value has the wrong dtype";
    BAD_ATTRIBUTE "E0304" "an attribute has an impossible value";
    BAD_CALL "E0305" "a call has the wrong operands";
    UNBOUND_DIM "E0306" "a dim or parameter has no value";
    UNBOUNDED_SYMBOL "E0307" "a run-time symbol without an upper bound reaches a planned buffer";
    NOT_STATIC "E0308" "a value that must be known before the run is computed during it";
    BAD_INDEX "E0309" "an index does not fit what it indexes";
    NOT_A_LAW "E0310" "a value that must be a distribution is not known to be one";
    BOUNDS "E0311" "a dim leaves the bounds declared for it";

    STATE_MISUSE "E0401" "a state is used as something it is not";
    STATE_TWICE "E0402" "one version of a state is advanced twice";
    STATE_UNUSED "E0403" "a state is declared and never advanced";

    WEIGHT_BINDING "E0501" "a weight has no tensor, or a tensor table line has no weight";
    CHECKPOINT_TENSOR "E0502" "a checkpoint tensor is missing, superfluous, misshapen or mistyped";
    CHECKPOINT "E0503" "a checkpoint directory cannot be used";
    CONFIG_KEY "E0504" "a config.json value is missing, of the wrong kind, or contradicts another";

    LIMIT "E0601" "a limit of the system is violated";
    UNSUPPORTED "E0602" "a valid declaration asks for something that is not supported";
    SYSTEM "E0603" "a system file does not fit together";
    INTERNAL_IR "E0901" "the IR violates its own rules; this is a bug of the compiler";
}

/// The meaning of a code.
pub fn code_info(code: &str) -> Option<&'static str> {
    CODES.iter().find(|(c, _)| *c == code).map(|(_, t)| *t)
}
