//! Whether what is bound is what the components that take it declare.

use super::decl::Bindings;
use super::fit;
use super::fit::near_word;
use super::values::{Get, Values, defines};
use crate::diag::{Diagnostic, Span, codes};
use crate::spec::ast::{ListKind, ParamKind};
use crate::spec::expr::{Expr, ExprKind, Ident};
use crate::spec::statics::Static;

impl Values<'_> {
    /// The value, if it is what every component that takes it declares.
    pub(super) fn fitted(&self, owner: Option<&str>, name: &str, v: Static, at: Span, e: Option<&Expr>) -> Get {
        for (c, file) in self.component_files {
            let takes = match owner {
                Some(o) => o == c,
                None => {
                    let own = self.component(c).is_some_and(|c| defines(&c.bindings, name));
                    !own && !self.sets.contains_key(&format!("{c}.{name}"))
                }
            };
            if takes && let Err(d) = fit(&self.files.list[*file], name, v.clone(), at) {
                return Err(self.report(self.with_source(*d, e)));
            }
        }
        Ok(v)
    }

    /// The diagnostic with the config.json a value was read from as the place to change it.
    fn with_source(&self, d: Diagnostic, e: Option<&Expr>) -> Diagnostic {
        let mut paths = Vec::new();
        e.iter().for_each(|e| super::given::read(e, &mut paths));
        let file = paths.iter().find_map(|p| self.config_json(p).and(self.configs.get(p[0])));
        match file {
            Some(c) if d.help.is_none() => d.help(format!("change it in {}/config.json, or bind another value", c.dir)),
            _ => d,
        }
    }

    /// A bare word, where parameter or list `name` of a component is of words and nothing else has that name.
    pub(super) fn word(&self, owner: Option<&str>, name: &str, e: &Expr) -> Option<Get> {
        let ExprKind::Name(word) = &e.kind else { return None };
        let has = |b: &Bindings| defines(b, word);
        if has(&self.decl.bindings) || owner.and_then(|c| self.component(c)).is_some_and(|c| has(&c.bindings)) {
            return None;
        }
        let mut declared: Option<(&Ident, &[String])> = None;
        for (_, file) in self.component_files.iter().filter(|(c, _)| owner.is_none_or(|o| o == c.as_str())) {
            let f = &self.files.list[*file];
            let params = f.params.iter().filter_map(|p| match &p.kind {
                ParamKind::OneOf(words) => Some((&p.name, words.as_slice())),
                _ => None,
            });
            let lists = f.lists.iter().filter_map(|l| match &l.kind {
                ListKind::OneOf(words) => Some((&l.name, words.as_slice())),
                ListKind::Int => None,
            });
            for (n, words) in params.chain(lists).filter(|(n, _)| n.name == name) {
                if words.contains(word) {
                    return Some(Ok(Static::Str(word.clone())));
                }
                declared = Some((n, words));
            }
        }
        let (declared, words) = declared?;
        let text = format!("`{name}` is one of {}, `{word}` is none of them", words.join(", "));
        let d = Diagnostic::error(codes::CONFIG_KEY, e.span, text).related(declared.span, "declared here");
        Some(Err(self.report(match near_word(words, &Static::Str(word.clone())) {
            Some(near) => d.help(near),
            None => d,
        })))
    }
}
