//! The listener for operators: health, metrics, the dashboard, and queries to all loops.

pub(crate) mod admin;
pub(crate) mod dashboard;
pub(crate) mod query;
