//! Finding what a user names: values by node paths, with or without indices of loops, inputs and outputs of phases, weights.

pub mod facts;
pub mod flow;
mod path;
mod route;
mod unknown;
mod weights;

pub use path::{Found, ValuePath, output_of};
pub use route::Route;
pub use unknown::unknown;
pub use weights::{Named, alias, weight_of};
