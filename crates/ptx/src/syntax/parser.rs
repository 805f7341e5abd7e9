//! Recursive-descent parser.

use super::ast::*;
use super::lexer::{Lexer, Tok};
use crate::error::{Diagnostic, Pos};

/// Nesting of scopes and operands beyond which text is refused, so that hostile input cannot exhaust the stack.
const MAX_DEPTH: u32 = 100;

/// Registers one declaration may make; real modules stay below a few thousand.
const MAX_REGISTER_RANGE: u64 = 1 << 20;

type Result<T> = std::result::Result<T, Diagnostic>;

/// Parses a PTX module.
///
/// # Errors
/// The first syntax error, with line and column.
pub fn parse(src: &str) -> Result<Module> {
    let toks = Lexer::new(src).run()?;
    Parser { toks, at: 0, depth: 0 }.module()
}

struct Parser<'a> {
    toks: Vec<(Tok<'a>, Pos)>,
    at: usize,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Tok<'a> {
        self.toks[self.at].0
    }

    fn pos(&self) -> Pos {
        self.toks[self.at].1
    }

    /// The next token; the final `End` is never passed.
    fn next(&mut self) -> Tok<'a> {
        let t = self.peek();
        if t != Tok::End {
            self.at += 1;
        }
        t
    }

    fn is(&self, c: u8) -> bool {
        self.peek() == Tok::Punct(c)
    }

    fn eat(&mut self, c: u8) -> bool {
        let hit = self.is(c);
        if hit {
            self.at += 1;
        }
        hit
    }

    fn word(&mut self, w: &str) -> bool {
        let hit = self.peek() == Tok::Ident(w);
        if hit {
            self.at += 1;
        }
        hit
    }

    fn unexpected<T>(&self, wanted: &str) -> Result<T> {
        let got = match self.peek() {
            Tok::Ident(s) => format!("`{s}`"),
            Tok::Int(v) => format!("`{v}`"),
            Tok::F32(_) | Tok::F64(_) => "a floating-point literal".into(),
            Tok::Str(s) => format!("\"{s}\""),
            Tok::Section(n, _) => format!("section `{n}`"),
            Tok::Punct(c) => format!("`{}`", c as char),
            Tok::End => "the end of the text".into(),
        };
        Err(Diagnostic::syntax(self.pos(), format!("expected {wanted}, found {got}")))
    }

    fn want(&mut self, c: u8) -> Result<()> {
        if self.eat(c) { Ok(()) } else { self.unexpected(&format!("`{}`", c as char)) }
    }

    fn ident(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Tok::Ident(s) => {
                self.at += 1;
                Ok(s)
            }
            _ => self.unexpected(what),
        }
    }

    fn int(&mut self) -> Result<u64> {
        match self.peek() {
            Tok::Int(v) => {
                self.at += 1;
                Ok(v)
            }
            _ => self.unexpected("an integer"),
        }
    }

    fn int32(&mut self) -> Result<u32> {
        let pos = self.pos();
        u32::try_from(self.int()?).map_err(|_| Diagnostic::syntax(pos, "integer does not fit 32 bits"))
    }

    fn string(&mut self) -> Result<String> {
        match self.peek() {
            Tok::Str(s) => {
                self.at += 1;
                Ok(s.into())
            }
            _ => self.unexpected("a string"),
        }
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Diagnostic::syntax(self.pos(), format!("nesting deeper than {MAX_DEPTH}")));
        }
        Ok(())
    }

    fn module(&mut self) -> Result<Module> {
        let mut m = Module { address_size: 64, ..Module::default() };
        let mut linkage = Linkage::Internal;
        loop {
            let pos = self.pos();
            if let Tok::Section(name, raw) = self.peek() {
                self.at += 1;
                m.items.push(Item::Section { name: name.into(), raw: raw.into() });
                continue;
            }
            if self.peek() == Tok::End {
                return Ok(m);
            }
            if self.eat(b';') {
                continue;
            }
            match self.ident("a directive")? {
                ".version" => m.version = self.version(pos)?,
                ".target" => {
                    m.target.push(self.ident("an architecture")?.into());
                    while self.eat(b',') {
                        m.target.push(self.ident("a target word")?.into());
                    }
                }
                ".address_size" => m.address_size = self.int32()?,
                ".file" => {
                    let index = self.int32()?;
                    let path = self.string()?;
                    let mut extra = Vec::new();
                    while self.eat(b',') {
                        extra.push(self.int()?);
                    }
                    m.items.push(Item::File { index, path, extra });
                }
                ".pragma" => {
                    m.items.push(Item::Pragma(self.string()?));
                    self.want(b';')?;
                }
                ".extern" => linkage = Linkage::Extern,
                ".visible" => linkage = Linkage::Visible,
                ".weak" => linkage = Linkage::Weak,
                ".common" => linkage = Linkage::Common,
                d @ (".global" | ".const" | ".shared") => {
                    let space = space(d).unwrap_or(Space::Global);
                    let v = self.variable(space, std::mem::take(&mut linkage))?;
                    self.want(b';')?;
                    m.items.push(Item::Variable(v));
                }
                d @ (".entry" | ".func") => {
                    let f = self.function(d == ".entry", std::mem::take(&mut linkage))?;
                    m.items.push(Item::Function(f));
                }
                w => return Err(Diagnostic::syntax(pos, format!("`{w}` cannot start a module item"))),
            }
        }
    }

    fn version(&mut self, pos: Pos) -> Result<(u32, u32)> {
        let Tok::F64(bits) = self.next() else {
            return Err(Diagnostic::syntax(pos, "`.version` takes major.minor"));
        };
        let tenths = (f64::from_bits(bits) * 10.0).round();
        if !(0.0..1000.0).contains(&tenths) {
            return Err(Diagnostic::syntax(pos, "`.version` takes major.minor"));
        }
        Ok((tenths as u32 / 10, tenths as u32 % 10))
    }

    fn variable(&mut self, space_: Space, linkage: Linkage) -> Result<Variable> {
        let (mut align, mut ty, mut vector, mut pointer) = (None, None, None, None);
        let pos = loop {
            let pos = self.pos();
            let w = self.ident("a type or a name")?;
            match w {
                ".align" => align = Some(self.alignment()?),
                ".ptr" => pointer = Some(self.pointer()?),
                ".v2" => vector = Some(2),
                ".v4" => vector = Some(4),
                ".attribute" => {
                    self.want(b'(')?;
                    while !self.eat(b')') {
                        if self.next() == Tok::End {
                            return self.unexpected("`)`");
                        }
                    }
                }
                _ if w.starts_with('.') => match Type::from_name(&w[1..]) {
                    Some(t) if ty.is_none() => ty = Some(t),
                    _ => return Err(Diagnostic::syntax(pos, format!("`{w}` is not a type"))),
                },
                _ => {
                    self.at -= 1;
                    break pos;
                }
            }
        };
        let name = self.ident("a name")?.to_string();
        let Some(ty) = ty else { return Err(Diagnostic::syntax(pos, format!("`{name}` has no type"))) };
        let mut dims = Vec::new();
        while self.eat(b'[') {
            dims.push(if self.is(b']') { None } else { Some(self.int()?) });
            self.want(b']')?;
        }
        let init = if self.eat(b'=') { Some(self.init()?) } else { None };
        Ok(Variable { linkage, space: space_, align, ty, vector, pointer, name, dims, init, at: At(pos) })
    }

    fn alignment(&mut self) -> Result<u64> {
        let pos = self.pos();
        let v = self.int()?;
        if v.is_power_of_two() && v <= 1 << 20 {
            Ok(v)
        } else {
            Err(Diagnostic::syntax(pos, format!("alignment {v} is not a power of two up to 2^20")))
        }
    }

    fn pointer(&mut self) -> Result<Pointer> {
        let mut p = Pointer { space: None, align: None };
        loop {
            match self.peek() {
                Tok::Ident(".align") => {
                    self.at += 1;
                    p.align = Some(self.alignment()?);
                }
                Tok::Ident(w) if p.space.is_none() && space(w).is_some() => {
                    self.at += 1;
                    p.space = space(w);
                }
                _ => return Ok(p),
            }
        }
    }

    fn init(&mut self) -> Result<Init> {
        self.enter()?;
        let out = if self.eat(b'{') {
            let mut list = Vec::new();
            while !self.eat(b'}') {
                list.push(self.init()?);
                if !self.eat(b',') && !self.is(b'}') {
                    return self.unexpected("`,` or `}`");
                }
            }
            Init::List(list)
        } else if let Tok::Ident(word) = self.peek() {
            self.at += 1;
            let generic = word == "generic" && self.eat(b'(');
            let name = if generic { self.ident("a symbol")? } else { word };
            if generic {
                self.want(b')')?;
            }
            let offset = self.signed_offset()?;
            Init::Symbol { name: name.into(), offset, generic }
        } else {
            Init::Value(self.constant()?)
        };
        self.depth -= 1;
        Ok(out)
    }

    /// Any number of `+n` and `-n`.
    fn signed_offset(&mut self) -> Result<i64> {
        let mut off = 0i64;
        loop {
            if self.eat(b'+') {
                let neg = self.eat(b'-');
                let v = self.int()? as i64;
                off = if neg { off.wrapping_sub(v) } else { off.wrapping_add(v) };
            } else if self.eat(b'-') {
                off = off.wrapping_sub(self.int()? as i64);
            } else {
                return Ok(off);
            }
        }
    }

    fn constant(&mut self) -> Result<Constant> {
        let neg = self.eat(b'-');
        Ok(match self.peek() {
            Tok::Int(v) => {
                self.at += 1;
                Constant::Int(if neg { (v as i64).wrapping_neg() } else { v as i64 })
            }
            Tok::F32(b) => {
                self.at += 1;
                Constant::F32(if neg { b ^ (1 << 31) } else { b })
            }
            Tok::F64(b) => {
                self.at += 1;
                Constant::F64(if neg { b ^ (1 << 63) } else { b })
            }
            _ => return self.unexpected("a constant"),
        })
    }

    fn params(&mut self) -> Result<Vec<Variable>> {
        let mut out = Vec::new();
        self.want(b'(')?;
        while !self.eat(b')') {
            let pos = self.pos();
            let w = self.ident("`.param`")?;
            let Some(s @ (Space::Param | Space::Reg)) = space(w) else {
                return Err(Diagnostic::syntax(pos, format!("expected `.param` or `.reg`, found `{w}`")));
            };
            out.push(self.variable(s, Linkage::Internal)?);
            if !self.eat(b',') && !self.is(b')') {
                return self.unexpected("`,` or `)`");
            }
        }
        Ok(out)
    }

    fn function(&mut self, entry: bool, linkage: Linkage) -> Result<Function> {
        let results = if self.is(b'(') { self.params()? } else { Vec::new() };
        let at = At(self.pos());
        let name = self.ident("a function name")?.to_string();
        let params = if self.is(b'(') { self.params()? } else { Vec::new() };
        let mut directives = Vec::new();
        while let Tok::Ident(w) = self.peek() {
            if !w.starts_with('.') {
                return self.unexpected("a directive, `{` or `;`");
            }
            self.at += 1;
            let mut d = Directive { name: w.into(), values: Vec::new(), text: None };
            if let Tok::Str(s) = self.peek() {
                self.at += 1;
                d.text = Some(s.into());
                self.eat(b';');
            } else if matches!(self.peek(), Tok::Int(_)) {
                d.values.push(self.int()?);
                while self.eat(b',') {
                    d.values.push(self.int()?);
                }
            }
            directives.push(d);
        }
        let body = if self.eat(b';') {
            None
        } else {
            self.want(b'{')?;
            Some(self.block()?)
        };
        Ok(Function { linkage, entry, name, results, params, directives, body, at })
    }

    fn block(&mut self) -> Result<Vec<Stmt>> {
        self.enter()?;
        let mut out = Vec::new();
        while !self.eat(b'}') {
            if self.eat(b';') {
                continue;
            }
            let at = At(self.pos());
            let kind = if self.eat(b'{') { StmtKind::Block(self.block()?) } else { self.statement()? };
            out.push(Stmt { kind, at });
        }
        self.depth -= 1;
        Ok(out)
    }

    fn statement(&mut self) -> Result<StmtKind> {
        let guard = if self.eat(b'@') {
            let negated = self.eat(b'!');
            Some((self.ident("a guard predicate")?.to_string(), negated))
        } else {
            None
        };
        let pos = self.pos();
        let word = self.ident("a statement")?;
        if guard.is_some() {
            return self.instruction(guard, word);
        }
        if self.eat(b':') {
            return self.labelled(word);
        }
        match word {
            ".reg" => self.registers(),
            ".loc" => self.loc(),
            ".pragma" => {
                let s = self.string()?;
                self.want(b';')?;
                Ok(StmtKind::Pragma(s))
            }
            ".local" | ".shared" | ".param" | ".global" | ".const" => {
                let v = self.variable(space(word).unwrap_or(Space::Local), Linkage::Internal)?;
                self.want(b';')?;
                Ok(StmtKind::Variable(v))
            }
            _ if word.starts_with('.') => {
                Err(Diagnostic::syntax(pos, format!("directive `{word}` is not known inside a body")))
            }
            _ => self.instruction(None, word),
        }
    }

    fn labelled(&mut self, name: &str) -> Result<StmtKind> {
        if self.word(".branchtargets") {
            let mut targets = vec![self.ident("a label")?.to_string()];
            while self.eat(b',') {
                targets.push(self.ident("a label")?.into());
            }
            self.want(b';')?;
            return Ok(StmtKind::BranchTargets { name: name.into(), targets });
        }
        if self.word(".callprototype") {
            let mut words = Vec::new();
            while !self.eat(b';') {
                words.push(match self.next() {
                    Tok::Ident(s) => s.to_string(),
                    Tok::Int(v) => v.to_string(),
                    Tok::Punct(c) => (c as char).to_string(),
                    _ => return self.unexpected("`;`"),
                });
            }
            return Ok(StmtKind::CallPrototype { name: name.into(), words });
        }
        Ok(StmtKind::Label(name.into()))
    }

    fn registers(&mut self) -> Result<StmtKind> {
        let mut vector = None;
        let ty = loop {
            let pos = self.pos();
            match self.ident("a type")? {
                ".v2" => vector = Some(2),
                ".v4" => vector = Some(4),
                w => match w.strip_prefix('.').and_then(Type::from_name) {
                    Some(t) => break t,
                    None => return Err(Diagnostic::syntax(pos, format!("`{w}` is not a register type"))),
                },
            }
        };
        let mut names = Vec::new();
        loop {
            let name = self.ident("a register name")?.to_string();
            let mut count = None;
            if self.eat(b'<') {
                let pos = self.pos();
                let n = self.int()?;
                if n > MAX_REGISTER_RANGE {
                    return Err(Diagnostic::syntax(pos, format!("more than {MAX_REGISTER_RANGE} registers")));
                }
                count = Some(n as u32);
                self.want(b'>')?;
            }
            names.push((name, count));
            if !self.eat(b',') {
                break;
            }
        }
        self.want(b';')?;
        Ok(StmtKind::Registers { ty, vector, names })
    }

    fn loc(&mut self) -> Result<StmtKind> {
        let (file, line, column) = (self.int32()?, self.int32()?, self.int32()?);
        let mut inlined = None;
        if self.eat(b',') {
            if !self.word("function_name") {
                return self.unexpected("`function_name`");
            }
            let label = self.ident("a label")?.to_string();
            let offset = if self.eat(b'+') { self.int()? } else { 0 };
            self.want(b',')?;
            if !self.word("inlined_at") {
                return self.unexpected("`inlined_at`");
            }
            inlined = Some(Inlined { label, offset, at: (self.int32()?, self.int32()?, self.int32()?) });
        }
        Ok(StmtKind::Loc(Loc { file, line, column, inlined }))
    }

    fn instruction(&mut self, guard: Option<(String, bool)>, opcode: &str) -> Result<StmtKind> {
        let mut operands = Vec::new();
        while !self.eat(b';') {
            operands.push(self.operand()?);
            if !self.eat(b',') && !self.is(b';') {
                return self.unexpected("`,` or `;`");
            }
        }
        Ok(StmtKind::Instruction(Instruction { guard, opcode: opcode.into(), operands }))
    }

    fn operands_until(&mut self, close: u8) -> Result<Vec<Operand>> {
        let mut v = Vec::new();
        while !self.eat(close) {
            v.push(self.operand()?);
            if !self.eat(b',') && !self.is(close) {
                return self.unexpected(&format!("`,` or `{}`", close as char));
            }
        }
        Ok(v)
    }

    fn operand(&mut self) -> Result<Operand> {
        self.enter()?;
        let at = At(self.pos());
        let kind = if self.eat(b'!') {
            OperandKind::Not(Box::new(self.operand()?))
        } else if self.eat(b'{') {
            OperandKind::Vector(self.operands_until(b'}')?)
        } else if self.eat(b'(') {
            OperandKind::List(self.operands_until(b')')?)
        } else if self.eat(b'[') {
            self.address()?
        } else if let Tok::Ident(name) = self.peek() {
            self.at += 1;
            let offset_follows = self.is(b'+') || self.is(b'-');
            if offset_follows {
                OperandKind::Offset(name.into(), self.signed_offset()?)
            } else {
                OperandKind::Name(name.into())
            }
        } else if self.is(b'-') && matches!(self.toks.get(self.at + 1), Some((Tok::Ident(_), _))) {
            self.at += 1;
            OperandKind::Negate(Box::new(self.operand()?))
        } else {
            OperandKind::Const(self.constant()?)
        };
        let mut out = Operand { kind, at };
        if self.eat(b'|') {
            let second = self.operand()?;
            out = Operand { kind: OperandKind::Pair(Box::new(out), Box::new(second)), at };
        }
        self.depth -= 1;
        Ok(out)
    }

    fn address(&mut self) -> Result<OperandKind> {
        let at = At(self.pos());
        let base = if let Tok::Ident(name) = self.peek() {
            self.at += 1;
            OperandKind::Name(name.into())
        } else {
            OperandKind::Const(self.constant()?)
        };
        let offset = self.signed_offset()?;
        let mut extra = Vec::new();
        while self.eat(b',') {
            extra.push(self.operand()?);
        }
        self.want(b']')?;
        Ok(OperandKind::Address { base: Box::new(Operand { kind: base, at }), offset, extra })
    }
}

fn space(word: &str) -> Option<Space> {
    [Space::Global, Space::Const, Space::Shared, Space::Local, Space::Param, Space::Reg]
        .into_iter()
        .find(|s| s.text() == word)
}
