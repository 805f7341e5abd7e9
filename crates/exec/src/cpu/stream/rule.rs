//! Which entries of its operands an op reads for a range of entries of an axis of its results.

use super::super::emit::Call;
use super::super::view::count;
use spinec_ir::ir::Attr;
use spinec_ir::ops::Opcode;

/// What entries `a..b` of an axis of all results need of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Entries `a..b` of this axis.
    Entries(usize),
    /// Everything.
    All,
}

/// Needs of the operands where the results are computed from entry to entry of `axis`, bit for bit; `None` if they are
/// not. A concatenation along `axis` is no such op, see [`joins`].
pub(super) fn needs(call: &Call, axis: usize) -> Option<Vec<Need>> {
    use Opcode::*;
    let (_, shape) = call.result(0).ok()?;
    let rank = shape.len();
    let inner = axis + 1 < rank;
    let operand = |i: usize| call.operands.get(i).map(|v| v.view.shape.as_slice());
    let all = |need: Need| Some(vec![need; call.operands.len()]);
    let same = |row_by_row: bool| row_by_row.then(|| vec![Need::Entries(axis); call.operands.len()]);
    if shape.get(axis).is_none_or(|n| *n < 2) {
        return None;
    }
    let own_axis = || call.axis(operand(0)?.len()).ok();
    match call.code {
        // Shapes align at their ends, axes of one entry repeat.
        code if code.def().elementwise => {
            let need = |shape: &[usize]| match (axis + shape.len()).checked_sub(rank) {
                Some(own) if shape[own] > 1 => Need::Entries(own),
                _ => Need::All,
            };
            Some(call.operands.iter().map(|v| need(&v.view.shape)).collect())
        }
        Reshape => {
            let x = operand(0)?;
            let before = count(&shape[..axis]);
            let own = (0..x.len()).find(|a| x[*a] == shape[axis] && count(&x[..*a]) == before)?;
            all(Need::Entries(own))
        }
        Concat | Shift | Cumsum | Cumprod | Softmax => same(own_axis()? != axis),
        Take => {
            let (own, index) = (own_axis()?, operand(1)?.len());
            Some(match axis {
                a if a < own => vec![Need::Entries(a); 2],
                a if a < index => vec![Need::All, Need::Entries(a)],
                a => vec![Need::Entries(a - index + own + 1), Need::All],
            })
        }
        OneHot | ScatterAdd | Sort | TopK | L2Norm => same(inner),
        RmsNorm => {
            let mut out = same(inner)?;
            out.iter_mut().skip(1).for_each(|n| *n = Need::All);
            Some(out)
        }
        Sum | Mean | ReduceMax | ReduceMin | Rms | Norm2 | Argmax => {
            let own = own_axis()?;
            let kept = call.code != Argmax && call.bool("keep").ok()?;
            match axis {
                a if kept && a == own => None,
                a if kept || a < own => all(Need::Entries(a)),
                a => all(Need::Entries(a + 1)),
            }
        }
        Linear if inner => Some(vec![Need::Entries(axis), Need::All]),
        Linear => Some(vec![Need::All, Need::Entries(0)]),
        Einsum => {
            let Attr::Str(spec) = call.attr("spec").ok()? else { return None };
            let (left, right) = spec.split_once("->")?;
            let name = right.split_whitespace().nth(axis)?;
            let need = |names: &str| {
                let mut places = names.split_whitespace().enumerate().filter(|(_, n)| *n == name).map(|(i, _)| i);
                match (places.next(), places.next()) {
                    (Some(at), None) => Some(Need::Entries(at)),
                    (None, _) => Some(Need::All),
                    _ => None,
                }
            };
            let out: Vec<Need> = left.split(',').map(need).collect::<Option<_>>()?;
            (out.len() == call.operands.len()).then_some(out)
        }
        Rope if operand(1)?.len() + 2 == rank => match axis {
            a if a + 2 < rank => Some(vec![Need::Entries(a); 2]),
            a if inner => Some(vec![Need::Entries(a), Need::All]),
            _ => None,
        },
        QuantizeRows if axis == 0 => all(Need::Entries(0)),
        _ => None,
    }
}

/// Where the parts of a concatenation along `axis` begin, if that is what the op is.
pub(super) fn joins(call: &Call, axis: usize) -> Option<Vec<usize>> {
    let (_, shape) = call.result(0).ok()?;
    if call.code != Opcode::Concat || call.axis(shape.len()).ok()? != axis {
        return None;
    }
    let mut start = 0;
    let mut out = Vec::new();
    for v in call.operands {
        out.push(start);
        start += *v.view.shape.get(axis)?;
    }
    (start == shape[axis]).then_some(out)
}
