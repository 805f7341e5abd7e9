//! What a request keeps between runs.

use super::InterpError;
use super::call::extents;
use super::index::count;
use super::number::{from_reals, round_to};
use crate::ir::{Module, StateId};
use crate::tensor::Tensor;
use crate::ty::{DType, Env, StateKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One written position of a pool: key and value, [heads, width] each, in the state's dtype.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KvRow {
    pub k: Vec<f64>,
    pub v: Vec<f64>,
}

/// One element of a state for one request, in one version. Numbers are held as f64; every one of them is representable in
/// the state's dtype.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Element {
    /// Rows by position; a position that is not in the map holds NaN.
    Kv(BTreeMap<i32, Arc<KvRow>>),
    /// A recurrent state or a window.
    Fixed {
        /// Before the pending rows.
        value: Arc<Vec<f64>>,
        /// After each row of a tentative run that is not committed yet.
        pending: Option<Vec<Arc<Vec<f64>>>>,
    },
}

impl Element {
    /// Takes over the content after one more row.
    pub fn advance(&mut self, next: Vec<f64>) {
        if let Element::Fixed { value, pending } = self {
            match pending {
                Some(rows) => rows.push(Arc::new(next)),
                None => *value = Arc::new(next),
            }
        }
    }

    /// The content after all rows so far.
    pub fn fixed(&self) -> Result<&[f64], String> {
        match self {
            Element::Fixed { value, pending } => Ok(pending.as_ref().and_then(|p| p.last()).unwrap_or(value)),
            Element::Kv(_) => Err("a pool is no recurrent state and no window".into()),
        }
    }

    pub fn rows(&self) -> Result<&BTreeMap<i32, Arc<KvRow>>, String> {
        match self {
            Element::Kv(rows) => Ok(rows),
            Element::Fixed { .. } => Err("a kv_pool is needed here".into()),
        }
    }
}

/// One element of a state in one version, for every request of the call.
#[derive(Clone, Debug)]
pub(super) struct StateValue {
    pub id: StateId,
    pub element: usize,
    pub dtype: DType,
    pub shape: Shape,
    pub requests: Vec<Element>,
}

/// Extents of a state element.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Kv { heads: usize, width: usize },
    Recurrent(Vec<usize>),
    Window { channels: usize, kept: usize },
}

impl Shape {
    fn new(kind: &StateKind) -> Result<Shape, String> {
        let env = Env::new();
        Ok(match kind {
            StateKind::KvPool { heads, width } => {
                let e = extents(&[heads.clone(), width.clone()], &env)?;
                Shape::Kv { heads: e[0], width: e[1] }
            }
            StateKind::Recurrent { shape } => Shape::Recurrent(extents(shape, &env)?),
            StateKind::Window { channels, taps } => {
                let e = extents(&[channels.clone(), taps.clone()], &env)?;
                let kept = e[1].checked_sub(1).ok_or("a convolution needs at least one tap")?;
                Shape::Window { channels: e[0], kept }
            }
        })
    }

