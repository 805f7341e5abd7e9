//! Spec language, types, graph IR and reference interpreter.
//!
//! Invariants of this crate: strings in, strings out. It never opens a file (callers hand in a loader), never talks to a
//! device and knows no model by name. Every error a user can cause is a [`diag::Diagnostic`] with a span; a panic is a
//! bug of this crate.

/// Declares a typed index into a list.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
        impl $name {
            /// The id as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

pub mod diag;
pub mod interp;
pub mod ir;
pub mod ops;
pub mod plan;
pub mod spec;
pub mod tensor;
pub mod ty;
