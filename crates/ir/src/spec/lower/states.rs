//! State elements: declaring, opening, advancing, closing. Every version is consumed exactly once.

use super::scope::{ScopeId, Val, join};
use super::{Lower, Res};
use crate::diag::{Diagnostic, Span, codes};
use crate::ir::{Attr, Attrs, RegionId, StateDecl, StateId, ValueId};
use crate::ops::Opcode;
use crate::spec::ast::{StateDef, StateShape};
use crate::spec::expr::{BinaryOp, Expr, ExprKind, Ident};
use crate::spec::statics::{self, Static};
use crate::ty::{DType, Dim, StateKind, Type};

/// One version of a state element.
#[derive(Clone, Debug)]
pub(crate) struct StateVersion {
    pub id: ValueId,
    pub state: StateId,
    pub region: RegionId,
    pub span: Span,
}

/// An element that is open in a region.
#[derive(Clone, Debug)]
pub(crate) struct OpenState {
    state: StateId,
    /// The loop index that selects the element, or a fixed element.
    index: Option<ValueId>,
    fixed: Option<i64>,
    region: RegionId,
    entry: ValueId,
    current: ValueId,
}

/// Most elements of a state that a message lists.
const MOST_LISTED: usize = 8;

impl<'a> Lower<'a> {
    /// The module's state for a declaration in a file scope.
    pub(crate) fn state_array(&mut self, at: ScopeId, decl: &'a StateDef) -> Res<StateId> {
        let name = join(&self.scopes[at.0].weights, &decl.name.name);
        if let Some(id) = self.states.get(&name) {
            return Ok(*id);
        }
        let dtype = self.dtype_named(&decl.dtype)?;
        if !dtype.is_float() {
            let d = Diagnostic::error(
                codes::UNSUPPORTED,
                decl.dtype.span,
                format!("a state of dtype {dtype} is not supported"),
            )
            .help("bf16, f16, f32 or f64");
            return Err(self.report(d));
        }
        let kind = match &decl.shape {
            StateShape::KvPool { heads, width } => {
                StateKind::KvPool { heads: self.static_int(at, heads)?, width: self.static_int(at, width)? }
            }
            StateShape::Recurrent { shape } => {
                let mut dims = Vec::new();
                for d in shape {
                    dims.push(self.static_int(at, d)?);
                }
                StateKind::Recurrent { shape: dims }
            }
            StateShape::Window { channels, taps } => {
                StateKind::Window { channels: self.static_int(at, channels)?, taps: self.static_int(at, taps)? }
            }
        };
        let (count, element) = self.state_elements(at, decl)?;
        self.module.states.push(StateDecl {
            name: name.clone(),
            kind,
            dtype: self.module.numerics.apply(dtype),
            count,
            element,
            span: Some(decl.name.span),
        });
        let id = StateId(self.module.states.len() as u32 - 1);
        self.states.insert(name, id);
        Ok(id)
    }

    fn state_elements(&mut self, at: ScopeId, decl: &'a StateDef) -> Res<(i64, Vec<i64>)> {
        let Some(per) = &decl.per else { return Ok((1, Vec::new())) };
        let flags = match self.per_value(at, per)? {
            Static::Int(d) => match d.as_const() {
                Some(n) if (0..=super::MAX_REPEAT).contains(&n) => vec![true; usize::try_from(n).unwrap_or(0)],
                None if self.symbolic => return Ok((1, Vec::new())),
                Some(n) => {
                    let d = Diagnostic::error(codes::BOUNDS, per.span, format!("a state cannot have {n} elements"))
                        .help(format!("at most {}", super::MAX_REPEAT));
                    return Err(self.report(d));
                }
                None => {
                    let d = Diagnostic::error(
                        codes::UNBOUND_DIM,
                        per.span,
                        format!("the number of elements must be known, it is {d}"),
                    );
                    return Err(self.report(d));
                }
            },
            Static::List(items) => {
                let flags: Option<Vec<bool>> =
                    items.iter().map(|i| if let Static::Bool(b) = i { Some(*b) } else { None }).collect();
                match flags {
                    Some(f) => f,
                    None => {
                        let d = Diagnostic::error(
                            codes::NOT_STATIC,
                            per.span,
                            "`per` is a number or a list of truth values",
                        );
                        return Err(self.report(d));
                    }
                }
            }
            other => {
                let d = Diagnostic::error(
                    codes::NOT_STATIC,
                    per.span,
                    format!("`per` is a number or a list of truth values, this is {}", other.describe()),
                );
                return Err(self.report(d));
            }
        };
        let mut count = 0;
        let element = flags
            .iter()
            .map(|f| {
                if *f {
                    count += 1;
                    count - 1
                } else {
                    -1
                }
            })
            .collect();
        Ok((count, element))
    }

