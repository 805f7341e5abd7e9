//! Final register numbers.
//!
//! Compilers leave thousands of registers that each live briefly. Rows that are never live together share a place, so
//! that a warp's registers stay in the first-level cache. Lanes run independently, but a register belongs to one lane's
//! path through the code, so liveness over the control-flow graph is enough.

use super::Program;
use crate::exec::inst::{Inst, NONE, Op, tag, untag};
use crate::exec::regs::Bank;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Calls `f` with each register field and whether it is written.
fn fields(i: &mut Inst, f: &mut impl FnMut(&mut u32, bool)) {
    for (r, write) in [
        (&mut i.d, true),
        (&mut i.d2, true),
        (&mut i.a, false),
        (&mut i.b, false),
        (&mut i.c, false),
        (&mut i.e, false),
        (&mut i.guard, false),
    ] {
        if *r != NONE {
            f(r, write);
        }
    }
}

/// Registers of an instruction as (tagged id, written).
fn operands(p: &Program, at: usize) -> Vec<(u32, bool)> {
    let mut i = p.code[at];
    let mut out = Vec::new();
    fields(&mut i, &mut |r, w| out.push((*r, w)));
    let ext = &p.pool[i.ext as usize..i.ext as usize + usize::from(i.ext_len)];
    out.extend(ext.iter().enumerate().filter(|(_, r)| **r != NONE).map(|(k, r)| (*r, k < usize::from(i.defs))));
    out
}

fn successors(p: &Program, at: usize, out: &mut Vec<usize>) {
    out.clear();
    let i = &p.code[at];
    match i.op {
        Op::Bra => {
            out.push(i.target as usize);
            if i.guard != NONE {
                out.push(at + 1);
            }
        }
        Op::Brx => {
            out.extend(p.tables[i.target as usize].iter().map(|t| *t as usize));
            if i.guard != NONE {
                out.push(at + 1);
            }
        }
        Op::Exit if i.guard == NONE => {}
        _ if at + 1 < p.code.len() => out.push(at + 1),
        _ => {}
    }
}

/// One row per basic block: bits of the registers live at its start.
struct Liveness {
    starts: Vec<usize>,
    live_in: Vec<Vec<u64>>,
    live_out: Vec<Vec<u64>>,
}

/// Dense number of a compactable register.
fn number(p: &Program, id: u32) -> Option<usize> {
    match untag(id) {
        (Bank::R, k) => Some(k as usize),
        (Bank::D, k) => Some(p.banks[0] + k as usize),
        (Bank::P, _) => None,
    }
}

fn liveness(p: &Program) -> Liveness {
    let n = p.code.len();
    let mut leader = vec![false; n + 1];
    leader[0] = true;
    let mut next = Vec::new();
    for at in 0..n {
        if matches!(p.code[at].op, Op::Bra | Op::Brx | Op::Exit) {
            successors(p, at, &mut next);
            next.iter().for_each(|t| leader[*t] = true);
            leader[at + 1] = true;
        }
    }
    let starts: Vec<usize> = (0..n).filter(|k| leader[*k]).collect();
    let mut block_of = vec![0; n];
    for (b, &s) in starts.iter().enumerate() {
        let end = starts.get(b + 1).copied().unwrap_or(n);
        block_of[s..end].fill(b);
    }
    let words = (p.banks[0] + p.banks[1]).div_ceil(64);
    let blocks = starts.len();
    let (mut gen_, mut kill) = (vec![vec![0u64; words]; blocks], vec![vec![0u64; words]; blocks]);
    let mut succ = vec![Vec::new(); blocks];
    for b in 0..blocks {
        let end = starts.get(b + 1).copied().unwrap_or(n);
        for at in starts[b]..end {
            let ops = operands(p, at);
            for (id, write) in &ops {
                if let (Some(k), false) = (number(p, *id), *write)
                    && kill[b][k / 64] >> (k % 64) & 1 == 0
                {
                    gen_[b][k / 64] |= 1 << (k % 64);
                }
            }
            // A guarded write leaves the other lanes' values: it does not end the old life.
            if p.code[at].guard == NONE {
                for (id, _) in ops.iter().filter(|o| o.1) {
                    if let Some(k) = number(p, *id) {
                        kill[b][k / 64] |= 1 << (k % 64);
                    }
                }
            }
        }
        successors(p, end - 1, &mut next);
        succ[b] = next.iter().map(|t| block_of[*t]).collect();
    }
    let (mut live_in, mut live_out) = (vec![vec![0u64; words]; blocks], vec![vec![0u64; words]; blocks]);
    let mut changed = true;
    while changed {
        changed = false;
        for b in (0..blocks).rev() {
            for w in 0..words {
                let out = succ[b].iter().fold(0, |m, s| m | live_in[*s][w]);
                let inn = gen_[b][w] | out & !kill[b][w];
                changed |= inn != live_in[b][w];
                live_in[b][w] = inn;
                live_out[b][w] = out;
            }
        }
    }
    Liveness { starts, live_in, live_out }
}

/// First and last position at which each register is live, widened over blocks it is live through.
fn intervals(p: &Program) -> Vec<Option<(usize, usize)>> {
    let l = liveness(p);
    let n = p.code.len();
    let mut spans: Vec<Option<(usize, usize)>> = vec![None; p.banks[0] + p.banks[1]];
    let mut widen = |k: usize, at: usize| {
        let s = spans[k].get_or_insert((at, at));
        *s = (s.0.min(at), s.1.max(at));
    };
    for (b, &start) in l.starts.iter().enumerate() {
        let end = l.starts.get(b + 1).copied().unwrap_or(n);
        for at in start..end {
            for (id, _) in operands(p, at) {
                if let Some(k) = number(p, id) {
                    widen(k, at);
                }
            }
        }
        for (set, at) in [(&l.live_in[b], start), (&l.live_out[b], end - 1)] {
            for (w, bits) in set.iter().enumerate() {
                let mut bits = *bits;
                while bits != 0 {
                    widen(w * 64 + bits.trailing_zeros() as usize, at);
                    bits &= bits - 1;
                }
            }
        }
    }
    spans
}

