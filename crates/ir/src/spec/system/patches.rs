//! What `--set` changes in the configurations of checkpoints.

use super::decl::*;
use super::values::{Values, path_of};
use crate::spec::expr::{Expr, ExprKind};
use crate::spec::statics::Static;
use serde_json::Value as Json;

/// A config.json key whose value was bound on the command line instead.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    pub checkpoint: String,
    pub path: Vec<String>,
    pub value: Json,
}

impl Values<'_> {
    /// The config.json keys the values of `--set` stand for: those their bindings read as they are.
    pub fn patches(&self) -> Vec<Patch> {
        let mut out = Vec::new();
        for (name, (e, _)) in self.sets {
            let (owner, local) = name.split_once('.').unwrap_or(("", name));
            let b = self.component(owner).map_or(&self.decl.bindings, |c| &c.bindings);
            let simple = b.dims.iter().chain(&b.params).find(|(n, _)| n.name == local).map(|(_, e)| e);
            let list = b.lists.iter().find(|(n, _)| n.name == local).and_then(|(_, l)| match l {
                ListBinding::Whole(e) => Some(e),
                ListBinding::Each { .. } => None,
            });
            let Some(binding) = simple.or(list) else { continue };
            let Ok(value) = self.binding(self.component(owner).map(|_| owner), local, e.span) else { continue };
            let spellings: Vec<&Expr> = match &binding.kind {
                ExprKind::Call { callee, args, .. } if matches!(&callee.kind, ExprKind::Name(n) if n == "same") => {
                    args.iter().collect()
                }
                _ => vec![binding],
            };
            for s in spellings {
                let Some(path) = path_of(s) else { continue };
                let Some(config) = self.configs.get(path[0]) else { continue };
                let there = path[1..].iter().try_fold(&config.json, |at, key| at.get(*key)).is_some();
                if there && path.len() > 1 {
                    let path_text = path[1..].iter().map(|p| p.to_string()).collect();
                    out.push(Patch { checkpoint: path[0].to_string(), path: path_text, value: to_json(&value) });
                }
            }
        }
        out
    }
}

fn to_json(v: &Static) -> Json {
    match v {
        Static::Int(d) => d.as_const().map_or(Json::Null, Json::from),
        Static::Float(f) => Json::from(*f),
        Static::Bool(b) => Json::from(*b),
        Static::Str(s) => Json::from(s.clone()),
        Static::None => Json::Null,
        Static::List(items) => Json::Array(items.iter().map(to_json).collect()),
    }
}

pub(super) fn from_json(v: &Json) -> Option<Static> {
    Some(match v {
        Json::Null => Static::None,
        Json::Bool(b) => Static::Bool(*b),
        Json::Number(n) => match n.as_i64() {
            Some(i) => Static::from(i),
            None => Static::Float(n.as_f64()?),
        },
        Json::String(s) => Static::Str(s.clone()),
        Json::Array(items) => Static::List(items.iter().map(from_json).collect::<Option<Vec<_>>>()?),
        Json::Object(_) => return None,
    })
}
