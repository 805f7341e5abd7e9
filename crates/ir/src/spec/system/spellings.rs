//! Questions to config.json: several spellings of one key, and keys that may be absent.

use super::values::{Get, Miss, Values};
use crate::diag::{Diagnostic, Span, codes};
use crate::spec::expr::Expr;
use crate::spec::statics::{self, Static};
use std::collections::BTreeMap;

impl Values<'_> {
    /// Several spellings of one key: those that are present must agree, and one must be.
    pub(super) fn same(
        &self,
        args: &[Expr],
        component: Option<&str>,
        locals: &BTreeMap<String, Static>,
        span: Span,
    ) -> Get {
        let mut found: Option<(Static, &Expr)> = None;
        for e in args {
            match self.get(e, component, locals) {
                Ok(v) => match &found {
                    None => found = Some((v, e)),
                    Some((first, at)) if statics::equal(first, &v) != Ok(true) => {
                        let text = format!("{e} says {v}, but {at}, another spelling of the same key, says {first}");
                        let mut d = Diagnostic::error(codes::CONFIG_KEY, e.span, text)
                            .related(at.span, format!("this says {first}"));
                        for c in self.checkpoints_of(e) {
                            d = self
                                .with_checkpoint(d, c)
                                .help(format!("make them agree in {}/config.json", self.configs[c].dir));
                        }
                        return Err(self.report(d));
                    }
                    Some(_) => {}
                },
                Err(Miss::Absent(_)) => {}
                Err(other) => return Err(other),
            }
        }
        match found {
            Some((v, _)) => Ok(v),
            None => {
                let spellings: Vec<String> = args.iter().map(|a| a.to_string()).collect();
                let mut d = Diagnostic::error(
                    codes::CONFIG_KEY,
                    span,
                    format!("config.json has none of {}", spellings.join(", ")),
                )
                .help("a key of training has no default: add it to config.json, or write its value here");
                if let Some(c) = args.iter().flat_map(|a| self.checkpoints_of(a)).next() {
                    d = self.with_checkpoint(d, c);
                }
                Err(Miss::Absent(Box::new(d)))
            }
        }
    }

    /// Whether config.json lacks a key or says null, or says one of the values behind it.
    pub(super) fn unset(&self, args: &[Expr], component: Option<&str>, locals: &BTreeMap<String, Static>) -> Get {
        let Some((key, values)) = args.split_first().filter(|(key, _)| self.config_object(key).is_none()) else {
            return Ok(Static::Bool(false));
        };
        let said = match self.get(key, component, locals) {
            Err(Miss::Absent(_)) | Ok(Static::None) => return Ok(Static::Bool(true)),
            Ok(said) => said,
            Err(other) => return Err(other),
        };
        for v in values {
            if statics::equal(&said, &self.get(v, component, locals)?) == Ok(true) {
                return Ok(Static::Bool(true));
            }
        }
        Ok(Static::Bool(false))
    }
}
