//! What a range of rows of a constant is computed from.
//!
//! Going backward from the constant, every op of its derivation either gives a range of entries from ranges of entries of
//! its operands ([`Node`]), or is an end: a constant that is needed whole. Weights whose first axis is walked are read by
//! ranges.

use super::super::consts::{Constant, Origin, Src, Val};
use super::super::elements::Kind;
use super::super::emit::Call;
use super::super::view::count;
use super::along::Along;
use super::rule::{Need, joins, needs};
use std::collections::BTreeMap;

/// An operand of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Feed {
    /// Everything, whatever range is computed.
    All(Val),
    /// A range of this axis of a tensor over a constant that is held whole.
    Cut(Val, usize),
    /// A range that another node computes: the node, which of its results, and how the operand shows it.
    Part { node: usize, which: usize, along: Along },
}

/// How ranges of entries of an axis of a constant come about.
#[derive(Debug)]
pub(super) enum How {
    /// Read from a weight's first axis.
    Read,
    /// Computed by the constant's op.
    Op(Vec<Feed>),
    /// The parts of a concatenation, which begin at these entries.
    Join(Vec<usize>, Vec<Feed>),
}

impl How {
    fn feeds(&self) -> &[Feed] {
        match self {
            How::Read => &[],
            How::Op(feeds) | How::Join(_, feeds) => feeds,
        }
    }
}

/// A constant, all results of its op, walked along an axis.
#[derive(Debug)]
pub(super) struct Node {
    /// The constant; of several results the first.
    pub id: u32,
    pub axis: usize,
    pub how: How,
    /// Bytes held and worked with for an entry.
    bytes: u64,
}

/// How the rows of a tensor come about.
#[derive(Debug)]
pub(super) struct Graph {
    /// Operands stand before who reads them.
    pub nodes: Vec<Node>,
    /// The tensor.
    pub root: Feed,
    /// Bytes held and worked with for a row.
    pub row_bytes: u64,
}

/// Bytes of intermediate elements an op may need for each element it gives: what it computes in, and a copy.
const WORK: u64 = 16;

/// Ops after each other that a range of rows goes through at most; what lies before them is made whole.
const MAX_DEPTH: usize = 200;

impl Graph {
    /// The rows of a constant tensor; `None` if they cannot be had range by range.
    pub fn of(consts: &[Constant], v: &Val) -> Option<Graph> {
        let mut walk = Walk { consts, nodes: Vec::new(), known: BTreeMap::new(), depth: 0 };
        let root = walk.feed(v, 0);
        let Feed::Part { node, along, .. } = &root else { return None };
        // By node, the operands that read it, and how many entries each wants for a row. Equal operands want the same
        // entries, which are computed once.
        let mut wanted: Vec<Vec<(&Feed, u64)>> = vec![Vec::new(); walk.nodes.len()];
        wanted[*node].push((&root, along.ratio() as u64));
        let mut row_bytes = row_size(v, 0).saturating_mul(2);
        for at in (0..walk.nodes.len()).rev() {
            let entries = wanted[at].iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
            row_bytes = row_bytes.saturating_add(entries.saturating_mul(walk.nodes[at].bytes));
            for feed in walk.nodes[at].how.feeds() {
                let Feed::Part { node, along, .. } = feed else { continue };
                let each = entries.saturating_mul(along.ratio() as u64);
                match wanted[*node].iter_mut().find(|(f, _)| *f == feed) {
                    Some((_, most)) => *most = each.max(*most),
                    None => wanted[*node].push((feed, each)),
                }
            }
        }
        Some(Graph { nodes: walk.nodes, root, row_bytes })
    }

    /// Tensors over constants that are held whole.
    pub fn held(&self) -> impl Iterator<Item = &Val> {
        self.nodes.iter().flat_map(|n| n.how.feeds()).filter_map(|f| match f {
            Feed::All(v) | Feed::Cut(v, _) => Some(v),
            Feed::Part { .. } => None,
        })
    }
}

/// Bytes of an entry of an axis.
fn row_size(v: &Val, axis: usize) -> u64 {
    let row = v.view.len() / v.view.shape.get(axis).copied().unwrap_or(1).max(1);
    row as u64 * v.kind().bytes()
}

struct Walk<'a> {
    consts: &'a [Constant],
    nodes: Vec<Node>,
    /// Nodes by constant and axis; `None` where there is none.
    known: BTreeMap<(u32, usize), Option<usize>>,
    depth: usize,
}

impl Walk<'_> {
    /// Ranges of an axis of a tensor.
    fn feed(&mut self, v: &Val, axis: usize) -> Feed {
        let Src::Const(id) = v.src else { return Feed::All(v.clone()) };
        let c = &self.consts[id as usize];
        let along = if c.plain.is_some() { None } else { Along::new(&v.view, axis, &c.shape) };
        let part = along.and_then(|along| {
            let (first, which) = match &c.origin {
                Origin::Derived { which, .. } => (id - *which as u32, *which),
                _ => (id, 0),
            };
            Some(Feed::Part { node: self.node(first, along.of)?, which, along })
        });
        part.unwrap_or_else(|| Feed::Cut(v.clone(), axis))
    }

    fn node(&mut self, id: u32, axis: usize) -> Option<usize> {
        if let Some(known) = self.known.get(&(id, axis)) {
            return *known;
        }
        self.depth += 1;
        let made = if self.depth <= MAX_DEPTH { self.make(id, axis) } else { None };
        self.depth -= 1;
        let made = made.map(|node| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        self.known.insert((id, axis), made);
        made
    }

    fn make(&mut self, id: u32, axis: usize) -> Option<Node> {
        let c: &Constant = &self.consts[id as usize];
        let of = |n: usize, extent: usize| n.checked_div(extent).unwrap_or(0) as u64;
        match &c.origin {
            Origin::Value => None,
            Origin::Weight(..) if axis == 0 => {
                let each = of(count(&c.shape), c.shape[0]);
                Some(Node { id, axis, how: How::Read, bytes: each * (Kind::of(c.dtype).bytes() + WORK) })
            }
            Origin::Weight(..) => None,
            Origin::Derived { code, attrs, operands, results, .. } => {
                let call = Call { code: *code, attrs, operands, results };
                let extent = *results.first()?.1.get(axis)?;
                if results.iter().any(|(_, shape)| shape.get(axis) != Some(&extent)) {
                    return None;
                }
                let how = match joins(&call, axis) {
                    Some(starts) => How::Join(starts, operands.iter().map(|v| self.feed(v, axis)).collect()),
                    None => {
                        let needs = needs(&call, axis)?;
                        How::Op(operands.iter().zip(needs).map(|(v, need)| self.needed(v, need)).collect())
                    }
                };
                let made = results.iter().map(|(d, s)| of(count(s), extent) * (Kind::of(*d).bytes() + WORK));
                // Operands may be copied, and widened.
                let read = how.feeds().iter().zip(operands).filter(|(f, _)| !matches!(f, Feed::All(_)));
                let read = read.map(|(_, v)| of(v.view.len(), extent) * (v.kind().bytes() + WORK / 2));
                Some(Node { id, axis, bytes: made.chain(read).fold(0, u64::saturating_add), how })
            }
        }
    }

    fn needed(&mut self, v: &Val, need: Need) -> Feed {
        match need {
            Need::Entries(axis) => self.feed(v, axis),
            Need::All => Feed::All(v.clone()),
        }
    }
}
