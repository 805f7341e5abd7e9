//! Norms, rotary positions, random numbers and sampling.

use super::super::consts::Val;
use super::super::instr::Code;
use super::super::view::count;
use super::{Call, Emitter, Step, compute};
use spinec_ir::interp::rope_frequencies;
use spinec_ir::ops::Opcode;
use spinec_ir::tensor::{Data, Tensor};
use spinec_ir::ty::DType;

impl Emitter<'_> {
    pub(super) fn norm(&mut self, call: &Call) -> Step<Val> {
        let wide = call.wide();
        let (dtype, shape) = call.result(0)?;
        let width = *shape.last().ok_or("a norm needs at least one axis")?;
        let eps = call.float("eps")?;
        let x = self.real(call.operand(0)?, wide)?;
        let mut ins = vec![self.dense_ref(&x)?];
        let code = if call.code == Opcode::RmsNorm {
            let w = match call.operands.get(1) {
                Some(w) => self.real(w, wide)?,
                None => {
                    let ones = if wide { Data::F64(vec![1.0; width]) } else { Data::F32(vec![1.0; width]) };
                    let ones = Tensor::new(compute(wide), vec![width], ones).ok_or("ones fill their shape")?;
                    self.shared.value(&ones)
                }
            };
            ins.push(self.dense_ref(&w)?);
            Code::RmsNorm { wide, width, eps }
        } else {
            Code::L2Norm { wide, width, eps }
        };
        let out = self.fresh(compute(wide), shape);
        self.push(code, ins, &[&out])?;
        self.cast(&out, dtype)
    }

    pub(super) fn rope(&mut self, call: &Call) -> Step<Val> {
        let wide = call.wide();
        let (dtype, shape) = call.result(0)?;
        let [lead @ .., heads, width] = shape else { return Err("rope needs two axes".into()) };
        let (heads, width) = (*heads, *width);
        let rotary = match call.index("width")? {
            0 => width,
            w if w <= width => w,
            w => return Err(format!("the rotary width {w} does not fit heads of width {width}")),
        };
        let half = rotary / 2;
        let held = call.text("frequencies")?;
        let held = DType::from_name(held).ok_or_else(|| format!("frequencies cannot be held in '{held}'"))?;
        let frequencies = rope_frequencies(call.float("base")?, rotary, held);
        let x = self.real(call.operand(0)?, wide)?;
        if half == 0 {
            return self.cast(&x, dtype);
        }
        let (cos, sin) = self.angles(call.operand(1)?, count(lead), frequencies, wide)?;
        let ins = vec![self.dense_ref(&x)?, self.read(&cos)?, self.read(&sin)?];
        let out = self.fresh(compute(wide), shape);
        self.push(Code::Rope { wide, heads, width, half }, ins, &[&out])?;
        self.cast(&out, dtype)
    }

    /// Cosines and sines of `rows` positions; one instruction for all ops that ask for the same.
    fn angles(&mut self, at: &Val, rows: usize, frequencies: Vec<f64>, wide: bool) -> Step<(Val, Val)> {
        let half = frequencies.len();
        let key = format!("{} {frequencies:?} {wide}", at.key());
        if let Some((_, cos, sin)) = self.angles.iter().find(|(k, ..)| *k == key) {
            return Ok((cos.clone(), sin.clone()));
        }
        if at.view.len() != rows {
            return Err(format!("{} positions for {rows} rows", at.view.len()));
        }
        let at = self.int(at)?;
        let ins = vec![self.dense_ref(&at)?];
        let (cos, sin) = (self.fresh(compute(wide), &[rows, half]), self.fresh(compute(wide), &[rows, half]));
        self.push(Code::Angles { wide, frequencies }, ins, &[&cos, &sin])?;
        self.angles.push((key, cos.clone(), sin.clone()));
        Ok((cos, sin))
    }

    pub(super) fn coin(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        let purpose = u32::try_from(call.int("purpose")?).map_err(|_| "a purpose is not negative")?;
        let mut ins = Vec::new();
        for v in call.operands {
            let v = self.int(v)?;
            ins.push(self.dense_ref(&v)?);
        }
        let n = *shape.first().ok_or("`at` has one axis at least")?;
        let each = count(&shape[1..]);
        if call.operand(0)?.view.len() != 2 * n || call.operand(2)?.view.len() != n {
            return Err(format!("seeds and anchors of {n} requests are needed"));
        }
        let out = self.fresh(dtype, shape);
        self.push(Code::Coin { purpose, each }, ins, &[&out])?;
        Ok(out)
    }

    pub(super) fn sampling_law(&mut self, call: &Call) -> Step<Val> {
        let (dtype, shape) = call.result(0)?;
        let [n, further @ .., width] = shape else { return Err("logits need two axes".into()) };
        let logits = call.operand(0)?;
        let wide = logits.dtype == DType::F64;
        let logits = self.real(logits, wide)?;
        let (temperature, top_p) = (self.cast(call.operand(1)?, DType::F64)?, self.cast(call.operand(3)?, DType::F64)?);
        let top_k = self.int(call.operand(2)?)?;
        if [&temperature, &top_k, &top_p].iter().any(|v| v.view.len() != *n) {
            return Err(format!("sampling parameters of {n} requests are needed"));
        }
        let code = Code::SamplingLaw { wide, width: *width, rows: count(further) };
        let mut ins = Vec::new();
        for v in [&logits, &temperature, &top_k, &top_p] {
            ins.push(self.dense_ref(v)?);
        }
        let out = self.fresh(dtype, shape);
        self.push(code, ins, &[&out])?;
        Ok(out)
    }

    pub(super) fn draw(&mut self, call: &Call) -> Step<Val> {
        let wide = call.wide();
        let (dtype, shape) = call.result(0)?;
        let (law, coin) = (self.real(call.operand(0)?, wide)?, self.real(call.operand(1)?, wide)?);
        let width = *law.view.shape.last().ok_or("draw needs at least one axis")?;
        if law.view.len() != coin.view.len() * width {
            return Err(format!("{} coins for laws of extents {:?}", coin.view.len(), law.view.shape));
        }
        let ins = vec![self.dense_ref(&law)?, self.dense_ref(&coin)?];
        let out = self.fresh(dtype, shape);
        self.push(Code::Draw { wide, width }, ins, &[&out])?;
        Ok(out)
    }

    pub(super) fn quantize_rows(&mut self, call: &Call) -> Step<Vec<Val>> {
        let w = call.operand(0)?;
        let [_, width] = *w.view.shape.as_slice() else { return Err("quantize_rows takes a matrix".into()) };
        let w = self.real(w, false)?;
        let ins = vec![self.dense_ref(&w)?];
        let ((bits, bits_shape), (scale, scale_shape)) = (call.result(0)?, call.result(1)?);
        let (bits, made) = (self.fresh(bits, bits_shape), self.fresh(DType::F32, scale_shape));
        self.push(Code::QuantizeRows { width }, ins, &[&bits, &made])?;
        Ok(vec![bits, self.cast(&made, scale)?])
    }
}
