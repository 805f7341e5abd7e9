//! Tensor copies: boxes of 1 to 5 dimensions between global and shared memory.

use super::access::{By, How, Place};
use super::atomic::{ADD, DEC, INC, MAX, MIN, combine};
use super::bulk::reduce_bytes;
use super::gang::{Gang, Run, Stop};
use super::inst::{Inst, Space, flag};
use super::regs::LANES;
use super::wgmma::swizzle;
use crate::check::FindingKind;
use crate::tensormap::{TensorMap, TensorType};

/// One contiguous row of a box.
struct Row {
    /// Offset in the box, before the swizzle.
    shared: u32,
    /// Global address of the first element that is inside the tensor, if any is.
    global: u64,
    /// Bytes before that element, and bytes inside.
    skip: usize,
    bytes: usize,
}

/// Rows of the box at `coords`, and the bytes of one.
fn rows(map: &TensorMap, coords: &[i64]) -> (Vec<Row>, usize) {
    let size = map.ty.size();
    let (shape, _) = map.box_shape();
    let outer: u64 = shape[1..].iter().product();
    let mut out = Vec::with_capacity(outer as usize);
    let end = coords[0] + shape[0] as i64;
    let (first, last) = (coords[0].max(0), end.min(map.dims[0].min(1 << 40) as i64));
    for k in 0..outer {
        let (mut rest, mut inside, mut address) = (k, true, map.base);
        for d in 1..shape.len() {
            let c = coords[d] + (rest % shape[d]) as i64 * i64::from(map.element_strides[d]);
            rest /= shape[d];
            inside &= c >= 0 && (c as u64) < map.dims[d];
            address = address.wrapping_add((c as u64).wrapping_mul(map.strides[d - 1]));
        }
        let n = if inside && last > first { (last - first) as u64 } else { 0 };
        out.push(Row {
            shared: (k * shape[0] * size) as u32,
            global: address.wrapping_add((first as u64).wrapping_mul(size)),
            skip: if n > 0 { ((first - coords[0]) as u64 * size) as usize } else { 0 },
            bytes: (n * size) as usize,
        });
    }
    (out, (shape[0] * size) as usize)
}

