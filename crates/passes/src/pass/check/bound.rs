//! How far a value may be off, by the numerics class of what was done to it.

use super::super::RegionRecord;
use crate::region::cut;
use crate::rules::Class;
use spinec_ir::ir::{Func, Module, ValueDef, ValueId};
use spinec_ir::ty::DType;

/// How far a value may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The weakest class of what fired where the value is computed.
    pub class: Class,
    /// The dtype whose rounding decides: for [`Class::Reassociating`] that of the value, or of the arithmetic of the region if
    /// that is narrower; else the narrowest that the region rounds to.
    pub dtype: DType,
    /// Largest difference allowed, relative to the largest magnitude of the value or of its summands; 0 is the same bits.
    pub tolerance: f64,
}

impl Bound {
    /// The same bits.
    pub const EXACT: Bound = Bound { class: Class::Exact, dtype: DType::F64, tolerance: 0.0 };

    /// The bound of a class for a dtype. Integers have the one of f64.
    pub fn new(class: Class, dtype: DType) -> Bound {
        let by_width = |wide: f64, single: f64, half: f64| match dtype {
            DType::F32 => single,
            DType::F16 | DType::BF16 => half,
            _ => wide,
        };
        let tolerance = match class {
            Class::Exact => 0.0,
            Class::Reassociating => by_width(1e-10, 1e-5, 8e-3),
            Class::RoundingChanging => by_width(1e-8, 1e-5, 2e-2),
            Class::Approximate => by_width(1e-8, 1e-4, 5e-2),
        };
        Bound { class, dtype, tolerance }
    }

    /// The looser of two.
    pub(super) fn or(self, other: Bound) -> Bound {
        if (other.tolerance, other.class) > (self.tolerance, self.class) { other } else { self }
    }
}

/// The bound of every value of a module, and the record of the region that computes it.
pub(super) struct Bounds {
    of: Vec<Vec<(Bound, Option<usize>)>>,
}

impl Bounds {
    /// For a pass that made those records of regions of `before`; none is exact.
    pub fn of(before: &Module, records: &[RegionRecord]) -> Bounds {
        let mut of: Vec<Vec<_>> = before.funcs.iter().map(|f| vec![(Bound::EXACT, None); f.values.len()]).collect();
        let cuts: Vec<_> = before.funcs.iter().map(cut).collect();
        for (r, record) in records.iter().enumerate() {
            for (f, region) in &record.regions {
                let (Some(func), Some(cut)) = (before.funcs.get(*f), cuts.get(*f)) else { continue };
                let ops = cut.regions.get(*region).map(|r| r.ops.as_slice()).unwrap_or_default();
                let results: Vec<ValueId> = ops.iter().flat_map(|op| &func.op(*op).results).copied().collect();
                let operands = ops.iter().flat_map(|op| &func.op(*op).operands).copied();
                let computed = narrowest(func, results.iter().copied().chain(operands)).map(DType::compute);
                let narrowed = (record.narrowed > 0).then_some(DType::BF16);
                let rounded = narrower(narrowest(func, results.iter().copied()), narrowed);
                for v in results {
                    of[*f][v.index()] = (bound(func, v, record.class, computed, rounded), Some(r));
                }
            }
        }
        Bounds { of }
    }

    /// With another tolerance for all values, if there is one.
    pub fn or_all(mut self, tolerance: Option<f64>) -> Bounds {
        for (bound, _) in self.of.iter_mut().flatten() {
            bound.tolerance = tolerance.unwrap_or(bound.tolerance);
        }
        self
    }

    /// The same bound for all values.
    pub fn same(before: &Module, bound: Bound) -> Bounds {
        Bounds { of: before.funcs.iter().map(|f| vec![(bound, None); f.values.len()]).collect() }
    }

    pub fn get(&self, func: usize, value: usize) -> (Bound, Option<usize>) {
        self.of.get(func).and_then(|f| f.get(value)).copied().unwrap_or((Bound::EXACT, None))
    }
}

/// The bound of a value of a region of which arithmetic is `computed` and results are `rounded` at the narrowest.
fn bound(func: &Func, v: ValueId, class: Class, computed: Option<DType>, rounded: Option<DType>) -> Bound {
    // What is no number itself turns on the numbers it is made of.
    let operands = match func.value(v).def {
        ValueDef::Result(op, _) => func.op(op).operands.as_slice(),
        ValueDef::Param(..) => &[],
    };
    let own = narrowest(func, [v].into_iter()).or_else(|| narrowest(func, operands.iter().copied()));
    let dtype = match class {
        Class::Exact => return Bound::EXACT,
        Class::Reassociating => narrower(own, computed),
        Class::RoundingChanging | Class::Approximate => narrower(rounded, computed),
    };
    Bound::new(class, dtype.unwrap_or(DType::F64))
}

fn narrower(a: Option<DType>, b: Option<DType>) -> Option<DType> {
    a.into_iter().chain(b).min_by_key(|d| d.bytes())
}

/// The narrowest float dtype of some values.
fn narrowest(func: &Func, values: impl Iterator<Item = ValueId>) -> Option<DType> {
    values.filter_map(|v| func.tensor(v)).map(|t| t.dtype).filter(|d| d.is_float()).min_by_key(|d| d.bytes())
}
