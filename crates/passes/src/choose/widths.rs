//! What classes take in memory, and how wide their elements are read.

use super::classes::Classes;
use crate::cost;
use crate::term::{Head, Term};
use egg::Id;
use spinec_ir::ops::Opcode;
use spinec_ir::ty::{DType, Env, Type};

impl Classes<'_> {
    /// Classes that are weights or views of weights.
    pub(super) fn free(&self) -> Vec<bool> {
        use Opcode::*;
        let mut free = vec![false; self.ids.len()];
        loop {
            let mut changed = false;
            for k in 0..free.len() {
                let is_free = |n: &Term| match n.code() {
                    Some(Weight) => true,
                    Some(Reshape | Transpose | Slice | Cast | Broadcast) => free[self.child(n.children[0])],
                    _ => false,
                };
                if !free[k] && self.nodes[k].iter().any(is_free) {
                    free[k] = true;
                    changed = true;
                }
            }
            if !changed {
                return free;
            }
        }
    }

    /// Bytes and dtype of an element of a class kept in memory.
    pub(super) fn residence(&self, k: usize) -> Option<(u64, DType)> {
        let (facts, wish) = (self.g.facts(self.ids[k]), self.wish);
        let ty = facts.tensor().filter(|_| facts.held && facts.loops.len() <= 1)?;
        let source = facts.source?;
        let may = wish.narrow && !wish.written.contains(&self.ids[k]);
        let narrow = may && source.is_float() && source.compute() == ty.dtype;
        let storage = if narrow { source } else { ty.dtype };
        let bytes = cost::elements(ty, &Env::new()) * u128::from(storage.bytes().unsigned_abs());
        Some((u64::try_from(bytes).ok()?, storage))
    }

    /// Element widths. Views hold the values of what is below them. `read`: elementwise ops run where their result is read, so
    /// what is below them is read.
    pub(super) fn widths(&self, read: bool) -> Vec<u64> {
        let own = |k: usize| match (self.derivable[k], self.g.facts(self.ids[k]).types.as_slice()) {
            (Some((_, storage)), _) => storage.bytes().unsigned_abs(),
            (None, [Type::Tensor(t)]) => t.dtype.bytes().unsigned_abs(),
            _ => 1,
        };
        let mut width: Vec<u64> = (0..self.ids.len()).map(own).collect();
        loop {
            let mut changed = false;
            for k in 0..width.len() {
                for n in &self.nodes[k] {
                    if let Some(below) = self.below(k, n, read, &width)
                        && below < width[k]
                    {
                        width[k] = below;
                        changed = true;
                    }
                }
            }
            if !changed {
                return width;
            }
        }
    }

    /// The width read below a view or an elementwise op: that of its largest operands.
    fn below(&self, k: usize, n: &Term, read: bool, width: &[u64]) -> Option<u64> {
        if n.head == Head::Pack {
            return n.children.first().map(|c| width[self.child(*c)]);
        }
        let code = n.code()?;
        if cost::is_view(code) {
            return n.children.first().map(|c| width[self.child(*c)]);
        }
        let dims = &self.g.facts(self.ids[k]).tensor()?.dims;
        let full = |c: &&Id| self.g.ty(**c).is_some_and(|t| t.dims == *dims);
        (read && code.def().elementwise).then(|| n.children.iter().filter(full).map(|c| width[self.child(*c)]).max())?
    }
}
