//! The graph IR: typed SSA with loop and case regions, in arenas with typed ids.
//!
//! A [`Module`] holds weights, states, symbols and functions. A [`Func`] owns its ops, values and regions; an op has any
//! number of operands and results. State values are linear: every version is consumed exactly once, by an op that
//! advances it or by `state_close`; reading does not consume.

mod attr;
mod func;
mod module;
mod nest;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
pub mod verify;

pub use attr::{Attr, Attrs, Keep};
pub use func::{Func, Loc, Op, OpId, Region, RegionId, Value, ValueDef, ValueId};
pub use module::{FuncId, Module, StateDecl, StateId, Symbol, Weight, WeightId, WeightSource};
pub use nest::{Around, Nest, Taken};
pub use text::{canonical, without_spans};
