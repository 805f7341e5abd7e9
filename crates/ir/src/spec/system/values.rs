//! Values bound before inference: dims, lists and parameters from config.json, the system file and the command line.

use super::decl::*;
use super::given::Sets;
use crate::diag::{Diagnostic, Diagnostics, Span, codes, suggest};
use crate::spec::expr::{BinaryOp, Expr, ExprKind, IndexItem, IndexKind};
use crate::spec::lower::Files;
use crate::spec::statics::{self, Static, StaticError};
use serde_json::Value as Json;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A checkpoint's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the checkpoint.
    pub dir: String,
    /// Contents of config.json, below the place the system file names.
    pub json: Json,
}

/// Evaluates bindings and limits, each binding once.
pub(crate) struct Values<'s> {
    pub decl: &'s SystemDecl,
    pub files: &'s Files,
    /// File of each component.
    pub component_files: &'s BTreeMap<String, usize>,
    pub configs: &'s BTreeMap<String, Config>,
    /// Values given on the command line by dotted name.
    pub sets: &'s Sets,
    /// Directories of checkpoints given on the command line.
    pub directories: &'s BTreeMap<String, String>,
    memo: RefCell<BTreeMap<String, Memo>>,
    pub diags: RefCell<Diagnostics>,
}

#[derive(Clone)]
enum Memo {
    Busy,
    Done(Static),
    Failed,
}

/// An error was reported, or the value is absent in a way the caller handles.
pub(crate) enum Miss {
    Reported,
    /// config.json has no such key.
    Absent(Box<Diagnostic>),
}

pub(super) type Get = Result<Static, Miss>;

impl<'s> Values<'s> {
    pub fn new(
        decl: &'s SystemDecl,
        files: &'s Files,
        component_files: &'s BTreeMap<String, usize>,
        configs: &'s BTreeMap<String, Config>,
        sets: &'s Sets,
        directories: &'s BTreeMap<String, String>,
    ) -> Self {
        Values {
            decl,
            files,
            component_files,
            configs,
            sets,
            directories,
            memo: RefCell::default(),
            diags: RefCell::default(),
        }
    }

    pub(super) fn report(&self, d: Diagnostic) -> Miss {
        self.diags.borrow_mut().push(d);
        Miss::Reported
    }

    /// The value of an expression, reporting whatever is wrong.
    pub fn eval(&self, e: &Expr, component: Option<&str>, locals: &BTreeMap<String, Static>) -> Option<Static> {
        match self.get(e, component, locals) {
            Ok(v) => Some(v),
            Err(Miss::Reported) => None,
            Err(Miss::Absent(d)) => {
                self.report(*d);
                None
            }
        }
    }

    pub(super) fn get(&self, e: &Expr, component: Option<&str>, locals: &BTreeMap<String, Static>) -> Get {
        let sub = |e: &Expr| self.get(e, component, locals);
        match &e.kind {
            ExprKind::Int(v) => Ok(Static::from(*v)),
            ExprKind::Float(v) => Ok(Static::Float(*v)),
            ExprKind::Bool(v) => Ok(Static::Bool(*v)),
            ExprKind::None => Ok(Static::None),
            ExprKind::Broken => Err(Miss::Reported),
            ExprKind::Str(s) => Ok(Static::Str(s.clone())),
            ExprKind::List(items) => items.iter().map(sub).collect::<Result<Vec<_>, _>>().map(Static::List),
            ExprKind::Unary(op, x) => statics::unary(*op, &sub(x)?).map_err(|err| self.wrong(err, e, component)),
            ExprKind::Binary(op, a, b) => {
                let left = sub(a)?;
                match (op, &left) {
                    (BinaryOp::And, Static::Bool(false)) | (BinaryOp::Or, Static::Bool(true)) => return Ok(left),
                    _ => {}
                }
                statics::binary(*op, &left, &sub(b)?).map_err(|err| self.wrong(err, e, component))
            }
            ExprKind::Index(base, items) => {
                let base = sub(base)?;
                let [IndexItem { kind: IndexKind::At(at), .. }] = items.as_slice() else {
                    return Err(self.report(
                        Diagnostic::error(codes::BAD_INDEX, e.span, "a list is indexed by one number")
                            .help("entries count from 0: list[0]"),
                    ));
                };
                let at_value = sub(at)?;
                match (&base, at_value.as_i64()) {
                    (Static::List(list), Some(i)) if i >= 0 && (i as usize) < list.len() => {
                        Ok(list[i as usize].clone())
                    }
                    _ => Err(self.report(
                        Diagnostic::error(codes::BAD_INDEX, at.span, format!("{base} has nothing at {at_value}"))
                            .help("entries of a list count from 0"),
                    )),
                }
            }
            ExprKind::Call { callee, args, kwargs } => {
                let ExprKind::Name(name) = &callee.kind else {
                    return Err(self.report(Diagnostic::error(
                        codes::UNKNOWN_FUNCTION,
                        callee.span,
                        "this cannot be called",
                    )));
                };
                if let Some((k, _)) = kwargs.first() {
                    return Err(self.report(Diagnostic::error(
                        codes::BAD_CALL,
                        k.span,
                        format!("`{name}` has no argument `{}`", k.name),
                    )));
                }
                match name.as_str() {
                    "same" => self.same(args, component, locals, e.span),
                    "unset" if !args.is_empty() => self.unset(args, component, locals),
                    "has" if args.len() == 1 && self.config_object(&args[0]).is_some() => Ok(Static::Bool(true)),
                    "has" if args.len() == 1 => match sub(&args[0]) {
                        Ok(_) => Ok(Static::Bool(true)),
                        Err(Miss::Absent(_)) => Ok(Static::Bool(false)),
                        Err(other) => Err(other),
                    },
                    "where" if args.len() == 3 => match sub(&args[0])? {
                        Static::Bool(c) => sub(if c { &args[1] } else { &args[2] }),
                        other => Err(self.report(Diagnostic::error(
                            codes::BAD_CALL,
                            args[0].span,
                            format!("a condition is true or false, this is {}", other.describe()),
                        ))),
                    },
                    _ => {
                        let values = args.iter().map(sub).collect::<Result<Vec<_>, _>>()?;
                        match statics::call(name, &values) {
                            Some(r) => r.map_err(|err| self.wrong(err, e, component)),
                            None => {
                                let known = statics::FUNCTIONS.iter().copied().chain(["same", "has", "unset"]);
                                let mut d = Diagnostic::error(
                                    codes::UNKNOWN_FUNCTION,
                                    callee.span,
                                    format!("there is no function `{name}` on values known before the run"),
                                );
                                if let Some(near) = suggest(name, known) {
                                    d = d.help(format!("did you mean `{near}`?"));
                                }
                                Err(self.report(d))
                            }
                        }
                    }
                }
            }
            ExprKind::Name(name) => {
                if let Some(v) = locals.get(name) {
                    return Ok(v.clone());
                }
                self.binding(component, name, e.span)
            }
            ExprKind::Attr(..) => match path_of(e) {
                Some(path) => self.path(&path, e.span),
                None => Err(self.report(Diagnostic::error(
                    codes::EXPR_SYNTAX,
                    e.span,
                    "only names can stand before a dot here",
                ))),
            },
        }
    }

