//! `wmma`: loads, stores and products of matrices with opaque fragments.

use super::builder::{Builder, Result};
use super::opcode::Mods;
use crate::exec::inst::{Inst, NONE, Op, Space};
use crate::exec::mma::{Acc, Elem};
use crate::exec::regs::Kind;
use crate::exec::wmma::{Wmma, WmmaMatrix, WmmaSpec, fragment, registers};
use crate::syntax::ast::Operand;

/// M, N and K of the shapes that 8- and 16-bit elements have; tf32 has the last alone.
const SHAPES: [(&str, [usize; 3]); 4] =
    [("m16n16k16", [16, 16, 16]), ("m32n8k16", [32, 8, 16]), ("m8n32k16", [8, 32, 16]), ("m16n16k8", [16, 16, 8])];

fn kind_of(acc: Acc) -> Kind {
    if acc == Acc::F32 { Kind::F32 } else { Kind::B32 }
}

fn legal(elem: Elem, [_, _, k]: [usize; 3]) -> bool {
    match elem {
        Elem::F16 | Elem::BF16 | Elem::S8 | Elem::U8 => k == 16,
        Elem::TF32 => k == 8,
        _ => false,
    }
}

impl Builder<'_> {
    pub(super) fn wmma(&mut self, mut mods: Mods, ops: &[Operand]) -> Result<()> {
        let what = mods.take_any(&["load", "store", "mma"]).ok_or_else(|| mods.unsupported())?;
        let part = if what == "mma" { None } else { mods.take_any(&["a", "b", "c", "d"]) };
        let head = mods.take("sync") && mods.take("aligned");
        let layout = mods.take_any(&["row", "col"]);
        let shape = SHAPES.iter().find(|s| mods.take(s.0)).map(|s| s.1);
        let (Some(layout), Some(shape), true) = (layout, shape, head) else { return Err(mods.unsupported()) };
        match (what, part) {
            ("mma", _) => {
                mods.take_any(&["row", "col"]);
                self.wmma_multiply(mods, ops, shape)
            }
            ("load", Some("a" | "b" | "c")) | ("store", Some("d")) => {
                self.wmma_memory(mods, ops, part, layout == "row", shape)
            }
            _ => Err(mods.unsupported()),
        }
    }

    fn wmma_memory(
        &mut self,
        mut mods: Mods,
        ops: &[Operand],
        part: Option<&str>,
        row_major: bool,
        [m, n, k]: [usize; 3],
    ) -> Result<()> {
        let store = part == Some("d");
        self.arity(ops, 2, 3)?;
        let mut i = Inst::new(if store { Op::WmmaStore } else { Op::WmmaLoad });
        i.space = match mods.take_any(&["global", "shared", "shared::cta"]) {
            Some("global") => Space::Global,
            Some(_) => Space::Shared,
            None => Space::Generic,
        };
        let ty = *mods.parts.last().unwrap_or(&"");
        mods.take(ty);
        mods.finish()?;
        let (rows, cols, bytes, count, kind) = match part {
            Some("a" | "b") => {
                let elem = Elem::parse(ty).filter(|e| legal(*e, [m, n, k])).ok_or_else(|| mods.unsupported())?;
                let (rows, cols) = if part == Some("a") { (m, k) } else { (k, n) };
                (rows, cols, 4 / elem.per_word(), fragment(elem, rows * cols), Kind::B32)
            }
            _ => {
                let acc = Acc::parse(ty).filter(|a| *a != Acc::F64).ok_or_else(|| mods.unsupported())?;
                let bytes = if acc == Acc::F16 { 2 } else { 4 };
                (m, n, bytes, registers(m * n, bytes), kind_of(acc))
            }
        };
        let (data, at) = if store { (1, 0) } else { (0, 1) };
        let a = self.address(&ops[at])?;
        (i.a, i.wide.a, i.imm) = (a.reg, a.wide, a.offset);
        i.b = match ops.get(2) {
            Some(o) => self.src(o, Kind::B32)?,
            None => NONE,
        };
        let regs = self.word_list(&ops[data], count, kind, !store)?;
        if store {
            self.extend(&mut i, &[], &regs);
        } else {
            self.extend(&mut i, &regs, &[]);
        }
        i.imm2 = self.prog.wmmas.len() as i64;
        self.prog.wmmas.push(Wmma::Memory(WmmaMatrix { rows, cols, bytes, row_major }));
        self.emit(i);
        Ok(())
    }

    fn wmma_multiply(&mut self, mut mods: Mods, ops: &[Operand], shape: [usize; 3]) -> Result<()> {
        self.arity(ops, 4, 4)?;
        let satfinite = mods.take("satfinite");
        let unsupported = mods.unsupported();
        // Result and addend; between them the elements, which are halves when not named.
        let types: Vec<&str> =
            mods.parts.iter().copied().filter(|p| Elem::parse(p).is_some() || Acc::parse(p).is_some()).collect();
        for t in &types {
            mods.take(t);
        }
        mods.finish()?;
        let (d, elem, c) = match types.as_slice() {
            [d, c] => (d, "f16", c),
            [d, a, b, c] if a == b => (d, *a, c),
            _ => return Err(unsupported),
        };
        let (Some(d), Some(elem), Some(c)) = (Acc::parse(d), Elem::parse(elem), Acc::parse(c)) else {
            return Err(unsupported);
        };
        let accumulates = match elem {
            Elem::F16 => matches!(d, Acc::F16 | Acc::F32) && matches!(c, Acc::F16 | Acc::F32),
            Elem::S8 | Elem::U8 => d == Acc::S32 && c == Acc::S32,
            _ => d == Acc::F32 && c == Acc::F32,
        };
        if !legal(elem, shape) || !accumulates || (satfinite && d != Acc::S32) {
            return Err(unsupported);
        }
        let [m, n, k] = shape;
        let spec = WmmaSpec { m, n, k, elem, d, c, satfinite };
        let count = |acc: Acc| registers(m * n, if acc == Acc::F16 { 2 } else { 4 });
        let defs = self.word_list(&ops[0], count(d), kind_of(d), true)?;
        let mut uses = self.word_list(&ops[1], spec.fragment(m * k), Kind::B32, false)?;
        uses.extend(self.word_list(&ops[2], spec.fragment(k * n), Kind::B32, false)?);
        uses.extend(self.word_list(&ops[3], count(c), kind_of(c), false)?);
        let mut i = Inst::new(Op::WmmaMma);
        self.extend(&mut i, &defs, &uses);
        i.imm2 = self.prog.wmmas.len() as i64;
        self.prog.wmmas.push(Wmma::Multiply(spec));
        self.emit(i);
        Ok(())
    }
}
