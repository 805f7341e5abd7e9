//! Resolving names and lowering nodes on demand.

use super::scope::{NodeState, ScopeId, Slot, Tv, Val, join};
use super::{Lower, NodeRef, Reported, Res};
use crate::diag::{Diagnostic, Span, codes, suggest};
use crate::ir::Loc;
use crate::spec::ast::{GraphDecl, NodeBody, NodeDecl};
use crate::spec::expr::Ident;
use crate::ty::Type;

/// Most names a help line lists.
const SHOWN: usize = 16;

impl<'a> Lower<'a> {
    /// The scope, from `scope` outwards, that binds `name`.
    pub(crate) fn find(&self, scope: ScopeId, name: &str) -> Option<ScopeId> {
        let mut at = Some(scope);
        while let Some(s) = at {
            if self.scopes[s.0].names.contains_key(name) {
                return Some(s);
            }
            at = self.scopes[s.0].parent;
        }
        None
    }

    /// The value of a name.
    pub(crate) fn name(&mut self, scope: ScopeId, name: &str, span: Span) -> Res<Val> {
        let Some(at) = self.find(scope, name) else {
            return Err(self.unknown_name(scope, name, span));
        };
        match &mut self.scopes[at.0].names.get_mut(name) {
            Some(Slot::Ready(v)) => Ok(v.clone()),
            Some(Slot::Node(decl, state)) => {
                let decl: &'a NodeDecl = decl;
                match state {
                    NodeState::Done(v) => Ok(v.clone()),
                    NodeState::Failed => Err(Reported),
                    NodeState::Busy => {
                        let d = Diagnostic::error(
                            codes::CYCLE,
                            decl.name.span,
                            format!("node `{name}` needs its own value"),
                        )
                        .related(span, "needed here")
                        .help("values that change from one iteration to the next are carried by a loop");
                        Err(self.report(d))
                    }
                    NodeState::New => {
                        self.prepare(at, decl);
                        if let Some(Slot::Node(_, state)) = self.scopes[at.0].names.get_mut(name) {
                            if matches!(state, NodeState::Failed) {
                                return Err(Reported);
                            }
                            *state = NodeState::Busy;
                        }
                        let result = self.node(at, decl);
                        let state = match &result {
                            Ok(v) => NodeState::Done(v.clone()),
                            Err(_) => NodeState::Failed,
                        };
                        self.scopes[at.0].names.insert(name.to_string(), Slot::Node(decl, state));
                        result
                    }
                }
            }
            Some(Slot::Weight(decl)) => {
                let decl = *decl;
                self.weight(at, scope, decl).map(Val::Tensor)
            }
            Some(Slot::State(decl)) => {
                let decl = *decl;
                self.state_array(at, decl).map(Val::StateArray)
            }
            Some(Slot::Input(decl, tv)) => {
                let decl = *decl;
                match tv {
                    Some(tv) => Ok(Val::Tensor(*tv)),
                    None => {
                        let tv = self.input_param(at, decl)?;
                        self.scopes[at.0].names.insert(name.to_string(), Slot::Input(decl, Some(tv)));
                        Ok(Val::Tensor(tv))
                    }
                }
            }
            None => Err(self.unknown_name(scope, name, span)),
        }
    }

    fn unknown_name(&mut self, scope: ScopeId, name: &str, span: Span) -> Reported {
        let mut all: Vec<String> = Vec::new();
        let mut at = Some(scope);
        while let Some(s) = at {
            all.extend(self.scopes[s.0].names.keys().cloned());
            at = self.scopes[s.0].parent;
        }
        let mut d = Diagnostic::error(codes::UNKNOWN_NAME, span, format!("nothing is named `{name}` here"));
        if let Some(near) = suggest(name, all.iter().map(String::as_str)) {
            d = d.help(format!("did you mean `{near}`?"));
        } else if self.callable(scope, name) {
            d = d.help(format!("`{name}` is called with its arguments in parentheses"));
        } else {
            all.sort();
            all.dedup();
            let more = if all.len() > SHOWN { ", ..." } else { "" };
            all.truncate(SHOWN);
            d = d.help(format!("there is: {}{more}", all.join(", ")));
        }
        self.report(d)
    }

    /// Lowers a node in the scope that declares it.
    fn node(&mut self, scope: ScopeId, decl: &'a NodeDecl) -> Res<Val> {
        if self.node_stack.len() >= super::MAX_DEPTH {
            let d = Diagnostic::error(codes::RECURSION, decl.name.span, "nodes depend on each other too deeply");
            return Err(self.report(d));
        }
        let path = join(&self.scopes[scope.0].path, &decl.name.name);
        let weights = join(&self.scopes[scope.0].weights, &decl.name.name);
        self.node_stack.push(NodeRef { path: path.clone(), weights });
        let result = match &decl.body {
            NodeBody::Value(e, ty) => self.expr(scope, e).and_then(|v| {
                let v = self.finish(scope, v, e.span)?;
                match ty {
                    Some(ty) => self.ascribe(scope, v, ty),
                    None => Ok(v),
                }
            }),
            NodeBody::Loop(l) => self.loop_node(scope, decl, l),
            NodeBody::Match(m) => self.match_node(scope, m, decl.name.span),
        };
        self.node_stack.pop();
        let mut v = result?;
        self.locate(&mut v, decl.name.span);
        self.name_value(&v, &path);
        Ok(v)
    }

