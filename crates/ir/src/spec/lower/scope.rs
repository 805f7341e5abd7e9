//! Scopes and what names in them stand for.

use super::Lower;
use super::loops::LoopId;
use super::states::StateVersion;
use crate::diag::Span;
use crate::ir::{RegionId, StateId, ValueId};
use crate::spec::ast::{GraphDecl, InputDecl, NodeDecl, ParamKind, StateDef, WeightDecl};
use crate::spec::statics::Static;
use crate::ty::{DType, Dim};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScopeId(pub usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId(pub usize);

/// A tensor value of the function being built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tv {
    pub id: ValueId,
    /// The dtype it has once rounded; the IR value may still be in the compute dtype.
    pub storage: DType,
    /// Where it comes from, for messages.
    pub span: Span,
}

/// What an expression evaluates to.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    /// Known before the run.
    Static(Static),
    /// A tensor.
    Tensor(Tv),
    /// The index of a loop.
    LoopVar(LoopId, Tv),
    /// One version of a state element.
    State(StateVersion),
    /// A declared state, to be indexed if it has several elements.
    StateArray(StateId),
    /// Several named values.
    Record(Vec<(String, Val)>),
    /// A loop: carried, kept and inner values by name.
    Loop(LoopId),
    /// A value inside a loop, seen from outside.
    Inside(LoopId, Box<Val>),
    /// A call of a graph: outputs and exposed values by name.
    Call(CallId),
    /// A declared list or parameter without a value, in a check without bindings.
    Unbound,
}

/// What a name is bound to.
pub(crate) enum Slot<'a> {
    Ready(Val),
    Node(&'a NodeDecl, NodeState),
    Weight(&'a WeightDecl),
    State(&'a StateDef),
    Input(&'a InputDecl, Option<Tv>),
}

pub(crate) enum NodeState {
    New,
    Busy,
    Done(Val),
    Failed,
}

/// An enclosing loop whose index may select weights, states and cases.
#[derive(Clone, Debug)]
pub(crate) struct LoopCtx {
    pub id: LoopId,
    pub var: String,
    pub extent: Dim,
    pub index: ValueId,
    /// Iterations in which this place is reached; empty while the extent is unknown.
    pub mask: Vec<bool>,
}

/// One level of names.
pub(crate) struct Scope<'a> {
    pub parent: Option<ScopeId>,
    /// The file whose graphs and imports can be called here.
    pub file: Option<usize>,
    pub region: RegionId,
    /// Node path of what is declared here.
    pub path: String,
    /// Weight path of what is declared here.
    pub weights: String,
    pub loops: Vec<LoopCtx>,
    /// Inside a serial loop.
    pub serial: bool,
    pub names: BTreeMap<String, Slot<'a>>,
    /// Declared nodes in file order.
    pub nodes: Vec<&'a NodeDecl>,
}

impl Scope<'_> {
    pub fn define(&mut self, name: &str, val: Val) {
        self.names.insert(name.to_string(), Slot::Ready(val));
    }
}

/// A request for the scope of a file.
pub(crate) struct FileScope<'r> {
    pub file: usize,
    pub values: &'r BTreeMap<String, Static>,
    pub path: String,
    pub weights: String,
    pub region: RegionId,
    pub loops: Vec<LoopCtx>,
}

/// Joins two parts of a dotted path.
pub(crate) fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}

impl<'a> Lower<'a> {
    pub(crate) fn add_scope(&mut self, scope: Scope<'a>) -> ScopeId {
        self.scopes.push(scope);
        ScopeId(self.scopes.len() - 1)
    }

    /// A scope inside another with the same place.
    pub(crate) fn child_scope(&mut self, parent: ScopeId) -> ScopeId {
        let p = &self.scopes[parent.0];
        let scope = Scope {
            parent: Some(parent),
            file: p.file,
            region: p.region,
            path: p.path.clone(),
            weights: p.weights.clone(),
            loops: p.loops.clone(),
            serial: p.serial,
            names: BTreeMap::new(),
            nodes: Vec::new(),
        };
        self.add_scope(scope)
    }

    /// A scope that only holds values.
    pub(crate) fn bare_scope(&mut self, values: &BTreeMap<String, Static>) -> ScopeId {
        let names = values.iter().map(|(k, v)| (k.clone(), Slot::Ready(Val::Static(v.clone())))).collect();
        self.add_scope(Scope {
            parent: None,
            file: None,
            region: RegionId(0),
            path: String::new(),
            weights: String::new(),
            loops: Vec::new(),
            serial: false,
            names,
            nodes: Vec::new(),
        })
    }

    /// The scope of a file: dims, lists, parameters, weights, states and derived values.
    pub(crate) fn file_scope(&mut self, request: FileScope) -> ScopeId {
        let FileScope { file, values, path, weights, region, loops } = request;
        let f = &self.files.list[file];
        let mut names = BTreeMap::new();
        for d in &f.dims {
            let val = match values.get(&d.name.name) {
                Some(v) => Val::Static(v.clone()),
                None => Val::Static(Static::Int(Dim::symbol(&d.name.name))),
            };
            names.insert(d.name.name.clone(), Slot::Ready(val));
        }
        for l in &f.lists {
            let val = values.get(&l.name.name).map_or(Val::Unbound, |v| Val::Static(v.clone()));
            names.insert(l.name.name.clone(), Slot::Ready(val));
        }
        for p in &f.params {
            let val = match values.get(&p.name.name) {
                Some(v) => Val::Static(v.clone()),
                None if p.kind == ParamKind::Int && !p.optional => Val::Static(Static::Int(Dim::symbol(&p.name.name))),
                None => Val::Unbound,
            };
            names.insert(p.name.name.clone(), Slot::Ready(val));
        }
        for w in &f.weights {
            names.insert(w.name.name.clone(), Slot::Weight(w));
        }
        for s in &f.states {
            names.insert(s.name.name.clone(), Slot::State(s));
        }
        for n in &f.derived {
            names.insert(n.name.name.clone(), Slot::Node(n, NodeState::New));
        }
        let serial = false;
        self.add_scope(Scope {
            parent: None,
            file: Some(file),
            region,
            path,
            weights,
            loops,
            serial,
            names,
            nodes: Vec::new(),
        })
    }

    /// The scope of a graph's own weights and nodes.
    pub(crate) fn graph_scope(
        &mut self,
        graph: &'a GraphDecl,
        parent: ScopeId,
        region: RegionId,
        path: String,
        weights: Option<String>,
    ) -> ScopeId {
        let p = &self.scopes[parent.0];
        let mut names = BTreeMap::new();
        for w in &graph.weights {
            names.insert(w.name.name.clone(), Slot::Weight(w));
        }
        for n in &graph.nodes {
            names.insert(n.name.name.clone(), Slot::Node(n, NodeState::New));
        }
        let scope = Scope {
            parent: Some(parent),
            file: p.file,
            region,
            path,
            weights: weights.unwrap_or_else(|| p.weights.clone()),
            loops: p.loops.clone(),
            serial: p.serial,
            names,
            nodes: graph.nodes.iter().collect(),
        };
        self.add_scope(scope)
    }
}
