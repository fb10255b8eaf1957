//! The client of one server, beside applications that do as told.

mod answers;
mod bodies;
mod deadlines;
pub(super) mod harness;
mod pool;
mod secure;
mod waiting;
