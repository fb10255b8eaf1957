//! WebSocket: handshake, frames, messages and permessage-deflate (RFC 6455, RFC 7692).
//!
//! The order of use, on a server's side of a connection:
//!
//! 1. [`UpgradeRequest::check`] checks a request that [`http1`](crate::http1) has parsed, and
//!    [`Acceptance`] writes the fields of the answer;
//! 2. a [`MessageDecoder`] takes messages and control frames out of the bytes that follow, or a
//!    [`FrameDecoder`] the frames as they come;
//! 3. [`encode`] writes the other direction, and [`Broadcast`] what goes to many.
//!
//! A client starts with [`ClientHandshake`] and has the other [`Role`] afterwards.
//!
//! An unfinished message costs memory, an idle connection does not: a decoder is 32 bytes, and the
//! compressors and inflaters, which are large, are shared by the connections of a loop as long as
//! the peers start every message afresh, which is what [`DeflateOptions`] asks for by default.
//! Nothing is random here: a client's nonce and masks are the caller's to draw.

mod broadcast;
mod close;
mod deflate;
pub mod encode;
mod error;
mod extension;
mod frame;
mod frame_decoder;
mod handshake;
mod inflate;
mod mask;
mod message;
mod opcode;
mod utf8;

pub use broadcast::Broadcast;
pub use close::{Close, CloseCode};
pub use deflate::{Deflater, Deflaters};
pub use error::PeerError;
pub use extension::{
    DeflateOptions, DeflateParameters, Extension, ExtensionParameter, ParameterValue, extensions,
};
pub use frame::{CONTROL_PAYLOAD_BYTES_MAX, FrameHeader, HeaderBytes};
pub use frame_decoder::{FrameDecoder, FramePart, FrameStep, REST_BYTES_MAX};
pub use handshake::{Acceptance, Agreement, ClientHandshake, HandshakeError, UpgradeRequest};
pub use inflate::Inflater;
pub use mask::{Mask, apply_mask};
pub use message::{Event, Message, MessageDecoder, MessageLimits, Step};
pub use opcode::{MessageKind, Opcode, Role};
pub use utf8::Utf8Validator;
