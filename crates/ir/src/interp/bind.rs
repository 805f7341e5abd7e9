//! Run-time symbols from the shapes of the inputs.

use super::InterpError;
use crate::ir::{Func, Symbol};
use crate::tensor::Tensor;
use crate::ty::{Env, TensorType};

/// Values of the function's symbols: a bare symbol in an input's type takes the extent it stands at; every other extent,
/// and every further occurrence of a symbol, must agree. `symbols` are those of the module, which give the bounds.
///
/// # Errors
/// Another number of inputs, an input with another dtype, number of axes or extent than its type says, or a symbol outside its
/// bounds. The message names the input, the axis, the dim and the extents.
pub fn bind_symbols(func: &Func, symbols: &[Symbol], inputs: &[Tensor]) -> Result<Env, InterpError> {
    let params = &func.region(func.body).params;
    if params.len() != inputs.len() {
        let message = format!("`{}` takes {} inputs, {} are given", func.name, params.len(), inputs.len());
        return Err(InterpError::named(&func.name, message));
    }
    let name = |i: usize| func.inputs.get(i).map_or("", String::as_str);
    let mut types: Vec<&TensorType> = Vec::new();
    for (i, id) in params.iter().enumerate() {
        let ty = func.tensor(*id).ok_or_else(|| InterpError::named(name(i), "an input cannot be a state"))?;
        check_kind(name(i), ty, &inputs[i])?;
        types.push(ty);
    }
    let mut env = Env::new();
    let mut from = std::collections::BTreeMap::new();
    for (i, (ty, input)) in types.iter().zip(inputs).enumerate() {
        for (axis, (dim, have)) in ty.dims.iter().zip(&input.shape).enumerate() {
            let Some(symbol) = dim.as_symbol() else { continue };
            let have = *have as i64;
            match env.get(symbol) {
                Some(bound) if *bound != have => {
                    let message = format!(
                        "axis {axis} of input `{}` ({ty}) has extent {have}, but {symbol} is {bound} by input `{}`",
                        name(i),
                        from[symbol]
                    );
                    return Err(InterpError::named(name(i), message));
                }
                Some(_) => {}
                None => {
                    env.insert(symbol.to_string(), have);
                    from.insert(symbol, name(i));
                }
            }
        }
    }
    for (i, (ty, input)) in types.iter().zip(inputs).enumerate() {
        for (axis, (dim, have)) in ty.dims.iter().zip(&input.shape).enumerate() {
            let want = dim.eval(&env);
            if want != Some(*have as i64) {
                let want = match (dim.as_const(), want) {
                    (Some(w), _) => format!("it must have {w}"),
                    (None, Some(w)) => format!("but {dim} is {w}"),
                    (None, None) => format!("but {dim} has no value"),
                };
                let message = format!("axis {axis} of input `{}` ({ty}) has extent {have}, {want}", name(i));
                return Err(InterpError::named(name(i), message));
            }
        }
    }
    check_bounds(func, symbols, &env)?;
    Ok(env)
}

/// Whether the extents of inputs lie within the bounds of their symbols.
fn check_bounds(func: &Func, symbols: &[Symbol], env: &Env) -> Result<(), InterpError> {
    for (i, id) in func.region(func.body).params.iter().enumerate() {
        let Some(ty) = func.tensor(*id) else { continue };
        for (axis, dim) in ty.dims.iter().enumerate() {
            let symbol = dim.as_symbol().and_then(|name| symbols.iter().find(|s| s.name == name));
            let Some((symbol, have)) = symbol.and_then(|s| Some((s, *env.get(s.name.as_str())?))) else { continue };
            let bound = match (symbol.bounds.min, symbol.bounds.max) {
                (Some(min), _) if have < min => format!("at least {min}"),
                (_, Some(max)) if have > max => format!("at most {max}"),
                _ => continue,
            };
            let name = func.inputs.get(i).map_or("", String::as_str);
            let message =
                format!("axis {axis} of input `{name}` ({ty}) has extent {have}, but {} must be {bound}", symbol.name);
            return Err(InterpError::named(name, message));
        }
    }
    Ok(())
}

fn check_kind(name: &str, ty: &TensorType, input: &Tensor) -> Result<(), InterpError> {
    if ty.dtype != input.dtype {
        return Err(InterpError::named(name, format!("input `{name}` must be {ty}, its dtype is {}", input.dtype)));
    }
    if ty.rank() != input.shape.len() {
        let message = format!("input `{name}` must be {ty}, its extents are {:?}", input.shape);
        return Err(InterpError::named(name, message));
    }
    Ok(())
}