    /// Rounds what an expression yields: a node's value and an argument of a function are rounding points.
    pub(crate) fn finish(&mut self, scope: ScopeId, v: Val, span: Span) -> Res<Val> {
        let _ = span;
        Ok(match v {
            Val::Tensor(tv) => Val::Tensor(self.round(scope, tv)),
            other => other,
        })
    }

    /// Messages about the value speak of the node rather than of its expression.
    fn locate(&self, v: &mut Val, span: Span) {
        match v {
            Val::Tensor(tv) => tv.span = span,
            Val::State(s) => s.span = span,
            Val::Record(fields) => fields.iter_mut().for_each(|(_, v)| self.locate(v, span)),
            _ => {}
        }
    }

    pub(super) fn name_value(&mut self, v: &Val, path: &str) {
        match v {
            Val::Tensor(tv) => {
                let names = &mut self.func.values[tv.id.index()].names;
                if !names.iter().any(|n| **n == *path) {
                    names.push(path.into());
                }
            }
            Val::Record(fields) => fields.iter().for_each(|(k, v)| self.name_value(v, &join(path, k))),
            _ => {}
        }
    }

    /// Lowers every node of a scope nobody asked for.
    pub(crate) fn lower_all(&mut self, scope: ScopeId) {
        for decl in self.scopes[scope.0].nodes.clone() {
            let _ = self.name(scope, &decl.name.name, decl.name.span);
        }
    }

    /// Lowers the nodes of a scope that a caller wants to see.
    pub(crate) fn lower_wanted(&mut self, scope: ScopeId) {
        let Some(wanted) = self.wanted else { return };
        for decl in self.scopes[scope.0].nodes.clone() {
            let path = join(&self.scopes[scope.0].path, &decl.name.name);
            if wanted(&path) {
                let _ = self.name(scope, &decl.name.name, decl.name.span);
            }
        }
    }

    /// Binds the inputs of a function; each becomes a parameter when something needs it.
    pub(crate) fn declare_inputs(
        &mut self,
        scope: ScopeId,
        graph: &'a GraphDecl,
        available: Option<&dyn Fn(&str) -> bool>,
    ) {
        for input in &graph.inputs {
            let _ = available;
            // A dim of that name was reported as hidden; types go on meaning the dim.
            let hidden = self.find(scope, &input.name.name);
            if hidden.is_some_and(|s| {
                matches!(self.scopes[s.0].names.get(&input.name.name), Some(Slot::Ready(Val::Static(_))))
            }) {
                continue;
            }
            self.scopes[scope.0].names.insert(input.name.name.clone(), Slot::Input(input, None));
        }
        for (name, _) in &graph.state_inputs {
            if let Err(super::Reported) = self.state_input(scope, name) {}
        }
    }

    fn input_param(&mut self, scope: ScopeId, decl: &'a crate::spec::ast::InputDecl) -> Res<Tv> {
        let mut made_at = None;
        let ty = match (&decl.ty, &decl.from) {
            (Some(ty), None) => self.type_of(scope, ty)?,
            (ty, Some((phase, output))) => {
                let wired = self.wires.get(&(phase.name.clone(), output.name.clone())).cloned();
                // A wire that leads nowhere, or to an output that failed, was reported.
                let Some(Some((wired, made))) = wired else { return Err(Reported) };
                if let Some(ty) = ty {
                    let want = self.type_of(scope, ty)?;
                    if want != wired {
                        let code = if want.dims != wired.dims { codes::DIM_MISMATCH } else { codes::DTYPE_MISMATCH };
                        let d = Diagnostic::error(
                            code,
                            ty.span,
                            format!("declared as {want}, but `{}.{}` is {wired}", phase.name, output.name),
                        )
                        .related(made, "made here")
                        .help("a wired input takes the type of what it is wired from: leave `type` out");
                        return Err(self.report(d));
                    }
                }
                made_at = Some(made);
                wired
            }
            (None, None) => return Err(Reported),
        };
        let id = self.func.add_param(crate::ir::RegionId(0), Type::Tensor(ty.clone()));
        if let Some(at) = made_at {
            self.wired.insert(id, at);
        }
        self.func.inputs.push(decl.name.name.clone());
        Ok(Tv { id, storage: ty.dtype, span: decl.name.span })
    }

    /// A place for ops without an expression of their own.
    pub(crate) fn loc_of(&self, name: &Ident) -> Loc {
        self.loc(name.span)
    }
}
