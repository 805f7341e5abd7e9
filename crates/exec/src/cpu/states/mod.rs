//! What requests keep between runs: paged key/value pools, recurrent states, convolution windows.
//!
//! All pools share page numbers: position p of a request lies in the same page and row of every pool. Page 0 belongs to
//! nobody and holds NaN; a page table names it where nothing was written.

mod fixed;
mod paged;

pub(super) use fixed::{Element, Fixed, Pending};
pub(super) use paged::{KeysValues, Paged};

use super::elements::Kind;
use super::instr::StateRef;
use crate::runtime::RunError;
use crate::threads::Pool;
use spinec_ir::ir::StateDecl;
use spinec_ir::ty::{DType, Dim, StateKind};

/// Positions of a page.
pub(super) const PAGE: usize = 16;

/// Room of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Positions of all requests together; rounded up to whole pages of 16. Pages are taken as positions are written.
    pub positions: usize,
    /// Requests open at the same time.
    pub requests: usize,
}

impl Capacity {
    /// Room for so many requests of so many positions each, whatever pages they share.
    pub fn of(requests: usize, positions: usize) -> Capacity {
        let whole = positions.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
        Capacity { positions: whole.saturating_mul(requests), requests }
    }
}

/// Extents of a state's elements.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Pool {
        heads: usize,
        width: usize,
    },
    /// [value heads, key width, value width] for a delta rule; held as [value heads, value width, key width].
    Recurrent(Vec<usize>),
    Window {
        channels: usize,
        kept: usize,
    },
}

/// A state of the table.
#[derive(Clone, Debug)]
pub(super) struct Decl {
    pub name: String,
    pub dtype: DType,
    pub shape: Shape,
    pub elements: usize,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub len: usize,
    pub pages: Vec<u32>,
    /// Elements by state.
    pub elements: Vec<Vec<Element>>,
}

/// All states of a runtime.
#[derive(Debug, Default)]
pub(super) struct States {
    pub decls: Vec<Decl>,
    /// Pools by state and element; nothing for other states.
    pub pools: Vec<Vec<Paged>>,
    pub requests: Vec<Option<Request>>,
    free: Vec<u32>,
    /// Pages that exist, page 0 included.
    pages: usize,
    most_pages: usize,
    most_requests: usize,
}

fn extents(dims: &[&Dim]) -> Option<Vec<usize>> {
    dims.iter().map(|d| d.as_const().and_then(|v| usize::try_from(v).ok())).collect()
}

impl Decl {
    fn new(d: &StateDecl) -> Option<Decl> {
        let shape = match &d.kind {
            StateKind::KvPool { heads, width } => {
                let e = extents(&[heads, width])?;
                Shape::Pool { heads: e[0], width: e[1] }
            }
            StateKind::Recurrent { shape } => Shape::Recurrent(extents(&shape.iter().collect::<Vec<_>>())?),
            StateKind::Window { channels, taps } => {
                let e = extents(&[channels, taps])?;
                Shape::Window { channels: e[0], kept: e[1].checked_sub(1)? }
            }
        };
        Some(Decl { name: d.name.clone(), dtype: d.dtype, shape, elements: usize::try_from(d.count).ok()? })
    }

    /// Numbers of one element; of a pool of one position, keys or values.
    pub fn size(&self) -> usize {
        match &self.shape {
            Shape::Pool { heads, width } => heads * width,
            Shape::Recurrent(shape) => shape.iter().product(),
            Shape::Window { channels, kept } => channels * kept,
        }
    }

    fn empty(&self) -> Element {
        match (&self.shape, Kind::of(self.dtype)) {
            (Shape::Pool { .. }, _) => Element::Pool,
            (_, Kind::F64) => Element::F64(Fixed { value: vec![0.0; self.size()], ..Fixed::default() }),
            _ => Element::F32(Fixed { value: vec![0.0; self.size()], ..Fixed::default() }),
        }
    }
}

fn failed(m: impl Into<String>) -> RunError {
    RunError::Failed(m.into())
}

impl States {
    pub fn new(states: &[StateDecl], capacity: Capacity) -> Result<States, RunError> {
        let mut decls = Vec::new();
        for d in states {
            decls.push(Decl::new(d).ok_or_else(|| failed(format!("the extents of state `{}` have no value", d.name)))?);
        }
        let pool = |d: &Decl| match d.shape {
            Shape::Pool { .. } if d.dtype == DType::F64 => {
                vec![Paged::F64(KeysValues { k: vec![], v: vec![], row: d.size() }); d.elements]
            }
            Shape::Pool { .. } => vec![Paged::F32(KeysValues { k: vec![], v: vec![], row: d.size() }); d.elements],
            _ => vec![],
        };
        let pools = decls.iter().map(pool).collect();
        let most_pages = capacity.positions.div_ceil(PAGE);
        let mut out = States {
            decls,
            pools,
            requests: Vec::new(),
            free: Vec::new(),
            pages: 1,
            most_pages,
            most_requests: capacity.requests,
        };
        out.pools.iter_mut().flatten().for_each(|p| p.grow(1));
        Ok(out)
    }

