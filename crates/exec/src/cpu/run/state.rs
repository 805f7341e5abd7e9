//! Ops on states. Rows at or beyond a request's real rows are padding: they are neither read nor written, and their
//! results are zeros.

use super::super::elements::{Elem, Out, Ref};
use super::super::instr::{self, Block, Code, StateRef, TapsOf};
use super::super::states::{Element, Fixed, KeysValues, PAGE, Paged, Pending};
use super::{Machine, Step, failed, narrow};
use crate::kernels::attention::{self, KvView, Request, Rule};
use crate::kernels::conv::{self, Taps};
use crate::kernels::delta;
use crate::kernels::simd::Real;
use crate::runtime::Mode;
use crate::threads::Pool;
use spinec_ir::interp::round_to;
use spinec_ir::ty::DType;
use std::ops::Range;

/// A type states are held in.
pub(super) trait Stored: Real + Elem {
    fn fixed(e: &mut Element) -> Option<&mut Fixed<Self>>;
    fn pages(p: &Paged) -> Option<&KeysValues<Self>>;
    fn pages_mut(p: &mut Paged) -> Option<&mut KeysValues<Self>>;
    fn taps(t: &TapsOf) -> Option<&Taps<Self>>;
}

macro_rules! stored {
    ($t:ty, $kind:ident) => {
        impl Stored for $t {
            fn fixed(e: &mut Element) -> Option<&mut Fixed<Self>> {
                match e {
                    Element::$kind(f) => Some(f),
                    _ => None,
                }
            }
            fn pages(p: &Paged) -> Option<&KeysValues<Self>> {
                match p {
                    Paged::$kind(p) => Some(p),
                    _ => None,
                }
            }
            fn pages_mut(p: &mut Paged) -> Option<&mut KeysValues<Self>> {
                match p {
                    Paged::$kind(p) => Some(p),
                    _ => None,
                }
            }
            fn taps(t: &TapsOf) -> Option<&Taps<Self>> {
                match t {
                    TapsOf::$kind(t) => Some(t),
                    _ => None,
                }
            }
        }
    };
}

stored!(f32, F32);
stored!(f64, F64);

fn other_kind() -> crate::runtime::RunError {
    failed("a state is held in another type than the op expects")
}

/// Content after all rows so far, widened.
fn current(e: &mut Element, pool: &Pool) -> Vec<f64> {
    fn of<T: Real>(f: &Fixed<T>, pool: &Pool) -> Vec<f64> {
        let mut value = f.value.clone();
        f.apply(pool, usize::MAX, &mut value);
        value.into_iter().map(T::to_f64).collect()
    }
    match e {
        Element::Pool => Vec::new(),
        Element::F32(f) => of(f, pool),
        Element::F64(f) => of(f, pool),
    }
}

/// Takes in `rows` rows: whole states one after the other, or rows of a window.
fn push(e: &mut Element, pool: &Pool, mode: Mode, rows: usize, what: Pending, states: &[f64]) {
    fn of<T: Real>(f: &mut Fixed<T>, pool: &Pool, mode: Mode, rows: usize, what: Pending, states: &[f64]) {
        let s = f.segment(rows, what);
        s.states.clear();
        s.states.extend(states.iter().map(|x| T::from_f64(*x)));
        if mode == Mode::Immediate {
            let mut value = std::mem::take(&mut f.value);
            f.apply(pool, rows, &mut value);
            f.value = value;
            f.used = None;
        }
    }
    match e {
        Element::Pool => {}
        Element::F32(f) => of(f, pool, mode, rows, what, states),
        Element::F64(f) => of(f, pool, mode, rows, what, states),
    }
}

