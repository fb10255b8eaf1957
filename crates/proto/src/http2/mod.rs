//! HTTP/2: frames, compressed fields and requests (RFC 9113, RFC 7541).
//!
//! The order of use, on a server's side of a connection:
//!
//! 1. a [`FrameDecoder`] takes frames out of the bytes as they come, and keeps no bytes;
//! 2. an [`HpackDecoder`] makes a [`FieldSection`] of the parts of a field block;
//! 3. [`request_head`] checks that the section is a request;
//! 4. [`encode`], [`encode_status`] and [`encode_field`] write the other direction, as far as each
//!    [`Window`] has room.
//!
//! Everything that a peer may make large has a bound: the bytes and frames of a block
//! ([`BlockLimits`]), and the bytes and lines of a section ([`SectionLimits`]), where a line that
//! is only one byte of a block counts as what it says.
//!
//! ```
//! use dwell_proto::http1::FieldStorage;
//! use dwell_proto::http2::{
//!     BlockLimits, FieldSection, Frame, FrameDecoder, HpackDecoder, PREFACE, SectionLimits,
//!     encode, request_head,
//! };
//!
//! // GET / of http://a, with three fields of the static table.
//! let block = b"\x82\x86\x84\x01\x01a";
//! let mut input = PREFACE.to_vec();
//! encode::settings(&[], &mut input);
//! encode::block(1, block, true, 16_384, &mut input);
//!
//! let mut frames = FrameDecoder::of_client(BlockLimits::default());
//! let mut fields = HpackDecoder::new(4_096);
//! let mut section = FieldSection::new(SectionLimits::default());
//! let mut at = 0;
//! loop {
//!     let step = frames.decode(&input[at..])?;
//!     at += step.consumed;
//!     if let Some(Frame::Block { fragment, ends_block, .. }) = step.frame {
//!         fields.decode(fragment, ends_block, &mut section)?;
//!         if ends_block {
//!             break;
//!         }
//!     }
//! }
//! let mut storage = FieldStorage::new();
//! let head = request_head(&section, &mut storage, 8_192)?;
//! assert_eq!((head.method, head.path, head.host), ("GET", "/", &b"a"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod encode;
mod error;
mod frame;
mod frame_decoder;
mod hpack;
mod request;
pub mod settings;
mod window;

pub use error::{ErrorCode, HpackError, PeerError};
pub use frame::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES, Frame, FrameHeader, FrameType};
pub use frame_decoder::{BlockLimits, FrameDecoder, FrameStep, PREFACE, REST_BYTES_MAX};
pub use hpack::{FieldSection, HpackDecoder, SectionLimits, encode_field, encode_status};
pub use request::{MessageError, RequestHead, check_trailers, request_head};
pub use settings::PeerSettings;
pub use window::{WINDOW_BYTES_MAX, Window};
