//! The event loop: readiness, one clock read a turn, deadlines, wake-ups, shared buffers.
//!
//! One [`EventLoop`] runs on one thread and shares nothing with the others; [`Sender`] is the only
//! way in from outside. A *turn* waits for readiness, reads the clock once, delivers what is ready
//! to a [`Driver`], expires due deadlines and lets the driver flush what it batched. A turn costs
//! O(ready): ten thousand idle connections add nothing to it.
//!
//! A connection is data: an entry of a [`Slab`], addressed by a [`Token`] that carries a kind, a
//! generation and an index, so that an event for a connection that is gone is a cheap no-op.
//!
//! ```
//! use dwell_evloop::{Context, Driver, EventLoop, Readiness, Token};
//! use std::time::Duration;
//!
//! struct Once(bool);
//! impl Driver for Once {
//!     type Message = &'static str;
//!     fn ready(&mut self, _: &mut Context, _: Token, _: Readiness) {}
//!     fn expired(&mut self, _: &mut Context, _: Token) {}
//!     fn message(&mut self, _: &mut Context, message: &'static str) {
//!         self.0 = message == "hello";
//!     }
//! }
//!
//! let mut event_loop = EventLoop::new()?;
//! event_loop.sender().send("hello").expect("the inbox is empty");
//! let mut driver = Once(false);
//! event_loop.turn(&mut driver, Some(Duration::from_secs(5)))?;
//! assert!(driver.0);
//! # Ok::<(), std::io::Error>(())
//! ```
#![deny(unsafe_code)]

mod again;
mod carried;
mod carrier;
mod clock;
mod context;
mod deadlines;
mod event_loop;
mod fleet;
mod inbox;
mod listener;
mod listeners;
mod log_writer;
mod memory;
mod output;
mod peer;
mod readiness;
mod seed;
mod sends;
mod signals;
#[cfg(feature = "sim")]
pub mod sim;
mod slab;
mod stream;
mod token;

pub use carried::table::{CarriedEnd, CarriedWork};
pub use carrier::Carrier;
pub use clock::{now, steady_seconds, wall};
pub use context::{Context, INPUT_BYTES};
pub use dwell_timers::{Backoff, Breaker, Random, TICK};
pub use event_loop::{Around, Driver, EventLoop};
pub use fleet::{Fleet, Lifecycle, LoopGuard};
pub use inbox::{Full, INBOX_CAPACITY, Sender};
pub use listener::{Accepted, ListenOptions, Listener, bind_group, bind_unix, share_out};
pub use listeners::Listeners;
pub use log_writer::{LogAppender, LogObserver, LogOptions, LogSwitch, LogWriter};
pub use memory::release_memory;
pub use output::{LoopOutput, OutputAccount, OutputLedger, Reader};
pub use peer::{Filled, Peer, Progress, WritePace};
pub use readiness::Readiness;
pub use seed::seed;
pub use sends::{Sends, Sent};
pub use slab::Slab;
pub use stream::{
    Acceptor, Agreed, BlockingStream, ClientNames, Connector, Detached, FileSlice, FileTruncated,
    Flushed, HandshakeCounts, HandshakeFailure, Handshakes, Handshaking, PeerCertificates,
    ReadOutcome, Stream, TlsFacts, TlsFault, server_fault,
};
#[cfg(feature = "tls")]
pub use stream::{
    Certificate, CertificateError, ClientTls, ClientVerification, KeptOfClient, NameError, Roots,
    TicketKey,
};
pub use token::{Id, Token};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a token fills 64 bits of a readiness event, so a 64-bit target is required");