impl Machine<'_> {
    /// Real rows of request `i`.
    fn real_rows(&self, rows: Option<&Ref>, i: usize, t: usize) -> Step<usize> {
        let Some(rows) = rows else { return Ok(t) };
        let n = rows.get::<i32>(self.arena)[i];
        let within = usize::try_from(n).ok().filter(|n| *n <= t);
        within.ok_or_else(|| failed(format!("rows[{i}] is {n}, not within 0..={t}")))
    }

    fn ranges(&self, block: &Block, rows: Option<&Ref>) -> Step<Vec<Range<usize>>> {
        let mut out = Vec::with_capacity(block.n);
        for i in 0..block.n {
            out.push(i * block.t..i * block.t + self.real_rows(rows, i, block.t)?);
        }
        Ok(out)
    }

    pub(super) fn kv_write<T: Stored>(&mut self, at: StateRef, block: Block, ragged: bool, ins: &[Ref]) -> Step<()> {
        let ranges = self.ranges(&block, ragged.then(|| &ins[3]))?;
        let positions = ins[2].get::<i32>(self.arena);
        let mut places = Vec::with_capacity(block.n * block.t);
        for (range, request) in ranges.iter().zip(self.requests) {
            for row in range.clone() {
                let position = usize::try_from(positions[row])
                    .map_err(|_| failed(format!("a row is written at position {}", positions[row])))?;
                places.push((row, self.states.reserve(*request, position)?));
            }
        }
        let (k, v) = (ins[0].get::<T>(self.arena), ins[1].get::<T>(self.arena));
        let paged = self.states.pools.get_mut(at.state).and_then(|p| p.get_mut(at.element));
        let pool = paged.and_then(T::pages_mut).ok_or_else(other_kind)?;
        let size = pool.row;
        for (row, slot) in places {
            pool.k[slot * size..][..size].copy_from_slice(&k[row * size..][..size]);
            pool.v[slot * size..][..size].copy_from_slice(&v[row * size..][..size]);
        }
        Ok(())
    }

    pub(super) fn attention(&mut self, a: &instr::Attention, ins: &[Ref], out: &Out) -> Step<()> {
        if a.wide { self.attention_in::<f64>(a, ins, out) } else { self.attention_in::<f32>(a, ins, out) }
    }

    fn attention_in<T: Stored>(&mut self, a: &instr::Attention, ins: &[Ref], out: &Out) -> Step<()> {
        let ranges = self.ranges(&a.block, a.ragged.then(|| &ins[2]))?;
        let at = ins[1].get::<i32>(self.arena);
        let mut ends = Vec::with_capacity(ranges.len());
        let mut positions = vec![0u32; at.len()];
        for (range, request) in ranges.iter().zip(self.requests) {
            for row in range.clone() {
                positions[row] =
                    u32::try_from(at[row]).map_err(|_| failed(format!("a row is read at position {}", at[row])))?;
            }
            // What a row may see at most: its own position, or that of the last real row.
            let seen = positions[range.clone()].iter();
            let last = if a.causal { seen.max() } else { seen.last() };
            let end = last.map_or(0, |p| *p as usize + 1);
            self.states.reach(*request, end)?;
            ends.push(end);
        }
        let rule = Rule {
            query_heads: a.query_heads,
            causal: a.causal,
            window: (a.window > 0).then_some(a.window),
            scale: T::from_f64(a.scale),
        };
        let states = &*self.states;
        let paged = states.pools.get(a.at.state).and_then(|p| p.get(a.at.element)).ok_or_else(other_kind)?;
        let mut tables = Vec::with_capacity(ranges.len());
        for request in self.requests {
            tables.push(states.request(*request)?.pages.as_slice());
        }
        let mut memory = self.arena.take::<T>(out);
        let y = &mut memory[..out.len];
        y.fill(T::ZERO);
        let q = ins[0].get::<T>(self.arena);
        if let Some(p) = T::pages(paged) {
            let requests: Vec<Request<'_, T>> = ranges
                .iter()
                .zip(&ends)
                .zip(&tables)
                .map(|((rows, end), pages)| Request { kv: view(a, &p.k, &p.v, pages), end: *end, rows: rows.clone() })
                .collect();
            attention::attention(self.pool, &rule, q, &positions, &requests, y);
        } else {
            for ((rows, end), pages) in ranges.iter().zip(&ends).zip(&tables) {
                let (k, v) = widened::<T>(paged, &pages[..end.div_ceil(PAGE)]);
                let identity: Vec<u32> = (0..pages.len() as u32).collect();
                let request = Request { kv: view(a, &k, &v, &identity), end: *end, rows: rows.clone() };
                attention::attention(self.pool, &rule, q, &positions, &[request], y);
            }
        }
        self.arena.give(out, memory);
        Ok(())
    }

    pub(super) fn conv(&mut self, code: &Code, ins: &[Ref], out: &Out) -> Step<()> {
        let Code::Conv { wide, .. } = code else { return Ok(()) };
        if *wide { self.conv_in::<f64>(code, ins, out) } else { self.conv_in::<f32>(code, ins, out) }
    }

    fn conv_in<T: Stored>(&mut self, code: &Code, ins: &[Ref], out: &Out) -> Step<()> {
        let Code::Conv { at, block, ragged, channels, taps, exact, .. } = code else { return Ok(()) };
        let channels = *channels;
        let ranges = self.ranges(block, ragged.then(|| &ins[ins.len() - 1]))?;
        let made;
        let taps = match taps.as_deref().and_then(T::taps) {
            Some(t) => t,
            None => {
                made = Taps::new(ins[1].get::<T>(self.arena), channels);
                &made
            }
        };
        let dtype = self.states.decls.get(at.state).map_or(DType::F32, |d| d.dtype);
        let mut memory = self.arena.take::<T>(out);
        let y = &mut memory[..out.len];
        let x = ins[0].get::<T>(self.arena);
        for (i, (range, request)) in ranges.iter().zip(self.requests).enumerate() {
            let block_end = (i + 1) * block.t * channels;
            y[range.end * channels..block_end].fill(T::ZERO);
            let Some(element) = self.states.element(*request, *at) else { return Err(other_kind()) };
            if range.is_empty() {
                continue;
            }
            let part = range.start * channels..range.end * channels;
            let (x, y) = (&x[part.clone()], &mut y[part]);
            if *exact {
                let fixed = T::fixed(element).ok_or_else(other_kind)?;
                conv_exact(self.pool, self.mode, taps, fixed, x, y, range.len());
            } else {
                let mut history: Vec<f64> = current(element, self.pool);
                let kept = history.len();
                history.extend(x.iter().map(|x| round_to(dtype, x.to_f64())));
                conv_rounded(taps, channels, &history, x, y);
                push(element, self.pool, self.mode, range.len(), Pending::Inputs, &history[kept..]);
            }
        }
        self.arena.give(out, memory);
        Ok(())
    }

    pub(super) fn delta(&mut self, code: &Code, ins: &[Ref], out: &Out) -> Step<()> {
        let Code::Delta { at, wide, .. } = code else { return Ok(()) };
        let dtype = self.states.decls.get(at.state).map_or(DType::F32, |d| d.dtype);
        // A state that is rounded after every row, or held narrower than it is computed, goes row by row.
        let rounded = narrow(dtype) || *wide != (dtype == DType::F64);
        match (*wide, rounded) {
            (true, false) => self.delta_in::<f64>(code, ins, out),
            (false, false) => self.delta_in::<f32>(code, ins, out),
            (true, true) => self.delta_rounded::<f64>(code, ins, out, dtype),
            (false, true) => self.delta_rounded::<f32>(code, ins, out, dtype),
        }
    }

    fn delta_in<T: Stored>(&mut self, code: &Code, ins: &[Ref], out: &Out) -> Step<()> {
        let Code::Delta { at, block, ragged, shape, .. } = code else { return Ok(()) };
        let ranges = self.ranges(block, ragged.then(|| &ins[5]))?;
        let mut memory = self.arena.take::<T>(out);
        let y = &mut memory[..out.len];
        let rows = rows_of::<T>(ins, self.arena);
        if *ragged {
            y.fill(T::ZERO);
        }
        let mut values: Vec<Vec<T>> = Vec::with_capacity(ranges.len());
        for (range, request) in ranges.iter().zip(self.requests) {
            let element = self.states.element(*request, *at).ok_or_else(other_kind)?;
            let fixed = T::fixed(element).ok_or_else(other_kind)?;
            if self.mode == Mode::Immediate {
                values.push(std::mem::take(&mut fixed.value));
            } else if !range.is_empty() {
                delta_tentative(self.pool, shape, &rows, range.clone(), fixed, y);
            }
        }
        if self.mode == Mode::Immediate {
            let mut states: Vec<(&mut [T], Range<usize>)> =
                values.iter_mut().zip(&ranges).map(|(v, r)| (v.as_mut_slice(), r.clone())).collect();
            delta::advance(self.pool, shape, &rows, &mut states, y);
            for (value, request) in values.into_iter().zip(self.requests) {
                if let Some(f) = self.states.element(*request, *at).and_then(T::fixed) {
                    f.value = value;
                }
            }
        }
        self.arena.give(out, memory);
        Ok(())
    }

    fn delta_rounded<T: Stored>(&mut self, code: &Code, ins: &[Ref], out: &Out, dtype: DType) -> Step<()> {
        let Code::Delta { at, block, ragged, shape, .. } = code else { return Ok(()) };
        let ranges = self.ranges(block, ragged.then(|| &ins[5]))?;
        let mut memory = self.arena.take::<T>(out);
        let y = &mut memory[..out.len];
        y.fill(T::ZERO);
        let rows = rows_of::<T>(ins, self.arena);
        for (range, request) in ranges.iter().zip(self.requests) {
            let element = self.states.element(*request, *at).ok_or_else(other_kind)?;
            let mut state: Vec<T> = current(element, self.pool).into_iter().map(T::from_f64).collect();
            let mut after = Vec::with_capacity(range.len() * state.len());
            for row in range.clone() {
                delta::advance(self.pool, shape, &rows, &mut [(&mut state, row..row + 1)], y);
                state.iter_mut().for_each(|s| *s = T::from_f64(round_to(dtype, s.to_f64())));
                after.extend(state.iter().map(|s| s.to_f64()));
            }
            if !range.is_empty() {
                push(element, self.pool, self.mode, range.len(), Pending::States, &after);
            }
        }
        self.arena.give(out, memory);
        Ok(())
    }
}

