//! Elementwise programs: a few steps over the elements of one shape, chunk by chunk, in registers that stay in the
//! first-level cache. Every element sees the same operations as if each step were an instruction of its own.

use super::elements::Kind;
use super::number::Number;
use crate::kernels::simd::{Kernel, LANES, Real, Simd, load_lanes, store_lanes};
use crate::threads::Pool;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::DType;

/// Elements a step works on at a time.
const CHUNK: usize = 256;
/// Most operands of a program.
pub(super) const MAX_LOADS: usize = 8;
/// Most registers of a program.
pub(super) const MAX_REGISTERS: usize = 24;
/// Elements times steps below which a second thread costs more than it saves.
const MIN_WORK: usize = 1 << 14;
/// Elements of one task.
const TASK: usize = 8 * CHUNK;

/// How an operand lies under the elements of the result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pattern {
    /// One element after the other.
    Dense,
    /// One number, known when the tape is built; the operand itself is not read.
    Number(f64),
    /// So many elements, over and over.
    Repeat(usize),
    /// Each element so many times.
    Each(usize),
    /// Extents and distances, outermost first.
    Strided(Vec<(usize, usize)>),
}

/// A step; its result is the next register. Registers begin with the operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Unary(Opcode, usize),
    Binary(Opcode, usize, usize),
    /// The second where the first is not zero, else the third.
    Select(usize, usize, usize),
    /// Rounds to a narrower float.
    Round(DType, usize),
}

/// A program. Its result is the last register.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// What it computes in: F32, F64 or I32.
    pub compute: Kind,
    /// Operands in the order of the instruction's.
    pub loads: Vec<Pattern>,
    pub steps: Vec<Step>,
    /// Elements.
    pub len: usize,
    /// The results are truth values.
    pub truth: bool,
}

/// An operand's elements.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
    I32(&'a [i32]),
    U8(&'a [u8]),
}

/// Elements of a result.
pub(super) enum Target<'a> {
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
    I32(&'a mut [i32]),
    U8(&'a mut [u8]),
}

impl Target<'_> {
    fn len(&self) -> usize {
        match self {
            Target::F32(y) => y.len(),
            Target::F64(y) => y.len(),
            Target::I32(y) => y.len(),
            Target::U8(y) => y.len(),
        }
    }
}

/// A number type with the memory it shares.
pub(super) trait Register: Number {
    fn same<'a>(source: &Source<'a>) -> Option<&'a [Self]>;
    fn same_mut<'a>(target: &'a mut Target<'_>) -> Option<&'a mut [Self]>;
    /// Runs a piece of a program; `start` is its first element.
    fn run(program: &Program, sources: &[Source<'_>], start: usize, target: Target<'_>);
}

macro_rules! register {
    ($t:ty, $kind:ident) => {
        fn same<'a>(source: &Source<'a>) -> Option<&'a [Self]> {
            match source {
                Source::$kind(x) => Some(x),
                _ => None,
            }
        }
        fn same_mut<'a>(target: &'a mut Target<'_>) -> Option<&'a mut [Self]> {
            match target {
                Target::$kind(y) => Some(y),
                _ => None,
            }
        }
    };
}

impl Register for f32 {
    register!(f32, F32);
    fn run(program: &Program, sources: &[Source<'_>], start: usize, target: Target<'_>) {
        f32::scratch(program.registers() * CHUNK, |memory| {
            f32::dispatch(Piece { program, sources, start, target, memory });
        });
    }
}

impl Register for f64 {
    register!(f64, F64);
    fn run(program: &Program, sources: &[Source<'_>], start: usize, target: Target<'_>) {
        f64::scratch(program.registers() * CHUNK, |memory| {
            f64::dispatch(Piece { program, sources, start, target, memory });
        });
    }
}

impl Register for i32 {
    register!(i32, I32);
    fn run(program: &Program, sources: &[Source<'_>], start: usize, target: Target<'_>) {
        let mut memory = [0; MAX_REGISTERS * CHUNK];
        Piece { program, sources, start, target, memory: &mut memory }.chunks(Integers);
    }
}

impl Program {
    /// True if every result is 0 or 1 whatever the operands are.
    pub fn zero_or_one(&self) -> bool {
        use Opcode::*;
        matches!(
            self.steps.last(),
            Some(Step::Unary(Not | IsFinite, _) | Step::Binary(Eq | Ne | Lt | Le | Gt | Ge | And | Or, ..))
        )
    }

