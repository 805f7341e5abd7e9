//! Life of a state element: opened, read, advanced, threaded through loops and cases, closed.
//!
//! Axis 0 of everything that meets a state is the symbol N, the requests of a call. A pool is filled right after it is
//! opened, for all positions that later ops name, as positions nobody wrote have no value.

use super::Range;
use super::build::{Builder, UNIT};
use super::model::POSITIONS;
use crate::ir::{Attr, Attrs, StateDecl, ValueId};
use crate::ops::Opcode;
use crate::ty::{DType, Dim, StateKind, TensorType, Type};

fn requests() -> Dim {
    Dim::symbol("N")
}

impl Builder {
    /// The element a new state has for this place; `None` where no state can be opened.
    fn elements(&mut self) -> Option<(Option<ValueId>, Vec<i64>)> {
        let selecting: Vec<usize> = (0..self.loops.len()).filter(|l| !self.loops[*l].serial).collect();
        let Some(l) = self.rng.pick(&selecting).filter(|_| !self.rng.chance(20)) else { return Some((None, vec![])) };
        let l = &self.loops[l];
        let n = l.extent.as_const()?;
        let mut next = -1;
        let element = |i| {
            if l.reach.contains(&i) {
                next += 1;
                next
            } else {
                -1
            }
        };
        Some((Some(l.index), (0..n).map(element).collect()))
    }

    pub(super) fn state(&mut self) -> Option<()> {
        let (index, element) = self.elements()?;
        let small = |b: &mut Self| Dim::from(b.rng.int(1, 2));
        let kind = match self.rng.below(3) {
            0 => StateKind::KvPool { heads: small(self), width: Dim::from(2 * self.rng.int(1, 2)) },
            1 => StateKind::Recurrent { shape: vec![small(self), Dim::from(self.rng.int(2, 3)), small(self)] },
            _ => StateKind::Window { channels: self.rng.int(1, 4).into(), taps: self.rng.int(2, 4).into() },
        };
        let id = self.module.states.len();
        let count = if index.is_none() { 1 } else { element.iter().filter(|e| **e >= 0).count() as i64 };
        let dtype = self.float_dtype();
        let decl = StateDecl { name: format!("s{id}"), kind, dtype, count, element, span: None };
        let ty = decl.version_type();
        self.module.states.push(decl);
        let attrs = Attrs::from([("state", Attr::Int(id as i64))]);
        let operands: Vec<ValueId> = index.into_iter().collect();
        let mut version = *self.emit_typed(Opcode::StateOpen, &operands, attrs, vec![ty], UNIT).first()?;
        if let Type::State { kind: StateKind::KvPool { heads, width }, .. } = self.func.ty(version).clone() {
            version = self.fill_pool(version, heads, width)?;
        }
        for _ in 0..self.rng.below(3) {
            self.read(version);
            version = match self.rng.below(6) {
                0 if self.config.control => self.through_loop(version),
                1 if self.config.control => self.through_cases(version),
                _ => self.advance(version),
            };
        }
        self.read(version);
        self.emit_typed(Opcode::StateClose, &[version], Attrs::new(), vec![], UNIT);
        Some(())
    }

    /// The next version, or the same if no advance could be made.
    fn advance(&mut self, version: ValueId) -> ValueId {
        let Type::State { kind, .. } = self.func.ty(version).clone() else { return version };
        let next = match kind {
            StateKind::KvPool { heads, width } => self.kv_write(version, heads, width),
            StateKind::Recurrent { shape } => self.delta_rule(version, &shape),
            StateKind::Window { channels, taps } => self.causal_conv(version, channels, taps),
        };
        next.unwrap_or(version)
    }

    fn through_loop(&mut self, version: ValueId) -> ValueId {
        let ty = self.func.ty(version).clone();
        let extent = self.dim();
        let (region, next) = self.in_region(|b, region| {
            b.param(region, TensorType::scalar(DType::I32).into(), Range::new(0.0, 3.0));
            let inner = b.param(region, ty.clone(), UNIT);
            b.advance(inner)
        });
        self.func.regions[region.index()].yields = vec![next];
        let attrs =
            Attrs::from([("extent", Attr::Dim(extent)), ("serial", Attr::Bool(true)), ("keep", Attr::Keeps(vec![]))]);
        let results = self.emit_owner(Opcode::Loop, &[version], attrs, vec![region], vec![(ty, UNIT)]);
        results.first().copied().unwrap_or(version)
    }

    fn through_cases(&mut self, version: ValueId) -> ValueId {
        let Some((which, cases, select)) = self.selection() else { return self.advance(version) };
        let ty = self.func.ty(version).clone();
        let mut regions = Vec::new();
        for k in 0..cases {
            let (region, next) = self.in_case(which, &select, k, |b| b.advance(version));
            self.func.regions[region.index()].yields = vec![next];
            regions.push(region);
        }
        let index = self.loops[which].index;
        let attrs = Attrs::from([("select", Attr::Ints(select))]);
        let results = self.emit_owner(Opcode::Cases, &[index], attrs, regions, vec![(ty, UNIT)]);
        results.first().copied().unwrap_or(version)
    }