    fn wrong(&self, err: StaticError, e: &Expr, component: Option<&str>) -> Miss {
        let text = match err {
            StaticError::Wrong(text) => text,
            StaticError::Symbolic => "this has no value yet".into(),
        };
        self.report(self.with_given(Diagnostic::error(codes::BAD_ATTRIBUTE, e.span, text), e, component))
    }

    /// A bound name as seen from a component (or from the system).
    pub fn binding(&self, component: Option<&str>, name: &str, span: Span) -> Get {
        let of_component = component.and_then(|c| self.component(c)).map(|c| &c.bindings);
        let key = match (component, of_component) {
            (Some(c), Some(b)) if defines(b, name) => format!("{c}.{name}"),
            (Some(c), _) if self.sets.contains_key(&format!("{c}.{name}")) => format!("{c}.{name}"),
            _ => name.to_string(),
        };
        let owner = if key.contains('.') { component } else { None };
        if let Some(memo) = self.memo.borrow().get(&key) {
            return match memo {
                Memo::Done(v) => Ok(v.clone()),
                Memo::Failed => Err(Miss::Reported),
                Memo::Busy => {
                    self.diags.borrow_mut().push(Diagnostic::error(
                        codes::CYCLE,
                        span,
                        format!("`{name}` needs its own value"),
                    ));
                    Err(Miss::Reported)
                }
            };
        }
        self.memo.borrow_mut().insert(key.clone(), Memo::Busy);
        let result = self.compute(&key, owner, name, span);
        let memo = match &result {
            Ok(v) => Memo::Done(v.clone()),
            Err(_) => Memo::Failed,
        };
        self.memo.borrow_mut().insert(key, memo);
        match result {
            // Somebody who asks again gets the same report once.
            Err(Miss::Absent(d)) => Err(self.report(*d)),
            other => other,
        }
    }

