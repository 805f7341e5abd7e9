//! What the verifier reports.

use crate::diag::{Diagnostic, Severity, Span, codes};
use crate::ir::{FuncId, Module, OpId, RegionId, StateId, WeightId};
use std::fmt;
use std::sync::Arc;

/// A place in a module; every place has one line in the text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// The module as a whole.
    Module,
    /// A symbol by position.
    Symbol(usize),
    /// A weight declaration.
    Weight(WeightId),
    /// A state declaration.
    State(StateId),
    /// A function as a whole.
    Func(FuncId),
    /// A region as a whole; for the body, the function.
    Region(FuncId, RegionId),
    /// A region parameter by position; for the body, an input.
    Param(FuncId, RegionId, u32),
    /// An op.
    Op(FuncId, OpId),
    /// The yields of a region; for the body, the outputs.
    Yield(FuncId, RegionId),
}

impl Site {
    /// The function the place is in.
    pub fn func(self) -> Option<FuncId> {
        match self {
            Site::Func(f) | Site::Region(f, _) | Site::Param(f, _, _) | Site::Op(f, _) | Site::Yield(f, _) => Some(f),
            _ => None,
        }
    }
}

/// A violated rule of the IR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// Name of the function, if the error lies in one.
    pub func: Option<String>,
    /// The place.
    pub site: Site,
    /// Node path of the op, or name of the declaration; may be empty.
    pub path: Arc<str>,
    /// Where the op or declaration comes from in the spec.
    pub span: Option<Span>,
    /// What is wrong. Values are named as the printed text names them.
    pub message: String,
}

impl VerifyError {
    pub(super) fn new(module: &Module, site: Site, message: String) -> VerifyError {
        let func = site.func().and_then(|f| module.funcs.get(f.index()));
        let (path, span) = match site {
            Site::Op(_, op) => match func.and_then(|f| f.ops.get(op.index())) {
                Some(op) => (op.loc.path.clone(), op.loc.span),
                None => ("".into(), None),
            },
            Site::Symbol(i) => named(module.symbols.get(i).map(|s| (s.name.as_str(), s.span))),
            Site::Weight(w) => named(module.weights.get(w.index()).map(|w| (w.name.as_str(), w.span))),
            Site::State(s) => named(module.states.get(s.index()).map(|s| (s.name.as_str(), s.span))),
            _ => ("".into(), None),
        };
        VerifyError { func: func.map(|f| f.name.clone()), site, path, span, message }
    }

    /// The error as a message to the user: a violated rule is a bug of whatever made the module.
    pub fn to_diagnostic(&self) -> Diagnostic {
        Diagnostic {
            span: self.span,
            code: codes::INTERNAL_IR,
            severity: Severity::Error,
            message: self.to_string(),
            label: String::new(),
            related: Vec::new(),
            help: None,
        }
    }
}

fn named(found: Option<(&str, Option<Span>)>) -> (Arc<str>, Option<Span>) {
    found.map_or(("".into(), None), |(name, span)| (name.into(), span))
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(func) = &self.func {
            write!(f, "function {func}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}
