//! What a system file declares must be used and must fit the engine; names mean one thing.

use super::decl::*;
use super::engine;
use crate::diag::{Diagnostic, Diagnostics, codes, suggest};
use crate::spec::ast::{GraphDecl, GraphFile, InputDecl};
use crate::spec::expr::{ExprKind, Ident, TypeKind};
use crate::spec::hygiene::{Uses, determined, graph as graph_hygiene, shadowed, unused};
use crate::spec::lower::Files;
use crate::spec::yaml::Text;
use std::collections::{BTreeMap, BTreeSet};

/// The files of a system: what it declares, and the graphs it loads.
pub(super) struct Check<'s> {
    pub decl: &'s SystemDecl,
    pub files: &'s Files,
    /// File of each component.
    pub component_files: &'s BTreeMap<String, usize>,
}

impl Check<'_> {
    pub fn run(&self, diags: &mut Diagnostics) {
        self.names(diags);
        for p in &self.decl.phases {
            self.phase(p, diags);
        }
        self.phases(diags);
        for e in &self.decl.entries {
            self.entry(e, diags);
        }
        self.pools(diags);
        let uses = self.uses();
        // What could not be read may have used anything.
        if !uses.broken {
            self.unused(&uses, diags);
        }
    }

    /// Pools share a name space with components and checkpoints.
    fn names(&self, diags: &mut Diagnostics) {
        for p in &self.decl.pools {
            let components = self.decl.components.iter().map(|c| &c.name);
            if let Some(other) =
                components.chain(self.decl.checkpoints.iter().map(|c| &c.name)).find(|o| o.name == p.name.name)
            {
                shadowed(&p.name, other, diags);
            }
        }
        for name in self.decl.components.iter().map(|c| &c.name).chain(self.decl.pools.iter().map(|p| &p.name)) {
            if name.name == "serve" {
                diags.push(Diagnostic::error(codes::SHADOWED, name.span, "`serve` is the name of the serving bounds"));
            }
        }
    }

    /// Names visible in a phase or entry before its own.
    fn outer<'a>(
        &'a self,
        variants: &'a [(Ident, Vec<String>)],
        diags: &mut Diagnostics,
    ) -> BTreeMap<&'a str, &'a Ident> {
        let b = &self.decl.bindings;
        let mut names: BTreeMap<&str, &Ident> = BTreeMap::new();
        for n in b.dims.iter().chain(&b.params).map(|(n, _)| n).chain(b.lists.iter().map(|(n, _)| n)) {
            names.insert(&n.name, n);
        }
        for (n, _) in variants {
            match names.get(n.name.as_str()) {
                Some(other) => shadowed(n, other, diags),
                None => {
                    names.insert(&n.name, n);
                }
            }
        }
        names
    }

    fn phase(&self, p: &PhaseDecl, diags: &mut Diagnostics) {
        let outer = self.outer(&p.variants, diags);
        graph_hygiene(&p.graph, &outer, diags);
        determined(&p.graph, &[], diags);
        misplaced("a phase", &p.graph, diags);
        if engine::phase(&p.name.name).is_none() {
            let known: Vec<&str> = engine::PHASES.iter().map(|p| p.name).collect();
            let d =
                Diagnostic::error(codes::SYSTEM, p.name.span, format!("the engine runs no phase `{}`", p.name.name));
            diags.push(near(d, &p.name.name, &known, "its phases"));
            return;
        }
        for (name, words) in &p.variants {
            self.variant(p, name, words, diags);
        }
        for i in &p.graph.inputs {
            match &i.from {
                Some((phase, output)) => self.wire(p, phase, output, diags),
                None => fed(p, i, diags),
            }
        }
        for known in engine::OUTPUTS.iter().filter(|o| o.phase == p.name.name) {
            if !p.graph.outputs.iter().any(|o| o.name.name == known.name) {
                let text = format!("phase `{}` has no output `{}`, which the engine reads", p.name.name, known.name);
                let d = Diagnostic::error(codes::SYSTEM, p.name.span, text);
                diags.push(d.help(format!("{}: {} {}", known.name, known.written(), known.doc)));
            }
        }
        for o in &p.graph.outputs {
            let wired = self.decl.phases.iter().flat_map(|p| &p.graph.inputs).filter_map(|i| i.from.as_ref());
            let read = wired.into_iter().any(|(phase, out)| phase.name == p.name.name && out.name == o.name.name);
            if !read && engine::output(&p.name.name, &o.name.name).is_none() {
                let known: Vec<&str> =
                    engine::OUTPUTS.iter().filter(|o| o.phase == p.name.name).map(|o| o.name).collect();
                let text = format!(
                    "output `{}` of phase `{}` is read by no phase and not by the engine",
                    o.name.name, p.name.name
                );
                let mut d = Diagnostic::error(codes::UNUSED, o.name.span, text);
                d = match suggest(&o.name.name, known.iter().copied()) {
                    Some(near) => d.help(format!("did you mean `{near}`?")),
                    None => d.help("remove it, or wire an input of another phase from it"),
                };
                diags.push(d);
            }
        }
    }

    fn variant(&self, p: &PhaseDecl, name: &Ident, words: &[String], diags: &mut Diagnostics) {
        let Some(choice) = engine::CHOICES.iter().find(|c| c.name == name.name) else {
            let known: Vec<&str> = engine::CHOICES.iter().map(|c| c.name).collect();
            let d = Diagnostic::error(codes::SYSTEM, name.span, format!("the engine makes no choice `{}`", name.name));
            diags.push(near(d, &name.name, &known, "its choices"));
            return;
        };
        for (i, w) in words.iter().enumerate() {
            if words[..i].contains(w) {
                diags.push(Diagnostic::error(
                    codes::SYSTEM,
                    name.span,
                    format!("variant `{}` has the word `{w}` twice", name.name),
                ));
            } else if !choice.words.contains(&w.as_str()) {
                let d = Diagnostic::error(
                    codes::SYSTEM,
                    name.span,
                    format!("the engine never chooses `{}` for `{}`", w, name.name),
                );
                diags.push(near(d, w, choice.words, "it chooses"));
            }
        }
        let wanted = choice.words.iter().filter(|w| choice.complete && !(p.name.name == "prefill" && **w == "mixed"));
        let missing: Vec<&str> = wanted.filter(|w| !words.iter().any(|have| have == *w)).copied().collect();
        if !missing.is_empty() {
            let text = format!("variant `{}` of phase `{}` lacks {}", name.name, p.name.name, missing.join(" and "));
            diags.push(Diagnostic::error(codes::SYSTEM, name.span, text).help(choice.doc));
        }
    }

    fn wire(&self, p: &PhaseDecl, phase: &Ident, output: &Ident, diags: &mut Diagnostics) {
        let Some(source) = self.decl.phases.iter().find(|q| q.name.name == phase.name) else {
            let known: Vec<&str> = self.decl.phases.iter().map(|p| p.name.name.as_str()).collect();
            let d = Diagnostic::error(codes::UNKNOWN_NAME, phase.span, format!("there is no phase `{}`", phase.name));
            diags.push(near(d, &phase.name, &known, "the phases"));
            return;
        };
        if source.name.name == p.name.name {
            let d =
                Diagnostic::error(codes::CYCLE, phase.span, format!("phase `{}` is wired from itself", p.name.name));
            diags.push(d.help("what a phase needs from an earlier cycle is state"));
            return;
        }
        if !source.graph.outputs.iter().any(|o| o.name.name == output.name) {
            let known: Vec<&str> = source.graph.outputs.iter().map(|o| o.name.name.as_str()).collect();
            let d = Diagnostic::error(
                codes::UNKNOWN_NAME,
                output.span,
                format!("phase `{}` has no output `{}`", phase.name, output.name),
            )
            .related(source.name.span, "the phase");
            diags.push(near(d, &output.name, &known, "its outputs"));
        }
    }

    /// The phases as a whole. A system without any is one for `eval`.
    fn phases(&self, diags: &mut Diagnostics) {
        let has = |name: &str| self.decl.phases.iter().any(|p| p.name.name == name);
        if self.decl.phases.is_empty() {
            if self.decl.entries.is_empty() {
                diags.push(
                    Diagnostic::error(
                        codes::SYSTEM,
                        self.decl.name.span,
                        format!("system `{}` has neither phases nor entries", self.decl.name.name),
                    )
                    .help("phases are what `run` does, entries what `eval` does"),
                );
            }
            return;
        }
        let drafts = engine::PHASES.iter().any(|p| !p.always && has(p.name));
        for p in engine::PHASES.iter().filter(|p| (p.always || drafts) && !has(p.name)) {
            let at = self.decl.phases.iter().find(|q| engine::phase(&q.name.name).is_some_and(|k| !k.always));
            let text = format!("system `{}` has no phase `{}`", self.decl.name.name, p.name);
            let mut d = Diagnostic::error(codes::SYSTEM, self.decl.name.span, text);
            if let Some(at) = at.filter(|_| !p.always) {
                d = d.related(at.name.span, "needed by a system that drafts");
            }
            diags.push(d.help(format!("{}: {}", p.name, p.doc)));
        }
    }

    fn entry(&self, e: &EntryDecl, diags: &mut Diagnostics) {
        let outer = self.outer(&[], diags);
        graph_hygiene(&e.graph, &outer, diags);
        determined(&e.graph, &[], diags);
        misplaced("an entry", &e.graph, diags);
        for i in &e.graph.inputs {
            if let Some((phase, _)) = &i.from {
                let d = Diagnostic::error(
                    codes::SYSTEM,
                    phase.span,
                    format!("input `{}` of an entry cannot be wired from a phase", i.name.name),
                );
                diags.push(d.help("give it a type: it is fed from a file"));
            }
        }
        let Some(s) = &e.stream else { return };
        for o in &s.block_outputs {
            if !e.graph.outputs.iter().any(|have| have.name.name == o.name) {
                let known: Vec<&str> = e.graph.outputs.iter().map(|o| o.name.name.as_str()).collect();
                let d = Diagnostic::error(
                    codes::UNKNOWN_NAME,
                    o.span,
                    format!("entry `{}` has no output `{}`", e.name.name, o.name),
                );
                diags.push(near(d, &o.name, &known, "its outputs"));
            }
        }
        if !e.graph.inputs.iter().any(|i| i.name.name == "tokens") {
            diags.push(
                Diagnostic::error(
                    codes::SYSTEM,
                    s.span,
                    format!("entry `{}` works on a stream and has no input `tokens`", e.name.name),
                )
                .help("a stream feeds tokens, positions and rows"),
            );
        }
    }

    /// Every state has one pool.
    fn pools(&self, diags: &mut Diagnostics) {
        let mut seen: BTreeMap<String, &Ident> = BTreeMap::new();
        for p in &self.decl.pools {
            let Some((c, s)) = &p.of else { continue };
            if let Some(other) = seen.insert(format!("{}.{}", c.name, s.name), &p.name) {
                diags.push(
                    Diagnostic::error(
                        codes::SYSTEM,
                        p.name.span,
                        format!("state `{}.{}` has two pools", c.name, s.name),
                    )
                    .related(other.span, "the other pool"),
                );
            }
        }
        for c in &self.decl.components {
            let Some(f) = self.component_files.get(&c.name.name).map(|i| &self.files.list[*i]) else { continue };
            for s in &f.states {
                if !seen.contains_key(&format!("{}.{}", c.name.name, s.name.name)) {
                    let kind = pool_kind(s);
                    diags.push(
                        Diagnostic::error(
                            codes::SYSTEM,
                            c.name.span,
                            format!("state `{}.{}` has no pool", c.name.name, s.name.name),
                        )
                        .related(s.name.span, "declared here")
                        .help(format!("pools: {{{}_{}: {{of: {0}.{1}, kind: {kind}}}}}", c.name.name, s.name.name)),
                    );
                }
            }
        }
    }

    /// Names the expressions of the system file use.
    fn uses(&self) -> Uses {
        let mut used = Uses::default();
        let mut bindings = |b: &Bindings| {
            b.dims.iter().chain(&b.params).for_each(|(_, e)| used.expr(e));
            for (_, l) in &b.lists {
                match l {
                    ListBinding::Whole(e) => used.expr(e),
                    ListBinding::Each { extent, value, .. } => {
                        used.expr(extent);
                        used.expr(value);
                    }
                }
            }
        };
        bindings(&self.decl.bindings);
        self.decl.components.iter().for_each(|c| bindings(&c.bindings));
        self.decl.limits.iter().for_each(|l| used.expr(&l.require));
        self.decl.serve.iter().for_each(|(_, e)| used.expr(e));
        self.decl.pools.iter().filter_map(|p| p.ring.as_ref()).for_each(|e| used.expr(e));
        self.decl.widths.iter().flat_map(|(_, rules)| rules).for_each(|r| used.expr(&r.width));
        self.decl.phases.iter().for_each(|p| used.graph(&p.graph));
        self.decl.entries.iter().for_each(|e| used.graph(&e.graph));
        for line in self.decl.components.iter().flat_map(|c| &c.tensors) {
            let TensorSource::Share(target) = &line.source else { continue };
            for (_, hole) in super::tables::template(target) {
                let Some(hole) = hole else { continue };
                let text = Text { value: hole, verbatim_at: None };
                if let Some(e) = crate::spec::expr::parse_expr(&text, line.span, &mut Diagnostics::default()) {
                    used.expr(&e);
                }
            }
        }
        used
    }

    fn unused(&self, used: &Uses, diags: &mut Diagnostics) {
        let b = &self.decl.bindings;
        let taken_over = |name: &str| {
            self.decl.components.iter().any(|c| {
                let file = self.component_files.get(&c.name.name).map(|i| &self.files.list[*i]);
                !c.bindings.names().iter().any(|n| n == name) && file.is_none_or(|f| declares(f, name))
            })
        };
        let kinds = [
            ("dim", b.dims.iter().map(|(n, _)| n).collect::<Vec<_>>()),
            ("parameter", b.params.iter().map(|(n, _)| n).collect()),
        ];
        for (kind, names) in kinds.into_iter().chain([("list", b.lists.iter().map(|(n, _)| n).collect())]) {
            for n in names {
                // The rows of a block are also asked for by the engine.
                if n.name != "B" && !used.names.contains(&n.name) && !taken_over(&n.name) {
                    unused(kind, n, diags);
                }
            }
        }
        for c in &self.decl.checkpoints {
            let named = |n: &Option<Ident>| n.as_ref().is_some_and(|n| n.name == c.name.name);
            let read = self.decl.components.iter().any(|k| {
                named(&k.checkpoint)
                    || k.tensors
                        .iter()
                        .any(|l| matches!(&l.source, TensorSource::Tensor { checkpoint, .. } if named(checkpoint)))
            });
            if !read && !used.names.contains(&c.name.name) {
                unused("checkpoint", &c.name, diags);
            }
        }
        let mut called: BTreeSet<&str> = BTreeSet::new();
        let graphs = self.decl.phases.iter().map(|p| &p.graph).chain(self.decl.entries.iter().map(|e| &e.graph));
        let mut calls = Uses::default();
        graphs.for_each(|g| calls.graph(g));
        called.extend(calls.called.iter().chain(&calls.names).map(String::as_str));
        for c in &self.decl.components {
            let shared = self
                .decl
                .components
                .iter()
                .flat_map(|k| &k.tensors)
                .any(|l| matches!(&l.source, TensorSource::Share(t) if t.split('.').next() == Some(&c.name.name)));
            if !called.contains(c.name.name.as_str()) && !shared {
                unused("component", &c.name, diags);
            }
            for (s, _) in &c.strings {
                let hole = format!("{{{}}}", s.name);
                let read = c
                    .tensors
                    .iter()
                    .any(|l| matches!(&l.source, TensorSource::Tensor { name, .. } if name.contains(&hole)));
                if !read {
                    unused("string", s, diags);
                }
            }
        }
    }
}

