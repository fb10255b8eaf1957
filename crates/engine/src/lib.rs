//! HTTP/1.1 and HTTP/2 on the event loop for very many mostly idle connections.
//!
//! [`Http`] is a component of a driver: it owns listeners and connections, reads and frames
//! requests, keeps answers in order, and bounds everything a client can hold. An [`App`] gives the
//! requests their meaning, and answers at once through a [`Reply`] or later by [`ExchangeId`]. A
//! held request is an entry of the connection table: no thread, task or buffer exists for it.
//!
//! Above it stand two types that can be used as they are. A [`Server`] has a thread with a loop for
//! each core, and calls [handlers](handler): closures on the loop, blocking ones on a worker pool,
//! whatever answers later by a handle, and services of tower such as an axum `Router`. With a
//! [`Manager`](manager::Manager) the caller polls.
//!
//! ```
//! use dwell_engine::handler::Exchange;
//! use dwell_engine::{Request, Server};
//! use std::time::Duration;
//!
//! let running = Server::builder()
//!     .listen(([127, 0, 0, 1], 0).into())
//!     .serve(|request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
//!         exchange.text(200, request.head.path);
//!     })?;
//! println!("http://{}", running.addresses()[0]);
//! # let answer = dwell_testkit::ask(running.addresses()[0], "GET /here HTTP/1.0\r\n\r\n");
//! # assert!(answer.ends_with("\r\n\r\n/here\n"), "{answer}");
//! running.shutdown(Duration::from_secs(10));
//! # Ok::<(), dwell_engine::ServerError>(())
//! ```
//!
//! Features: `http`, handlers over the types of the `http` crate; `tower`, handlers that are a
//! `tower::Service`; `axum`, WebSocket in the handlers of an axum `Router`; `tls`, TLS of
//! listeners.
#![forbid(unsafe_code)]

mod app;
mod body_pace;
mod budget;
mod components;
mod connection;
mod date;
#[doc(hidden)]
pub mod desk;
#[doc(hidden)]
pub mod embed;
mod fan_out;
pub mod files;
mod gathered;
mod growth;
pub mod handler;
mod http;
mod limits;
pub mod manager;
mod reply;
mod server;
pub mod sse;
mod streams;
#[cfg(feature = "tls")]
pub mod tls;
pub mod websocket;

pub use app::{App, BodyPlan, ExchangeId, HttpEvent, Outcome, ProxyHeaderFailure, Request};
pub use budget::Budget;
pub use dwell_evloop::{ClientNames, Detached, PeerCertificates, TlsFacts};
#[cfg(feature = "sim")]
pub use http::Http2Load;
pub use http::{CodeCounts, Http, Http2Figures, HttpDriver, Kinds, StreamRefusals, UnderWay};
pub use limits::Limits;
pub use reply::{Body, Reply, Response, SharedFields, SharedPiece, WriteError};
pub use server::{Running, Server, ServerBuilder, ServerError, Shutdown, Statistics};
pub use streams::{StreamApp, StreamEnd, StreamLimits, StreamRef, Streams};
