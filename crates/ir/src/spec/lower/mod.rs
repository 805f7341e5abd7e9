//! Lowering: graph files with bound dims to the graph IR.
//!
//! Names are resolved lazily: a node is lowered when something needs it, in the region of the scope that declares it, so
//! the order of nodes in a file carries no meaning. Nodes that advance a state are always lowered, in file order. Calls of
//! graphs are inlined; loops stay loops. At the end every region is put into an order that respects data, state versions
//! and file order (see `order`).

mod builtin;
mod call;
mod cases;
mod depends;
mod effects;
mod emit;
mod expr;
mod index;
mod inline;
mod inputs;
mod loops;
mod names;
mod order;
mod scope;
mod states;
mod sugar;
mod weights;

pub(crate) use builtin::signature;
pub(crate) use scope::{FileScope, Val};
pub(crate) use sugar::SUGAR;

/// A weight path with its indices as `{}`.
pub(crate) fn weight_key(path: &str) -> String {
    weights::key_of(path).0
}

/// The names of the indices of a weight path.
pub(crate) fn weight_vars(path: &str) -> Vec<String> {
    weights::key_of(path).1
}

use super::ast::{GraphDecl, GraphFile, OutputDecl, SymbolDecl};
use super::expr::Ident;
use super::statics::Static;
use crate::diag::{Diagnostic, Diagnostics, FileId, Span, codes};
use crate::ir::{Func, Module, RegionId, ValueId};
use crate::ty::{Bounds, Dim, Numerics, TensorType};
use call::CallState;
use loops::LoopState;
use scope::{Scope, ScopeId};
use states::OpenState;
use std::collections::{BTreeMap, BTreeSet};

/// Graph files by index, with their imports resolved to indices.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub list: Vec<GraphFile>,
    /// For every file: import name to file index; missing if the file could not be read.
    pub imports: Vec<BTreeMap<String, usize>>,
}

impl Files {
    /// Whether something that a graph file needs could not be read.
    pub fn partial(&self, file: FileId) -> bool {
        self.list.iter().position(|f| f.file == file).is_some_and(|i| !self.whole(i))
    }

    /// Whether a file and everything it imports could be read whole.
    pub fn whole(&self, index: usize) -> bool {
        self.needed(index).iter().all(|i| !self.list[*i].partial)
    }

    /// A file and everything it imports.
    pub fn needed(&self, index: usize) -> BTreeSet<usize> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![index]);
        while let Some(i) = open.pop() {
            if seen.insert(i) {
                open.extend(self.imports[i].values());
            }
        }
        seen
    }
}

/// What surrounds the graphs: the components of a system, or nothing.
pub(crate) trait Surroundings {
    /// The file and the bound values of a component.
    fn component(&self, name: &str) -> Option<ComponentRef<'_>>;
    /// Names of all components, for suggestions.
    fn components(&self) -> Vec<&str>;
    /// A dotted static such as `serve.chunk` or `drafter.L`.
    fn path(&self, path: &[&str]) -> Option<Static>;
    /// What a weight path stands for: itself, or the weight it shares.
    fn share(&self, path: &str) -> Option<Shared>;
}

/// A component of a system.
pub(crate) struct ComponentRef<'s> {
    pub file: usize,
    pub values: &'s BTreeMap<String, Static>,
}

/// Another weight a path stands for: its path with `{}` for indices, and the indices.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub path: String,
    pub indices: Vec<SharedIndex>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum SharedIndex {
    /// A fixed index.
    At(i64),
    /// The loop variable of that name.
    Var(String),
}

/// A graph with nothing around it.
pub(crate) struct Alone;

impl Surroundings for Alone {
    fn component(&self, _: &str) -> Option<ComponentRef<'_>> {
        None
    }
    fn components(&self) -> Vec<&str> {
        Vec::new()
    }
    fn path(&self, _: &[&str]) -> Option<Static> {
        None
    }
    fn share(&self, _: &str) -> Option<Shared> {
        None
    }
}

/// What is said of the calls that led to an error.
pub(crate) const CALLED: &str = "called from here";

/// Where an error was already reported; nothing more is to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported;

pub(crate) type Res<T> = Result<T, Reported>;

