//! Ops that read or advance a state.

use super::super::consts::Val;
use super::super::elements::Ref;
use super::super::instr::{Attention, Block, Code, StateRef};
use super::{Call, Emitter, Step, compute};
use crate::kernels::delta;
use spinec_ir::ty::{DType, StateKind};

/// A state element an op works on.
pub(in super::super) struct StateOperand<'a> {
    pub at: StateRef,
    pub kind: &'a StateKind,
    pub dtype: DType,
    /// Requests of the call.
    pub requests: usize,
}

fn extent(d: &spinec_ir::ty::Dim) -> Step<usize> {
    d.as_const().and_then(|v| usize::try_from(v).ok()).ok_or_else(|| format!("the extent {d} of a state has no value"))
}

impl StateOperand<'_> {
    /// Heads and width of a pool.
    fn pool(&self) -> Step<(usize, usize)> {
        match self.kind {
            StateKind::KvPool { heads, width } => Ok((extent(heads)?, extent(width)?)),
            _ => Err("a kv_pool is needed here".into()),
        }
    }

    /// Checks that axis 0 is the request; gives requests and rows.
    fn block(&self, v: &Val, what: &str) -> Step<Block> {
        match v.view.shape.as_slice() {
            [n, t, ..] if *n == self.requests => Ok(Block { n: *n, t: *t }),
            shape => Err(format!("{what} is {shape:?}, the call has {} requests", self.requests)),
        }
    }
}

fn expect(v: &Val, shape: &[usize], what: &str) -> Step<()> {
    if v.view.shape == shape { Ok(()) } else { Err(format!("{what} must be {shape:?}, it is {:?}", v.view.shape)) }
}