/// Numbers below which sharing is not worth its time.
const SMALL: usize = 64;
/// Bit-set words times blocks beyond which liveness is not computed.
const MAX_WORK: usize = 1 << 26;

/// Replaces tagged register ids by final indices, sharing places between registers that are never live together.
pub(super) fn assign(p: &mut Program) {
    if !p.wgmmas.is_empty() {
        p.word_operands = word_operands(p);
    }
    drop_unused(p);
    let total = p.banks[0] + p.banks[1];
    let compact = total > SMALL && total.div_ceil(64) * p.code.len() < MAX_WORK;
    let mut place: Vec<u32> = (0..p.banks[0] as u32).chain(0..p.banks[1] as u32).collect();
    if compact {
        let mut pinned = vec![false; total];
        let fixed = p.init_words.iter().map(|x| x.0).chain(p.init_doubles.iter().map(|x| x.0));
        for id in fixed.chain(p.specials.iter().map(|x| x.1)) {
            if let Some(k) = number(p, id) {
                pinned[k] = true;
            }
        }
        let spans = intervals(p);
        let mut sizes = [0u32; 2];
        for (bank, range) in [(0, 0..p.banks[0]), (1, p.banks[0]..total)] {
            let mut order: Vec<(usize, usize, usize)> = Vec::new();
            for k in range {
                match spans[k] {
                    _ if pinned[k] => {
                        place[k] = sizes[bank];
                        sizes[bank] += 1;
                    }
                    Some((s, e)) => order.push((s, e, k)),
                    None => place[k] = 0,
                }
            }
            order.sort_unstable();
            let mut active: BinaryHeap<Reverse<(usize, u32)>> = BinaryHeap::new();
            let mut free: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
            for (s, e, k) in order {
                while let Some(Reverse((end, slot))) = active.peek().copied() {
                    // A place is free after the instruction that last used it.
                    if end >= s {
                        break;
                    }
                    active.pop();
                    free.push(Reverse(slot));
                }
                let slot = free.pop().map_or_else(
                    || {
                        sizes[bank] += 1;
                        sizes[bank] - 1
                    },
                    |Reverse(s)| s,
                );
                place[k] = slot;
                active.push(Reverse((e, slot)));
            }
        }
        let old = p.banks[0];
        renumber(p, |bank, k| match bank {
            Bank::R => place[k as usize],
            Bank::D => place[old + k as usize],
            Bank::P => k,
        });
        p.banks = [sizes[0].max(1) as usize, sizes[1].max(1) as usize, p.banks[2]];
    } else {
        renumber(p, |_, k| k);
    }
}

/// Numbers the registers in use densely: declarations may name many more than the code touches.
fn drop_unused(p: &mut Program) {
    let mut used = [vec![false; p.banks[0]], vec![false; p.banks[1]], vec![false; p.banks[2]]];
    let mut mark = |id: u32| {
        let (bank, k) = untag(id);
        used[bank as usize][k as usize] = true;
    };
    for at in 0..p.code.len() {
        operands(p, at).iter().for_each(|o| mark(o.0));
    }
    p.init_words.iter().for_each(|x| mark(x.0));
    p.init_doubles.iter().for_each(|x| mark(x.0));
    p.specials.iter().for_each(|x| mark(x.1));
    let dense: [Vec<u32>; 3] = used.map(|u| {
        u.into_iter()
            .scan(0, |next, on| {
                let here = *next;
                *next += u32::from(on);
                Some(here)
            })
            .collect()
    });
    let sizes = [0, 1, 2].map(|b: usize| match dense[b].last() {
        Some(n) => *n as usize + 1,
        None => 0,
    });
    renumber(p, |bank, k| tag(bank, dense[bank as usize][k as usize]));
    p.banks = sizes;
}

/// Word registers of each instruction under their original numbers, as places are shared; of `wgmma` the accumulators.
/// Moves are left out: compilers copy accumulators around asynchronous operations, and the machine's assembler removes
/// those copies.
fn word_operands(p: &Program) -> Vec<Vec<u32>> {
    (0..p.code.len())
        .map(|at| {
            let text = &p.opcodes[p.places[at].opcode as usize];
            if text.starts_with("mov.") {
                return Vec::new();
            }
            if p.code[at].op == Op::WgmmaMma {
                let i = &p.code[at];
                return p.pool[i.ext as usize..][..usize::from(i.defs)].to_vec();
            }
            operands(p, at).into_iter().map(|o| o.0).filter(|r| untag(*r).0 == Bank::R).collect()
        })
        .collect()
}

fn renumber(p: &mut Program, f: impl Fn(Bank, u32) -> u32) {
    let map = |id: u32| {
        let (bank, k) = untag(id);
        f(bank, k)
    };
    for i in &mut p.code {
        fields(i, &mut |r, _| *r = map(*r));
    }
    for r in p.pool.iter_mut().filter(|r| **r != NONE) {
        *r = map(*r);
    }
    for (r, _) in &mut p.init_words {
        *r = map(*r);
    }
    for (r, _) in &mut p.init_doubles {
        *r = map(*r);
    }
    for (_, r) in &mut p.specials {
        // Specials keep their bank: the machine fills both kinds.
        let (bank, _) = untag(*r);
        *r = tag(bank, untag(map(*r)).1);
    }
}
