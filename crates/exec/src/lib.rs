//! Checkpoint loading and execution.
