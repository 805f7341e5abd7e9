//! Header lines: module, symbols, weights, states.

use super::cursor::{Cursor, Result};
use crate::ir::{StateDecl, Symbol, Weight, WeightSource};
use crate::ty::{Bounds, DType, Numerics, Type};

/// `module "name" numerics=f32`, after the keyword.
pub(super) fn module(c: &mut Cursor) -> Result<(String, Numerics)> {
    let name = c.string("the module's name in quotes")?.to_owned();
    c.expect_key("numerics")?;
    let col = c.col();
    let policy = c.word("a numerics policy")?;
    let numerics =
        Numerics::from_name(policy).ok_or_else(|| (col, format!("there is no numerics policy `{policy}`")))?;
    c.end()?;
    Ok((name, numerics))
}

/// `symbol N 1..8`, after the keyword.
pub(super) fn symbol(c: &mut Cursor) -> Result<Symbol> {
    let name = c.word("the symbol's name")?.to_owned();
    let min = if c.is("..") { None } else { Some(c.int()?) };
    c.expect("..")?;
    let max = if c.peek().is_none() { None } else { Some(c.int()?) };
    c.end()?;
    Ok(Symbol { name, bounds: Bounds { min, max }, span: None })
}

/// The number of a table row, which must be its position.
fn row(c: &mut Cursor, what: &str, position: usize) -> Result<()> {
    let col = c.col();
    if c.int()? == position as i64 {
        return Ok(());
    }
    Err((col, format!("this {what} has number {position}: numbers follow the order of the lines")))
}

/// `weight 0 "name" : bf16[4] loops(l=2) present=01 storage=bf16 source="checkpoint" "tensor"`, after the keyword.
pub(super) fn weight(c: &mut Cursor, position: usize) -> Result<Weight> {
    row(c, "weight", position)?;
    let name = c.string("the weight's name in quotes")?.to_owned();
    c.expect(":")?;
    let col = c.col();
    let Type::Tensor(ty) = c.ty()? else { return Err((col, "a weight is a tensor".to_owned())) };
    let mut loops = Vec::new();
    if c.eat_word("loops") {
        loops = c.list("(", ")", |c| {
            let var = c.word_or_string("a loop variable")?.to_owned();
            c.expect("=")?;
            Ok((var, c.int()?))
        })?;
    }
    let mut present = Vec::new();
    if c.eat_word("present") {
        c.expect("=")?;
        let col = c.col();
        let mask = c.digits()?;
        if !mask.bytes().all(|b| matches!(b, b'0' | b'1')) {
            return Err((col, "a present mask has a 0 or 1 for every element".to_owned()));
        }
        present = mask.bytes().map(|b| b == b'1').collect();
    }
    let mut storage = None;
    if c.eat_word("storage") {
        c.expect("=")?;
        let col = c.col();
        let dtype = c.word("a dtype")?;
        storage = Some(DType::from_name(dtype).ok_or_else(|| (col, format!("there is no dtype `{dtype}`")))?);
    }
    let mut source = None;
    if c.eat_word("source") {
        c.expect("=")?;
        let checkpoint = c.string("the checkpoint's name in quotes")?.to_owned();
        source = Some(WeightSource { checkpoint, tensor: c.string("the tensor's name in quotes")?.to_owned() });
    }
    c.end()?;
    Ok(Weight { name, loops, present, ty, storage, source, span: None, bound_at: None })
}

/// `state 0 "name" : state bf16 kv_pool[1, 4] count=2 elements=[0, -1, 1]`, after the keyword.
pub(super) fn state(c: &mut Cursor, position: usize) -> Result<StateDecl> {
    row(c, "state", position)?;
    let name = c.string("the state's name in quotes")?.to_owned();
    c.expect(":")?;
    let col = c.col();
    let Type::State { kind, dtype } = c.ty()? else { return Err((col, "a state type is expected here".to_owned())) };
    c.expect_key("count")?;
    let count = c.int()?;
    let mut element = Vec::new();
    if c.eat_word("elements") {
        c.expect("=")?;
        element = c.ints()?;
    }
    c.end()?;
    Ok(StateDecl { name, kind, dtype, count, element, span: None })
}
