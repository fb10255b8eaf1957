//! Calls of handlers: a panic there costs one connection and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The handler has panicked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Panicked;

/// Runs what a program has given us.
///
/// After a panic, a value that it was changing must only be dropped.
pub(super) fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| Panicked)
}
