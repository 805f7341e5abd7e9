//! Terms with sharing, as lists.

use crate::term::{Head, Key};
use spinec_ir::ir::{Attr, Attrs, Func, Loc, RegionId, ValueId};
use spinec_ir::ops::Opcode;
use spinec_ir::ty::Type;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DagNode {
    /// What it does; `None` stands for a derived weight.
    pub head: Option<Head>,
    /// Attributes.
    pub key: Key,
    /// Operands, all earlier in the list.
    pub children: Vec<usize>,
    /// Types of the results.
    pub types: Vec<Type>,
}

/// A term with sharing: what is used stands before what uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dag {
    /// The nodes.
    pub nodes: Vec<DagNode>,
    /// What the guards among them compute only if they have to. The children of a guard are its condition and fast value.
    pub slow: BTreeMap<usize, Slow>,
}

/// The slow value of a guard, its last node. A child below `first` is a node of the dag around it, any other is the node
/// `child - first` of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// The number of the first node.
    pub first: usize,
    /// The nodes.
    pub nodes: Vec<DagNode>,
}

impl Dag {
    /// The term of the last node, one line a node; equal for equal terms only, in whatever order their nodes stand.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if let Some(root) = self.nodes.len().checked_sub(1) {
            self.line(root, &mut BTreeMap::new(), &mut out);
        }
        out
    }

    /// Writes the lines of a node and of what it uses, operands first; gives the node's number.
    fn line(&self, i: usize, numbers: &mut BTreeMap<usize, usize>, out: &mut String) -> usize {
        if let Some(known) = numbers.get(&i) {
            return *known;
        }
        let n = &self.nodes[i];
        let children: Vec<usize> = n.children.iter().map(|c| self.line(*c, numbers, out)).collect();
        let _ = writeln!(out, "{:?} {} {children:?}", n.head, n.key.text());
        let number = numbers.len();
        numbers.insert(i, number);
        number
    }

    /// The last node as an expression over weights, for people. Only for small terms: sharing is written out.
    pub fn expression(&self) -> String {
        self.nodes.len().checked_sub(1).map(|root| self.express(root)).unwrap_or_default()
    }

    fn express(&self, i: usize) -> String {
        let n = &self.nodes[i];
        let name = match n.head {
            Some(Head::Op(Opcode::Weight)) => {
                return match n.key.attrs().get("weight") {
                    Some(Attr::Int(w)) => format!("w{w}"),
                    _ => "weight".to_owned(),
                };
            }
            Some(Head::Op(Opcode::Const)) => {
                return match n.key.attrs().get("value") {
                    Some(Attr::Float(v)) => v.to_string(),
                    _ => "const".to_owned(),
                };
            }
            Some(Head::Op(code)) => code.name().to_owned(),
            Some(Head::Leaf(l)) => return format!("%{l}"),
            Some(Head::Proj(p)) => format!("result{p}"),
            Some(Head::Pack | Head::Packed) => "packed".to_owned(),
            Some(Head::Guard(_)) => "guarded".to_owned(),
            None => "derived".to_owned(),
        };
        let operands: Vec<String> = n.children.iter().map(|c| self.express(*c)).collect();
        format!("{name}({})", operands.join(", "))
    }

    /// Ids of the weights it reads, each once.
    pub fn weights(&self) -> Vec<usize> {
        let mut out: Vec<usize> = self
            .nodes
            .iter()
            .filter(|n| n.head == Some(Head::Op(Opcode::Weight)))
            .filter_map(|n| match n.key.attrs().get("weight") {
                Some(Attr::Int(w)) => usize::try_from(*w).ok(),
                _ => None,
            })
            .collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Emits the term, which has no derived weights, at the end of a block; gives the value of its last node. `leaves` are the
    /// values of its leaves.
    ///
    /// # Errors
    /// The op that does not take its operands.
    pub fn emit(&self, func: &mut Func, block: RegionId, leaves: &[ValueId]) -> Result<ValueId, String> {
        let mut values: Vec<Vec<ValueId>> = Vec::new();
        for n in &self.nodes {
            let made = match n.head {
                Some(Head::Proj(p)) => vec![values[n.children[0]][p as usize]],
                Some(Head::Op(code)) => {
                    let operands: Vec<ValueId> = n.children.iter().map(|c| values[*c][0]).collect();
                    append(func, block, code, operands, n.key.attrs().clone(), &n.types, Loc::default())?
                }
                Some(Head::Leaf(l)) if (l as usize) < leaves.len() => vec![leaves[l as usize]],
                Some(Head::Leaf(_) | Head::Pack | Head::Packed | Head::Guard(_)) | None => {
                    return Err("a weight is derived from weights alone".to_owned());
                }
            };
            values.push(made);
        }
        values.pop().and_then(|v| v.first().copied()).ok_or_else(|| "an empty term".to_owned())
    }
}

/// Adds an op at the end of a block, typed by its operands. `types` are taken for weights, whose type does not follow from
/// operands.
///
/// # Errors
/// The op does not take the operands.
pub fn append(
    func: &mut Func,
    block: RegionId,
    code: Opcode,
    operands: Vec<ValueId>,
    attrs: Attrs,
    types: &[Type],
    loc: Loc,
) -> Result<Vec<ValueId>, String> {
    let types = if code == Opcode::Weight {
        types.to_vec()
    } else {
        let operand_types: Vec<&Type> = operands.iter().map(|v| func.ty(*v)).collect();
        code.infer(&operand_types, &attrs).map_err(|e| format!("`{}`: {}", code.name(), e.message))?
    };
    let op = func.add_op(block, code, operands, attrs, vec![], types, loc);
    Ok(func.op(op).results.clone())
}
