//! Random numbers and sampling.

use super::super::infer::InferError;
use super::super::table::Opcode;
use super::{Call, Result, leading};
use crate::ty::{DType, Dim, TensorType, Type};

pub(super) fn infer(code: Opcode, call: &Call) -> Result<Vec<Type>> {
    let out = match code {
        Opcode::Coin => {
            let (seed, at, anchor) = (call.int(0)?, call.int(1)?, call.int(2)?);
            let [n, two] = seed.dims.as_slice() else {
                return Err(InferError::rank(0, format!("the seed is i32[N, 2], this is {seed}")));
            };
            if *two != Dim::from(2) {
                return Err(InferError::rank(0, format!("the seed is i32[N, 2], this is {seed}")));
            }
            leading(0, std::slice::from_ref(n), 1, at, "`at`")?;
            if anchor.dims.as_slice() != std::slice::from_ref(n) {
                return Err(InferError::dims(0, 2, format!("anchor must be i32[{n}], this is {anchor}")));
            }
            let purpose = call.attr_int("purpose")?;
            if !(0..=4).contains(&purpose) {
                return Err(InferError::attr("purpose", format!("there is no purpose {purpose}"))
                    .help("first, draft, accept, residual or bonus"));
            }
            TensorType::new(DType::F64, at.dims.clone())
        }
        Opcode::SamplingLaw => {
            let logits = call.float(0)?;
            let [n, .., _] = logits.dims.as_slice() else {
                return Err(InferError::rank(0, format!("logits are [N, ..., V], this is {logits}")));
            };
            for (i, what, int) in [(1, "temperature", false), (2, "top_k", true), (3, "top_p", false)] {
                let t = if int { call.int(i)? } else { call.float(i)? };
                if t.dims.as_slice() != std::slice::from_ref(n) {
                    return Err(InferError::dims(
                        0,
                        i,
                        format!("{what} must have one entry a request, [{n}], this is {t}"),
                    ));
                }
            }
            TensorType { dtype: DType::F64, dims: logits.dims.clone(), dist: true }
        }
        Opcode::Draw => {
            let (law, coin) = (call.float(0)?, call.float(1)?);
            let Some((_, lead)) = law.dims.split_last() else {
                return Err(InferError::rank(0, "draw needs at least one axis"));
            };
            if coin.dims != lead {
                return Err(InferError::dims(
                    0,
                    1,
                    format!("one coin a row is needed: the law is {law}, the coins are {coin}"),
                ));
            }
            TensorType::new(DType::I32, lead.to_vec())
        }
        other => unreachable!("{} is not a sampling op", other.name()),
    };
    Ok(vec![out.into()])
}
