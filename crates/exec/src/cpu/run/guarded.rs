//! A choice whose second value is made only if it is needed.

use super::{Machine, Step, failed};
use crate::cpu::elements::{Arena, Elem, Kind, Out, Ref, tensor_of};
use crate::cpu::instr::Guarded;
use crate::cpu::view::View;
use spinec_ir::tensor::{Data, Tensor};

impl Machine<'_> {
    /// Operands: the condition, the value where it holds, then what the tape takes.
    pub fn guarded(&mut self, g: &Guarded, ins: &[Ref], out: &Out) -> Step<()> {
        let (ok, fast) = (&ins[0], &ins[1]);
        let ok: Vec<bool> = ok.get::<u8>(self.arena).iter().map(|b| *b != 0).collect();
        let slow = if ok.iter().all(|ok| *ok) { None } else { Some(self.slow(g, &ins[2..])?.data) };
        match (out.kind, slow) {
            (Kind::F32, None) => self.write::<f32, _>(out, |y, m| y.copy_from_slice(fast.get(m.arena))),
            (Kind::F64, None) => self.write::<f64, _>(out, |y, m| y.copy_from_slice(fast.get(m.arena))),
            (Kind::I32, None) => self.write::<i32, _>(out, |y, m| y.copy_from_slice(fast.get(m.arena))),
            (Kind::U8, None) => self.write::<u8, _>(out, |y, m| y.copy_from_slice(fast.get(m.arena))),
            (Kind::F32, Some(Data::F32(slow))) => self.choose(&ok, fast, &slow, out),
            (Kind::F64, Some(Data::F64(slow))) => self.choose(&ok, fast, &slow, out),
            (Kind::I32, Some(Data::I32(slow))) => self.choose(&ok, fast, &slow, out),
            (Kind::U8, Some(Data::U8(slow))) => self.choose(&ok, fast, &slow, out),
            (Kind::U8, Some(Data::Bool(slow))) => {
                let slow: Vec<u8> = slow.into_iter().map(u8::from).collect();
                self.choose(&ok, fast, &slow, out);
            }
            _ => return Err(failed("both values of a choice must be of one kind")),
        }
        Ok(())
    }

    fn choose<E: Elem>(&mut self, ok: &[bool], fast: &Ref, slow: &[E], out: &Out) {
        self.write::<E, _>(out, |y, m| {
            let fast = fast.get::<E>(m.arena);
            for (i, y) in y.iter_mut().enumerate() {
                *y = if ok[i] { fast[i] } else { slow[i] };
            }
        });
    }

    /// Runs the tape in memory of its own: it hardly ever runs.
    fn slow(&mut self, g: &Guarded, ins: &[Ref]) -> Step<Tensor> {
        let mut inputs = Vec::new();
        for ((dtype, shape, _), x) in g.slow.inputs.iter().zip(ins) {
            let t = tensor_of(*dtype, &View::dense(shape), x, self.arena);
            inputs.push(t.ok_or_else(|| failed("an operand does not fill its shape"))?);
        }
        let mut arena = Arena::default();
        let mut machine = Machine {
            arena: &mut arena,
            pool: self.pool,
            states: &mut *self.states,
            requests: self.requests,
            mode: self.mode,
            watch: self.watch.as_deref_mut().map(|w| w as _),
        };
        let made = machine.run(&g.slow, &inputs.iter().collect::<Vec<_>>())?.pop();
        let made = made.ok_or_else(|| failed("a choice has no second value"))?;
        if (made.dtype, &made.shape) != (g.dtype, &g.shape) {
            return Err(failed("the values of a choice have different types"));
        }
        Ok(made)
    }
}