    /// At most one real row a request, which every block has.
    fn rows(&mut self, n: &Dim, operands: &mut Vec<ValueId>) {
        if self.rng.chance(40) {
            operands.extend(self.ints(std::slice::from_ref(n), Range::new(0.0, 1.0)));
        }
    }

    /// A float tensor of these dims in [-1, 1].
    fn unit(&mut self, dims: &[Dim]) -> Option<ValueId> {
        let v = self.float_of(dims)?;
        self.squash(v)
    }

    fn read(&mut self, version: ValueId) -> Option<ValueId> {
        let Type::State { kind: StateKind::KvPool { heads, width }, .. } = self.func.ty(version).clone() else {
            return None;
        };
        if self.rng.chance(40) {
            return None;
        }
        let (n, t) = (requests(), self.dim());
        let query_heads = heads.mul(&Dim::from(self.rng.int(1, 2)))?;
        let q = self.unit(&[n.clone(), t.clone(), query_heads, width])?;
        let at = self.positions(n.clone(), t)?;
        let mut operands = vec![q, version, at];
        self.rows(&n, &mut operands);
        let attrs = vec![
            ("causal", Attr::Bool(self.rng.chance(70))),
            ("window", Attr::Int(self.rng.int(0, 3))),
            ("scale", Attr::Float(0.5)),
        ];
        self.emit(Opcode::Attention, &operands, attrs, UNIT)
    }

    /// Writes every position that [`Builder::positions`] can give.
    fn fill_pool(&mut self, version: ValueId, heads: Dim, width: Dim) -> Option<ValueId> {
        let (n, t) = (requests(), Dim::from(POSITIONS));
        let dims = [n.clone(), t.clone(), heads, width];
        let (k, v) = (self.unit(&dims)?, self.unit(&dims)?);
        let row =
            self.emit(Opcode::Iota, &[], vec![("n", Attr::Dim(t.clone()))], Range::new(0.0, POSITIONS as f64 - 1.0))?;
        let range = self.range(row);
        let at = self.emit(Opcode::Broadcast, &[row], vec![("dims", Attr::Dims(vec![n, t]))], range)?;
        self.emit(Opcode::KvWrite, &[version, k, v, at], vec![], UNIT)
    }

    fn kv_write(&mut self, version: ValueId, heads: Dim, width: Dim) -> Option<ValueId> {
        let (n, t) = (requests(), self.dim());
        let dims = [n.clone(), t.clone(), heads, width];
        let (k, v) = (self.unit(&dims)?, self.unit(&dims)?);
        let at = self.positions(n.clone(), t)?;
        let mut operands = vec![version, k, v, at];
        self.rows(&n, &mut operands);
        self.emit(Opcode::KvWrite, &operands, vec![], UNIT)
    }

    fn causal_conv(&mut self, version: ValueId, channels: Dim, taps: Dim) -> Option<ValueId> {
        let (n, t) = (requests(), self.dim());
        let x = self.unit(&[n.clone(), t, channels.clone()])?;
        let shape =
            if self.rng.chance(50) { vec![channels, taps.clone()] } else { vec![channels, 1.into(), taps.clone()] };
        let w = self.unit(&shape)?;
        let mut operands = vec![version, x, w];
        self.rows(&n, &mut operands);
        let range = Range::symmetric(self.most(&taps));
        self.emit_all(Opcode::CausalConv, &operands, vec![], range)?.get(1).copied()
    }

    /// Keys and queries of length at most one, decays that do not grow and rates within [0, 1] keep the state small.
    fn delta_rule(&mut self, version: ValueId, shape: &[Dim]) -> Option<ValueId> {
        let [gv, dk, dv] = shape else { return None };
        let (n, t) = (requests(), self.dim());
        let key_dims = [n.clone(), t.clone(), gv.clone(), dk.clone()];
        let eps = || vec![("eps", Attr::Float(0.125))];
        let (q, k) = (self.unit(&key_dims)?, self.unit(&key_dims)?);
        let q = self.emit(Opcode::L2Norm, &[q], eps(), UNIT)?;
        let k = self.emit(Opcode::L2Norm, &[k], eps(), UNIT)?;
        let (q, k) = if self.ty(q) == self.ty(k) { (q, k) } else { (k, k) };
        let v = self.unit(&[n.clone(), t.clone(), gv.clone(), dv.clone()])?;
        let rate = self.unit(&[n.clone(), t, gv.clone()])?;
        let beta = self.emit(Opcode::Sigmoid, &[rate], vec![], Range::new(0.0, 1.0))?;
        let decay = self.emit(Opcode::Neg, &[beta], vec![], Range::new(-1.0, 0.0))?;
        let mut operands = vec![version, q, k, v, decay, beta];
        self.rows(&n, &mut operands);
        self.emit_all(Opcode::DeltaRule, &operands, vec![], Range::symmetric(32.0))?.get(1).copied()
    }
}
