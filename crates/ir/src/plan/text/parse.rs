//! Parsing: line by line, going on after a failure at the next line.

use super::phase::PhaseParser;
use super::{FORMAT_VERSION, ParseError};
use crate::ir::text::cursor::{Cursor, Fail, Result};
use crate::ir::text::lex::{Token, tokens};
use crate::ir::text::{Numbers, parse_numbered};
use crate::ir::{Module, WeightId};
use crate::plan::{DerivedWeight, Phase, Plan};
use std::collections::BTreeMap;

/// Reads a plan. Every line that cannot be read is reported; a plan is only given if there is none. The plan need not keep the
/// rules of plans: [`crate::plan::verify::verify`] checks them.
pub fn parse(text: &str) -> std::result::Result<Plan, Vec<ParseError>> {
    let mut p = Parser::default();
    for (i, line) in text.lines().enumerate() {
        p.number = i as u32 + 1;
        p.any(line);
        if p.stop {
            break;
        }
    }
    p.end_section();
    p.finish()
}

/// Where a line belongs.
#[derive(Default)]
enum Section {
    #[default]
    Head,
    /// Text of a module, the line before its first, and whether it is the load module.
    Module(String, u32, bool),
    Phase(Box<PhaseParser>),
}

#[derive(Default)]
struct Parser {
    number: u32,
    versioned: bool,
    stop: bool,
    section: Section,
    reassociate: Option<bool>,
    rules: BTreeMap<String, usize>,
    limits_hit: Vec<String>,
    derived: Vec<DerivedWeight>,
    /// Which modules have been met, readable or not.
    met: [bool; 2],
    module: Option<(Module, Numbers)>,
    load: Option<Module>,
    phases: Vec<Phase>,
    /// Phases met, readable or not.
    count: usize,
    errors: Vec<ParseError>,
}

impl Parser {
    fn fail(&mut self, line: u32, (col, message): Fail) {
        self.errors.push(ParseError { line, col, message });
    }

    fn any(&mut self, line: &str) {
        // Lines of a module are its parser's, whatever they hold; `section` begins none of them.
        if let Section::Module(text, ..) = &mut self.section
            && line.split_whitespace().next() != Some("section")
        {
            text.push_str(line);
            text.push('\n');
            return;
        }
        let read = tokens(line).and_then(|tokens| self.line(line, &tokens));
        if let Err(fail) = read {
            self.fail(self.number, fail);
        }
    }

    fn line(&mut self, line: &str, tokens: &[Token]) -> Result<()> {
        if tokens.is_empty() {
            return Ok(());
        }
        let end = line.chars().count() as u32 + 1;
        let mut c = Cursor::new(tokens, end);
        if !self.versioned {
            self.versioned = true;
            return self.version(&mut c);
        }
        if c.eat_word("section") {
            self.end_section();
            return self.begin_section(&mut c);
        }
        match &mut self.section {
            Section::Phase(phase) => phase.line(&mut c, self.number),
            Section::Head => self.head(&mut c),
            Section::Module(..) => Ok(()),
        }
    }

    fn version(&mut self, c: &mut Cursor) -> Result<()> {
        let col = c.col();
        if !(c.eat_word("spinec") && c.eat("-") && c.eat_word("plan")) {
            self.stop = true;
            return Err((col, format!("the first line must be `spinec-plan {FORMAT_VERSION}`")));
        }
        let col = c.col();
        let version = c.int()?;
        if version != i64::from(FORMAT_VERSION) {
            self.stop = true;
            return Err((col, format!("format version {version} is not supported, {FORMAT_VERSION} is")));
        }
        c.end()
    }

