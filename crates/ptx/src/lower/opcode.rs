//! Opcode text taken apart: each modifier must be accounted for.

use crate::error::{Diagnostic, Pos};
use crate::syntax::ast::Type;

/// The modifiers of one opcode; whatever no one takes is an error.
pub(super) struct Mods<'a> {
    pub(super) text: &'a str,
    pub(super) parts: Vec<&'a str>,
    used: Vec<bool>,
    pos: Pos,
}

impl<'a> Mods<'a> {
    pub(super) fn new(text: &'a str, pos: Pos) -> Self {
        let parts: Vec<_> = text.split('.').skip(1).collect();
        let used = vec![false; parts.len()];
        Self { text, parts, used, pos }
    }

    /// Takes the first unused modifier with this text.
    pub(super) fn take(&mut self, name: &str) -> bool {
        let found = (0..self.parts.len()).find(|&k| !self.used[k] && self.parts[k] == name);
        if let Some(k) = found {
            self.used[k] = true;
        }
        found.is_some()
    }

    /// Takes one of several names.
    pub(super) fn take_any(&mut self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|n| self.take(n))
    }

    /// Takes every modifier that only advises the caches.
    pub(super) fn take_hints(&mut self) {
        for k in 0..self.parts.len() {
            let p = self.parts[k];
            let hint = ["L1::", "L2::"].iter().any(|h| p.starts_with(h)) && p != "L2::cache_hint";
            if hint || matches!(p, "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "unified") {
                self.used[k] = true;
            }
        }
    }

    /// Takes the last modifier as a type.
    pub(super) fn take_type(&mut self) -> Result<Type, Diagnostic> {
        let last = self.parts.len().checked_sub(1).filter(|&k| !self.used[k]);
        match last.and_then(|k| Type::from_name(self.parts[k]).map(|t| (k, t))) {
            Some((k, t)) => {
                self.used[k] = true;
                Ok(t)
            }
            None => Err(self.unsupported()),
        }
    }

    pub(super) fn unsupported(&self) -> Diagnostic {
        Diagnostic::unsupported(self.pos, format!("instruction `{}` is not supported", self.text))
    }

    /// Succeeds when every modifier was taken.
    pub(super) fn finish(&self) -> Result<(), Diagnostic> {
        match self.used.iter().position(|u| !u) {
            None => Ok(()),
            Some(k) => Err(Diagnostic::unsupported(
                self.pos,
                format!("modifier `.{}` of `{}` is not supported", self.parts[k], self.text),
            )),
        }
    }
}