/// The state of lowering one module.
pub(crate) struct Lower<'a> {
    pub files: &'a Files,
    pub around: &'a dyn Surroundings,
    pub diags: Diagnostics,
    pub module: Module,
    /// Dims are not bound: types are checked, the IR is thrown away.
    pub symbolic: bool,
    /// Lower every node of every graph that is entered, also those nobody needs.
    pub exhaustive: bool,
    /// Lower every node of the functions themselves, also those nobody needs.
    pub all_nodes: bool,
    /// Node paths (without indices) that are wanted although nobody needs them.
    pub wanted: Option<&'a dyn Fn(&str) -> bool>,
    /// Types of the outputs of other phases by (phase, output), with their places; `None` for one that failed.
    pub wires: BTreeMap<(String, String), Option<(TensorType, Span)>>,
    func: Func,
    scopes: Vec<Scope<'a>>,
    loops: Vec<LoopState<'a>>,
    calls: Vec<CallState<'a>>,
    open: Vec<OpenState>,
    consumed: BTreeMap<ValueId, Span>,
    weights: weights::Table,
    states: BTreeMap<String, crate::ir::StateId>,
    components: BTreeMap<String, ScopeId>,
    call_sites: Vec<Span>,
    active: Vec<&'a GraphDecl>,
    node_stack: Vec<NodeRef>,
    expr_depth: usize,
    /// Bounds of the symbols of the function.
    symbols: BTreeMap<String, Bounds>,
    full: bool,
    /// Inputs wired from another phase, with the place that makes them.
    wired: BTreeMap<ValueId, Span>,
    failed_weights: BTreeSet<String>,
    weighted_calls: BTreeMap<String, Span>,
    seen: BTreeSet<(crate::diag::Code, Option<Span>, String)>,
}

/// The node being lowered.
#[derive(Clone, Debug)]
struct NodeRef {
    path: String,
    weights: String,
}

/// Nested calls, loops and cases deeper than this are refused.
const MAX_DEPTH: usize = 64;
/// Expressions inside each other, across nodes and calls, deeper than this are refused: they are evaluated recursively.
const MAX_EXPR_DEPTH: usize = 400;
/// Calls of graphs in one function; they are inlined, so a chain of graphs that each call the next twice grows as 2^n.
const MAX_CALLS: usize = 4096;
/// Iterations of a `repeat`, elements of a state and outputs `each` makes: every one has an entry in some table.
const MAX_REPEAT: i64 = 4096;
/// Entries of the table of a weight in nested loops.
const MAX_ENTRIES: i64 = 1 << 20;

