//! Making constants: whole and op by op, or rows of them after each other.

use super::super::consts::{Origin, Shared, Src, Val};
use super::super::elements::{Elements, Kind};
use super::super::emit::{Given, evaluate};
use super::super::view::View;
use super::Progress;
use super::graph::{Feed, Graph, How, Node};
use crate::threads::Pool;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

type Step<T> = Result<T, String>;

/// Constants held whole while another is made.
#[derive(Default)]
pub(in crate::cpu) struct Making(BTreeMap<u32, Arc<Elements>>);

/// Takes rows of a tensor in row-major order; they come in ascending order, and none after a break.
pub(in crate::cpu) type Sink<'a> = dyn FnMut(&Pool, Range<usize>, &Elements) -> ControlFlow<()> + 'a;

/// Results of a node for a range of entries, by node and range.
type Made = BTreeMap<(usize, usize, usize), Vec<Arc<Elements>>>;

impl Shared {
    /// Hands out the rows of a constant tensor: in ranges if it is large and its rows can be made in ranges, else all at
    /// once. Nothing that is only needed in between is kept.
    pub fn rows(&mut self, v: &Val, sink: &mut Sink) -> Step<()> {
        self.rows_in(v, sink, &mut Making::default())
    }

    fn rows_in(&mut self, v: &Val, sink: &mut Sink, making: &mut Making) -> Step<()> {
        let rows = v.view.shape.first().copied().unwrap_or(1);
        if self.streamed(v, sink, making)? {
            return Ok(());
        }
        let Src::Const(id) = v.src else { return Err("a buffer is no constant".into()) };
        let whole = self.whole(id, making)?;
        let whole = shown(&whole, &v.view)?;
        let _ = sink(&self.pool, 0..rows, &whole);
        Ok(())
    }

    /// As [`Shared::rows`], but only if the rows come in ranges.
    fn streamed(&mut self, v: &Val, sink: &mut Sink, making: &mut Making) -> Step<bool> {
        let Src::Const(id) = v.src else { return Ok(false) };
        let rows = v.view.shape.first().copied().unwrap_or(1);
        if making.0.contains_key(&id) || v.view.len() == 0 {
            return Ok(false);
        }
        let Some(graph) = Graph::of(&self.consts, v) else { return Ok(false) };
        let Some(step) = self.streaming.step(rows, graph.row_bytes) else { return Ok(false) };
        let name = self.name_of(id);
        let mut progress = self.progress.take();
        let mut tell = |done: usize| {
            if let Some(tell) = &mut progress {
                tell(&Progress { name: &name, done, rows });
            }
        };
        let done = Stream { shared: self, graph: &graph, held: making, operands: BTreeMap::new() }
            .run(rows, step, sink, &mut tell);
        self.progress = progress;
        done.map(|()| true)
    }

    /// The elements of a whole constant. What a small one is made of is kept, a large one only by `making`.
    pub fn whole(&mut self, id: u32, making: &mut Making) -> Step<Arc<Elements>> {
        let c = &self.consts[id as usize];
        if let Some(e) = c.plain.as_ref().or_else(|| making.0.get(&id)) {
            return Ok(e.clone());
        }
        match &c.origin {
            Origin::Value => Err("a value without elements".into()),
            Origin::Weight(..) => {
                let e = Arc::new(self.read(id, None)?);
                making.0.insert(id, e.clone());
                Ok(e)
            }
            Origin::Derived { .. } => {
                let v = Val { src: Src::Const(id), dtype: c.dtype, view: View::dense(&c.shape) };
                let mut all = Elements::empty(v.kind());
                let room = v.view.len();
                let mut collect = |_: &Pool, rows: Range<usize>, e: &Elements| {
                    if rows.start == 0 {
                        all.reserve(room);
                    }
                    all.append(e);
                    ControlFlow::Continue(())
                };
                if self.streamed(&v, &mut collect, making)? {
                    let e = Arc::new(all);
                    making.0.insert(id, e.clone());
                    return Ok(e);
                }
                self.direct(id, making)
            }
        }
    }

