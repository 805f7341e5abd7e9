//! The verifier: every rule of the graph IR, checked on any [`Module`], however malformed.
//!
//! It never panics, reports every violation (not only the first) and reports nothing on a module that keeps the rules.
//! A violation is a bug of whatever made the module, never of the user. `docs/ir.md` lists the rules.

mod control;
mod error;
mod linear;
mod ops;
mod refs;
mod scope;
mod tables;
pub(crate) mod tree;
mod types;

pub use control::loop_types;
pub use error::{Site, VerifyError};
pub use tree::MAX_NESTING;

use super::{Func, FuncId, Module, RegionId, Value, ValueId};
use crate::ty::Type;
use std::collections::BTreeSet;
use tree::{RegionNode, Tree};

/// Every violated rule of `module`: first those of its tables, then function by function in textual order.
pub fn verify(module: &Module) -> Vec<VerifyError> {
    let symbols: BTreeSet<&str> = module.symbols.iter().map(|s| s.name.as_str()).collect();
    let mut found = tables::check(module, &symbols);
    for (i, func) in module.funcs.iter().enumerate() {
        let id = FuncId(i as u32);
        let mut tree = Tree::new(id, func);
        let faults = std::mem::take(&mut tree.faults);
        let mut cx = Cx { module, symbols: &symbols, id, func, tree: &tree, errors: faults };
        cx.signature();
        if let Some(body) = &tree.body {
            scope::check(&mut cx, body);
            ops::check(&mut cx, body);
            control::check(&mut cx, body);
            linear::check(&mut cx, body);
        }
        let mut errors = cx.errors;
        errors.sort_by_key(|(site, _)| (tree.place(*site), *site));
        found.extend(errors);
    }
    let mut seen = BTreeSet::new();
    found.retain(|e| seen.insert(e.clone()));
    found.into_iter().map(|(site, message)| VerifyError::new(module, site, message)).collect()
}

/// True if a value of type `have` can stand where `want` is declared: a distribution is also a plain tensor.
fn fits(have: &Type, want: &Type) -> bool {
    match (have, want) {
        (Type::Tensor(h), Type::Tensor(w)) => h.dtype == w.dtype && h.dims == w.dims && (h.dist || !w.dist),
        _ => have == want,
    }
}

/// What the checks of one function share.
struct Cx<'a> {
    module: &'a Module,
    symbols: &'a BTreeSet<&'a str>,
    id: FuncId,
    func: &'a Func,
    tree: &'a Tree,
    errors: Vec<(Site, String)>,
}

impl<'a> Cx<'a> {
    fn error(&mut self, site: Site, message: impl Into<String>) {
        self.errors.push((site, message.into()));
    }

    /// The type of a value, if the value exists.
    fn ty(&self, v: ValueId) -> Option<&'a Type> {
        self.func.values.get(v.index()).map(|v: &Value| &v.ty)
    }

    fn show(&self, v: ValueId) -> String {
        self.tree.show(v)
    }

    fn yields(&self, region: &RegionNode) -> &'a [ValueId] {
        &self.func.region(region.id).yields
    }

    /// Checks values against types; `what` names an entry, as in "carried value". `same` compares a value's type with
    /// the one it must have.
    fn expect_types(
        &mut self,
        site: Site,
        what: &str,
        have: &[ValueId],
        want: &[Type],
        same: fn(&Type, &Type) -> bool,
    ) {
        for (i, (&v, want)) in have.iter().zip(want).enumerate() {
            if let Some(ty) = self.ty(v)
                && !same(ty, want)
            {
                let shown = self.show(v);
                self.error(site, format!("{what} {i} must be {want}, {shown} is {ty}"));
            }
        }
    }

    fn signature(&mut self) {
        let (func, site) = (self.func, Site::Func(self.id));
        if func.name.is_empty() {
            self.error(site, "a function needs a name");
        }
        let Some(body) = func.regions.get(func.body.index()) else { return };
        let lists = [
            ("input", &func.inputs, &body.params, "parameters"),
            ("output", &func.outputs, &body.yields, "yielded values"),
        ];
        for (what, names, values, are) in lists {
            if names.len() != values.len() {
                self.error(site, format!("{} {what} names for {} {are} of the body", names.len(), values.len()));
            }
            let mut seen = BTreeSet::new();
            for (i, name) in names.iter().enumerate() {
                if name.is_empty() || !seen.insert(name) {
                    self.error(site, format!("{what} {i} needs a name of its own, it has \"{name}\""));
                }
            }
        }
        let params = body.params.iter().enumerate().map(|(i, v)| (Site::Param(self.id, func.body, i as u32), *v));
        let yields = body.yields.iter().map(|v| (Site::Yield(self.id, func.body), *v));
        for (site, v) in params.chain(yields).collect::<Vec<_>>() {
            if self.ty(v).is_some_and(Type::is_state) {
                let shown = self.show(v);
                self.error(site, format!("{shown} is a state: states enter by state_open and leave by state_close"));
            }
        }
    }

    fn region_site(&self, id: RegionId) -> Site {
        Site::Region(self.id, id)
    }
}
