//! Functions: inputs, ops, regions, yields.

use super::cursor::{Cursor, Fail, Result};
use super::lex::{Kind, Token};
use crate::ir::verify::Site;
use crate::ir::{Attrs, Func, FuncId, Loc, Op, OpId, Region, RegionId, Value, ValueDef, ValueId};
use crate::ops::Opcode;
use std::collections::{BTreeMap, BTreeSet};

/// A region whose `yield` or `return` has not come yet.
struct Open {
    region: RegionId,
    line: u32,
    last_op: Option<OpId>,
}

/// A function, the lines of its places and the numbers its values are written with.
type Finished = (Func, Vec<(Site, u32)>, BTreeMap<u32, ValueId>);

/// A function being read. Operands hold written numbers until the function ends, as a use may precede its definition.
pub(super) struct Body {
    id: FuncId,
    func: Func,
    line: u32,
    numbers: BTreeMap<u32, ValueId>,
    uses: Vec<(u32, u32, u32)>,
    /// Numbers defined on lines that could not be read; their uses are not reported.
    lost: BTreeSet<u32>,
    open: Vec<Open>,
    pub lines: Vec<(Site, u32)>,
}

impl Body {
    /// `func "name"`, after the keyword.
    pub fn new(id: FuncId, name: &str, line: u32) -> Body {
        let func = Func::new(name);
        let lines = vec![(Site::Func(id), line), (Site::Region(id, func.body), line)];
        let open = vec![Open { region: func.body, line, last_op: None }];
        Body { id, func, line, numbers: BTreeMap::new(), uses: Vec::new(), lost: BTreeSet::new(), open, lines }
    }

    /// True once `return` was read.
    pub fn done(&self) -> bool {
        self.open.is_empty()
    }

    /// Reads a line of the function. After a failure the function can go on, but its module is not usable.
    pub fn line(&mut self, tokens: &[Token], end: u32, line: u32) -> Result<()> {
        let mut c = Cursor::new(tokens, end);
        if self.done() {
            return Err((c.col(), "the function has returned, only another `func` may follow".to_owned()));
        }
        let result = if c.eat_word("input") {
            self.input(&mut c, line)
        } else if c.eat_word("region") {
            self.region(&mut c, line)
        } else if c.eat_word("yield") {
            self.yields(&mut c, line)
        } else if c.eat_word("return") {
            self.returns(&mut c, line)
        } else {
            let result = self.op(&mut c, line);
            if result.is_err() {
                self.placeholder();
            }
            result
        };
        if result.is_err() {
            let values = tokens.iter().filter_map(|t| if let Kind::Value(n) = t.kind { Some(n) } else { None });
            self.lost.extend(values);
        }
        result
    }

    /// Goes over a line that has no tokens.
    pub fn unreadable(&mut self, line: &str) {
        let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
        self.lost.extend(line.split('%').skip(1).filter_map(|s| s[..digits(s)].parse::<u32>().ok()));
        self.placeholder();
    }

    /// Keeps the place of an op that could not be read, for the regions that may follow it.
    fn placeholder(&mut self) {
        let op = Op {
            code: Opcode::StateClose,
            attrs: Attrs::new(),
            operands: vec![],
            results: vec![],
            regions: vec![],
            loc: Loc::default(),
        };
        let id = OpId(self.func.ops.len() as u32);
        self.func.ops.push(op);
        if let Some(open) = self.open.last_mut() {
            open.last_op = Some(id);
        }
    }

    /// `%3 "name" "name"`
    fn definition(&mut self, c: &mut Cursor) -> Result<(u32, u32, Vec<std::sync::Arc<str>>)> {
        let col = c.col();
        let number = c.value()?;
        let mut names = Vec::new();
        while let Some(Kind::Str(s)) = c.peek() {
            names.push(s.as_str().into());
            c.string("a name")?;
        }
        Ok((number, col, names))
    }

    fn define(&mut self, number: u32, col: u32, value: Value) -> Result<ValueId> {
        let id = ValueId(self.func.values.len() as u32);
        self.func.values.push(value);
        match self.numbers.insert(number, id) {
            None => Ok(id),
            Some(_) => Err((col, format!("%{number} is defined a second time"))),
        }
    }

    fn operand(&mut self, c: &mut Cursor, line: u32) -> Result<ValueId> {
        let col = c.col();
        let number = c.value()?;
        self.uses.push((line, col, number));
        Ok(ValueId(number))
    }

    fn input(&mut self, c: &mut Cursor, line: u32) -> Result<()> {
        let top = self.open.last().filter(|o| o.region == self.func.body && o.last_op.is_none());
        if top.is_none() {
            return c.fail("an op (inputs stand at the top of a function)");
        }
        let name = c.string("the input's name in quotes")?.to_owned();
        c.expect("=")?;
        let (number, col, names) = self.definition(c)?;
        c.expect(":")?;
        let ty = c.ty()?;
        c.end()?;
        let body = self.func.body;
        let index = self.func.region(body).params.len() as u32;
        let v = self.define(number, col, Value { ty, def: ValueDef::Param(body, index), names })?;
        self.func.regions[body.index()].params.push(v);
        self.func.inputs.push(name);
        self.lines.push((Site::Param(self.id, body, index), line));
        Ok(())
    }