    fn compute(&self, key: &str, owner: Option<&str>, name: &str, span: Span) -> Get {
        let none = BTreeMap::new();
        let value = |e: &Expr| -> Get {
            let v = match &e.kind {
                ExprKind::List(items) => {
                    let word = |i: &Expr| self.word(owner, name, i).unwrap_or_else(|| self.get(i, owner, &none));
                    Static::List(items.iter().map(word).collect::<Result<_, _>>()?)
                }
                _ => self.word(owner, name, e).unwrap_or_else(|| self.get(e, owner, &none))?,
            };
            self.fitted(owner, name, v, e.span, Some(e))
        };
        if let Some((e, _)) = self.sets.get(key) {
            return value(e);
        }
        let b = match owner.and_then(|c| self.component(c)) {
            Some(c) => &c.bindings,
            None => &self.decl.bindings,
        };
        if let Some((_, e)) = b.dims.iter().chain(&b.params).find(|(n, _)| n.name == name) {
            return value(e);
        }
        match b.lists.iter().find(|(n, _)| n.name == name) {
            Some((_, ListBinding::Whole(e))) => value(e),
            Some((_, ListBinding::Each { var, extent, value })) => {
                let n = self.get(extent, owner, &none)?;
                let Some(n) = n.as_i64().filter(|n| (0..=100_000).contains(n)) else {
                    return Err(self.report(Diagnostic::error(
                        codes::NOT_STATIC,
                        extent.span,
                        format!("a list cannot have {n} entries"),
                    )));
                };
                let mut out = Vec::new();
                for i in 0..n {
                    let locals = BTreeMap::from([(var.name.clone(), Static::from(i))]);
                    out.push(self.get(value, owner, &locals)?);
                }
                let at = b.lists.iter().find(|(n, _)| n.name == name).map_or(span, |(n, _)| n.span);
                self.fitted(owner, name, Static::List(out), at, None)
            }
            None => {
                let mut known: Vec<String> = self.decl.bindings.names();
                if let Some(c) = owner.and_then(|c| self.component(c)) {
                    known.extend(c.bindings.names());
                }
                known.extend(self.configs.keys().cloned());
                let mut d = Diagnostic::error(codes::UNKNOWN_NAME, span, format!("nothing is named `{name}` here"));
                if let Some(near) = suggest(name, known.iter().map(String::as_str)) {
                    d = d.help(format!("did you mean `{near}`?"));
                }
                Err(self.report(d))
            }
        }
    }

    pub(super) fn component(&self, name: &str) -> Option<&'s ComponentDecl> {
        self.decl.components.iter().find(|c| c.name.name == name)
    }

    /// A dotted name: a component's value or weight, `serve`, a pool, a config.json key.
    pub fn path(&self, path: &[&str], span: Span) -> Get {
        let (first, rest) = (path[0], &path[1..]);
        if first == "serve"
            && let [key] = rest
        {
            return self.serve(key, span);
        }
        // A binding that is spelt like the key it reads, of a component named like its checkpoint: `eps: target.eps`.
        let itself = |name: &str| {
            let busy = matches!(self.memo.borrow().get(&format!("{first}.{name}")), Some(Memo::Busy));
            busy && self.configs.get(first).is_some_and(|c| c.json.get(name).is_some())
        };
        if let (Some(c), [name]) = (self.component(first), rest)
            && !itself(name)
            && (defines(&c.bindings, name)
                || self.sets.contains_key(&format!("{first}.{name}"))
                || (self.declares(first, name) && defines(&self.decl.bindings, name)))
        {
            return self.binding(Some(first), name, span);
        }
        if let (Some(_), [weight, "dtype"]) = (self.component(first), rest)
            && let Some(v) = self.weight_dtype(first, weight)
        {
            return Ok(v);
        }
        if let (Some(p), [fact]) = (self.decl.pools.iter().find(|p| p.name.name == first), rest) {
            return self.pool_fact(p, fact, span);
        }
        let read = |key: &str| self.configs.get(first).is_some_and(|c| c.json.get(key).is_some());
        if self.component(first).is_some() && !self.known(first) && rest.first().is_none_or(|key| !read(key)) {
            // Its graph file could not be read; that was reported.
            return Err(Miss::Reported);
        }
        if let Some(config) = self.configs.get(first) {
            return self.config_key(first, config, rest, span);
        }
        if self.decl.checkpoints.iter().any(|c| c.name.name == first) {
            // Its directory could not be read; that was reported.
            return Err(Miss::Reported);
        }
        let mut known: Vec<&str> = vec!["serve"];
        known.extend(self.configs.keys().map(String::as_str));
        known.extend(self.decl.components.iter().map(|c| c.name.name.as_str()));
        known.extend(self.decl.pools.iter().map(|p| p.name.name.as_str()));
        let mut d =
            Diagnostic::error(codes::UNKNOWN_NAME, span, format!("`{first}` is no component, checkpoint or pool"));
        if let Some(near) = suggest(first, known.iter().copied()) {
            d = d.help(format!("did you mean `{near}`?"));
        }
        Err(self.report(d))
    }
}

pub(super) fn path_of(e: &Expr) -> Option<Vec<&str>> {
    match &e.kind {
        ExprKind::Name(n) => Some(vec![n]),
        ExprKind::Attr(base, field) => {
            let mut p = path_of(base)?;
            p.push(&field.name);
            Some(p)
        }
        _ => None,
    }
}

pub(super) fn defines(b: &Bindings, name: &str) -> bool {
    b.dims.iter().chain(&b.params).any(|(n, _)| n.name == name) || b.lists.iter().any(|(n, _)| n.name == name)
}

impl Bindings {
    /// Every bound name.
    pub fn names(&self) -> Vec<String> {
        let simple = self.dims.iter().chain(&self.params).map(|(n, _)| n.name.clone());
        simple.chain(self.lists.iter().map(|(n, _)| n.name.clone())).collect()
    }
}