fn declares(f: &GraphFile, name: &str) -> bool {
    f.dims.iter().any(|d| d.name.name == name)
        || f.lists.iter().any(|l| l.name.name == name)
        || f.params.iter().any(|p| p.name.name == name)
}

fn pool_kind(s: &crate::spec::ast::StateDef) -> &'static str {
    use crate::spec::ast::StateShape;
    match s.shape {
        StateShape::KvPool { .. } => "dense",
        StateShape::Recurrent { .. } => "replay, ring: 16",
        StateShape::Window { .. } => "window",
    }
}

/// Phases and entries have no weights of their own, and nobody looks into them from outside.
fn misplaced(what: &str, g: &GraphDecl, diags: &mut Diagnostics) {
    for w in &g.weights {
        diags.push(Diagnostic::error(
            codes::SYSTEM,
            w.name.span,
            format!("{what} has no weights: they belong to the graphs it calls"),
        ));
    }
    for e in &g.expose {
        diags.push(Diagnostic::error(codes::SYSTEM, e.name.span, format!("{what} exposes nothing: make it an output")));
    }
    for (s, _) in &g.state_inputs {
        diags.push(Diagnostic::error(
            codes::SYSTEM,
            s.span,
            format!("{what} takes no state: the graphs it calls have their own"),
        ));
    }
}

