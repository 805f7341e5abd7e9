//! Printing, plain and decorated with errors.

use super::FORMAT_VERSION;
use super::lex::{is_word, quote};
use crate::ir::verify::tree::{OpNode, RegionNode, Tree};
use crate::ir::verify::{Site, VerifyError};
use crate::ir::{Attr, Func, FuncId, Keep, Module, StateDecl, StateId, ValueId, Weight, WeightId};
use crate::ty::Dim;
use std::collections::{BTreeMap, BTreeSet};

/// The canonical text of a module. A malformed module is printed as far as it can be reached, for reading only.
pub fn print(module: &Module) -> String {
    let mut out = String::new();
    for line in lines(module) {
        out.push_str(&line.text);
        out.push('\n');
    }
    out
}

/// The text of a module with each error below the line it belongs to. As the additions are comments, the text still parses.
pub fn annotate(module: &Module, errors: &[VerifyError]) -> String {
    let lines = lines(module);
    let known: BTreeSet<Site> = lines.iter().flat_map(|l| l.sites.iter().copied()).collect();
    let mut at: BTreeMap<Site, Vec<&VerifyError>> = BTreeMap::new();
    for e in errors {
        let func = e.site.func().map(Site::Func).filter(|f| known.contains(f));
        let site = if known.contains(&e.site) { e.site } else { func.unwrap_or(Site::Module) };
        at.entry(site).or_default().push(e);
    }
    let mut out = String::new();
    for line in lines {
        out.push_str(&line.text);
        out.push('\n');
        let here: Vec<_> = line.sites.iter().filter_map(|s| at.remove(s)).flatten().collect();
        if !here.is_empty() {
            let indent = line.text.len() - line.text.trim_start().len();
            let marks = "~".repeat(line.text.trim().chars().count().saturating_sub(1));
            out.push_str(&format!("; {}^{marks}\n", " ".repeat(indent.saturating_sub(2))));
            for e in here {
                out.push_str(&format!("; error: {}\n", e.message.replace(['\n', '\r'], " ")));
            }
        }
    }
    out
}

struct Line {
    sites: Vec<Site>,
    text: String,
}

fn lines(module: &Module) -> Vec<Line> {
    let mut p = Printer { lines: Vec::new() };
    p.line(Site::Module, format!("spinec-ir {FORMAT_VERSION}"));
    p.lines.push(Line {
        sites: vec![],
        text: format!("module {} numerics={}", quote(&module.name), module.numerics.name()),
    });
    for (i, s) in module.symbols.iter().enumerate() {
        p.gap(i == 0);
        let bound = |b: Option<i64>| b.map_or_else(String::new, |v| v.to_string());
        p.line(Site::Symbol(i), format!("symbol {} {}..{}", s.name, bound(s.bounds.min), bound(s.bounds.max)));
    }
    for (i, w) in module.weights.iter().enumerate() {
        p.gap(i == 0);
        p.line(Site::Weight(WeightId(i as u32)), weight(i, w));
    }
    for (i, s) in module.states.iter().enumerate() {
        p.gap(i == 0);
        p.line(Site::State(StateId(i as u32)), state(i, s));
    }
    for (i, f) in module.funcs.iter().enumerate() {
        p.gap(true);
        p.func(FuncId(i as u32), f);
    }
    p.lines
}

fn weight(i: usize, w: &Weight) -> String {
    let mut out = format!("weight {i} {} : {}", quote(&w.name), w.ty);
    if !w.loops.is_empty() {
        let loops: Vec<String> = w.loops.iter().map(|(var, n)| format!("{}={n}", word(var))).collect();
        out.push_str(&format!(" loops({})", loops.join(", ")));
    }
    if !w.present.is_empty() {
        let mask: String = w.present.iter().map(|p| if *p { '1' } else { '0' }).collect();
        out.push_str(&format!(" present={mask}"));
    }
    if let Some(d) = w.storage {
        out.push_str(&format!(" storage={d}"));
    }
    if let Some(s) = &w.source {
        out.push_str(&format!(" source={} {}", quote(&s.checkpoint), quote(&s.tensor)));
    }
    out
}

fn state(i: usize, s: &StateDecl) -> String {
    let elements = match s.element.as_slice() {
        [] => String::new(),
        some => format!(" elements={}", list(some)),
    };
    format!("state {i} {} : {} count={}{elements}", quote(&s.name), s.version_type(), s.count)
}

/// A name, in quotes where it is not a word.
fn word(s: &str) -> String {
    if is_word(s) { s.to_owned() } else { quote(s) }
}

fn list<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(", "))
}