fn view<'a, T>(a: &instr::Attention, k: &'a [T], v: &'a [T], pages: &'a [u32]) -> KvView<'a, T> {
    KvView { k, v, heads: a.heads, width: a.width, page_size: PAGE, pages }
}

fn rows_of<'a, T: Stored>(ins: &'a [Ref], arena: &'a super::super::elements::Arena) -> delta::Rows<'a, T> {
    let get = |i: usize| ins[i].get::<T>(arena);
    delta::Rows { q: get(0), k: get(1), v: get(2), g: get(3), beta: get(4) }
}

/// One request's rows, with records for the commit.
fn delta_tentative<T: Stored>(
    pool: &Pool,
    shape: &delta::Shape,
    rows: &delta::Rows<'_, T>,
    range: Range<usize>,
    fixed: &mut Fixed<T>,
    out: &mut [T],
) {
    let value = std::mem::take(&mut fixed.value);
    let moved;
    let state = if fixed.used.unwrap_or(0) == 0 {
        &value
    } else {
        let mut v = value.clone();
        fixed.apply(pool, usize::MAX, &mut v);
        moved = v;
        &moved
    };
    let (n, gates) = (range.len(), shape.value_heads);
    let (keys, values) = (shape.key_heads * shape.key_width, shape.value_heads * shape.value_width);
    let of = |size: usize| range.start * size..range.end * size;
    let own = delta::Rows {
        q: &rows.q[of(keys)],
        k: &rows.k[of(keys)],
        v: &rows.v[of(values)],
        g: &rows.g[of(gates)],
        beta: &rows.beta[of(gates)],
    };
    let s = fixed.segment(n, Pending::Records);
    s.shape = Some(*shape);
    s.decay.resize(n * gates, T::ZERO);
    s.delta.resize(n * values, T::ZERO);
    s.key.resize(n * keys, T::ZERO);
    let mut records = delta::RecordsMut { decay: &mut s.decay, delta: &mut s.delta, key: &mut s.key };
    delta::tentative(pool, shape, &own, &[(state, 0..n)], &mut out[of(values)], &mut records);
    fixed.value = value;
}