    /// The op of a derived constant on its whole operands.
    fn direct(&mut self, id: u32, making: &mut Making) -> Step<Arc<Elements>> {
        let Origin::Derived { code, attrs, operands, results, which } = &self.consts[id as usize].origin else {
            return Err("no op makes it".into());
        };
        let (code, attrs, operands, results) = (*code, attrs.clone(), operands.clone(), results.clone());
        let first = id - *which as u32;
        let mut given = Vec::new();
        for v in &operands {
            let Src::Const(of) = v.src else { return Err("a buffer is no constant".into()) };
            let whole = self.whole(of, making)?;
            given.push((v.dtype, v.view.shape.clone(), shown(&whole, &v.view)?));
        }
        let made = evaluate(self, code, &attrs, &given, &results)?;
        for (i, e) in (first..).zip(made) {
            let e = Arc::new(e);
            if e.bytes() <= self.streaming.direct {
                self.consts[i as usize].plain = Some(e.clone());
            }
            making.0.insert(i, e);
        }
        making.0.get(&id).cloned().ok_or_else(|| "an op did not make all its results".into())
    }
}

/// What a view of a constant shows, in row-major order.
fn shown(e: &Arc<Elements>, view: &View) -> Step<Arc<Elements>> {
    if view.is_dense() && view.offset == 0 && view.len() == e.len() {
        return Ok(e.clone());
    }
    e.viewed(view).map(Arc::new).ok_or_else(|| "a view leaves its constant".into())
}

/// An operand of a computation: which, its elements, and of a range the axis and the number of entries.
type Part = (usize, Arc<Elements>, Option<(usize, usize)>);

/// One walk over the rows of a tensor.
struct Stream<'a> {
    shared: &'a mut Shared,
    graph: &'a Graph,
    held: &'a mut Making,
    /// Operands that are needed whole, by node and place.
    operands: BTreeMap<(usize, usize), Arc<Elements>>,
}

impl<'a> Stream<'a> {
    fn run(&mut self, rows: usize, step: usize, sink: &mut Sink, tell: &mut dyn FnMut(usize)) -> Step<()> {
        let graph = self.graph;
        let Feed::Part { node, which, along } = &graph.root else { return Err("a range comes from nothing".into()) };
        let mut others = self.others(*node, *which, rows);
        tell(0);
        // Before there are ranges, so that both do not add up.
        for v in graph.held() {
            self.held(v)?;
        }
        for start in (0..rows).step_by(step) {
            let range = start..(start + step).min(rows);
            let (needs, view) = along.part(&range);
            let aligned = needs == range;
            let all = self.node(*node, needs, &mut Made::new())?;
            let root = shown(all.get(*which).ok_or("an op did not make all its results")?, &view)?;
            for (result, _, e) in &mut others {
                if let (true, Some(part)) = (aligned, all.get(*result)) {
                    e.append(part);
                }
            }
            drop(all);
            if sink(&self.shared.pool, range.clone(), &root).is_break() {
                return Ok(());
            }
            tell(range.end);
        }
        for (_, id, e) in others {
            let c = &mut self.shared.consts[id as usize];
            if e.len() == c.shape.iter().product::<usize>() {
                c.plain = Some(Arc::new(e));
            }
        }
        Ok(())
    }

    /// Other results of the op, small ones: they are made along with the one that is asked for and kept. Which, the
    /// constant, and room for its elements.
    fn others(&self, node: usize, which: usize, rows: usize) -> Vec<(usize, u32, Elements)> {
        let node = &self.graph.nodes[node];
        let Origin::Derived { results, .. } = &self.shared.consts[node.id as usize].origin else { return Vec::new() };
        if node.axis != 0 {
            return Vec::new();
        }
        let constants = results.iter().enumerate().map(|(i, _)| (i, node.id + i as u32));
        let wanted = constants.filter(|(i, id)| {
            let c = &self.shared.consts[*id as usize];
            let bytes = c.shape.iter().product::<usize>() as u64 * Kind::of(c.dtype).bytes();
            *i != which && c.plain.is_none() && c.shape.first() == Some(&rows) && bytes <= self.shared.streaming.direct
        });
        wanted.map(|(i, id)| (i, id, Elements::empty(Kind::of(self.shared.consts[id as usize].dtype)))).collect()
    }

