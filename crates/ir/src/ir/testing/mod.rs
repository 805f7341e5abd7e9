//! Random well-typed modules for property tests: every op of the registry, nested loops and cases, weights, states.
//!
//! A module follows from its seed. It keeps every rule of the verifier, and its values are tame: if the inputs lie in
//! their ranges and the weights in [-1, 1], and states are new, then every value is finite and of a magnitude of at most
//! [`LIMIT`] (about; rounding adds to it; codes of f8e4m3 aside), roots, logarithms and denominators stay away from zero,
//! positions of one write to a pool differ, and no position is read that was not written. The symbols N and T lie within
//! 1..4; the first input of a function binds them, and N is the number of requests of a call. With [`Config::discrete`] off no integer or truth value depends on a float, so
//! small differences between evaluators stay small.

mod build;
mod control;
mod data;
mod elementwise;
mod model;
mod reduce;
mod rng;
mod states;
mod values;

pub use rng::Rng;

use super::Module;
use crate::ops::Opcode;
use crate::ty::Numerics;
use build::Builder;

/// Bound of the magnitude of every value.
pub const LIMIT: f64 = 64.0;

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Numerics policy; decides which float dtypes occur.
    pub numerics: Numerics,
    /// Number of functions.
    pub funcs: usize,
    /// Steps per function; a step makes one op with what it needs, or a loop or cases with several steps inside.
    pub steps: usize,
    /// Loops and cases.
    pub control: bool,
    /// States.
    pub states: bool,
    /// Ops through which floats decide integers and truth values: comparisons, argmax, topk, floor, rounding to f8e4m3.
    pub discrete: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config { numerics: Numerics::BF16, funcs: 2, steps: 24, control: true, states: true, discrete: true }
    }
}

/// An interval, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Smallest value.
    pub lo: f64,
    /// Largest value.
    pub hi: f64,
}

/// A generated module.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The module, in canonical form.
    pub module: Module,
    /// For every function the range of each input. Integer inputs hold the integers within.
    pub inputs: Vec<Vec<Range>>,
}

/// The module of a seed.
pub fn sample(seed: u64, config: &Config) -> Sample {
    let mut b = Builder::new(Rng::new(seed), *config);
    let mut inputs = Vec::new();
    for i in 0..config.funcs {
        b.begin(format!("f{i}"));
        b.steps(config.steps);
        inputs.push(b.end());
    }
    Sample { module: super::canonical(&b.module), inputs }
}

impl Builder {
    /// Makes `n` steps in the current region.
    fn steps(&mut self, n: usize) {
        for _ in 0..n {
            let code = match self.rng.below(12) {
                0 => Opcode::Loop,
                1 => Opcode::Cases,
                2 => Opcode::StateOpen,
                3 => Opcode::Weight,
                _ => crate::ops::OPS[self.rng.below(crate::ops::OPS.len())].code,
            };
            // A step that does not fit what is in scope makes nothing.
            let _ = self.step(code);
        }
    }

    /// Makes an op of kind `code`, with operands from scope or new ones. `None` if it does not fit here.
    fn step(&mut self, code: Opcode) -> Option<()> {
        use Opcode::*;
        match code {
            Const | DimValue | Iota | Fill | Reshape | Transpose | Broadcast | Concat | Slice | IndexAt | Shift
            | Take | OneHot | ScatterAdd | Sort => self.data(code),
            Neg | Abs | Exp | Log | Sqrt | Rsqrt | Sin | Cos | Tanh | Erf | Sigmoid | Silu | Softplus | Relu
            | Floor | IsFinite | Not | Cast => self.unary(code),
            Add | Sub | Mul | Div | FloorDiv | Mod | Pow | Minimum | Maximum | Eq | Ne | Lt | Le | Gt | Ge | And
            | Or | Where => self.binary(code),
            Sum | Mean | ReduceMax | ReduceMin | Rms | Norm2 | Cumsum | Cumprod | Argmax | TopK | Softmax => {
                self.reduce(code)
            }
            Linear | Einsum | QuantizeRows => self.contract(code),
            RmsNorm | L2Norm | Rope | Coin | SamplingLaw | Draw => self.model(code),
            Weight => self.weight_op(),
            Loop if self.config.control => self.loop_op(),
            Cases if self.config.control => self.cases_op(),
            Guarded if self.config.control => self.guarded_op(),
            StateOpen | StateClose | Attention | KvWrite | CausalConv | DeltaRule if self.config.states => self.state(),
            Loop | Cases | Guarded | StateOpen | StateClose | Attention | KvWrite | CausalConv | DeltaRule => None,
        }
    }
}
