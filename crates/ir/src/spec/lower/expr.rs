//! Expressions.

use super::emit::Arg;
use super::scope::{ScopeId, Tv, Val};
use super::{Lower, Reported, Res};
use crate::diag::{Diagnostic, Span, codes, suggest};
use crate::ir::Attrs;
use crate::ops::Opcode;
use crate::spec::expr::{BinaryOp, Expr, ExprKind, Ident, TypeExpr, TypeKind, UnaryOp};
use crate::spec::statics::{self, Static, StaticError};
use crate::ty::{DType, Dim, Numerics, TensorType};

impl<'a> Lower<'a> {
    /// Evaluates an expression. Tensors inside it are not yet rounded to their storage dtype.
    pub(crate) fn expr(&mut self, scope: ScopeId, e: &'a Expr) -> Res<Val> {
        if self.expr_depth >= super::MAX_EXPR_DEPTH {
            let d = Diagnostic::error(codes::RECURSION, e.span, "expressions and calls are nested too deeply here")
                .help("name parts of them as nodes of their own");
            return Err(self.report(d));
        }
        self.expr_depth += 1;
        let v = self.expr_inner(scope, e);
        self.expr_depth -= 1;
        v
    }

    fn expr_inner(&mut self, scope: ScopeId, e: &'a Expr) -> Res<Val> {
        match &e.kind {
            ExprKind::Int(v) => Ok(Val::Static(Static::from(*v))),
            ExprKind::Float(v) => Ok(Val::Static(Static::Float(*v))),
            ExprKind::Bool(v) => Ok(Val::Static(Static::Bool(*v))),
            ExprKind::None => Ok(Val::Static(Static::None)),
            ExprKind::Broken => Err(Reported),
            ExprKind::Str(s) => Ok(Val::Static(Static::Str(s.clone()))),
            ExprKind::Name(name) => self.name(scope, name, e.span),
            ExprKind::Attr(base, field) => self.attribute(scope, e, base, field),
            ExprKind::Index(base, items) => self.index(scope, base, items, e.span),
            ExprKind::Call { callee, args, kwargs } => self.call(scope, callee, args, kwargs, e.span),
            ExprKind::Unary(op, x) => self.unary(scope, *op, x, e.span),
            ExprKind::Binary(op, a, b) => self.binary(scope, *op, a, b, e.span),
            ExprKind::List(items) => {
                let mut out = Vec::new();
                for item in items {
                    match self.expr(scope, item)? {
                        Val::Static(s) => out.push(s),
                        _ => {
                            let d = Diagnostic::error(
                                codes::NOT_STATIC,
                                item.span,
                                "a list holds values known before the run",
                            )
                            .help("concat([a, b], axis=0) joins tensors");
                            return Err(self.report(d));
                        }
                    }
                }
                Ok(Val::Static(Static::List(out)))
            }
        }
    }

    fn attribute(&mut self, scope: ScopeId, e: &'a Expr, base: &'a Expr, field: &'a Ident) -> Res<Val> {
        if let Some(path) = dotted(e)
            && self.find(scope, path[0]).is_none()
            && let Some(v) = self.around.path(&path)
        {
            return Ok(Val::Static(v));
        }
        let v = self.expr(scope, base)?;
        self.field(scope, v, field)
    }

    /// A named part of a value.
    pub(crate) fn field(&mut self, scope: ScopeId, v: Val, field: &'a Ident) -> Res<Val> {
        match v {
            Val::Record(fields) => match fields.iter().find(|(n, _)| *n == field.name) {
                Some((_, v)) => Ok(v.clone()),
                None => Err(self.no_field(field, fields.iter().map(|(n, _)| n.as_str()).collect())),
            },
            Val::Call(call) => self.call_field(call, field),
            Val::Loop(id) => self.loop_field(id, field),
            Val::Inside(id, inner) => {
                let body = self.loops[id.0].body;
                let v = self.field(body, *inner, field)?;
                Ok(Val::Inside(id, Box::new(v)))
            }
            Val::Unbound => Ok(Val::Unbound),
            other => {
                let what = self.describe(&other);
                let _ = scope;
                let d = Diagnostic::error(
                    codes::UNKNOWN_NAME,
                    field.span,
                    format!("{what} has no part `{}`", field.name),
                )
                .help("loops, calls of graphs, split, topk, quantize_rows and matches of several values have parts");
                Err(self.report(d))
            }
        }
    }