    /// A range of an operand, dense; `at` says whose operand it is and which.
    fn feed(&mut self, at: (usize, usize), feed: &Feed, range: &Range<usize>, made: &mut Made) -> Step<Part> {
        let (elements, axis) = match feed {
            Feed::All(v) => match self.operands.get(&at) {
                Some(known) => return Ok((at.1, known.clone(), None)),
                None => {
                    let e = shown(&self.held(v)?, &v.view)?;
                    self.operands.insert(at, e.clone());
                    return Ok((at.1, e, None));
                }
            },
            Feed::Cut(v, axis) => (shown(&self.held(v)?, &v.view.slice(*axis, range.start, range.len()))?, *axis),
            Feed::Part { node, which, along } => {
                let (needs, view) = along.part(range);
                let all = self.node(*node, needs, made)?;
                (shown(all.get(*which).ok_or("an op did not make all its results")?, &view)?, along.axis())
            }
        };
        Ok((at.1, elements, Some((axis, range.len()))))
    }

    fn held(&mut self, v: &Val) -> Step<Arc<Elements>> {
        match v.src {
            Src::Const(id) => self.shared.whole(id, self.held),
            Src::Buf(_) => Err("a buffer is no constant".into()),
        }
    }

    /// Entries `range` of the results of a node.
    fn node(&mut self, at: usize, range: Range<usize>, made: &mut Made) -> Step<Vec<Arc<Elements>>> {
        let key = (at, range.start, range.end);
        if let Some(known) = made.get(&key) {
            return Ok(known.clone());
        }
        let graph: &'a Graph = self.graph;
        let node = &graph.nodes[at];
        let mut parts = Vec::new();
        let out: Vec<Arc<Elements>> = match &node.how {
            How::Read => vec![Arc::new(self.shared.read(node.id, Some(range))?)],
            How::Op(feeds) => {
                for (i, feed) in feeds.iter().enumerate() {
                    parts.push(self.feed((at, i), feed, &range, made)?);
                }
                self.compute(node, range.len(), parts)?
            }
            How::Join(starts, feeds) => {
                for (i, (start, feed)) in starts.iter().zip(feeds).enumerate() {
                    let end = starts.get(i + 1).copied().unwrap_or(usize::MAX);
                    let own = range.start.max(*start)..range.end.min(end);
                    if !own.is_empty() {
                        parts.push(self.feed((at, i), feed, &(own.start - start..own.end - start), made)?);
                    }
                }
                self.compute(node, range.len(), parts)?
            }
        };
        made.insert(key, out.clone());
        Ok(out)
    }

    /// The op of a node on these operands, for `len` entries of its axis.
    fn compute(&mut self, node: &Node, len: usize, parts: Vec<Part>) -> Step<Vec<Arc<Elements>>> {
        let Origin::Derived { code, attrs, operands, results, .. } = &self.shared.consts[node.id as usize].origin
        else {
            return Err("no op makes it".into());
        };
        let (code, attrs, mut results) = (*code, attrs.clone(), results.clone());
        let mut given: Vec<Given> = Vec::new();
        for (i, elements, entries) in parts {
            let v = operands.get(i).ok_or("an operand is missing")?;
            let mut shape = v.view.shape.clone();
            if let Some((axis, entries)) = entries {
                shape[axis] = entries;
            }
            given.push((v.dtype, shape, elements));
        }
        for (_, shape) in &mut results {
            shape[node.axis] = len;
        }
        let made = evaluate(self.shared, code, &attrs, &given, &results)?;
        Ok(made.into_iter().map(Arc::new).collect())
    }
}
