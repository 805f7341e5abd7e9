//! Which function evaluates which op. There is no catch-all: an op without a meaning does not compile.

use super::call::{Call, Slot};
use super::{attention, contract, data, elementwise, norm, quantize, random, recurrent, reduce, sampling};
use crate::ops::Opcode;
use crate::tensor::Tensor;

/// Results of an op that has neither regions nor anything to do with the module.
pub(super) fn evaluate(call: &Call) -> Result<Vec<Slot>, String> {
    use Opcode::*;
    let one = |t: Tensor| vec![Slot::from(t)];
    let many = |v: Vec<Tensor>| v.into_iter().map(Slot::from).collect();
    Ok(match call.op.code {
        Const => one(data::constant(call)?),
        DimValue => one(data::dim_value(call)?),
        Neg | Abs | Exp | Log | Sqrt | Rsqrt | Sin | Cos | Tanh | Erf | Sigmoid | Silu | Softplus | Relu | Floor => {
            one(elementwise::unary(call)?)
        }
        IsFinite => one(elementwise::is_finite(call)?),
        Not => one(elementwise::not(call)?),
        Cast => one(elementwise::convert(call)?),
        Add | Sub | Mul | Div | FloorDiv | Mod | Pow | Minimum | Maximum => one(elementwise::arithmetic(call)?),
        Eq | Ne | Lt | Le | Gt | Ge => one(elementwise::compare(call)?),
        And | Or => one(elementwise::logical(call)?),
        Where => one(elementwise::choose(call)?),
        Iota => one(data::iota(call)?),
        Fill | Broadcast => one(data::repeat(call)?),
        Reshape => one(data::reshape(call)?),
        Transpose => one(data::transpose(call)?),
        Concat => one(data::concat(call)?),
        Slice => one(data::slice(call)?),
        IndexAt => one(data::index_at(call)?),
        Shift => one(data::shift(call)?),
        Take => one(data::take(call)?),
        OneHot => one(data::one_hot(call)?),
        ScatterAdd => one(data::scatter_add(call)?),
        Sort => one(data::sort(call)?),
        Sum | Mean | ReduceMax | ReduceMin | Rms | Norm2 => one(reduce::reduce(call)?),
        Cumsum | Cumprod => one(reduce::scan(call)?),
        Argmax => one(reduce::argmax(call)?),
        TopK => many(reduce::top_k(call)?),
        Softmax => one(reduce::softmax(call)?),
        Linear => one(contract::linear(call)?),
        Einsum => one(contract::einsum(call)?),
        RmsNorm | L2Norm => one(norm::norm(call)?),
        Rope => one(norm::rope(call)?),
        Attention => one(attention::attention(call)?),
        KvWrite => vec![attention::kv_write(call)?.into()],
        CausalConv => recurrent::causal_conv(call)?,
        DeltaRule => recurrent::delta_rule(call)?,
        Coin => one(random::coins(call)?),
        SamplingLaw => one(sampling::sampling_law(call)?),
        Draw => one(sampling::draw(call)?),
        QuantizeRows => many(quantize::quantize_rows(call)?),
        Weight | StateOpen | StateClose | Loop | Cases | Guarded => {
            return Err(format!("`{}` is not evaluated from its operands", call.op.code.name()));
        }
    })
}