    /// `per` compares a whole list with one word: `kinds == 'full_attention'`.
    fn per_value(&mut self, at: ScopeId, per: &'a Expr) -> Res<Static> {
        if let ExprKind::Binary(op @ (BinaryOp::Eq | BinaryOp::Ne), a, b) = &per.kind {
            let (x, y) = (self.expr(at, a)?, self.expr(at, b)?);
            match (x, y) {
                (Val::Static(Static::List(items)), Val::Static(word)) => {
                    let flags = items
                        .iter()
                        .map(|i| Static::Bool((statics::equal(i, &word) == Ok(true)) == (*op == BinaryOp::Eq)));
                    return Ok(Static::List(flags.collect()));
                }
                (Val::Unbound, _) => return Ok(Static::Int(Dim::symbol("?"))),
                _ => {}
            }
        }
        self.static_of(at, per)
    }

    /// A state input of a function that is not called: a fresh element of a state of that name.
    pub(crate) fn state_input(&mut self, scope: ScopeId, name: &'a Ident) -> Res<()> {
        // A graph that takes states is checked through its callers; alone it has none to work on.
        let _ = scope;
        let _ = name;
        Ok(())
    }

    /// The version at entry of an element.
    pub(crate) fn open_state(
        &mut self,
        scope: ScopeId,
        state: StateId,
        index: Option<(Val, Span)>,
        span: Span,
    ) -> Res<StateVersion> {
        let region = self.scopes[scope.0].region;
        let decl = self.module.state(state).clone();
        let (index_value, fixed) = match index {
            None if decl.element.is_empty() => (None, None),
            None => {
                let d = Diagnostic::error(
                    codes::STATE_MISUSE,
                    span,
                    format!("state `{}` has an element for every loop index", decl.name),
                )
                .help("index it: `kv[l]`");
                return Err(self.report(d));
            }
            Some((Val::LoopVar(id, tv), at)) => {
                let ctx = self.scopes[scope.0].loops.iter().find(|c| c.id == id).cloned();
                let Some(ctx) = ctx else {
                    let d = Diagnostic::error(codes::STATE_MISUSE, at, "a `scan` index cannot select a state")
                        .help("`repeat` indices select weights, states and cases");
                    return Err(self.report(d));
                };
                if !decl.element.is_empty() && ctx.extent.as_const().is_some_and(|n| n != decl.element.len() as i64) {
                    let d = Diagnostic::error(
                        codes::BAD_INDEX,
                        at,
                        format!(
                            "state `{}` has places for {} indices, the loop runs {} times",
                            decl.name,
                            decl.element.len(),
                            ctx.extent
                        ),
                    )
                    .help("the loop's extent and the state's `per` must be the same");
                    return Err(self.report(d));
                }
                let missing =
                    ctx.mask.iter().enumerate().find(|(i, m)| **m && decl.element.get(*i).is_some_and(|e| *e < 0));
                if let Some((i, _)) = missing {
                    let d = Diagnostic::error(
                        codes::BAD_INDEX,
                        at,
                        format!("state `{}` has no element for index {i}", decl.name),
                    )
                    .help("`per` says for which indices there is one");
                    let d = match decl.span {
                        Some(s) => d.related(s, "declared here"),
                        None => d,
                    };
                    return Err(self.report(d));
                }
                (Some(tv.id), None)
            }
            Some((Val::Static(Static::Int(d)), at)) => match d.as_const() {
                Some(i)
                    if (self.symbolic && decl.element.is_empty())
                        || decl.element.get(usize::try_from(i).unwrap_or(usize::MAX)).is_some_and(|e| *e >= 0) =>
                {
                    let id = self.constant(region, i as f64, DType::I32, at);
                    (Some(id), Some(i))
                }
                fixed => {
                    let there: Vec<String> =
                        (0..decl.element.len()).filter(|i| decl.element[*i] >= 0).map(|i| i.to_string()).collect();
                    let help = match (fixed, there.as_slice()) {
                        (None, _) => "which element is meant must be known here: a loop index, or a number".to_string(),
                        (_, []) => "it has no elements, see its `per`".to_string(),
                        (_, all) if all.len() <= MOST_LISTED => format!("its elements: {}", all.join(", ")),
                        (_, [first, .., last]) => format!("its elements are among {first} to {last}, see its `per`"),
                        (_, [one]) => format!("its only element is {one}"),
                    };
                    let text = format!("state `{}` has no element {d}", decl.name);
                    return Err(self.report(Diagnostic::error(codes::BAD_INDEX, at, text).help(help)));
                }
            },
            Some((other, at)) => {
                let what = self.describe(&other);
                let d = Diagnostic::error(
                    codes::STATE_MISUSE,
                    at,
                    format!("a state is indexed by a loop index, this is {what}"),
                )
                .help(
                    "`kv[l]` in a loop over l, or a number: no element is selected by what is computed from an index",
                );
                return Err(self.report(d));
            }
        };
        let key_index = if fixed.is_some() { None } else { index_value };
        if let Some(o) = self
            .open
            .iter()
            .find(|o| o.state == state && o.index == key_index && o.fixed == fixed && o.region == region)
        {
            return Ok(StateVersion { id: o.entry, state, region, span });
        }
        if self.scopes[scope.0].serial {
            let d = Diagnostic::error(codes::STATE_MISUSE, span, "a `scan` cannot advance a state")
                .help("state ops take whole blocks of rows");
            return Err(self.report(d));
        }
        let attrs = Attrs::from([("state", Attr::Int(i64::from(state.0)))]);
        let loc = self.loc(span);
        let ty = Type::State { kind: decl.kind, dtype: decl.dtype };
        let op = self.func.add_op(
            region,
            Opcode::StateOpen,
            index_value.into_iter().collect(),
            attrs,
            Vec::new(),
            vec![ty],
            loc,
        );
        let id = self.func.op(op).results[0];
        self.open.push(OpenState { state, index: key_index, fixed, region, entry: id, current: id });
        Ok(StateVersion { id, state, region, span })
    }

