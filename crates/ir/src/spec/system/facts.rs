//! What bindings and limits may ask of weights, pools, serving and configurations.

use super::decl::*;
use super::patches::from_json;
use super::values::{Config, Get, Miss, Values, path_of};
use crate::diag::{Diagnostic, Span, codes, suggest};
use crate::spec::expr::{Expr, Ident};
use crate::spec::statics::Static;
use serde_json::Value as Json;
use std::collections::BTreeMap;

impl<'s> Values<'s> {
    /// Whether everything that a component declares is known.
    pub(super) fn known(&self, component: &str) -> bool {
        self.component_files.get(component).is_some_and(|f| !self.files.list[*f].partial)
    }

    pub(super) fn declares(&self, component: &str, name: &str) -> bool {
        self.component_files.get(component).is_some_and(|f| {
            let f = &self.files.list[*f];
            f.dims.iter().any(|d| d.name.name == name)
                || f.lists.iter().any(|l| l.name.name == name)
                || f.params.iter().any(|p| p.name.name == name)
        })
    }

    pub(super) fn weight_dtype(&self, component: &str, weight: &str) -> Option<Static> {
        let f = &self.files.list[*self.component_files.get(component)?];
        let w = f.weights.iter().find(|w| w.name.name == weight)?;
        match &w.ty.kind {
            crate::spec::expr::TypeKind::Tensor { dtype: Some(d), .. } => Some(Static::Str(d.name.clone())),
            _ => None,
        }
    }

    /// Where the dtype of `component.weight.dtype` is written.
    pub fn weight_dtype_span(&self, path: &[&str]) -> Option<Span> {
        let [component, weight, "dtype"] = path else { return None };
        let f = &self.files.list[*self.component_files.get(*component)?];
        f.weights.iter().find(|w| w.name.name == *weight).map(|w| w.ty.span)
    }

    pub(super) fn serve(&self, key: &str, span: Span) -> Get {
        let set = format!("serve.{key}");
        if let Some((e, _)) = self.sets.get(&set) {
            return self.get(e, None, &BTreeMap::new());
        }
        match self.decl.serve.iter().find(|(n, _)| n.name == key) {
            Some((_, e)) => self.get(e, None, &BTreeMap::new()),
            None => Err(self.report(Diagnostic::error(codes::MISSING_KEY, span, format!("`serve` has no `{key}`")))),
        }
    }

    pub(super) fn pool_fact(&self, p: &PoolDecl, fact: &str, span: Span) -> Get {
        let word = |w: &Ident| Ok(Static::Str(w.name.clone()));
        match fact {
            "kind" => word(&p.kind),
            "dtype" => match (&p.dtype, self.pool_state(p)) {
                (Some(d), _) => word(d),
                (None, Some(s)) => word(&s.dtype),
                (None, None) => Err(Miss::Reported),
            },
            "slots" => Ok(p.slots.as_ref().map_or(Static::None, |s| Static::Str(s.name.clone()))),
            "ring" => match &p.ring {
                Some(e) => self.get(e, None, &BTreeMap::new()),
                None => Ok(Static::None),
            },
            other => Err(self.report(
                Diagnostic::error(codes::UNKNOWN_NAME, span, format!("a pool has no `{other}`"))
                    .help("kind, dtype, slots or ring"),
            )),
        }
    }

    fn pool_state(&self, p: &PoolDecl) -> Option<&crate::spec::ast::StateDef> {
        let (component, state) = p.of.as_ref()?;
        let f = &self.files.list[*self.component_files.get(&component.name)?];
        f.states.iter().find(|s| s.name.name == state.name)
    }

    /// The diagnostic with the place that chose the checkpoint.
    pub(super) fn with_checkpoint(&self, d: Diagnostic, name: &str) -> Diagnostic {
        if self.directories.contains_key(name) {
            return d;
        }
        let decl = self.decl.checkpoints.iter().find(|c| c.name.name == name);
        match decl.and_then(|c| c.path.as_ref()) {
            Some((_, span)) => d.related(*span, format!("checkpoint `{name}`")),
            None => d,
        }
    }

    /// The checkpoints an expression reads.
    pub(super) fn checkpoints_of(&self, e: &Expr) -> Vec<&str> {
        path_of(e).and_then(|p| self.configs.get_key_value(p[0])).map(|(k, _)| k.as_str()).into_iter().collect()
    }

    /// The mapping that a path into config.json leads to.
    pub(super) fn config_object(&self, e: &Expr) -> Option<&Json> {
        let path = path_of(e)?;
        self.config_json(&path).filter(|v| v.is_object())
    }

    /// What a path into config.json leads to.
    pub(super) fn config_json(&self, path: &[&str]) -> Option<&Json> {
        let config = self.configs.get(*path.first()?)?;
        path[1..].iter().try_fold(&config.json, |at, key| at.get(*key))
    }

    pub(super) fn config_key(&self, name: &str, config: &Config, path: &[&str], span: Span) -> Get {
        let mut at = &config.json;
        for (i, key) in path.iter().enumerate() {
            match at.get(key) {
                Some(next) => at = next,
                None => {
                    let place = if i == 0 {
                        "config.json".to_string()
                    } else {
                        format!("config.json's `{}`", path[..i].join("."))
                    };
                    let mut d = Diagnostic::error(
                        codes::CONFIG_KEY,
                        span,
                        format!("{place} of checkpoint `{name}` has no `{key}`"),
                    );
                    let known =
                        at.as_object().map(|o| o.keys().map(String::as_str).collect::<Vec<_>>()).unwrap_or_default();
                    d = match suggest(key, known.iter().copied()) {
                        Some(near) => d.help(format!("did you mean `{near}`? The file is in {}", config.dir)),
                        None => d.help(format!("the file is in {}", config.dir)),
                    };
                    return Err(Miss::Absent(Box::new(self.with_checkpoint(d, name))));
                }
            }
        }
        match from_json(at) {
            Some(v) => Ok(v),
            None => Err(self.report(Diagnostic::error(
                codes::CONFIG_KEY,
                span,
                format!(
                    "`{}` of checkpoint `{name}` is not a number, word, truth value or list of them",
                    path.join(".")
                ),
            ))),
        }
    }
}