    fn registers(&self) -> usize {
        self.loads.len() + self.steps.len()
    }

    /// Computes all elements into `target`.
    pub fn run<T: Register>(&self, pool: &Pool, sources: &[Source<'_>], target: Target<'_>) {
        if self.len * self.steps.len().max(1) < 2 * MIN_WORK || pool.threads() == 1 {
            return T::run(self, sources, 0, target);
        }
        match target {
            Target::F32(y) => pool.par_chunks_mut(y, TASK, |i, y| T::run(self, sources, i * TASK, Target::F32(y))),
            Target::F64(y) => pool.par_chunks_mut(y, TASK, |i, y| T::run(self, sources, i * TASK, Target::F64(y))),
            Target::I32(y) => pool.par_chunks_mut(y, TASK, |i, y| T::run(self, sources, i * TASK, Target::I32(y))),
            Target::U8(y) => pool.par_chunks_mut(y, TASK, |i, y| T::run(self, sources, i * TASK, Target::U8(y))),
        }
    }
}

/// Elements `start..start + target.len()` of a program.
struct Piece<'a, T> {
    program: &'a Program,
    sources: &'a [Source<'a>],
    start: usize,
    target: Target<'a>,
    memory: &'a mut [T],
}

impl<T: Register + Real> Kernel<T> for Piece<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Simd<T>>(self, s: S) {
        self.chunks(Floats(s));
    }
}

impl<T: Register> Piece<'_, T> {
    #[inline(always)]
    fn chunks<E: Engine<T>>(mut self, engine: E) {
        let loads = self.program.loads.len();
        // Operands that are one number are filled in once.
        for (i, pattern) in self.program.loads.iter().enumerate() {
            if let Pattern::Number(x) = pattern {
                self.memory[i * CHUNK..(i + 1) * CHUNK].fill(T::from_f64(*x));
            }
        }
        let len = self.target.len();
        let mut at = 0;
        while at < len {
            let n = (len - at).min(CHUNK);
            let first = self.start + at;
            let mut direct: [Option<&[T]>; MAX_LOADS] = [None; MAX_LOADS];
            for (i, pattern) in self.program.loads.iter().enumerate() {
                match (pattern, T::same(&self.sources[i])) {
                    (Pattern::Number(_), _) => {}
                    (Pattern::Dense, Some(x)) => direct[i] = Some(&x[first..first + n]),
                    _ => load(&self.sources[i], pattern, first, &mut self.memory[i * CHUNK..i * CHUNK + n]),
                }
            }
            for (k, step) in self.program.steps.iter().enumerate() {
                let (before, rest) = self.memory.split_at_mut((loads + k) * CHUNK);
                let get = |r: usize| match direct.get(r) {
                    Some(Some(x)) => *x,
                    _ => &before[r * CHUNK..r * CHUNK + n],
                };
                let last = k + 1 == self.program.steps.len();
                let own = if last { T::same_mut(&mut self.target) } else { None };
                let y = match own {
                    Some(y) => &mut y[at..at + n],
                    None => &mut rest[..n],
                };
                match *step {
                    Step::Unary(code, x) => engine.unary(code, get(x), y),
                    Step::Binary(code, a, b) => engine.binary(code, get(a), get(b), y),
                    Step::Select(c, a, b) => {
                        let (c, a, b) = (get(c), get(a), get(b));
                        for i in 0..n {
                            y[i] = if c[i] != T::default() { a[i] } else { b[i] };
                        }
                    }
                    Step::Round(dtype, x) => {
                        for (y, x) in y.iter_mut().zip(get(x)) {
                            *y = x.round(dtype);
                        }
                    }
                }
            }
            let result = self.program.registers() - 1;
            let x = match direct.get(result) {
                Some(Some(x)) => *x,
                _ => &self.memory[result * CHUNK..result * CHUNK + n],
            };
            let computed = !self.program.steps.is_empty();
            if !(computed && T::same_mut(&mut self.target).is_some()) {
                store(x, &mut self.target, at, self.program.truth);
            }
            at += n;
        }
    }
}