/// Rows that the window stores as they were given.
fn conv_exact<T: Stored>(
    pool: &Pool,
    mode: Mode,
    taps: &Taps<T>,
    fixed: &mut Fixed<T>,
    x: &[T],
    y: &mut [T],
    rows: usize,
) {
    if mode == Mode::Immediate {
        conv::causal_conv(taps, &fixed.value, x, y);
        T::scratch(fixed.value.len(), |next| {
            conv::window_after(taps, &fixed.value, x, rows, next);
            fixed.value.copy_from_slice(next);
        });
        return;
    }
    if fixed.used.unwrap_or(0) == 0 {
        conv::causal_conv(taps, &fixed.value, x, y);
    } else {
        let mut window = fixed.value.clone();
        fixed.apply(pool, usize::MAX, &mut window);
        conv::causal_conv(taps, &window, x, y);
    }
    let s = fixed.segment(rows, Pending::Inputs);
    s.states.clear();
    s.states.extend_from_slice(x);
}

/// The newest row enters as given, older rows as the window stores them: `history` holds the window and all rows so.
fn conv_rounded<T: Real>(taps: &Taps<T>, channels: usize, history: &[f64], x: &[T], y: &mut [T]) {
    let width = taps.width();
    for (t, (x, y)) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)).enumerate() {
        for c in 0..channels {
            let past = |i: usize| T::from_f64(history[(t + i) * channels + c]);
            let sum = (0..width - 1).fold(T::ZERO, |sum, i| taps.at(c, i).fma(past(i), sum));
            y[c] = taps.at(c, width - 1).fma(x[c], sum);
        }
    }
}

/// Keys and values of pages in another type, the pages one after the other.
fn widened<T: Real>(paged: &Paged, pages: &[u32]) -> (Vec<T>, Vec<T>) {
    fn of<S: Real, T: Real>(p: &KeysValues<S>, pages: &[u32]) -> (Vec<T>, Vec<T>) {
        let size = PAGE * p.row;
        let pick = |x: &[S]| {
            let page = |page: &u32| x[*page as usize * size..][..size].iter().map(|x| T::from_f64(x.to_f64()));
            pages.iter().flat_map(page).collect()
        };
        (pick(&p.k), pick(&p.v))
    }
    match paged {
        Paged::F32(p) => of(p, pages),
        Paged::F64(p) => of(p, pages),
    }
}
