//! The polling edge: answers polls from memcached, holds them, and falls back to the application.
//!
//! [`process::run`] starts one loop per core. Each loop has the clients' HTTP server, the tables of
//! its polls, a client for memcached or watches in the embedded store, and a client for the
//! application. The loops share the store and nothing else.
#![forbid(unsafe_code)]

mod access;
pub mod config;
mod constant_fields;
mod cursor;
mod descriptors;
mod event_loop;
mod handoff;
mod held;
mod ids;
pub mod log;
mod metrics;
mod ops;
mod pages;
mod polls;
mod presence;
pub mod process;
mod proxy;
mod publish;
mod published;
mod query;
mod responder;
mod retry_after;
mod route_figures;

pub use dwell_proto::memcache::Protocols;
pub use dwell_store_server::VERSION as STORE_VERSION;
pub use metrics::metrics_page;
pub use pages::{MakePages, Page, PageRequest, Pages};
pub use polls::{Explained, Explanation, Topic, explain_configuration};