fn attr(a: &Attr) -> String {
    match a {
        Attr::Int(v) => v.to_string(),
        Attr::Float(v) if v.is_nan() => "nan".to_owned(),
        Attr::Float(v) => format!("{v:?}"),
        Attr::Bool(v) => v.to_string(),
        Attr::Str(v) => quote(v),
        Attr::Dim(v) => v.to_string(),
        Attr::Dims(v) => list::<Dim>(v),
        Attr::Ints(v) => list(v),
        Attr::DType(v) => v.to_string(),
        Attr::Keeps(v) => {
            let keep = |k: &Keep| match &k.at {
                None => k.axis.to_string(),
                Some(at) => format!("{} at {}", k.axis, list(at)),
            };
            list(&v.iter().map(keep).collect::<Vec<_>>())
        }
    }
}

struct Printer {
    lines: Vec<Line>,
}

impl Printer {
    fn line(&mut self, site: Site, text: String) {
        self.lines.push(Line { sites: vec![site], text });
    }

    fn gap(&mut self, wanted: bool) {
        if wanted {
            self.lines.push(Line { sites: vec![], text: String::new() });
        }
    }

    fn func(&mut self, id: FuncId, func: &Func) {
        let tree = Tree::new(id, func);
        let sites = vec![Site::Func(id), Site::Region(id, func.body)];
        self.lines.push(Line { sites, text: format!("func {}", quote(&func.name)) });
        let Some(body) = &tree.body else { return };
        let names = |list: &[String], i: usize| list.get(i).map_or_else(|| "?".to_owned(), |s| quote(s));
        for (i, &v) in body.params.iter().enumerate() {
            let text = format!("  input {} = {} : {}", names(&func.inputs, i), named(func, &tree, v), ty(func, v));
            self.line(Site::Param(id, body.id, i as u32), text);
        }
        self.ops(id, func, &tree, body, 1);
        let outputs: Vec<String> = func
            .region(body.id)
            .yields
            .iter()
            .enumerate()
            .map(|(i, v)| format!("{} = {}", names(&func.outputs, i), tree.show(*v)))
            .collect();
        self.line(Site::Yield(id, body.id), format!("  return {}", outputs.join(", ")).trim_end().to_owned());
    }

    fn ops(&mut self, id: FuncId, func: &Func, tree: &Tree, region: &RegionNode, depth: usize) {
        for node in &region.ops {
            self.line(Site::Op(id, node.id), format!("{}{}", "  ".repeat(depth), op(func, tree, node)));
            for inner in node.regions.iter().flatten() {
                let params: Vec<String> =
                    inner.params.iter().map(|v| format!("{} : {}", named(func, tree, *v), ty(func, *v))).collect();
                let mut sites = vec![Site::Region(id, inner.id)];
                sites.extend((0..func.region(inner.id).params.len()).map(|i| Site::Param(id, inner.id, i as u32)));
                let text = format!("{}region ({})", "  ".repeat(depth + 1), params.join(", "));
                self.lines.push(Line { sites, text });
                self.ops(id, func, tree, inner, depth + 2);
                let yields = shown(tree, &func.region(inner.id).yields);
                let text = format!("{}yield {yields}", "  ".repeat(depth + 2));
                self.line(Site::Yield(id, inner.id), text.trim_end().to_owned());
            }
        }
    }
}

fn shown(tree: &Tree, values: &[ValueId]) -> String {
    values.iter().map(|v| tree.show(*v)).collect::<Vec<_>>().join(", ")
}

/// A value where it is defined: with its names.
fn named(func: &Func, tree: &Tree, v: ValueId) -> String {
    let mut out = tree.show(v);
    for name in func.values.get(v.index()).iter().flat_map(|v| &v.names) {
        out.push(' ');
        out.push_str(&quote(name));
    }
    out
}

fn ty(func: &Func, v: ValueId) -> String {
    func.values.get(v.index()).map_or_else(|| "?".to_owned(), |v| v.ty.to_string())
}

fn op(func: &Func, tree: &Tree, node: &OpNode) -> String {
    let op = func.op(node.id);
    let mut out = String::new();
    if !op.results.is_empty() {
        let results: Vec<String> = op.results.iter().map(|v| named(func, tree, *v)).collect();
        out.push_str(&format!("{} = ", results.join(", ")));
    }
    out.push_str(&format!("{}({})", op.code.name(), shown(tree, &op.operands)));
    if !op.attrs.is_empty() {
        let attrs: Vec<String> = op.attrs.iter().map(|(name, a)| format!("{name}={}", attr(a))).collect();
        out.push_str(&format!(" {{{}}}", attrs.join(", ")));
    }
    if !op.results.is_empty() {
        let types: Vec<String> = op.results.iter().map(|v| ty(func, *v)).collect();
        out.push_str(&format!(" : {}", types.join(", ")));
    }
    if !op.loc.path.is_empty() {
        out.push_str(&format!(" at {}", quote(&op.loc.path)));
    }
    out
}
