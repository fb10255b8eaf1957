//! Calls of handlers: a panic there costs one connection and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The handler has panicked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Panicked;

/// Runs what a program has given us.
///
/// What it was changing when it panicked must not be used again, but to drop it.
pub(super) fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| Panicked)
}