    pub fn request(&self, id: usize) -> Result<&Request, RunError> {
        self.requests.get(id).and_then(Option::as_ref).ok_or_else(|| failed("the request is not open"))
    }

    pub fn open(&mut self, positions: usize) -> Result<usize, RunError> {
        let open = self.requests.iter().flatten().count();
        if open >= self.most_requests {
            return Err(RunError::Full(format!("{open} requests are open, which is the most there is room for")));
        }
        let room = self.most_pages.saturating_mul(PAGE);
        if positions > room {
            return Err(RunError::Full(format!("a request of {positions} positions does not fit the pool of {room}")));
        }
        let elements = self.decls.iter().map(|d| (0..d.elements).map(|_| d.empty()).collect()).collect();
        let request = Some(Request { len: 0, pages: Vec::new(), elements });
        Ok(match self.requests.iter().position(Option::is_none) {
            Some(id) => {
                self.requests[id] = request;
                id
            }
            None => {
                self.requests.push(request);
                self.requests.len() - 1
            }
        })
    }

    pub fn close(&mut self, id: usize) {
        if let Some(request) = self.requests.get_mut(id).and_then(Option::take) {
            self.free.extend(request.pages.into_iter().filter(|p| *p != 0));
        }
    }

    /// Drops what waits of earlier runs.
    pub fn forget(&mut self, request: usize) {
        if let Some(request) = self.requests.get_mut(request).and_then(Option::as_mut) {
            request.elements.iter_mut().flatten().for_each(Element::forget);
        }
    }

    /// Keeps the first `rows` waiting rows; nothing is changed on an error.
    pub fn commit(&mut self, pool: &Pool, id: usize, rows: usize) -> Result<(), RunError> {
        let request = self.request(id)?;
        let len = request.len.checked_add(rows).filter(|len| i32::try_from(*len).is_ok());
        let len = len.ok_or_else(|| failed("positions beyond those of i32"))?;
        for (decl, elements) in self.decls.iter().zip(&request.elements) {
            if let Some(n) = elements.iter().filter_map(Element::waiting).find(|n| *n < rows) {
                return Err(failed(format!("{}: {rows} rows cannot be committed: only {n} are pending", decl.name)));
            }
        }
        if let Some(request) = self.requests.get_mut(id).and_then(Option::as_mut) {
            request.elements.iter_mut().flatten().for_each(|e| e.commit(pool, rows));
            request.len = len;
        }
        Ok(())
    }

    /// Makes sure that the pages of positions up to `end` are in the table, if only as the page of NaN.
    pub fn reach(&mut self, id: usize, end: usize) -> Result<(), RunError> {
        let pages = end.div_ceil(PAGE);
        if pages > self.most_pages {
            let room = self.most_pages.saturating_mul(PAGE);
            return Err(RunError::Full(format!("position {} does not fit the pool of {room} positions", end - 1)));
        }
        if let Some(request) = self.requests.get_mut(id).and_then(Option::as_mut)
            && request.pages.len() < pages
        {
            request.pages.resize(pages, 0);
        }
        Ok(())
    }

    /// Gives the position a page of its own request.
    pub fn reserve(&mut self, id: usize, position: usize) -> Result<usize, RunError> {
        let at = position / PAGE;
        let known = self.requests[id].as_ref().and_then(|r| r.pages.get(at)).copied().unwrap_or(0);
        if known != 0 {
            return Ok(known as usize * PAGE + position % PAGE);
        }
        self.reach(id, position + 1)?;
        let page = match self.free.pop() {
            Some(page) => {
                let slots = page as usize * PAGE..(page as usize + 1) * PAGE;
                self.pools.iter_mut().flatten().for_each(|p| p.spoil(slots.clone()));
                page
            }
            None if self.pages <= self.most_pages => {
                self.pages += 1;
                let pages = self.pages;
                self.pools.iter_mut().flatten().for_each(|p| p.grow(pages));
                pages as u32 - 1
            }
            None => {
                let room = self.most_pages.saturating_mul(PAGE);
                return Err(RunError::Full(format!("all {room} positions of the pool are taken")));
            }
        };
        if let Some(request) = self.requests[id].as_mut() {
            request.pages[at] = page;
        }
        Ok(page as usize * PAGE + position % PAGE)
    }

    /// Overwrites rows at and beyond the committed positions with NaN.
    pub fn poison_stale(&mut self, id: usize) {
        let Some(request) = self.requests.get(id).and_then(Option::as_ref) else { return };
        for (at, page) in request.pages.iter().enumerate().filter(|(_, p)| **p != 0) {
            let first = (at * PAGE).max(request.len).min((at + 1) * PAGE) - at * PAGE;
            let slots = *page as usize * PAGE + first..(*page as usize + 1) * PAGE;
            self.pools.iter_mut().flatten().for_each(|p| p.spoil(slots.clone()));
        }
    }

    pub fn element(&mut self, request: usize, at: StateRef) -> Option<&mut Element> {
        self.requests.get_mut(request)?.as_mut()?.elements.get_mut(at.state)?.get_mut(at.element)
    }
}
