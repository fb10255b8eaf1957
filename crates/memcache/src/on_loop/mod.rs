//! The client on an event loop: one request per server and turn, one deadline per connection.
//!
//! A [`Client`] is a component of a [`Driver`](dwell_evloop::Driver): the driver gives it the
//! readiness and the deadlines of its token kind and calls [`Client::flush`] at the end of each
//! turn. Operations taken in between go out together, and every one of them ends in exactly one
//! [`Completion`].

mod batch;
mod client;
mod completion;
mod connection;
mod error;
mod ledger;
mod options;
mod server;
mod status;

pub use client::Client;
pub use completion::{Completion, Failure, Outcome};
pub use error::Error;
pub use options::{ClientOptions, ServerOptions};
pub use status::{ServerStatus, State, Statistics};