impl Emitter<'_> {
    /// Optional operand `rows`; true if it is there.
    fn rows(&mut self, v: Option<&Val>, n: usize, ins: &mut Vec<Ref>) -> Step<bool> {
        let Some(v) = v else { return Ok(false) };
        expect(v, &[n], "rows")?;
        let v = self.int(v)?;
        ins.push(self.dense_ref(&v)?);
        Ok(true)
    }

    /// Operands but the state: q, at, rows.
    pub fn attention(&mut self, call: &Call, state: &StateOperand) -> Step<Val> {
        let (heads, width) = state.pool()?;
        let (q, at) = (call.operand(0)?, call.operand(1)?);
        let block = state.block(q, "q")?;
        let [_, _, query_heads, q_width] = *q.view.shape.as_slice() else { return Err("q must have 4 axes".into()) };
        if q_width != width || heads == 0 || query_heads % heads != 0 {
            return Err(format!(
                "{query_heads} heads of width {q_width} over a pool of {heads} heads of width {width}"
            ));
        }
        expect(at, &[block.n, block.t], "at")?;
        let wide = call.wide() || state.dtype == DType::F64;
        let (dtype, shape) = call.result(0)?;
        let (q, at) = (self.real(q, wide)?, self.int(at)?);
        let mut ins = vec![self.dense_ref(&q)?, self.dense_ref(&at)?];
        let ragged = self.rows(call.operands.get(2), block.n, &mut ins)?;
        let window = call.int("window")?.clamp(0, i64::from(u32::MAX)) as u32;
        let code = Attention {
            at: state.at,
            block,
            wide,
            ragged,
            query_heads,
            heads,
            width,
            causal: call.bool("causal")?,
            window,
            scale: call.float("scale")?,
        };
        let out = self.fresh(compute(wide), shape);
        if out.view.len() > 0 {
            self.push(Code::Attention(code), ins, &[&out])?;
        }
        self.cast(&out, dtype)
    }

    /// Operands but the state: k, v, at, rows.
    pub fn kv_write(&mut self, call: &Call, state: &StateOperand) -> Step<()> {
        let (heads, width) = state.pool()?;
        let (k, v, at) = (call.operand(0)?, call.operand(1)?, call.operand(2)?);
        let block = state.block(k, "k")?;
        let Block { n, t } = block;
        expect(k, &[n, t, heads, width], "k")?;
        expect(v, &[n, t, heads, width], "v")?;
        expect(at, &[n, t], "at")?;
        if n * t == 0 {
            return Ok(());
        }
        // Rounded to the state's dtype, then held as its kind.
        let (k, v, at) = (self.cast(k, state.dtype)?, self.cast(v, state.dtype)?, self.int(at)?);
        let mut ins = vec![self.dense_ref(&k)?, self.dense_ref(&v)?, self.dense_ref(&at)?];
        let ragged = self.rows(call.operands.get(3), n, &mut ins)?;
        let wide = state.dtype == DType::F64;
        self.push(Code::KvWrite { at: state.at, block, wide, ragged }, ins, &[])
    }

    /// Operands but the state: x, taps, rows.
    pub fn conv(&mut self, call: &Call, state: &StateOperand) -> Step<Val> {
        let StateKind::Window { channels, taps: kept } = state.kind else {
            return Err("a window is needed here".into());
        };
        let (channels, width) = (extent(channels)?, extent(kept)?);
        let (x, taps) = (call.operand(0)?, call.operand(1)?);
        let block = state.block(x, "x")?;
        expect(x, &[block.n, block.t, channels], "x")?;
        if taps.view.len() != channels * width || width == 0 {
            return Err(format!("{} taps for {channels} channels and {width} rows", taps.view.len()));
        }
        let wide = call.wide() || state.dtype == DType::F64;
        let (dtype, shape) = call.result(0)?;
        // Rows that the window stores as they are can be read again as they were given.
        let exact = state.dtype == x.dtype
            || matches!((state.dtype, x.dtype), (DType::F64, _) | (DType::F32, DType::BF16 | DType::F16));
        let exact = exact && wide == (state.dtype == DType::F64);
        let x = self.real(x, wide)?;
        let mut ins = vec![self.dense_ref(&x)?];
        let held = if taps.is_const() { Some(self.shared.taps(taps, channels, wide)?) } else { None };
        if held.is_none() {
            let taps = self.real(taps, wide)?;
            ins.push(self.dense_ref(&taps)?);
        }
        let ragged = self.rows(call.operands.get(2), block.n, &mut ins)?;
        let code = Code::Conv { at: state.at, block, wide, ragged, channels, taps: held, exact };
        let out = self.fresh(compute(wide), shape);
        if out.view.len() > 0 {
            self.push(code, ins, &[&out])?;
        }
        self.cast(&out, dtype)
    }

    /// Operands but the state: q, k, v, decay, beta, rows.
    pub fn delta(&mut self, call: &Call, state: &StateOperand) -> Step<Val> {
        let (q, v) = (call.operand(0)?, call.operand(2)?);
        let block = state.block(q, "q")?;
        let Block { n, t } = block;
        let ([_, _, gk, dk], [_, _, gv, dv]) = (q.view.shape.as_slice(), v.view.shape.as_slice()) else {
            return Err("q and v must have 4 axes".into());
        };
        let (gk, dk, gv, dv) = (*gk, *dk, *gv, *dv);
        expect(call.operand(1)?, &q.view.shape, "k")?;
        expect(v, &[n, t, gv, dv], "v")?;
        expect(call.operand(3)?, &[n, t, gv], "decay")?;
        expect(call.operand(4)?, &[n, t, gv], "beta")?;
        let fits = match state.kind {
            StateKind::Recurrent { shape } => shape.iter().map(extent).collect::<Step<Vec<_>>>()? == [gv, dk, dv],
            _ => false,
        };
        if !fits || gk == 0 || gv % gk != 0 {
            return Err(format!("{gv} value heads over {gk} key heads do not fit the state"));
        }
        let wide = call.wide() || state.dtype == DType::F64;
        let (dtype, shape) = call.result(0)?;
        let mut ins = Vec::new();
        for i in 0..5 {
            let v = self.real(call.operand(i)?, wide)?;
            ins.push(self.dense_ref(&v)?);
        }
        let ragged = self.rows(call.operands.get(5), n, &mut ins)?;
        let shape_of = delta::Shape { key_heads: gk, value_heads: gv, key_width: dk, value_width: dv };
        let out = self.fresh(compute(wide), shape);
        if out.view.len() > 0 && dk > 0 {
            self.push(Code::Delta { at: state.at, block, wide, ragged, shape: shape_of }, ins, &[&out])?;
        }
        self.cast(&out, dtype)
    }
}