    fn region(&mut self, c: &mut Cursor, line: u32) -> Result<()> {
        let id = self.func.add_region();
        self.lines.push((Site::Region(self.id, id), line));
        let owner = self.open.last().and_then(|o| o.last_op);
        self.open.push(Open { region: id, line, last_op: None });
        match owner {
            Some(op) => self.func.ops[op.index()].regions.push(id),
            None => return Err((c.col(), "a region follows the op it belongs to".to_owned())),
        }
        let mut list = Vec::new();
        c.list("(", ")", |c| {
            let (number, col, names) = self.definition(c)?;
            c.expect(":")?;
            list.push((number, col, names, c.ty()?));
            Ok(())
        })?;
        c.end()?;
        for (i, (number, col, names, ty)) in list.into_iter().enumerate() {
            let v = self.define(number, col, Value { ty, def: ValueDef::Param(id, i as u32), names })?;
            self.func.regions[id.index()].params.push(v);
            self.lines.push((Site::Param(self.id, id, i as u32), line));
        }
        Ok(())
    }

    fn yields(&mut self, c: &mut Cursor, line: u32) -> Result<()> {
        if self.open.len() < 2 {
            return Err((c.col(), "`yield` ends a region, a function ends with `return`".to_owned()));
        }
        let region = self.close(line);
        let mut values = Vec::new();
        while c.peek().is_some() {
            if !values.is_empty() {
                c.expect(",")?;
            }
            values.push(self.operand(c, line)?);
        }
        self.func.regions[region.index()].yields = values;
        Ok(())
    }

    /// Closes the innermost region.
    fn close(&mut self, line: u32) -> RegionId {
        let region = self.open.pop().map_or(self.func.body, |o| o.region);
        self.lines.push((Site::Yield(self.id, region), line));
        region
    }

    fn returns(&mut self, c: &mut Cursor, line: u32) -> Result<()> {
        let unclosed = self.open.get(1).map(|o| o.line);
        self.open.truncate(1);
        self.close(line);
        if let Some(at) = unclosed {
            return Err((c.col(), format!("the region of line {at} has no `yield`")));
        }
        let mut values = Vec::new();
        while c.peek().is_some() {
            if !values.is_empty() {
                c.expect(",")?;
            }
            self.func.outputs.push(c.string("the output's name in quotes")?.to_owned());
            c.expect("=")?;
            values.push(self.operand(c, line)?);
        }
        let body = self.func.body;
        self.func.regions[body.index()].yields = values;
        Ok(())
    }

    fn op(&mut self, c: &mut Cursor, line: u32) -> Result<()> {
        let mut results = Vec::new();
        if matches!(c.peek(), Some(Kind::Value(_))) {
            results.push(self.definition(c)?);
            while c.eat(",") {
                results.push(self.definition(c)?);
            }
            c.expect("=")?;
        }
        let col = c.col();
        let name = c.word("an op")?;
        let Some(code) = Opcode::from_name(name) else { return Err((col, format!("there is no op `{name}`"))) };
        let operands = c.list("(", ")", |c| self.operand(c, line))?;
        let attrs = if c.is("{") { attrs(c, code)? } else { Attrs::new() };
        let col = c.col();
        let mut types = Vec::new();
        if c.eat(":") {
            types.push(c.ty()?);
            while c.eat(",") {
                types.push(c.ty()?);
            }
        }
        if types.len() != results.len() {
            return Err((col, format!("{} result types for {} results", types.len(), results.len())));
        }
        let path = if c.eat_word("at") { c.string("a node path in quotes")? } else { "" };
        c.end()?;

        let id = OpId(self.func.ops.len() as u32);
        let mut values = Vec::new();
        for (i, ((number, col, names), ty)) in results.into_iter().zip(types).enumerate() {
            values.push(self.define(number, col, Value { ty, def: ValueDef::Result(id, i as u32), names })?);
        }
        let loc = Loc { path: path.into(), span: None };
        self.func.ops.push(Op { code, attrs, operands, results: values, regions: vec![], loc });
        self.lines.push((Site::Op(self.id, id), line));
        if let Some(open) = self.open.last_mut() {
            open.last_op = Some(id);
            self.func.regions[open.region.index()].ops.push(id);
        }
        Ok(())
    }

    /// The function, with operands resolved; every failure with its line.
    pub fn finish(mut self) -> std::result::Result<Finished, Vec<(u32, Fail)>> {
        let mut failures = Vec::new();
        if let Some(open) = self.open.last() {
            let what = if self.open.len() > 1 { "region has no `yield`" } else { "function has no `return`" };
            failures.push((open.line.max(self.line), (1, format!("this {what}"))));
        }
        for (line, col, number) in &self.uses {
            if !self.numbers.contains_key(number) && !self.lost.contains(number) {
                failures.push((*line, (*col, format!("%{number} is not defined in this function"))));
            }
        }
        if !failures.is_empty() {
            return Err(failures);
        }
        let resolve = |list: &mut Vec<ValueId>| {
            for v in list {
                *v = self.numbers.get(&v.0).copied().unwrap_or(*v);
            }
        };
        self.func.ops.iter_mut().for_each(|op| resolve(&mut op.operands));
        self.func.regions.iter_mut().for_each(|Region { yields, .. }| resolve(yields));
        Ok((self.func, self.lines, self.numbers))
    }
}

/// `{name=value, ...}` with the names and kinds the registry lists.
fn attrs(c: &mut Cursor, code: Opcode) -> Result<Attrs> {
    let mut out = Attrs::new();
    c.list("{", "}", |c| {
        let col = c.col();
        let name = c.word("an attribute")?;
        let Some(def) = code.def().attrs.iter().find(|a| a.name == name) else {
            return Err((col, format!("`{}` has no attribute `{name}`", code.name())));
        };
        c.expect("=")?;
        let value = c.attr(def.kind)?;
        match out.insert(def.name, value) {
            None => Ok(()),
            Some(_) => Err((col, format!("the attribute `{name}` stands twice"))),
        }
    })?;
    Ok(out)
}