/// Converts a chunk to the result's type.
#[inline(always)]
fn store<T: Number>(x: &[T], target: &mut Target<'_>, at: usize, truth: bool) {
    macro_rules! each {
        ($y:ident, $convert:ident) => {
            for (y, x) in $y[at..at + x.len()].iter_mut().zip(x) {
                *y = x.$convert();
            }
        };
    }
    match target {
        Target::F32(y) => each!(y, to_f32),
        Target::F64(y) => each!(y, to_f64),
        Target::I32(y) => each!(y, to_i32),
        Target::U8(y) if truth => {
            for (y, x) in y[at..at + x.len()].iter_mut().zip(x) {
                *y = u8::from(*x != T::default());
            }
        }
        Target::U8(y) => each!(y, to_u8),
    }
}

/// Elements `first..` of an operand under its pattern.
#[inline(always)]
fn load<T: Number>(source: &Source<'_>, pattern: &Pattern, first: usize, to: &mut [T]) {
    match source {
        Source::F32(x) => spread(pattern, first, to, |i| T::from_f64(f64::from(x[i]))),
        Source::F64(x) => spread(pattern, first, to, |i| T::from_f64(x[i])),
        Source::I32(x) => spread(pattern, first, to, |i| T::from_i32(x[i])),
        Source::U8(x) => spread(pattern, first, to, |i| T::from_i32(i32::from(x[i]))),
    }
}

#[inline(always)]
fn spread<T: Copy>(pattern: &Pattern, first: usize, to: &mut [T], at: impl Fn(usize) -> T) {
    match pattern {
        Pattern::Number(_) => {}
        Pattern::Dense => {
            for (i, to) in to.iter_mut().enumerate() {
                *to = at(first + i);
            }
        }
        Pattern::Repeat(period) => {
            let (mut place, mut done) = (first % period, 0);
            while done < to.len() {
                let run = (period - place).min(to.len() - done);
                for i in 0..run {
                    to[done + i] = at(place + i);
                }
                (place, done) = (0, done + run);
            }
        }
        Pattern::Each(times) => {
            let (mut row, mut left, mut done) = (first / times, times - first % times, 0);
            while done < to.len() {
                let run = left.min(to.len() - done);
                to[done..done + run].fill(at(row));
                (row, left, done) = (row + 1, *times, done + run);
            }
        }
        Pattern::Strided(axes) => strided(axes, first, to, at),
    }
}

#[inline(always)]
fn strided<T: Copy>(axes: &[(usize, usize)], first: usize, to: &mut [T], at: impl Fn(usize) -> T) {
    let Some(((inner, step), outer)) = axes.split_last() else {
        return to.fill(at(0));
    };
    let (mut row, mut place, mut done) = (first / inner, first % inner, 0);
    while done < to.len() {
        let (mut base, mut rest) = (0, row);
        for (extent, stride) in outer.iter().rev() {
            base += rest % extent * stride;
            rest /= extent;
        }
        let run = (inner - place).min(to.len() - done);
        for i in 0..run {
            to[done + i] = at(base + (place + i) * step);
        }
        (row, place, done) = (row + 1, 0, done + run);
    }
}

/// Functions over chunks of equal length.
trait Engine<T>: Copy {
    fn unary(self, code: Opcode, x: &[T], y: &mut [T]);
    fn binary(self, code: Opcode, a: &[T], b: &[T], y: &mut [T]);
}

/// Wrapping integers; truth values are 0 and 1.
#[derive(Clone, Copy)]
struct Integers;

impl Engine<i32> for Integers {
    fn unary(self, code: Opcode, x: &[i32], y: &mut [i32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = i32::scalar_unary(code, *x);
        }
    }