impl<'a> Lower<'a> {
    pub fn new(files: &'a Files, around: &'a dyn Surroundings, name: &str, numerics: Numerics) -> Self {
        Lower {
            files,
            around,
            diags: Diagnostics::default(),
            module: Module {
                name: name.to_string(),
                numerics,
                symbols: Vec::new(),
                weights: Vec::new(),
                states: Vec::new(),
                funcs: Vec::new(),
            },
            symbolic: false,
            exhaustive: false,
            wanted: None,
            wires: BTreeMap::new(),
            func: Func::new(""),
            scopes: Vec::new(),
            loops: Vec::new(),
            calls: Vec::new(),
            open: Vec::new(),
            consumed: BTreeMap::new(),
            weights: weights::Table::default(),
            states: BTreeMap::new(),
            components: BTreeMap::new(),
            call_sites: Vec::new(),
            active: Vec::new(),
            node_stack: Vec::new(),
            expr_depth: 0,
            symbols: BTreeMap::new(),
            full: false,
            wired: BTreeMap::new(),
            failed_weights: BTreeSet::new(),
            all_nodes: false,
            weighted_calls: BTreeMap::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Reports a diagnostic once, with the calls that led to it.
    pub(crate) fn report(&mut self, mut d: Diagnostic) -> Reported {
        if self.seen.insert((d.code, d.span, d.message.clone())) {
            for site in self.call_sites.iter().rev().take(4) {
                d = d.related(*site, CALLED);
            }
            self.diags.push(crate::spec::help::with_help(d));
        }
        Reported
    }

    /// Lowers one function. `graph` is checked in `scope_of` (its file scope); inputs become parameters when something
    /// needs them. `outputs` chooses results by name (`None`: all). `inputs` says which inputs can be fed at all: an
    /// output that needs another is left out.
    pub fn function(&mut self, request: FunctionRequest<'a, '_>) -> LoweredOutputs {
        let FunctionRequest { name, graph, file, values, outputs, available, weights } = request;
        self.func = Func::new(name);
        self.scopes.clear();
        self.loops.clear();
        self.calls.clear();
        self.open.clear();
        self.consumed.clear();
        self.components.clear();
        self.node_stack.clear();
        self.call_sites.clear();
        self.symbols.clear();
        self.full = false;
        self.wired.clear();
        self.active.clear();
        self.active.push(graph);
        self.weighted_calls.clear();
        let file_index = file.as_ref().map(|(f, _)| *f);
        let file_scope = match file {
            Some((file, prefix)) => self.file_scope(FileScope {
                file,
                values,
                path: String::new(),
                weights: prefix,
                region: RegionId(0),
                loops: Vec::new(),
            }),
            None => self.bare_scope(values),
        };
        let scope = self.graph_scope(graph, file_scope, RegionId(0), String::new(), weights);
        self.run_symbols(scope, file_scope, graph, file_index);
        self.declare_inputs(scope, graph, available);
        self.run_effects(scope);
        let mut left_out = Vec::new();
        for output in &graph.outputs {
            if outputs.is_some_and(|o| !o.contains(&output.name.name)) {
                continue;
            }
            if let Some(avail) = available
                && let Some(missing) = self.missing_input(graph, scope, output, avail)
            {
                left_out.push((output.name.name.clone(), missing));
                continue;
            }
            let _ = self.output(scope, output);
        }
        if self.all_nodes {
            self.lower_all(scope);
        }
        if self.exhaustive {
            self.lower_all(scope);
            for e in &graph.expose {
                let _ = self.expr(scope, &e.value);
            }
        }
        self.lower_wanted(scope);
        self.close_states(RegionId(0), 0);
        let func = std::mem::replace(&mut self.func, Func::new(""));
        let func = if self.diags.has_errors() || self.symbolic { func } else { self.ordered(func) };
        self.module.symbols.sort_by(|a, b| a.name.cmp(&b.name));
        self.module.funcs.push(func);
        LoweredOutputs { left_out }
    }

    fn output(&mut self, scope: ScopeId, output: &'a OutputDecl) -> Res<()> {
        let Some((var, extent)) = &output.each else {
            let v = self.expr(scope, &output.value)?;
            let v = self.finish(scope, v, output.value.span)?;
            let id = self.tensor_of(scope, v, output.value.span)?.id;
            self.push_output(output.name.name.clone(), id);
            return Ok(());
        };
        let n = self.static_int(scope, extent)?;
        let Some(n) = n.as_const() else { return Ok(()) };
        if !(0..=MAX_REPEAT).contains(&n) {
            let d = Diagnostic::error(codes::BOUNDS, extent.span, format!("{n} outputs cannot be made"))
                .help(format!("at most {MAX_REPEAT}"));
            return Err(self.report(d));
        }
        for i in 0..n {
            let inner = self.child_scope(scope);
            self.scopes[inner.0].define(&var.name, Val::Static(Static::from(i)));
            let v = self.expr(inner, &output.value)?;
            let v = self.finish(inner, v, output.value.span)?;
            let id = self.tensor_of(inner, v, output.value.span)?.id;
            self.push_output(output.name.name.replace(&format!("{{{}}}", var.name), &i.to_string()), id);
        }
        Ok(())
    }

    fn push_output(&mut self, name: String, id: ValueId) {
        self.func.outputs.push(name);
        self.func.regions[0].yields.push(id);
    }

    /// Declares the symbols of a function that is not called from anywhere.
    fn run_symbols(&mut self, scope: ScopeId, file_scope: ScopeId, graph: &'a GraphDecl, file: Option<usize>) {
        let of_file: &'a [SymbolDecl] = file.map_or(&[], |f| &self.files.list[f].symbols);
        for decl in of_file.iter().chain(&graph.symbols) {
            let bounds = self.symbol_bounds(file_scope, decl);
            self.scopes[scope.0].define(&decl.name.name, Val::Static(Static::Int(Dim::symbol(&decl.name.name))));
            self.symbols.insert(decl.name.name.clone(), bounds);
            // A check of a component's graphs is thrown away; each may bound its symbols as it likes.
            if !self.exhaustive {
                self.add_symbol(&decl.name, bounds);
            }
        }
    }

    pub(crate) fn symbol_bounds(&mut self, scope: ScopeId, decl: &'a SymbolDecl) -> Bounds {
        let mut get = |e: &'a Option<super::expr::Expr>| {
            let e = e.as_ref().filter(|e| e.kind != super::expr::ExprKind::None)?;
            self.static_int(scope, e).ok().and_then(|d| d.as_const())
        };
        let bounds = Bounds { min: get(&decl.min), max: get(&decl.max) };
        if let (Some(min), Some(max)) = (bounds.min, bounds.max)
            && min > max
        {
            self.report(Diagnostic::error(
                codes::BOUNDS,
                decl.name.span,
                format!("symbol `{}` has no value: its least is {min}, its largest {max}", decl.name.name),
            ));
        }
        bounds
    }

    fn add_symbol(&mut self, name: &Ident, bounds: Bounds) {
        match self.module.symbols.iter().find(|s| s.name == name.name) {
            // A symbol without an upper bound is reported as such.
            Some(other) if other.bounds != bounds && other.bounds.max.is_some() == bounds.max.is_some() => {
                let d = Diagnostic::error(
                    codes::SHADOWED,
                    name.span,
                    format!(
                        "symbol `{}` is {} here and {} elsewhere",
                        name.name,
                        super::ast::describe_bounds(bounds),
                        super::ast::describe_bounds(other.bounds)
                    ),
                )
                .help("give one of them another name");
                let d = match other.span {
                    Some(span) => d.related(span, "declared here"),
                    None => d,
                };
                self.report(d);
            }
            Some(_) => {}
            None => {
                self.module.symbols.push(crate::ir::Symbol { name: name.name.clone(), bounds, span: Some(name.span) })
            }
        }
    }

    fn missing_input(
        &self,
        graph: &'a GraphDecl,
        _scope: ScopeId,
        output: &'a OutputDecl,
        available: &dyn Fn(&str) -> bool,
    ) -> Option<String> {
        let needed = effects::needed_inputs(graph, &output.value);
        needed.into_iter().find(|n| !available(n))
    }

    /// The numerics policy applied to a tensor type.
    fn applied(&self, t: TensorType) -> TensorType {
        TensorType { dtype: self.module.numerics.apply(t.dtype), ..t }
    }
}

/// What to lower.
pub(crate) struct FunctionRequest<'a, 'r> {
    /// Name of the function.
    pub name: String,
    /// The graph.
    pub graph: &'a GraphDecl,
    /// Its file and the prefix of its weights; `None` for phases and entries, which stand in no graph file.
    pub file: Option<(usize, String)>,
    /// Values of dims, lists and parameters.
    pub values: &'r BTreeMap<String, Static>,
    /// Results to make; `None` is all.
    pub outputs: Option<&'r BTreeSet<String>>,
    /// Prefix of the graph's own weights, if it is not that of its file.
    pub weights: Option<String>,
    /// Inputs that can be fed; `None` is all.
    pub available: Option<&'r dyn Fn(&str) -> bool>,
}

/// What came of it.
pub(crate) struct LoweredOutputs {
    /// Results that need an input that cannot be fed, with that input.
    pub left_out: Vec<(String, String)>,
}

/// Checks every graph of a file with its dims unbound.
pub(crate) fn check_file(files: &Files, index: usize, diags: &mut Diagnostics) {
    let f = &files.list[index];
    let mut lower = Lower::new(files, &Alone, &f.name.name, Numerics::BF16);
    lower.symbolic = true;
    lower.exhaustive = true;
    let none = BTreeMap::new();
    for graph in f.main.iter().chain(&f.graphs) {
        if !graph.state_inputs.is_empty() {
            continue;
        }
        lower.function(FunctionRequest {
            name: graph.name.name.clone(),
            graph,
            file: Some((index, String::new())),
            values: &none,
            outputs: None,
            weights: None,
            available: None,
        });
    }
    diags.extend(lower.diags);
}
