//! Graph and system files as typed trees: keys checked, expressions and types parsed, names not yet resolved.

use super::expr::{Expr, Ident, TypeExpr};
use crate::diag::{FileId, Span};
use crate::ty::Bounds;
use std::collections::BTreeMap;

/// A declared dim.
#[derive(Clone, Debug)]
pub struct DimDecl {
    /// Name.
    pub name: Ident,
}

/// Type of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Integer.
    Int,
    /// Real number.
    Float,
    /// Truth value.
    Bool,
    /// One of a set of words.
    OneOf(Vec<String>),
}

/// A declared parameter.
#[derive(Clone, Debug)]
pub struct ParamDecl {
    /// Name.
    pub name: Ident,
    /// Kind.
    pub kind: ParamKind,
    /// May be `none`.
    pub optional: bool,
}

/// What a list holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Integers.
    Int,
    /// Words of a set.
    OneOf(Vec<String>),
}

/// A declared list.
#[derive(Clone, Debug)]
pub struct ListDecl {
    /// Name.
    pub name: Ident,
    /// Its length.
    pub length: Option<Expr>,
    /// What it holds.
    pub kind: ListKind,
}

/// A declared run-time symbol.
#[derive(Clone, Debug)]
pub struct SymbolDecl {
    /// Name.
    pub name: Ident,
    /// Smallest value.
    pub min: Option<Expr>,
    /// Largest value.
    pub max: Option<Expr>,
}

/// A declared input.
#[derive(Clone, Debug)]
pub struct InputDecl {
    /// Name.
    pub name: Ident,
    /// Type; `None` for a value wired from another phase.
    pub ty: Option<TypeExpr>,
    /// `phase.output` this input is wired from.
    pub from: Option<(Ident, Ident)>,
}

/// A declared weight.
#[derive(Clone, Debug)]
pub struct WeightDecl {
    /// Name.
    pub name: Ident,
    /// Type.
    pub ty: TypeExpr,
    /// Path of the weight this is another name of.
    pub from: Option<(String, Span)>,
}

/// Kind and shape of a declared state.
#[derive(Clone, Debug)]
pub enum StateShape {
    /// `kind: kv_pool`
    KvPool {
        /// Key/value heads.
        heads: Expr,
        /// Head width.
        width: Expr,
    },
    /// `kind: recurrent`
    Recurrent {
        /// Dims.
        shape: Vec<Expr>,
    },
    /// `kind: window`
    Window {
        /// Channels.
        channels: Expr,
        /// Taps.
        taps: Expr,
    },
}

/// A declared state.
#[derive(Clone, Debug)]
pub struct StateDef {
    /// Name.
    pub name: Ident,
    /// Kind.
    pub shape: StateShape,
    /// Which loop indices have an element: a count or a list of truth values; `None` is a single element.
    pub per: Option<Expr>,
    /// Storage dtype.
    pub dtype: Ident,
}

/// A kept value of a loop.
#[derive(Clone, Debug)]
pub struct KeepDecl {
    /// Name.
    pub name: Ident,
    /// What is kept.
    pub value: Expr,
    /// Iterations: an index or a list of indices; `None` keeps all.
    pub at: Option<Expr>,
    /// Axis of the result that counts iterations; 0 if left out.
    pub axis: Option<Expr>,
}

/// A loop.
#[derive(Clone, Debug)]
pub struct LoopDecl {
    /// `scan`: the index is a run-time value.
    pub serial: bool,
    /// The index.
    pub var: Ident,
    /// The number of iterations.
    pub extent: Expr,
    /// Carried values and their first values.
    pub carry: Vec<(Ident, Expr)>,
    /// Weights, one for every iteration.
    pub weights: Vec<WeightDecl>,
    /// Nodes.
    pub nodes: Vec<NodeDecl>,
    /// Carried values at the end of an iteration.
    pub yields: Vec<(Ident, Expr)>,
    /// Kept values.
    pub keep: Vec<KeepDecl>,
}

