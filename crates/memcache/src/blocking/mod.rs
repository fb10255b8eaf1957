//! The client that waits in the calling thread.

mod budget;
mod carried;
mod client;
mod cluster;
mod codec;
mod connection;
mod error;
mod exchange;
mod fault;
mod health;
mod key;
mod meta;
mod meta_operations;
mod multi_get;
mod operation;
mod operations;
mod options;
mod parallel;
mod pipeline;
mod quiet;
mod raw;
mod reading;
mod reaper;
#[cfg(feature = "tls")]
mod records;
mod request;
mod resolve;
mod server;
mod servers;
mod socket;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod value;

pub use carried::Carried;
pub use client::Client;
pub use codec::*;
pub use dwell_proto::memcache::{
    ArithmeticMode, ErrorKind, KeyError, MetaSetMode, PeerError, StoreVerb,
};
pub use error::{Culprit, Error, Place};
pub use exchange::{Exchange, Interruption};
pub use meta::{
    Lease, Leased, MetaArithmetic, MetaCounted, MetaDelete, MetaDeleted, MetaGet, MetaItem,
    MetaSet, MetaStored, Ttl,
};
pub use operation::{Finish, Operation};
pub use options::{ClientOptions, KeyPolicy, Protocol, ServerOptions, Timeouts};
pub use pipeline::Pipeline;
#[cfg(feature = "tls")]
pub use records::{SecureFault, Secured};
pub use request::Response;
pub use server::ServerStatus;
pub use servers::{PerServer, Stats};
pub use tls::Tls;
#[cfg(feature = "tls")]
pub use tls::{Certificate, CertificateError, ClientTls, Roots};
pub use value::{Exptime, StoreOptions, Value};
