//! Parsing: line by line, going on after a failure at the next line.

use super::body::Body;
use super::cursor::{Cursor, Fail, Result};
use super::lex::{Token, tokens};
use super::{FORMAT_VERSION, tables};
use crate::ir::verify::Site;
use crate::ir::{FuncId, Module, ValueId};
use crate::ty::Numerics;
use std::collections::BTreeMap;
use std::fmt;

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParseError {
    /// Line, from one.
    pub line: u32,
    /// Column in characters, from one.
    pub col: u32,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.col, self.message)
    }
}

/// The lines a module was read from.
#[derive(Clone, Debug, Default)]
pub struct Lines(BTreeMap<Site, u32>);

impl Lines {
    /// The line of a place, from one; every place of a parsed module has one.
    pub fn line(&self, site: Site) -> Option<u32> {
        self.0.get(&site).copied()
    }
}

/// Reads a module. Every line that cannot be read is reported; a module is only given if there is none. The module need
/// not keep the rules of the IR: [`crate::ir::verify::verify`] checks them.
pub fn parse(text: &str) -> std::result::Result<Module, Vec<ParseError>> {
    parse_mapped(text).map(|(module, _)| module)
}

/// By function, the values by the numbers they are written with.
pub(crate) type Numbers = Vec<BTreeMap<u32, ValueId>>;

/// [`parse`], with the line of every place.
pub fn parse_mapped(text: &str) -> std::result::Result<(Module, Lines), Vec<ParseError>> {
    read(text).map(|(module, lines, _)| (module, lines))
}

/// [`parse`], with the numbers of values.
pub(crate) fn parse_numbered(text: &str) -> std::result::Result<(Module, Numbers), Vec<ParseError>> {
    read(text).map(|(module, _, numbers)| (module, numbers))
}

fn read(text: &str) -> std::result::Result<(Module, Lines, Numbers), Vec<ParseError>> {
    let mut p = Parser::default();
    for (i, line) in text.lines().enumerate() {
        p.number = i as u32 + 1;
        let read = match tokens(line) {
            Ok(tokens) => p.line(line, &tokens),
            Err(fail) => {
                p.body.iter_mut().for_each(|b| b.unreadable(line));
                Err(fail)
            }
        };
        if let Err(fail) = read {
            p.fail(p.number, fail);
        }
        if p.stop {
            break;
        }
    }
    p.end_func();
    if !p.stop && p.header.is_none() {
        p.fail(1, (1, "the text has no `module` line".to_owned()));
    }
    match p.header {
        Some((name, numerics)) if p.errors.is_empty() => {
            p.module.name = name;
            p.module.numerics = numerics;
            Ok((p.module, p.lines, p.numbers))
        }
        _ => {
            p.errors.sort();
            Err(p.errors)
        }
    }
}

struct Parser {
    number: u32,
    versioned: bool,
    stop: bool,
    header: Option<(String, Numerics)>,
    module: Module,
    /// Rows of a table that were met, readable or not.
    weights: usize,
    states: usize,
    funcs: u32,
    body: Option<Body>,
    lines: Lines,
    numbers: Numbers,
    errors: Vec<ParseError>,
}

impl Default for Parser {
    fn default() -> Self {
        let module = Module {
            name: String::new(),
            numerics: Numerics::F32,
            symbols: Vec::new(),
            weights: Vec::new(),
            states: Vec::new(),
            funcs: Vec::new(),
        };
        Parser {
            number: 1,
            versioned: false,
            stop: false,
            header: None,
            module,
            weights: 0,
            states: 0,
            funcs: 0,
            body: None,
            lines: Lines::default(),
            numbers: Vec::new(),
            errors: Vec::new(),
        }
    }
}

impl Parser {
    fn fail(&mut self, line: u32, (col, message): Fail) {
        self.errors.push(ParseError { line, col, message });
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
        if c.eat_word("func") {
            self.end_func();
            let id = FuncId(self.funcs);
            self.funcs += 1;
            let name = c.string("the function's name in quotes").and_then(|name| c.end().map(|()| name));
            self.body = Some(Body::new(id, name.clone().unwrap_or_default(), self.number));
            return name.map(|_| ());
        }
        if let Some(body) = &mut self.body {
            return body.line(tokens, end, self.number);
        }
        self.table(&mut c)
    }

    fn version(&mut self, c: &mut Cursor) -> Result<()> {
        let col = c.col();
        if !(c.eat_word("spinec") && c.eat("-") && c.eat_word("ir")) {
            self.stop = true;
            return Err((col, format!("the first line must be `spinec-ir {FORMAT_VERSION}`")));
        }
        let col = c.col();
        let version = c.int()?;
        if version != i64::from(FORMAT_VERSION) {
            self.stop = true;
            return Err((col, format!("format version {version} is not supported, {FORMAT_VERSION} is")));
        }
        self.lines.0.insert(Site::Module, self.number);
        c.end()
    }

    fn table(&mut self, c: &mut Cursor) -> Result<()> {
        let (col, line) = (c.col(), self.number);
        if c.eat_word("module") {
            if self.header.is_some() {
                return Err((col, "a second `module` line".to_owned()));
            }
            // An unreadable header still counts as one.
            self.header = Some((String::new(), Numerics::F32));
            self.header = Some(tables::module(c)?);
        } else if c.eat_word("symbol") {
            let symbol = tables::symbol(c)?;
            self.lines.0.insert(Site::Symbol(self.module.symbols.len()), line);
            self.module.symbols.push(symbol);
        } else if c.eat_word("weight") {
            let position = self.weights;
            self.weights += 1;
            let weight = tables::weight(c, position)?;
            self.lines.0.insert(Site::Weight(crate::ir::WeightId(position as u32)), line);
            self.module.weights.push(weight);
        } else if c.eat_word("state") {
            let position = self.states;
            self.states += 1;
            let state = tables::state(c, position)?;
            self.lines.0.insert(Site::State(crate::ir::StateId(position as u32)), line);
            self.module.states.push(state);
        } else {
            return c.fail("`module`, `symbol`, `weight`, `state` or `func`");
        }
        Ok(())
    }

    fn end_func(&mut self) {
        let Some(body) = self.body.take() else { return };
        match body.finish() {
            Ok((func, lines, numbers)) => {
                self.module.funcs.push(func);
                self.numbers.push(numbers);
                self.lines.0.extend(lines);
            }
            Err(failures) => {
                for (line, fail) in failures {
                    self.fail(line, fail);
                }
            }
        }
    }
}