/// What a case yields.
#[derive(Clone, Debug)]
pub enum CaseBody {
    /// One value.
    Value(Expr),
    /// Several named values.
    Record(Vec<(Ident, Expr)>),
}

/// A choice.
#[derive(Clone, Debug)]
pub struct MatchDecl {
    /// What is looked at.
    pub on: Expr,
    /// Labels and bodies.
    pub cases: Vec<(Ident, CaseBody)>,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum NodeBody {
    /// An expression, possibly with a type it must have.
    Value(Expr, Option<TypeExpr>),
    /// A loop.
    Loop(Box<LoopDecl>),
    /// A choice.
    Match(MatchDecl),
}

/// A node.
#[derive(Clone, Debug)]
pub struct NodeDecl {
    /// Name.
    pub name: Ident,
    /// What it is.
    pub body: NodeBody,
}

/// A named result; in entries the name may hold an index in braces.
#[derive(Clone, Debug)]
pub struct OutputDecl {
    /// Name.
    pub name: Ident,
    /// Value.
    pub value: Expr,
    /// Index variable and its extent: one output for every index.
    pub each: Option<(Ident, Expr)>,
}

/// A graph: what can be called.
#[derive(Clone, Debug)]
pub struct GraphDecl {
    /// Name.
    pub name: Ident,
    /// Symbols of its own.
    pub symbols: Vec<SymbolDecl>,
    /// Inputs in call order.
    pub inputs: Vec<InputDecl>,
    /// State inputs by name, with their place in call order.
    pub state_inputs: Vec<(Ident, usize)>,
    /// Weights of its own.
    pub weights: Vec<WeightDecl>,
    /// Nodes.
    pub nodes: Vec<NodeDecl>,
    /// Results.
    pub outputs: Vec<OutputDecl>,
    /// Inner values visible from outside.
    pub expose: Vec<OutputDecl>,
}

/// Dims and parameters an import sets for the imported file.
#[derive(Clone, Debug)]
pub struct UseDecl {
    /// Local name.
    pub name: Ident,
    /// Path relative to this file.
    pub path: String,
    /// Where the path stands.
    pub path_span: Span,
    /// Dims, lists and parameters set here instead of being taken over by name.
    pub set: Vec<(Ident, Expr)>,
}

impl GraphDecl {
    /// Types of the inputs as they are written, by name.
    pub fn input_types(&self) -> BTreeMap<String, String> {
        let typed = self.inputs.iter().filter_map(|i| Some((i.name.name.clone(), i.ty.as_ref()?.to_string())));
        typed.collect()
    }
}

/// A graph file.
#[derive(Clone, Debug)]
pub struct GraphFile {
    /// The file.
    pub file: FileId,
    /// Path as given.
    pub path: String,
    /// Name.
    pub name: Ident,
    /// Dims bound before inference.
    pub dims: Vec<DimDecl>,
    /// Lists.
    pub lists: Vec<ListDecl>,
    /// Parameters.
    pub params: Vec<ParamDecl>,
    /// Run-time symbols of every graph of the file.
    pub symbols: Vec<SymbolDecl>,
    /// States.
    pub states: Vec<StateDef>,
    /// Weights of every graph of the file.
    pub weights: Vec<WeightDecl>,
    /// Weight-only values computed once at load.
    pub derived: Vec<NodeDecl>,
    /// Imports.
    pub uses: Vec<UseDecl>,
    /// The graph of the file itself, if it has nodes.
    pub main: Option<GraphDecl>,
    /// Named graphs.
    pub graphs: Vec<GraphDecl>,
    /// Parts of the file, or a file it imports, could not be read: what is not there is not known to be missing.
    pub partial: bool,
}

/// A range of run-time values, for messages.
pub fn describe_bounds(b: Bounds) -> String {
    match (b.min, b.max) {
        (Some(a), Some(b)) => format!("{a}..{b}"),
        (Some(a), None) => format!("{a}.."),
        (None, Some(b)) => format!("..{b}"),
        (None, None) => "anything".into(),
    }
}
