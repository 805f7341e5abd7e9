//! The generated parts of the language reference, as Markdown.

use super::lower::{SUGAR, signature};
use super::statics;
use super::system::engine;
use crate::diag::CODES;
use crate::ops::{Effect, OPS, OpDef, Opcode};

/// A part of the reference that is made from tables of the compiler.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Name of its markers in the document.
    pub name: &'static str,
    /// Makes the Markdown between them.
    pub make: fn() -> String,
}

/// Every generated part.
pub const PARTS: &[Part] = &[
    Part { name: "functions", make: functions },
    Part { name: "methods", make: methods },
    Part { name: "sugar", make: sugar },
    Part { name: "operators", make: operators },
    Part { name: "statics", make: static_functions },
    Part { name: "phases", make: phases },
    Part { name: "codes", make: codes },
];

/// A table with the given heads.
fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| {
        format!("| {} |\n", cells.iter().map(|c| c.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
    };
    let mut out = line(&heads.iter().map(|h| h.to_string()).collect::<Vec<_>>());
    out.push_str(&format!("|{}\n", "---|".repeat(heads.len())));
    rows.for_each(|r| out.push_str(&line(&r)));
    out
}

fn is_method(def: &OpDef) -> bool {
    matches!(def.code, Opcode::KvWrite | Opcode::CausalConv | Opcode::DeltaRule)
}

fn op_row(def: &OpDef) -> Vec<String> {
    let results = match (def.effect, def.results) {
        // The next version of a state comes last and is not written when there is a value.
        (Effect::AdvancesState, [_]) => "the state".to_string(),
        (Effect::AdvancesState, [value, ..]) => format!("`{value}`"),
        (_, [_]) => "a value".to_string(),
        (_, many) => many.iter().map(|r| format!("`.{r}`")).collect::<Vec<_>>().join(", "),
    };
    vec![format!("`{}`", signature(def)), results, def.doc.to_string()]
}

/// Functions that are called by name.
fn functions() -> String {
    table(&["call", "gives", "meaning"], OPS.iter().filter(|d| d.callable).map(op_row))
}

/// What states can do.
fn methods() -> String {
    table(&["call", "gives", "meaning"], OPS.iter().filter(|d| is_method(d)).map(op_row))
}

/// Functions that stand for several operations.
fn sugar() -> String {
    table(&["call", "meaning"], SUGAR.iter().map(|(_, call, doc)| vec![format!("`{call}`"), doc.to_string()]))
}

/// Operations that are written with signs.
fn operators() -> String {
    const SIGNS: &[(&str, Opcode)] = &[
        ("a or b", Opcode::Or),
        ("a and b", Opcode::And),
        ("not a", Opcode::Not),
        ("a == b", Opcode::Eq),
        ("a != b", Opcode::Ne),
        ("a < b", Opcode::Lt),
        ("a <= b", Opcode::Le),
        ("a > b", Opcode::Gt),
        ("a >= b", Opcode::Ge),
        ("a + b", Opcode::Add),
        ("a - b", Opcode::Sub),
        ("a * b", Opcode::Mul),
        ("a / b", Opcode::Div),
        ("a // b", Opcode::FloorDiv),
        ("a % b", Opcode::Mod),
        ("-a", Opcode::Neg),
        ("a ** b", Opcode::Pow),
        ("x[:, 1:]", Opcode::Slice),
        ("x[:, t]", Opcode::IndexAt),
    ];
    table(
        &["written", "meaning"],
        SIGNS.iter().map(|(sign, code)| vec![format!("`{sign}`"), code.def().doc.to_string()]),
    )
}

/// Functions on values known before the run.
fn static_functions() -> String {
    table(&["call", "meaning"], statics::TABLE.iter().map(|(_, call, doc)| vec![format!("`{call}`"), doc.to_string()]))
}

/// What phases share with the engine.
fn phases() -> String {
    let need = |p: &engine::EnginePhase| if p.always { "always" } else { "to draft" };
    let mut out = table(
        &["phase", "needed", "when it runs"],
        engine::PHASES.iter().map(|p| vec![format!("`{}`", p.name), need(p).into(), p.doc.into()]),
    );
    out.push_str("\nInputs the engine feeds; `N` stands for requests, `T` for rows of one.\n\n");
    let inputs = engine::INPUTS
        .iter()
        .map(|i| vec![format!("`{}`", i.name), format!("`{}`", i.written()), i.phases.join(", "), i.doc.into()]);
    out.push_str(&table(&["input", "type", "phases", "what it holds"], inputs));
    out.push_str("\nOutputs the engine reads.\n\n");
    let outputs = engine::OUTPUTS
        .iter()
        .map(|o| vec![format!("`{}.{}`", o.phase, o.name), format!("`{}`", o.written()), o.doc.into()]);
    out.push_str(&table(&["output", "type", "what it holds"], outputs));
    out.push_str("\nChoices the engine makes, for `variants`.\n\n");
    let choices = engine::CHOICES.iter().map(|c| vec![format!("`{}`", c.name), c.words.join(", "), c.doc.into()]);
    out.push_str(&table(&["variant", "words", "what decides it"], choices));
    out
}

/// Diagnostic codes.
fn codes() -> String {
    table(&["code", "meaning"], CODES.iter().map(|(c, t)| vec![format!("`{c}`"), t.to_string()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_a_spec_can_write_is_listed() {
        let all = [functions(), methods(), operators()].concat();
        let made_by_loops: &[Opcode] = &[
            Opcode::Loop,
            Opcode::Cases,
            Opcode::Guarded,
            Opcode::Weight,
            Opcode::StateOpen,
            Opcode::StateClose,
            Opcode::Const,
            Opcode::DimValue,
        ];
        for def in OPS.iter().filter(|d| !made_by_loops.contains(&d.code)) {
            assert!(all.contains(&def.doc.replace('|', "\\|")), "{} is in no table", def.name);
        }
    }

    #[test]
    fn static_functions_are_those_that_exist() {
        let listed: Vec<&str> =
            statics::TABLE.iter().map(|t| t.0).filter(|n| !["same", "has", "unset"].contains(n)).collect();
        assert_eq!(listed, statics::FUNCTIONS);
    }
}
