//! HTTP/1.1 on the event loop for very many mostly idle connections.
//!
//! [`Http`] is a component of a driver: it owns listeners and connections, reads and frames
//! requests, keeps answers in order, and bounds everything a client can hold. What the requests
//! mean is the business of an [`App`], which answers at once through a [`Reply`] or later by
//! [`ExchangeId`]. A held request is an entry of the connection table: no thread, task or buffer
//! exists for it.
#![forbid(unsafe_code)]

mod app;
mod connection;
mod date;
pub mod files;
pub mod handler;
mod http;
mod limits;
pub mod manager;
mod reply;
mod server;
pub mod sse;
mod streams;
pub mod websocket;

pub use app::{App, BodyPlan, Detached, Event, ExchangeId, Outcome, Request};
pub use http::{Http, Kinds};
pub use limits::Limits;
pub use reply::{Body, Reply, Response, SharedPiece, WriteError};
pub use server::{Running, Server, ServerBuilder, ServerError, Shutdown, Statistics};
pub use streams::{StreamApp, StreamEnd, StreamLimits, StreamRef, Streams};
