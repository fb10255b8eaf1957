//! The client on an event loop: one request per server and turn, one deadline per connection.
//!
//! A [`Client`] is a component of a [`Driver`](dwell_evloop::Driver): the driver gives it the
//! readiness and the deadlines of its token kind and calls [`Client::flush`] at the end of each
//! turn. Operations taken in between go out together, and every one of them ends in exactly one
//! [`Completion`].
//!
//! ```
//! use dwell_memcache::on_loop::MetaCommand;
//! # use dwell_memcache::on_loop::{Client, ClientOptions, ServerOptions};
//! # let servers = [ServerOptions::new("127.0.0.1:9".parse()?)];
//! # let mut client = Client::new(1, &servers, ClientOptions::default())?;
//!
//! // With the next flush: the first miss wins the right to recache, for thirty seconds.
//! client.meta(MetaCommand::Get, b"/poll/alice", 7, |line| {
//!     line.flag(b'v').flag(b'c').number(b'N', 30)
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod client;
mod command;
mod completion;
mod connection;
mod error;
mod ledger;
mod options;
mod server;
mod status;

pub use client::Client;
pub use command::MetaCommand;
pub use completion::{Answer, Completion, Failure, Outcome, Version};
pub use error::Error;
pub use options::{ClientOptions, ServerOptions};
pub use status::{ServerStatus, State, Statistics};
