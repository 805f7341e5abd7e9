//! System files as typed trees.

use crate::diag::Span;
use crate::spec::ast::GraphDecl;
use crate::spec::expr::{Expr, Ident};

/// A list binding: an expression, or one expression for every index.
#[derive(Clone, Debug)]
pub(crate) enum ListBinding {
    Whole(Expr),
    Each { var: Ident, extent: Expr, value: Expr },
}

/// Values bound at one level: the whole system, or one component.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    pub dims: Vec<(Ident, Expr)>,
    pub lists: Vec<(Ident, ListBinding)>,
    pub params: Vec<(Ident, Expr)>,
}

#[derive(Clone, Debug)]
pub(crate) struct CheckpointDecl {
    pub name: Ident,
    /// Directory, resolved against the file that names it.
    pub path: Option<(String, Span)>,
    /// Dotted place of the model's keys in config.json.
    pub config: Option<(String, Span)>,
    pub ignore: Vec<IgnoreDecl>,
}

#[derive(Clone, Debug)]
pub(crate) struct IgnoreDecl {
    pub pattern: String,
    pub reason: String,
}

/// One line of a tensor table.
#[derive(Clone, Debug)]
pub(crate) struct TensorLine {
    /// Weight path with loop variables in braces.
    pub path: String,
    pub path_span: Span,
    pub source: TensorSource,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum TensorSource {
    /// A tensor of the component's checkpoint, or of another.
    Tensor { name: String, checkpoint: Option<Ident> },
    /// Another weight.
    Share(String),
}

#[derive(Clone, Debug)]
pub(crate) struct ComponentDecl {
    pub name: Ident,
    /// Graph file, resolved against the file that names it.
    pub graph: Option<(String, Span)>,
    pub checkpoint: Option<Ident>,
    pub bindings: Bindings,
    pub strings: Vec<(Ident, String)>,
    pub tensors: Vec<TensorLine>,
}

#[derive(Clone, Debug)]
pub(crate) struct PoolDecl {
    pub name: Ident,
    /// `component.state`
    pub of: Option<(Ident, Ident)>,
    pub kind: Ident,
    pub dtype: Option<Ident>,
    pub slots: Option<Ident>,
    pub ring: Option<Expr>,
}

#[derive(Clone, Debug)]
pub(crate) struct LimitDecl {
    pub require: Expr,
    pub reason: String,
    /// About what is computed, not about what is served: it holds for `eval` too.
    pub always: bool,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct PhaseDecl {
    pub name: Ident,
    /// Static choices the engine makes, with their possible words.
    pub variants: Vec<(Ident, Vec<String>)>,
    pub graph: GraphDecl,
}

#[derive(Clone, Debug)]
pub(crate) struct WidthRule {
    /// Inclusive range of request counts.
    pub requests: (i64, i64),
    pub width: Expr,
}

/// How rows are fed to an entry that works on a token stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamDecl {
    pub tokens: String,
    pub blocks: Option<String>,
    pub keep: Option<String>,
    pub block_outputs: Vec<Ident>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct EntryDecl {
    pub name: Ident,
    pub stream: Option<StreamDecl>,
    pub graph: GraphDecl,
}

/// `numerics: POLICY`, or the policy with the classes of rules that may fire.
#[derive(Clone, Debug)]
pub(crate) struct NumericsDecl {
    pub policy: Option<Ident>,
    pub rules: Option<Vec<Ident>>,
}

#[derive(Clone, Debug)]
pub(crate) struct SystemDecl {
    pub name: Ident,
    pub numerics: Option<NumericsDecl>,
    pub checkpoints: Vec<CheckpointDecl>,
    pub bindings: Bindings,
    pub components: Vec<ComponentDecl>,
    pub pools: Vec<PoolDecl>,
    pub serve: Vec<(Ident, Expr)>,
    pub limits: Vec<LimitDecl>,
    pub phases: Vec<PhaseDecl>,
    /// Rules by law.
    pub widths: Vec<(Ident, Vec<WidthRule>)>,
    pub entries: Vec<EntryDecl>,
    /// Parts of the file could not be read.
    pub partial: bool,
}
