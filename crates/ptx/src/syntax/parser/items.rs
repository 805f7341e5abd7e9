//! Things at module level: directives, variables with their initial values, and functions.

use super::{Parser, Result, space};
use crate::error::{Diagnostic, Pos};
use crate::syntax::ast::*;
use crate::syntax::lexer::Tok;

impl Parser<'_> {
    pub(super) fn module(&mut self) -> Result<Module> {
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

    pub(super) fn version(&mut self, pos: Pos) -> Result<(u32, u32)> {
        let Tok::F64(bits) = self.next() else {
            return Err(Diagnostic::syntax(pos, "`.version` takes major.minor"));
        };
        let tenths = (f64::from_bits(bits) * 10.0).round();
        if !(0.0..1000.0).contains(&tenths) {
            return Err(Diagnostic::syntax(pos, "`.version` takes major.minor"));
        }
        Ok((tenths as u32 / 10, tenths as u32 % 10))
    }

    pub(super) fn variable(&mut self, space_: Space, linkage: Linkage) -> Result<Variable> {
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

    pub(super) fn alignment(&mut self) -> Result<u64> {
        let pos = self.pos();
        let v = self.int()?;
        if v.is_power_of_two() && v <= 1 << 20 {
            Ok(v)
        } else {
            Err(Diagnostic::syntax(pos, format!("alignment {v} is not a power of two up to 2^20")))
        }
    }

    pub(super) fn pointer(&mut self) -> Result<Pointer> {
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

    pub(super) fn init(&mut self) -> Result<Init> {
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
    pub(super) fn signed_offset(&mut self) -> Result<i64> {
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

    pub(super) fn constant(&mut self) -> Result<Constant> {
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

    pub(super) fn params(&mut self) -> Result<Vec<Variable>> {
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

    pub(super) fn function(&mut self, entry: bool, linkage: Linkage) -> Result<Function> {
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
}