/// An input without a wire must be one the engine feeds, in the type it feeds.
fn fed(p: &PhaseDecl, i: &InputDecl, diags: &mut Diagnostics) {
    let (phase, name) = (p.name.name.as_str(), i.name.name.as_str());
    // A wire that could not be read was reported.
    let Some(ty) = &i.ty else { return };
    if matches!(&ty.kind, TypeKind::Tensor { dims, .. } if dims.iter().any(|d| d.kind == ExprKind::Broken)) {
        return;
    }
    let Some(known) = engine::input(phase, name) else {
        let mut d =
            Diagnostic::error(codes::SYSTEM, i.name.span, format!("the engine feeds no `{name}` to phase `{phase}`"));
        let elsewhere = engine::INPUTS.iter().find(|k| k.name == name);
        let makes = |q: &str| engine::OUTPUTS.iter().any(|o| o.phase == q && o.name == name);
        let all: Vec<&str> = engine::INPUTS.iter().filter(|k| k.phases.contains(&phase)).map(|k| k.name).collect();
        d = match (elsewhere, suggest(name, all.iter().copied())) {
            (Some(k), _) => d.help(format!("it feeds it to {}", k.phases.join(", "))),
            (None, Some(near)) => d.help(format!("did you mean `{near}`?")),
            (None, None) => match engine::PHASES.iter().find(|q| makes(q.name)) {
                Some(q) => d.help(format!("wire it: {name}: {{from: {}.{name}}}", q.name)),
                None => d.help(format!("it feeds {}; anything else is wired: {{from: PHASE.OUTPUT}}", all.join(", "))),
            },
        };
        diags.push(d);
        return;
    };
    let TypeKind::Tensor { dist, dtype, dims } = &ty.kind else { return };
    let same_dtype = dtype.as_ref().is_some_and(|d| d.name == known.dtype.name());
    let fixed = |k: usize| known.axes[k].parse::<i64>().ok().filter(|_| k > 0);
    let same_dims = dims.len() == known.axes.len()
        && dims.iter().enumerate().all(|(k, d)| fixed(k).is_none_or(|v| d.kind == ExprKind::Int(v)));
    if *dist || !same_dtype || !same_dims {
        let d = Diagnostic::error(
            codes::SYSTEM,
            ty.span,
            format!("the engine feeds `{name}` as {}, this is {}", known.written(), ty),
        );
        diags.push(d.help(known.doc));
    }
}

fn near(d: Diagnostic, name: &str, known: &[&str], what: &str) -> Diagnostic {
    match suggest(name, known.iter().copied()) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => d.help(format!("{what}: {}", known.join(", "))),
    }
}
