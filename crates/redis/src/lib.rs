//! A client of one Redis or Valkey server, living on a loop of `dwell-evloop`.
//!
//! Values are read and written over one connection. Keys that somebody waits for are read over a
//! second one, on which the server tracks what was read (`CLIENT TRACKING`): it announces each
//! change of such a key once, on the connection that read it, in order with the replies. So one
//! `GET` both registers for the next change and reads the value, and no change is lost between the
//! two: see [`Client`].
//!
//! Keys and states of the waits are in a table that knows no socket (`waited`).
#![forbid(unsafe_code)]

mod client;
mod cluster;
mod completion;
mod connection;
mod digest;
mod greeting;
mod inspect;
mod left;
mod link;
mod metrics;
mod names;
mod options;
mod pace;
mod part;
mod reads;
mod sentinel;
mod server;
mod servers;
mod shared;
mod swap;
mod table;
mod target;
mod tracking;
mod waited;
mod waits;

pub use client::{Client, Kinds};
pub use completion::{Completion, Error, Failure, Outcome};
pub use inspect::{Inspection, Right, SampleKey, inspect};
pub use metrics::{
    PushKind, RedirectKind, RedisMetrics, ResyncReason, TopologyRead, UnusableValue,
};
pub use options::{Announced, ClientOptions, Endpoint, SetCondition, SetOptions};
pub use servers::Known;
pub use tracking::{ClusterStatus, Status, TableUse, Tracking};