    pub(crate) fn no_field(&mut self, field: &Ident, known: Vec<&str>) -> Reported {
        let mut d = Diagnostic::error(codes::UNKNOWN_NAME, field.span, format!("there is no `{}` here", field.name));
        d = match suggest(&field.name, known.iter().copied()) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None if known.is_empty() => d,
            None => d.help(format!("there is: {}", known.join(", "))),
        };
        self.report(d)
    }

    /// What a value is, for messages.
    pub(crate) fn describe(&self, v: &Val) -> String {
        match v {
            Val::Static(s) => s.describe().to_string(),
            Val::Tensor(tv) | Val::LoopVar(_, tv) => self.func.ty(tv.id).to_string(),
            Val::State(_) => "a state".into(),
            Val::StateArray(id) => format!("state `{}`", self.module.state(*id).name),
            Val::Record(_) => "a group of values".into(),
            Val::Loop(_) => "a loop".into(),
            Val::Inside(..) => "a value inside a loop".into(),
            Val::Call(_) => "the result of a graph".into(),
            Val::Unbound => "a value that is not bound".into(),
        }
    }

    /// The value as a tensor, if it can be one; statics are not turned into tensors here.
    pub(crate) fn try_tensor(&mut self, v: Val, span: Span) -> Res<Option<Tv>> {
        match v {
            Val::Tensor(tv) | Val::LoopVar(_, tv) => Ok(Some(tv)),
            Val::Inside(id, inner) => self.cross_loop(id, *inner, span).map(Some),
            Val::Call(call) => match self.only_output(call)? {
                Some(v) => self.try_tensor(v, span),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The value as a tensor; scalars known before the run become constants.
    pub(crate) fn tensor_of(&mut self, scope: ScopeId, v: Val, span: Span) -> Res<Tv> {
        if let Val::Static(s) = &v {
            return self.materialize(scope, s, None, span);
        }
        if matches!(v, Val::Unbound) && self.symbolic {
            return Err(Reported);
        }
        match self.try_tensor(v.clone(), span)? {
            Some(tv) => Ok(tv),
            None => {
                let what = self.describe(&v);
                let mut d = Diagnostic::error(
                    codes::DTYPE_MISMATCH,
                    span,
                    format!("a tensor is expected here, this is {what}"),
                );
                if let Val::Call(_) | Val::Record(_) = v {
                    d = d.help("name the part that is meant: `x.part`");
                }
                Err(self.report(d))
            }
        }
    }

    /// The value of an expression that must be known before the run.
    pub(crate) fn static_of(&mut self, scope: ScopeId, e: &'a Expr) -> Res<Static> {
        match self.expr(scope, e)? {
            Val::Static(s) => Ok(s),
            Val::Unbound if self.symbolic => Err(Reported),
            other => {
                let what = self.describe(&other);
                let d = Diagnostic::error(
                    codes::NOT_STATIC,
                    e.span,
                    format!("this must be known before the run, it is {what}"),
                );
                Err(self.report(d))
            }
        }
    }

    /// The value of an expression that must be an integer known before the run, possibly symbolic.
    pub(crate) fn static_int(&mut self, scope: ScopeId, e: &'a Expr) -> Res<Dim> {
        match self.static_of(scope, e)? {
            Static::Int(d) => Ok(d),
            other => {
                let d = Diagnostic::error(
                    codes::NOT_STATIC,
                    e.span,
                    format!("an integer is expected here, this is {}", other.describe()),
                );
                Err(self.report(d))
            }
        }
    }

    pub(crate) fn static_error(&mut self, e: StaticError, span: Span) -> Reported {
        match e {
            StaticError::Wrong(text) => {
                let d = Diagnostic::error(codes::BAD_ATTRIBUTE, span, text);
                self.report(d)
            }
            StaticError::Symbolic if self.symbolic => Reported,
            StaticError::Symbolic => {
                let d = Diagnostic::error(codes::UNBOUND_DIM, span, "this depends on a dim that has no value yet")
                    .help("bind it with `--set NAME=VALUE` or in the system file");
                self.report(d)
            }
        }
    }

    fn unary(&mut self, scope: ScopeId, op: UnaryOp, x: &'a Expr, span: Span) -> Res<Val> {
        let v = self.expr(scope, x)?;
        if let Val::Static(s) = &v {
            return statics::unary(op, s).map(Val::Static).map_err(|e| self.static_error(e, span));
        }
        if let Val::Unbound = v {
            return Ok(v);
        }
        let tv = self.tensor_of(scope, v, x.span)?;
        let code = if op == UnaryOp::Neg { Opcode::Neg } else { Opcode::Not };
        let id = self.emit1(scope, code, &[Arg::of(tv, x.span)], Attrs::new(), span)?;
        Ok(Val::Tensor(Tv { id, storage: tv.storage, span }))
    }

    fn binary(&mut self, scope: ScopeId, op: BinaryOp, a: &'a Expr, b: &'a Expr, span: Span) -> Res<Val> {
        let left = self.expr(scope, a);
        if let (BinaryOp::And | BinaryOp::Or, Ok(Val::Static(Static::Bool(l)))) = (op, &left)
            && *l == (op == BinaryOp::Or)
        {
            return left;
        }
        // Both sides are looked at before the first error ends the expression.
        let right = self.expr(scope, b);
        let (left, right) = (left?, right?);
        if let (Val::Static(x), Val::Static(y)) = (&left, &right) {
            return match statics::binary(op, x, y) {
                Ok(v) => Ok(Val::Static(v)),
                // A real number made from a symbol becomes a run-time value.
                Err(StaticError::Symbolic)
                    if matches!(op, BinaryOp::Div | BinaryOp::Mul | BinaryOp::Add | BinaryOp::Sub) =>
                {
                    let (x, y) = (x.clone(), y.clone());
                    let x = self.materialize(scope, &x, None, a.span)?;
                    let y = self.materialize(scope, &y, None, b.span)?;
                    self.elementwise(scope, binary_code(op), &[(x, a.span), (y, b.span)], span)
                }
                Err(e) => Err(self.static_error(e, span)),
            };
        }
        if matches!(left, Val::Unbound) || matches!(right, Val::Unbound) {
            return Ok(Val::Unbound);
        }
        let (x, y) = self.operand_pair(scope, left, a.span, right, b.span)?;
        self.elementwise(scope, binary_code(op), &[(x, a.span), (y, b.span)], span)
    }

    /// Two operands as tensors; a number takes the dtype of the tensor it meets.
    pub(crate) fn operand_pair(&mut self, scope: ScopeId, a: Val, sa: Span, b: Val, sb: Span) -> Res<(Tv, Tv)> {
        match (&a, &b) {
            (Val::Static(s), Val::Static(_)) => {
                let s = s.clone();
                let x = self.materialize(scope, &s, None, sa)?;
                let y = self.tensor_of(scope, b, sb)?;
                Ok((x, y))
            }
            (Val::Static(s), _) => {
                let s = s.clone();
                let y = self.tensor_of(scope, b, sb)?;
                let x = self.materialize(scope, &s, Some(y.storage), sa)?;
                Ok((x, y))
            }
            (_, Val::Static(s)) => {
                let s = s.clone();
                let x = self.tensor_of(scope, a, sa)?;
                let y = self.materialize(scope, &s, Some(x.storage), sb)?;
                Ok((x, y))
            }
            _ => {
                let x = self.tensor_of(scope, a, sa)?;
                let y = self.tensor_of(scope, b, sb)?;
                Ok((x, y))
            }
        }
    }

    /// An elementwise op: its result keeps the promoted storage dtype, to be rounded later.
    pub(crate) fn elementwise(&mut self, scope: ScopeId, code: Opcode, args: &[(Tv, Span)], span: Span) -> Res<Val> {
        let mut args = args.to_vec();
        // The quotient of integers is an f32 number, or what the policy makes of one.
        if code == Opcode::Div && self.module.numerics == Numerics::F64 {
            for (tv, at) in &mut args {
                *tv = self.real_operand(scope, *tv, *at)?;
            }
        }
        let operands: Vec<Arg> = args.iter().map(|(tv, s)| Arg::of(*tv, *s)).collect();
        let id = self.emit1(scope, code, &operands, Attrs::new(), span)?;
        let have = self.tensor_type(id).dtype;
        let values = if code == Opcode::Where { &args[1..] } else { &args[..] };
        let storage = values
            .iter()
            .map(|(tv, _)| tv.storage)
            .reduce(|a, b| a.promote(b).unwrap_or(have))
            .filter(|s| s.is_float() && have.is_float() && s.compute() == have)
            .unwrap_or(have);
        Ok(Val::Tensor(Tv { id, storage, span }))
    }

    /// A written type in a scope.
    pub(crate) fn type_of(&mut self, scope: ScopeId, ty: &'a TypeExpr) -> Res<TensorType> {
        match &ty.kind {
            TypeKind::State => {
                let d = Diagnostic::error(codes::STATE_MISUSE, ty.span, "a state cannot stand here");
                Err(self.report(d))
            }
            TypeKind::Tensor { dist, dtype, dims } => {
                let dtype = match dtype {
                    None => DType::F32,
                    Some(name) => self.dtype_named(name)?,
                };
                let mut out = Vec::with_capacity(dims.len());
                for d in dims {
                    out.push(self.static_int(scope, d)?);
                }
                Ok(self.applied(TensorType { dtype, dims: out, dist: *dist }))
            }
        }
    }

    pub(crate) fn dtype_named(&mut self, name: &Ident) -> Res<DType> {
        match DType::from_name(&name.name) {
            Some(d) => Ok(d),
            None => {
                let mut d =
                    Diagnostic::error(codes::TYPE_SYNTAX, name.span, format!("there is no dtype `{}`", name.name));
                let known: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
                d = match suggest(&name.name, known.iter().copied()) {
                    Some(near) => d.help(format!("did you mean `{near}`?")),
                    None => d.help(format!("dtypes: {}", known.join(", "))),
                };
                Err(self.report(d))
            }
        }
    }

    /// Checks a value against the type written for its node, and casts it to its dtype.
    pub(crate) fn ascribe(&mut self, scope: ScopeId, v: Val, ty: &'a TypeExpr) -> Res<Val> {
        let want = self.type_of(scope, ty)?;
        let any = matches!(&ty.kind, TypeKind::Tensor { dtype: None, .. });
        let tv = self.tensor_of(scope, v, ty.span)?;
        let have = self.tensor_type(tv.id);
        if have.dims != want.dims {
            let d =
                Diagnostic::error(codes::DIM_MISMATCH, ty.span, format!("declared as {want}, but the value is {have}"))
                    .related(tv.span, "the value");
            return Err(self.report(d));
        }
        if want.dist && !have.dist {
            let d = Diagnostic::error(
                codes::NOT_A_LAW,
                ty.span,
                format!("declared as a distribution, but the value is {have}"),
            )
            .related(tv.span, "the value");
            return Err(self.report(d));
        }
        if any || have.dtype == want.dtype {
            return Ok(Val::Tensor(tv));
        }
        let attrs = Attrs::from([("dtype", crate::ir::Attr::DType(want.dtype))]);
        let id = self.emit1(scope, Opcode::Cast, &[Arg::of(tv, ty.span)], attrs, ty.span)?;
        Ok(Val::Tensor(Tv { id, storage: want.dtype, span: tv.span }))
    }
}

/// The names of a chain `a.b.c`.
pub(crate) fn dotted(e: &Expr) -> Option<Vec<&str>> {
    match &e.kind {
        ExprKind::Name(n) => Some(vec![n]),
        ExprKind::Attr(base, field) => {
            let mut path = dotted(base)?;
            path.push(&field.name);
            Some(path)
        }
        _ => None,
    }
}

fn binary_code(op: BinaryOp) -> Opcode {
    match op {
        BinaryOp::Or => Opcode::Or,
        BinaryOp::And => Opcode::And,
        BinaryOp::Eq => Opcode::Eq,
        BinaryOp::Ne => Opcode::Ne,
        BinaryOp::Lt => Opcode::Lt,
        BinaryOp::Le => Opcode::Le,
        BinaryOp::Gt => Opcode::Gt,
        BinaryOp::Ge => Opcode::Ge,
        BinaryOp::Add => Opcode::Add,
        BinaryOp::Sub => Opcode::Sub,
        BinaryOp::Mul => Opcode::Mul,
        BinaryOp::Div => Opcode::Div,
        BinaryOp::FloorDiv => Opcode::FloorDiv,
        BinaryOp::Mod => Opcode::Mod,
        BinaryOp::Pow => Opcode::Pow,
    }
}
