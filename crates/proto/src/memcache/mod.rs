//! The memcached protocols: text and meta, both sides (memcached `doc/protocol.txt`), and
//! [`binary`], the server's.
//!
//! A server gives its input to a [`RequestDecoder`] and writes with [`encode::reply`]; a client
//! writes with [`encode::request`] and gives what it reads to a [`ResponseDecoder`]. Both decoders
//! borrow from the bytes they are shown and keep nothing: the caller shows every byte that has not
//! been consumed yet, contiguous, and is told how many the unfinished message needs.
//!
//! The server's side behaves as memcached 1.6.18 does, error lines included, except where that
//! would execute data as commands: the data of a refused storage command is discarded if its
//! length can be read at all (as memcached 1.6.45 does).

pub mod binary;
mod command;
mod command_line;
pub mod encode;
mod error_line;
mod key;
mod line;
mod meta;
mod protocols;
mod reply;
mod request;
mod status;
mod watch;

pub use command::{
    ArithmeticMode, Command, Keys, MetaArithmetic, MetaDelete, MetaGet, MetaSet, MetaSetMode,
    StoreVerb,
};
pub use error_line::ErrorLine;
pub use key::{KEY_BYTES_MAX, Key, KeyError, KeyScratch, MetaKey};
pub use line::{TokenIter, Tokens};
pub use meta::{Flag, Flags, MetaFlags, MetaStatus, OPAQUE_BYTES_MAX};
pub use protocols::Protocols;
pub use reply::{ErrorKind, PeerError, Reply, ReplyLimits, ResponseDecoder};
pub use request::{CloseReason, Decoded, Progress, RequestDecoder, RequestLimits};
pub use watch::{WATCH_LINE_BYTES_MAX, WatchDecoder, WatchLine, WatchedKey};
