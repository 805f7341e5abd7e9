//! Reading the tokens of a line: names, numbers, dims, types, attributes.

use super::lex::{Kind, Token};
use crate::ir::{Attr, Keep};
use crate::ops::AttrKind;
use crate::ty::{DType, Dim, StateKind, TensorType, Type};

/// Column and message.
pub(crate) type Fail = (u32, String);
pub(crate) type Result<T> = std::result::Result<T, Fail>;

/// Factors one dim may be written with: adding terms costs their square, and real dims have a handful.
const MAX_FACTORS: usize = 1024;
/// Deepest nesting of `min`, `max`, `floordiv` and `mod`: dims are walked by recursion.
const MAX_DEPTH: usize = 32;

pub(crate) struct Cursor<'a> {
    tokens: &'a [Token],
    at: usize,
    end: u32,
}

impl<'a> Cursor<'a> {
    /// `end` is the column after the line.
    pub fn new(tokens: &'a [Token], end: u32) -> Self {
        Cursor { tokens, at: 0, end }
    }

    pub fn peek(&self) -> Option<&'a Kind> {
        self.tokens.get(self.at).map(|t| &t.kind)
    }

    fn peek2(&self) -> Option<&'a Kind> {
        self.tokens.get(self.at + 1).map(|t| &t.kind)
    }

    pub fn col(&self) -> u32 {
        self.tokens.get(self.at).map_or(self.end, |t| t.col)
    }

    fn next(&mut self) -> Option<&'a Kind> {
        let kind = self.peek();
        self.at += 1;
        kind
    }

    pub fn fail<T>(&self, wanted: &str) -> Result<T> {
        let found = self.peek().map_or_else(|| "the line ends".to_owned(), |k| format!("this is {}", k.show()));
        Err((self.col(), format!("{wanted} is expected here, {found}")))
    }

    pub fn is(&self, punct: &str) -> bool {
        matches!(self.peek(), Some(Kind::Punct(p)) if *p == punct)
    }

    pub fn eat(&mut self, punct: &str) -> bool {
        let found = self.is(punct);
        self.at += usize::from(found);
        found
    }

    pub fn expect(&mut self, punct: &str) -> Result<()> {
        if self.eat(punct) { Ok(()) } else { self.fail(&format!("`{punct}`")) }
    }

    pub fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Kind::Word(w)) if w == word);
        self.at += usize::from(found);
        found
    }

    pub fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Kind::Word(w)) if w == word)
    }

    /// `name=`
    pub fn expect_key(&mut self, name: &str) -> Result<()> {
        if self.eat_word(name) { self.expect("=") } else { self.fail(&format!("`{name}=`")) }
    }

    pub fn end(&self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { self.fail("the end of the line") }
    }

    pub fn word(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Some(Kind::Word(w)) => {
                self.at += 1;
                Ok(w)
            }
            _ => self.fail(what),
        }
    }

    pub fn string(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Some(Kind::Str(s)) => {
                self.at += 1;
                Ok(s)
            }
            _ => self.fail(what),
        }
    }

    pub fn word_or_string(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Some(Kind::Word(s) | Kind::Str(s)) => {
                self.at += 1;
                Ok(s)
            }
            _ => self.fail(what),
        }
    }

    pub fn value(&mut self) -> Result<u32> {
        match self.peek() {
            Some(Kind::Value(n)) => {
                self.at += 1;
                Ok(*n)
            }
            _ => self.fail("a value"),
        }
    }

    /// The text of a number, as masks need it.
    pub fn digits(&mut self) -> Result<&'a str> {
        match self.peek() {
            Some(Kind::Number(n)) => {
                self.at += 1;
                Ok(n)
            }
            _ => self.fail("a number"),
        }
    }

    pub fn int(&mut self) -> Result<i64> {
        let col = self.col();
        let minus = self.eat("-");
        let text = self.digits().or_else(|_| self.fail("an integer"))?;
        signed(text, minus).ok_or_else(|| (col, format!("`{text}` is not a 64-bit integer")))
    }

    /// An integer that is not negative.
    pub fn natural(&mut self) -> Result<u64> {
        let col = self.col();
        let text = self.digits()?;
        text.parse().map_err(|_| (col, format!("`{text}` is not a 64-bit integer that counts something")))
    }

    /// A number of a table row, op or block.
    pub fn index(&mut self) -> Result<u32> {
        let col = self.col();
        u32::try_from(self.natural()?).map_err(|_| (col, "this number is too large".to_owned()))
    }

    fn float(&mut self) -> Result<f64> {
        let col = self.col();
        let minus = self.eat("-");
        let magnitude = match self.next() {
            Some(Kind::Number(n)) => match n.parse::<f64>() {
                Ok(v) if v.is_finite() => v,
                _ => return Err((col, format!("`{n}` is not a 64-bit float"))),
            },
            Some(Kind::Word(w)) if w == "inf" => f64::INFINITY,
            Some(Kind::Word(w)) if w == "nan" && !minus => f64::NAN,
            _ => return Err((col, "a number, `inf`, `-inf` or `nan` is expected here".to_owned())),
        };
        Ok(if minus { -magnitude } else { magnitude })
    }

    pub fn dtype(&mut self) -> Result<DType> {
        let col = self.col();
        let name = self.word("a dtype")?;
        DType::from_name(name).ok_or_else(|| (col, format!("there is no dtype `{name}`")))
    }

    /// `[a, b, c]`, or with other brackets.
    pub fn list<T>(&mut self, open: &str, close: &str, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect(open)?;
        let mut out = Vec::new();
        if self.eat(close) {
            return Ok(out);
        }
        loop {
            out.push(item(self)?);
            if self.eat(close) {
                return Ok(out);
            }
            if !self.eat(",") {
                return self.fail(&format!("`,` or `{close}`"));
            }
        }
    }

    pub fn dim(&mut self) -> Result<Dim> {
        let mut budget = MAX_FACTORS;
        self.sum(MAX_DEPTH, &mut budget)
    }

    fn sum(&mut self, depth: usize, budget: &mut usize) -> Result<Dim> {
        let mut minus = self.eat("-");
        let mut total = Dim::from(0);
        loop {
            let col = self.col();
            let term = self.product(minus, depth, budget)?;
            total = total.add(&term).ok_or_else(|| overflow(col))?;
            minus = self.is("-");
            if !self.eat("-") && !self.eat("+") {
                return Ok(total);
            }
        }
    }

    fn product(&mut self, minus: bool, depth: usize, budget: &mut usize) -> Result<Dim> {
        let mut product = None;
        loop {
            let col = self.col();
            *budget = budget.checked_sub(1).ok_or_else(|| (col, "this dim is too long".to_owned()))?;
            // The sign goes with the first number, so that the smallest integer can be written.
            let factor = match (&product, self.peek()) {
                (None, Some(Kind::Number(n))) => {
                    self.at += 1;
                    Dim::from(signed(n, minus).ok_or_else(|| (col, format!("`{n}` is not a 64-bit integer")))?)
                }
                (None, _) if minus => self.factor(depth, budget)?.mul(&Dim::from(-1)).ok_or_else(|| overflow(col))?,
                _ => self.factor(depth, budget)?,
            };
            let next = match product {
                None => factor,
                Some(p) => factor.mul(&p).ok_or_else(|| overflow(col))?,
            };
            if !self.eat("*") {
                return Ok(next);
            }
            product = Some(next);
        }
    }

    fn factor(&mut self, depth: usize, budget: &mut usize) -> Result<Dim> {
        let col = self.col();
        match self.peek() {
            Some(Kind::Number(_)) => self.int().map(Dim::from),
            Some(Kind::Word(name)) if matches!(self.peek2(), Some(Kind::Punct("("))) => {
                let Some(depth) = depth.checked_sub(1) else { return Err((col, "this dim nests too deeply".into())) };
                self.at += 2;
                let a = self.sum(depth, budget)?;
                self.expect(",")?;
                let b = self.sum(depth, budget)?;
                self.expect(")")?;
                match name.as_str() {
                    "floordiv" => a.floor_div(&b),
                    "mod" => a.modulo(&b),
                    "min" => Some(a.minimum(&b)),
                    "max" => Some(a.maximum(&b)),
                    _ => return Err((col, format!("dims know floordiv, mod, min and max, not `{name}`"))),
                }
                .ok_or_else(|| (col, "this dim overflows or divides by zero".to_owned()))
            }
            Some(Kind::Word(name)) => {
                self.at += 1;
                Ok(Dim::symbol(name))
            }
            _ => self.fail("a dim"),
        }
    }

    fn dims(&mut self) -> Result<Vec<Dim>> {
        self.list("[", "]", Self::dim)
    }

    pub fn ty(&mut self) -> Result<Type> {
        if self.eat_word("state") {
            let dtype = self.dtype()?;
            return Ok(Type::State { kind: self.state_kind()?, dtype });
        }
        let dist = self.eat_word("dist");
        let dtype = self.dtype()?;
        let dims = self.dims()?;
        Ok(Type::Tensor(TensorType { dtype, dims, dist }))
    }

    fn state_kind(&mut self) -> Result<StateKind> {
        let col = self.col();
        let name = self.word("a state kind")?;
        let dims = self.dims()?;
        let two = |what: &str| <[Dim; 2]>::try_from(dims.clone()).map_err(|_| (col, format!("`{name}` takes {what}")));
        match name {
            "kv_pool" => two("[heads, width]").map(|[heads, width]| StateKind::KvPool { heads, width }),
            "window" => two("[channels, taps]").map(|[channels, taps]| StateKind::Window { channels, taps }),
            "recurrent" => Ok(StateKind::Recurrent { shape: dims }),
            _ => Err((col, format!("a state is a kv_pool, recurrent or window, not `{name}`"))),
        }
    }

    pub fn ints(&mut self) -> Result<Vec<i64>> {
        self.list("[", "]", Self::int)
    }

    pub fn attr(&mut self, kind: AttrKind) -> Result<Attr> {
        Ok(match kind {
            AttrKind::Int => Attr::Int(self.int()?),
            AttrKind::Float => Attr::Float(self.float()?),
            AttrKind::Bool => Attr::Bool(if self.eat_word("true") {
                true
            } else if self.eat_word("false") {
                false
            } else {
                return self.fail("`true` or `false`");
            }),
            AttrKind::Str => Attr::Str(self.string("a string")?.to_owned()),
            AttrKind::Dim => Attr::Dim(self.dim()?),
            AttrKind::Dims => Attr::Dims(self.dims()?),
            AttrKind::Ints => Attr::Ints(self.ints()?),
            AttrKind::DType => Attr::DType(self.dtype()?),
            AttrKind::Keeps => Attr::Keeps(self.list("[", "]", Self::keep)?),
        })
    }

    fn keep(&mut self) -> Result<Keep> {
        let col = self.col();
        let axis = usize::try_from(self.int()?).map_err(|_| (col, "an axis is not negative".to_owned()))?;
        let at = if self.eat_word("at") { Some(self.ints()?) } else { None };
        Ok(Keep { axis, at })
    }
}

fn overflow(col: u32) -> Fail {
    (col, "this dim overflows".to_owned())
}

fn signed(text: &str, minus: bool) -> Option<i64> {
    let magnitude: i128 = text.parse().ok()?;
    i64::try_from(if minus { -magnitude } else { magnitude }).ok()
}