impl<const CHECK: bool, const COUNT: bool> Gang<'_, CHECK, COUNT> {
    fn tensor_map(&mut self, by: By, address: u64, rank: usize) -> Run<TensorMap> {
        let place = self.resolve(by, Space::Generic, address, 128, 64, false)?;
        let mut raw = [0; 128];
        self.read_place(by, place, &mut raw);
        match TensorMap::decode(&raw) {
            Some(m) if m.dims.len() == rank => Ok(m),
            Some(m) => {
                let got = m.dims.len();
                self.fault(by.w, by.pc, by.lane, FindingKind::TensorOperand, || {
                    format!("a copy of rank {rank} with a tensor map of rank {got}")
                })
            }
            None => self.fault(by.w, by.pc, by.lane, FindingKind::TensorOperand, || {
                "the address is not that of a tensor map".into()
            }),
        }
    }

    fn coordinates(&self, by: By, i: &Inst) -> Vec<i64> {
        (0..usize::from(i.count))
            .map(|k| {
                let reg = self.cx.prog.pool[i.ext as usize + k];
                i64::from(self.warps[by.w].regs.r[reg as usize].0[by.lane] as i32)
            })
            .collect()
    }

    /// The box's place in shared memory. Swizzled boxes start where their pattern does.
    fn box_place(&mut self, by: By, address: u64, bytes: u64, write: bool) -> Run<(usize, usize)> {
        match self.resolve(by, Space::Shared, address, bytes as usize, 128, write)? {
            Place::Shared(c, o) => Ok((c, o)),
            _ => Err(Stop),
        }
    }

    pub(super) fn tma_load(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let to = self.addresses(w, i.a, i.wide.a, i.imm);
        let maps = self.addresses(w, i.b, i.wide.b, i.imm2);
        let bars = self.addresses(w, i.e, i.wide.e, i64::from(i.target as i32));
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let map = self.tensor_map(by, maps[l], usize::from(i.count))?;
            let coords = self.coordinates(by, i);
            let (_, total) = map.box_shape();
            let (cta, base) = self.box_place(by, to[l], total, true)?;
            let (bar_cta, bar_at) = self.mbar_at(by, Space::Shared, bars[l])?;
            let (list, len) = rows(&map, &coords);
            let mut data = Vec::with_capacity(list.len());
            for r in &list {
                let mut bytes = fill(&map, len);
                if r.bytes > 0 {
                    let place = self.resolve(by, Space::Generic, r.global, r.bytes, 1, false)?;
                    if CHECK {
                        self.check(by, place, r.bytes, How::default());
                    }
                    self.read_place(by, place, &mut bytes[r.skip..r.skip + r.bytes]);
                    self.account_bulk_part(pc, r.global, r.bytes as u64, false);
                }
                data.push(bytes);
            }
            if COUNT {
                self.tally.insts[pc as usize].global_requests += 1;
            }
            for (c, o) in self.multicast(by, i, self.mask_register(i), (cta, base))? {
                let signal = if i.has(flag::MULTICAST) { c } else { bar_cta };
                for (r, bytes) in list.iter().zip(&data) {
                    for (k, chunk) in bytes.chunks(16).enumerate() {
                        let at = (o as u32 + r.shared) + 16 * k as u32;
                        let at = at ^ swizzle(at, map.swizzle);
                        self.land_shared(by, c, at as usize, chunk, (signal, bar_at))?;
                    }
                }
                self.mbar_complete_tx(by, signal, bar_at, total as i64)?;
            }
        }
        Ok(())
    }

    pub(super) fn tma_store(&mut self, w: usize, pc: u32, i: &Inst, m: u32) -> Run {
        let from = self.addresses(w, i.a, i.wide.a, i.imm);
        let maps = self.addresses(w, i.b, i.wide.b, i.imm2);
        self.events += 1;
        for l in (0..LANES).filter(|l| m >> l & 1 == 1) {
            let by = By { w, pc, lane: l };
            let map = self.tensor_map(by, maps[l], usize::from(i.count))?;
            let coords = self.coordinates(by, i);
            let (_, total) = map.box_shape();
            let (cta, base) = self.box_place(by, from[l], total, false)?;
            let (reads, writes) = self.bulk_begin(w, pc);
            let (list, len) = rows(&map, &coords);
            let reduces = i.sel != u8::MAX;
            if reduces && !reducible(i.sel, map.ty) {
                return self.fault(w, pc, l, FindingKind::TensorOperand, || {
                    format!("the reduction is not defined for tensors of {:?}", map.ty)
                });
            }
            for r in &list {
                let mut bytes = vec![0; len];
                for (k, chunk) in bytes.chunks_mut(16).enumerate() {
                    let at = (base as u32 + r.shared) + 16 * k as u32;
                    let at = (at ^ swizzle(at, map.swizzle)) as usize;
                    let n = chunk.len();
                    if CHECK {
                        let how = How { proxy: true, carrier: Some(reads), ..How::default() };
                        self.check_shared(by, cta, at, n, how);
                    }
                    chunk.copy_from_slice(&self.ctas[cta].shared[at..at + n]);
                }
                if r.bytes == 0 {
                    continue;
                }
                let place = self.resolve(by, Space::Generic, r.global, r.bytes, 1, true)?;
                if CHECK {
                    let how = How { write: true, atomic: reduces, carrier: Some(writes), ..How::default() };
                    self.check(by, place, r.bytes, how);
                }
                let part = &mut bytes[r.skip..r.skip + r.bytes];
                if reduces {
                    let mut old = vec![0; r.bytes];
                    self.read_place(by, place, &mut old);
                    let ty = map.ty.scalar();
                    reduce_bytes(|o, v| combine(i.sel, ty, o, v, 0), ty, &old, part);
                }
                self.write_place(by, place, part);
                self.account_bulk_part(pc, r.global, r.bytes as u64, true);
            }
            if COUNT {
                self.tally.insts[pc as usize].global_requests += 1;
            }
        }
        Ok(())
    }

    /// Counts one row of a box without counting a request of its own.
    fn account_bulk_part(&mut self, pc: u32, address: u64, bytes: u64, write: bool) {
        self.account_bulk(pc, address, bytes, write);
        if COUNT {
            self.tally.insts[pc as usize].global_requests -= 1;
        }
    }
}

/// Whether a reduction, by its selector, is defined for the elements of a tensor.
fn reducible(op: u8, ty: TensorType) -> bool {
    use TensorType::{BF16, F16, F32, F64, S32, S64, U32, U64};
    match op {
        ADD => matches!(ty, U32 | S32 | U64 | F16 | BF16 | F32 | F64),
        MIN | MAX => matches!(ty, U32 | S32 | U64 | S64 | F16 | BF16),
        INC | DEC => ty == U32,
        _ => matches!(ty, U32 | S32 | U64 | S64),
    }
}

/// A row of fill values.
fn fill(map: &TensorMap, len: usize) -> Vec<u8> {
    let pattern: &[u8] = match (map.nan_fill, map.ty) {
        (true, TensorType::F16 | TensorType::BF16) => &[0xff, 0x7f],
        (true, TensorType::F32 | TensorType::TF32) => &[0xff, 0xff, 0xff, 0x7f],
        (true, TensorType::F64) => &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        _ => return vec![0; len],
    };
    pattern.iter().copied().cycle().take(len).collect()
}
