//! What to do about an error whose place of origin has nothing more specific to say.

use crate::diag::{Diagnostic, Severity, codes};

/// The diagnostic with a help line.
pub(crate) fn with_help(d: Diagnostic) -> Diagnostic {
    if d.help.is_some() || d.severity == Severity::Note {
        return d;
    }
    match general(d.code) {
        Some(text) => d.help(text),
        None => d,
    }
}

fn general(code: &str) -> Option<&'static str> {
    Some(match code {
        codes::YAML_SYNTAX => "values that hold `{`, `[`, `: ` or ` #` need quotes",
        codes::YAML_BUDGET => "a spec holds text only; large data belongs into safetensors files",
        codes::YAML_SHAPE => "docs/spec-language.md shows what stands under each key",
        codes::EXPR_SYNTAX => "docs/spec-language.md lists the operators",
        codes::TYPE_SYNTAX => "a type is a dtype and dims: `bf16[N, H]`",
        codes::MISSING_KEY => "add it",
        codes::UNKNOWN_NAME => "names are those of dims, lists, parameters, symbols, inputs, weights, states and nodes",
        codes::UNKNOWN_FUNCTION => "functions are those of the language, the graphs of this file and its imports",
        codes::UNUSED => "remove it, or use it",
        codes::SHADOWED => "give one of them another name",
        codes::FILE => "paths are relative to the file that names them",
        codes::RECURSION => "`repeat` and `scan` do something several times",
        codes::DIM_MISMATCH => "make both sides the same dims; `x[:, None]` adds an axis of extent one",
        codes::RANK_MISMATCH => "`x[:, None]` adds an axis, a position as in `x[:, 0]` takes one away",
        codes::DTYPE_MISMATCH => "`cast(x, f32)` converts between dtypes",
        codes::BAD_ATTRIBUTE => "docs/spec-language.md lists every function with its arguments",
        codes::BAD_CALL => "inputs are given in the order they are declared, or by name",
        codes::UNBOUND_DIM => "bind it in the system file, or with --set NAME=VALUE",
        codes::NOT_STATIC => "axes, extents and other settings are made of literals, dims, lists and parameters",
        codes::BAD_INDEX => "positions of an axis count from 0, or from the end: -1 is the last",
        codes::NOT_A_LAW => "softmax over the last axis, sampling_law and one_hot make distributions",
        codes::BOUNDS => "change the value, or the bounds it is declared with",
        codes::STATE_MISUSE => {
            "states are declared under `state:` and used through kv.write, attention, conv.causal and delta.gated_delta_rule"
        }
        codes::WEIGHT_BINDING => "every weight has one line under `tensors:` of its component",
        codes::CHECKPOINT => "a checkpoint is a directory with config.json",
        codes::CONFIG_KEY => "change the value in config.json, or write it into the system file",
        codes::LIMIT => "change the value, or the limit if you know that its reason is gone",
        codes::UNSUPPORTED => "docs/spec-language.md says what is supported",
        codes::SYSTEM => "docs/spec-language.md says what a system consists of",
        codes::CYCLE => "break the circle",
        codes::BAD_NAME => "a name is letters, digits and underscores and does not begin with a digit",
        codes::UNKNOWN_KEY => "docs/spec-language.md lists the keys",
        codes::CHECKPOINT_TENSOR => "the tensor table of the system file says which tensors are read",
        codes::YAML_DUPLICATE_KEY => "remove or rename one of them",
        codes::YAML_ENCODING => "save the file as UTF-8",
        codes::YAML_KEY => "a key is plain text; an expression stands after the colon",
        codes::YAML_ALIAS => "write the value out",
        codes::UNBOUNDED_SYMBOL => "give it a `max`",
        codes::STATE_TWICE => "chain them: advance what the first one returned",
        codes::STATE_UNUSED => "remove it, or write to it",
        codes::INTERNAL_IR => "this is a bug of spinec: please report it with the files",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::general;
    use crate::diag::CODES;

    #[test]
    fn every_code_has_a_help_line() {
        for (code, _) in CODES {
            assert!(general(code).is_some(), "{code}");
        }
    }
}