    fn binary(self, code: Opcode, a: &[i32], b: &[i32], y: &mut [i32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = i32::scalar_binary(code, *a, *b);
        }
    }
}

/// Floats on the instructions of a path; truth values are 0 and 1.
#[derive(Clone, Copy)]
struct Floats<S>(S);

impl<T: Register + Real, S: Simd<T>> Engine<T> for Floats<S> {
    #[inline(always)]
    fn unary(self, code: Opcode, x: &[T], y: &mut [T]) {
        let s = self.0;
        macro_rules! lanes {
            (|$v:ident| $value:expr) => {
                for at in (0..y.len()).step_by(LANES) {
                    let $v = load_lanes(s, x, at, T::ZERO);
                    let value = $value;
                    store_lanes(s, y, at, value);
                }
            };
        }
        macro_rules! each {
            (|$v:ident| $value:expr) => {
                for (y, x) in y.iter_mut().zip(x) {
                    let $v = *x;
                    *y = $value;
                }
            };
        }
        let (zero, one) = (s.splat(T::ZERO), s.splat(T::ONE));
        match code {
            Opcode::Neg => each!(|x| -x),
            Opcode::Abs => each!(|x| if x < T::ZERO { -x } else { x + T::ZERO }),
            Opcode::Relu => each!(|x| if x < T::ZERO { T::ZERO } else { x }),
            Opcode::Sqrt => lanes!(|v| s.sqrt(v)),
            Opcode::Rsqrt => lanes!(|v| s.div(one, s.sqrt(v))),
            Opcode::Exp => lanes!(|v| s.exp(v)),
            Opcode::Sigmoid => lanes!(|v| s.div(one, s.add(one, s.exp(s.sub(zero, v))))),
            Opcode::Silu => lanes!(|v| s.div(v, s.add(one, s.exp(s.sub(zero, v))))),
            Opcode::Softplus => each!(|x| softplus(x)),
            Opcode::IsFinite => each!(|x| truth(x.finite())),
            Opcode::Not => each!(|x| truth(x == T::ZERO)),
            other => each!(|x| T::scalar_unary(other, x)),
        }
    }

    #[inline(always)]
    fn binary(self, code: Opcode, a: &[T], b: &[T], y: &mut [T]) {
        macro_rules! each {
            (|$a:ident, $b:ident| $value:expr) => {
                for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
                    let ($a, $b) = (*a, *b);
                    *y = $value;
                }
            };
        }
        match code {
            Opcode::Add => each!(|a, b| a + b),
            Opcode::Sub => each!(|a, b| a - b),
            Opcode::Mul => each!(|a, b| a * b),
            Opcode::Div => each!(|a, b| a / b),
            // A NaN that is `a` stays, one that is `b` loses the comparison.
            Opcode::Maximum => each!(|a, b| if a >= b || a.nan() { a } else { b }),
            Opcode::Minimum => each!(|a, b| if a <= b || a.nan() { a } else { b }),
            Opcode::Eq => each!(|a, b| truth(a == b)),
            Opcode::Ne => each!(|a, b| truth(a != b)),
            Opcode::Lt => each!(|a, b| truth(a < b)),
            Opcode::Le => each!(|a, b| truth(a <= b)),
            Opcode::Gt => each!(|a, b| truth(a > b)),
            Opcode::Ge => each!(|a, b| truth(a >= b)),
            Opcode::And => each!(|a, b| truth(a != T::ZERO && b != T::ZERO)),
            Opcode::Or => each!(|a, b| truth(a != T::ZERO || b != T::ZERO)),
            other => each!(|a, b| T::scalar_binary(other, a, b)),
        }
    }
}

#[inline(always)]
fn truth<T: Real>(x: bool) -> T {
    if x { T::ONE } else { T::ZERO }
}

/// In f64, where the logarithm is: gates are a few numbers a row.
fn softplus<T: Register + Real>(x: T) -> T {
    let wide = Number::to_f64(x);
    if wide > 20.0 { x } else { <T as Number>::from_f64(libm::log1p(libm::exp(wide))) }
}