    /// Refuses to advance a version that was advanced already or that belongs to another region.
    pub(crate) fn check_consumable(&mut self, scope: ScopeId, v: &StateVersion, span: Span) -> Res<()> {
        if let Some(first) = self.consumed.get(&v.id).copied() {
            let name = self.module.state(v.state).name.clone();
            let d = Diagnostic::error(
                codes::STATE_TWICE,
                span,
                format!("this version of state `{name}` is advanced twice"),
            )
            .related(first, "first advanced here")
            .help("chain them: advance what the first one returned");
            return Err(self.report(d));
        }
        if self.scopes[scope.0].region != v.region {
            let d = Diagnostic::error(
                codes::STATE_MISUSE,
                span,
                "a state taken outside a loop or case cannot be advanced inside it",
            )
            .related(v.span, "taken here")
            .help("index the state where it is advanced");
            return Err(self.report(d));
        }
        Ok(())
    }

    pub(crate) fn advance_state(&mut self, from: StateVersion, to: ValueId, span: Span) -> StateVersion {
        self.consumed.insert(from.id, span);
        if let Some(o) = self.open.iter_mut().find(|o| o.current == from.id) {
            o.current = to;
        }
        StateVersion { id: to, state: from.state, region: from.region, span }
    }

    /// Ends the elements opened in `region` since there were `since` open ones.
    pub(crate) fn close_states(&mut self, region: RegionId, since: usize) {
        let ending: Vec<OpenState> = self.open.drain(since.min(self.open.len())..).collect();
        for o in ending {
            if o.region != region {
                self.open.push(o);
                continue;
            }
            let loc = self.func.value(o.current).def;
            let loc = match loc {
                crate::ir::ValueDef::Result(op, _) => self.func.op(op).loc.clone(),
                crate::ir::ValueDef::Param(..) => Default::default(),
            };
            self.func.add_op(o.region, Opcode::StateClose, vec![o.current], Attrs::new(), Vec::new(), Vec::new(), loc);
        }
    }
}