    fn empty(&self) -> Element {
        let zeros = |n| Element::Fixed { value: Arc::new(vec![0.0; n]), pending: None };
        match self {
            Shape::Kv { .. } => Element::Kv(BTreeMap::new()),
            Shape::Recurrent(shape) => zeros(count(shape)),
            Shape::Window { channels, kept } => zeros(channels * kept),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Decl {
    name: String,
    dtype: DType,
    shape: Shape,
    elements: Vec<Element>,
}

/// All state of one request of a module, and how many positions of it are committed.
///
/// One rule moves it: after a run the caller calls [`RequestState::commit`] once with the number of rows it keeps.
/// * After a tentative run that may be any prefix of the real rows. Recurrent states and windows move to their content
///   after those rows.
/// * After an immediate run it must be the number of real rows, since recurrent states and windows have moved on already.
/// * Runs whose rows are not to be kept, or that only fill a pool for positions another run counts, are not committed: the
///   next run forgets their pending rows, of states it does not use too.
///
/// K/V rows are written to the pool in both modes; rows at and beyond [`RequestState::len`] are stale: they stay as they
/// are until a later run overwrites them. Positions nobody wrote hold NaN. A pool grows with the positions written.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestState {
    decls: Vec<Decl>,
    len: usize,
}

impl RequestState {
    /// The state of a request before its first token: pools hold NaN, everything else zeros.
    ///
    /// # Errors
    /// The extents of a state depend on a symbol.
    pub fn new(module: &Module) -> Result<RequestState, InterpError> {
        let decls = module.states.iter().map(|decl| {
            let shape = Shape::new(&decl.kind).map_err(|m| InterpError::named(&decl.name, m))?;
            let elements = (0..decl.count).map(|_| shape.empty()).collect();
            Ok(Decl { name: decl.name.clone(), dtype: decl.dtype, shape, elements })
        });
        Ok(RequestState { decls: decls.collect::<Result<_, InterpError>>()?, len: 0 })
    }

    /// Committed positions.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no position is committed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the first `rows` rows of the last run: every element with rows pending moves to its content after `rows` of
    /// them (0 keeps what was there before the run), the rest of them is dropped, and `len` grows by `rows`.
    ///
    /// # Errors
    /// An element has fewer rows pending, or positions would no longer fit i32. Nothing is changed then.
    pub fn commit(&mut self, rows: usize) -> Result<(), InterpError> {
        let len = self.len.checked_add(rows).filter(|len| i32::try_from(*len).is_ok());
        let len = len.ok_or_else(|| InterpError::named("commit", "positions beyond those of i32"))?;
        for decl in &self.decls {
            for element in &decl.elements {
                if let Element::Fixed { pending: Some(p), .. } = element
                    && p.len() < rows
                {
                    let message = format!("{rows} rows cannot be committed: only {} are pending", p.len());
                    return Err(InterpError::named(&decl.name, message));
                }
            }
        }
        for element in self.decls.iter_mut().flat_map(|d| &mut d.elements) {
            if let Element::Fixed { value, pending } = element
                && let Some(after) = pending.take()
                && let Some(last) = rows.checked_sub(1)
            {
                *value = after[last].clone();
            }
        }
        self.len = len;
        Ok(())
    }

    /// Drops the pending rows of earlier runs.
    pub(super) fn forget(&mut self) {
        for element in self.decls.iter_mut().flat_map(|d| &mut d.elements) {
            if let Element::Fixed { pending, .. } = element {
                *pending = None;
            }
        }
    }

    /// Overwrites K and V at positions `len` and beyond with NaN. Whatever a later run reads of them shows.
    pub fn poison_stale(&mut self) {
        let len = self.len as i64;
        for element in self.decls.iter_mut().flat_map(|d| &mut d.elements) {
            if let Element::Kv(rows) = element {
                rows.retain(|position, _| i64::from(*position) < len);
            }
        }
    }

    /// All committed state as tensors in declaration order. Of a state `name` and its element `e`: `name.e.k` and
    /// `name.e.v` [len, heads, width]; a recurrent state `name.e` in its shape; a window `name.e` [channels, taps - 1],
    /// oldest row first. Pending rows are not part of it.
    pub fn export(&self) -> Vec<(String, Tensor)> {
        let mut out = Vec::new();
        let mut put = |name: String, dtype: DType, shape: Vec<usize>, values: Vec<f64>| {
            // The values fill the shape by construction of the element.
            if let Ok(t) = from_reals(dtype, shape, values) {
                out.push((name, t));
            }
        };
        for decl in &self.decls {
            for (e, element) in decl.elements.iter().enumerate() {
                let name = format!("{}.{e}", decl.name);
                match (element, &decl.shape) {
                    (Element::Kv(rows), Shape::Kv { heads, width }) => {
                        let row = heads * width;
                        let mut k = vec![f64::NAN; self.len * row];
                        let mut v = k.clone();
                        for (position, written) in rows {
                            let position = usize::try_from(*position).unwrap_or(usize::MAX);
                            if position < self.len {
                                k[position * row..][..row].copy_from_slice(&written.k);
                                v[position * row..][..row].copy_from_slice(&written.v);
                            }
                        }
                        put(format!("{name}.k"), decl.dtype, vec![self.len, *heads, *width], k);
                        put(format!("{name}.v"), decl.dtype, vec![self.len, *heads, *width], v);
                    }
                    (Element::Fixed { value, .. }, Shape::Recurrent(shape)) => {
                        put(name, decl.dtype, shape.clone(), value.to_vec());
                    }
                    (Element::Fixed { value, .. }, Shape::Window { channels, kept }) => {
                        put(name, decl.dtype, vec![*channels, *kept], value.to_vec());
                    }
                    _ => {}
                }
            }
        }
        out
    }

    /// Checks that this is the state of a request of `module`.
    pub(super) fn check(&self, module: &Module) -> Result<(), InterpError> {
        let same = self.decls.len() == module.states.len()
            && self.decls.iter().zip(&module.states).all(|(a, b)| {
                a.name == b.name
                    && a.dtype == b.dtype
                    && a.elements.len() as i64 == b.count.max(0)
                    && Shape::new(&b.kind).as_ref() == Ok(&a.shape)
            });
        if same { Ok(()) } else { Err(InterpError::named("", "a request state was made for another module")) }
    }

    pub(super) fn element(&self, id: StateId, element: usize) -> Option<(&Element, DType, &Shape)> {
        let decl = self.decls.get(id.index())?;
        Some((decl.elements.get(element)?, decl.dtype, &decl.shape))
    }

    pub(super) fn set_element(&mut self, id: StateId, element: usize, to: Element) {
        if let Some(place) = self.decls.get_mut(id.index()).and_then(|d| d.elements.get_mut(element)) {
            *place = to;
        }
    }
}

impl StateValue {
    /// Opens an element for all requests. In a tentative run rows become pending on top of what is committed.
    pub fn open(states: &[RequestState], id: StateId, element: usize, tentative: bool) -> Option<StateValue> {
        let (_, dtype, shape) = states.first()?.element(id, element)?;
        let mut requests = Vec::with_capacity(states.len());
        for state in states {
            requests.push(match state.element(id, element)?.0 {
                Element::Kv(rows) => Element::Kv(rows.clone()),
                Element::Fixed { value, .. } => {
                    Element::Fixed { value: value.clone(), pending: tentative.then(Vec::new) }
                }
            });
        }
        Some(StateValue { id, element, dtype, shape: shape.clone(), requests })
    }

    /// A number as this state stores it.
    pub fn stored(&self, x: f64) -> f64 {
        round_to(self.dtype, x)
    }
}