    fn head(&mut self, c: &mut Cursor) -> Result<()> {
        let col = c.col();
        if c.eat_word("reassociate") {
            if self.reassociate.is_some() {
                return Err((col, "a second `reassociate` line".to_owned()));
            }
            // An unreadable line still counts as one.
            self.reassociate = Some(false);
            let yes = c.eat_word("true");
            if !yes && !c.eat_word("false") {
                return c.fail("`true` or `false`");
            }
            self.reassociate = Some(yes);
        } else if c.eat_word("rule") {
            let name = c.string("the rule's name in quotes")?.to_owned();
            let count = usize::try_from(c.natural()?).map_err(|_| (col, "a count is too large".to_owned()))?;
            if self.rules.insert(name, count).is_some() {
                return Err((col, "this rule stands twice".to_owned()));
            }
        } else if c.eat_word("limit") {
            self.limits_hit.push(c.string("the limit in quotes")?.to_owned());
        } else if c.eat_word("derived") {
            let weight = WeightId(c.index()?);
            c.expect_key("bytes")?;
            let bytes = c.natural()?;
            c.expect_key("of")?;
            let of = c.list("[", "]", |c| c.string("a weight's name in quotes").map(str::to_owned))?;
            let reason = c.string("the reason in quotes")?.to_owned();
            self.derived.push(DerivedWeight { weight, of, bytes, reason });
        } else {
            return c.fail("`reassociate`, `rule`, `limit`, `derived` or `section`");
        }
        c.end()
    }

    fn begin_section(&mut self, c: &mut Cursor) -> Result<()> {
        let col = c.col();
        // What follows an unreadable section line is not the head's.
        self.section = Section::Module(String::new(), self.number, true);
        let load = c.eat_word("load");
        if load || c.eat_word("module") {
            self.section = Section::Module(String::new(), self.number, load);
            if std::mem::replace(&mut self.met[usize::from(load)], true) {
                return Err((col, "this section stands twice".to_owned()));
            }
            return c.end();
        }
        if !c.eat_word("phase") {
            self.section = Section::Phase(PhaseParser::lost(self.number).into());
            return c.fail("`module`, `load` or `phase`");
        }
        let index = self.count;
        self.count += 1;
        let func = self.module.as_ref().and_then(|(m, n)| Some((m.funcs.get(index)?.clone(), n.get(index)?.clone())));
        let known = func.as_ref().map(|(f, _)| f.name.clone());
        let phase = match func {
            Some((func, numbers)) => PhaseParser::new(func, numbers, self.number),
            None => PhaseParser::lost(self.number),
        };
        self.section = Section::Phase(Box::new(phase));
        let col = c.col();
        let name = c.string("the function's name in quotes")?;
        if !self.met[0] {
            return Err((col, "a phase comes behind `section module`".to_owned()));
        }
        match known {
            Some(known) if known != name => {
                Err((col, format!("phase {index} is that of the function {known:?}: phases follow the functions")))
            }
            None if self.module.is_some() => Err((col, format!("the module has no function {index}"))),
            _ => c.end(),
        }
    }

    fn end_section(&mut self) {
        match std::mem::take(&mut self.section) {
            Section::Head => {}
            Section::Module(text, before, load) => match parse_numbered(&text) {
                Ok((module, _)) if load => self.load = Some(module),
                Ok(found) => self.module = Some(found),
                Err(errors) => {
                    let moved = errors.into_iter().map(|e| ParseError { line: e.line + before, ..e });
                    self.errors.extend(moved);
                }
            },
            Section::Phase(phase) => match phase.finish() {
                Ok(phase) => self.phases.push(phase),
                Err((line, fail)) => self.fail(line, fail),
            },
        }
    }

    fn finish(mut self) -> std::result::Result<Plan, Vec<ParseError>> {
        if !self.stop {
            for (met, what) in [
                (self.reassociate.is_some(), "`reassociate` line"),
                (self.met[0], "`section module`"),
                (self.met[1], "`section load`"),
            ] {
                if !met {
                    self.fail(1, (1, format!("the text has no {what}")));
                }
            }
        }
        let funcs = self.module.as_ref().map_or(self.count, |(m, _)| m.funcs.len());
        if self.count < funcs {
            self.fail(self.number.max(1), (1, format!("{} phases for {funcs} functions", self.count)));
        }
        match (self.module, self.load, self.reassociate) {
            (Some((module, _)), Some(load), Some(reassociate)) if self.errors.is_empty() => Ok(Plan {
                module,
                load,
                derived: self.derived,
                phases: self.phases,
                reassociate,
                rules: self.rules,
                limits_hit: self.limits_hit,
            }),
            _ => {
                self.errors.sort();
                Err(self.errors)
            }
        }
    }
}
