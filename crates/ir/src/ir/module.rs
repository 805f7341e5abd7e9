//! Modules: functions and what they share.

use super::func::Func;
use crate::diag::Span;
use crate::ty::{Bounds, DType, Numerics, StateKind, TensorType};

id!(
    /// A weight of a module.
    WeightId
);
id!(
    /// A state object of a module.
    StateId
);
id!(
    /// A function of a module.
    FuncId
);

/// Where a weight's data comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeightSource {
    /// Name of the checkpoint in the system file.
    pub checkpoint: String,
    /// Tensor name; `{i}` with a loop variable's name stands for its value.
    pub tensor: String,
}

/// A weight: one tensor, or one for every index of the loops it is declared in.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Dotted path with loop variables in braces, such as `target.layers.{l}.norm_in`.
    pub name: String,
    /// Variables and extents of the enclosing loops, outermost first.
    pub loops: Vec<(String, i64)>,
    /// For which indices the weight exists (row-major over `loops`); empty means all.
    pub present: Vec<bool>,
    /// Type of one element. The dtype is the one computed with, after the numerics policy.
    pub ty: TensorType,
    /// The dtype the spec declares for storage; `None` takes any float.
    pub storage: Option<DType>,
    /// Where the data is; `None` before a system binds it.
    pub source: Option<WeightSource>,
    /// The declaration.
    pub span: Option<Span>,
    /// The line of the system's tensor table that binds it.
    pub bound_at: Option<Span>,
}

/// A state object: `count` elements of the same kind for every request.
#[derive(Clone, Debug, PartialEq)]
pub struct StateDecl {
    /// Dotted path, such as `target.kv`.
    pub name: String,
    /// Kind of one element.
    pub kind: StateKind,
    /// Storage dtype after the numerics policy.
    pub dtype: DType,
    /// Number of elements (layers that have one); may be zero.
    pub count: i64,
    /// For a loop index the number of its element, or -1: `kv[l]` is element `element[l]`.
    pub element: Vec<i64>,
    /// The declaration.
    pub span: Option<Span>,
}

/// A run-time symbol.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbol {
    /// Name.
    pub name: String,
    /// Bounds.
    pub bounds: Bounds,
    /// The declaration.
    pub span: Option<Span>,
}

/// A module.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Name of the system or graph.
    pub name: String,
    /// The numerics policy the types were made under.
    pub numerics: Numerics,
    /// Run-time symbols in name order.
    pub symbols: Vec<Symbol>,
    /// Weights by id.
    pub weights: Vec<Weight>,
    /// States by id.
    pub states: Vec<StateDecl>,
    /// Functions by id.
    pub funcs: Vec<Func>,
}

impl Module {
    /// The function with a name.
    pub fn func(&self, name: &str) -> Option<&Func> {
        self.funcs.iter().find(|f| f.name == name)
    }

    /// The weight behind an id.
    pub fn weight(&self, id: WeightId) -> &Weight {
        &self.weights[id.index()]
    }

    /// The state behind an id.
    pub fn state(&self, id: StateId) -> &StateDecl {
        &self.states[id.index()]
    }
}
