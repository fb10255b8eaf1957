//! HTTP/1.1 messages: heads, framing and bodies (RFC 9110, RFC 9112).
//!
//! The order of use, on either side of a connection:
//!
//! 1. [`head_end`] finds where the head stops, looking at every byte once however it arrives;
//! 2. [`parse_request`] or [`parse_response`] checks the whole head and decides the framing
//!    ([`next_request`] is both steps in one, for where every nanosecond counts);
//! 3. a [`BodyDecoder`] made from that framing turns the bytes that follow into body bytes;
//! 4. [`encode`] writes the other direction.
//!
//! For responses a [`ResponseDecoder`] has the first three in one. It takes the bytes of a
//! connection as they come and gives interim heads, the head, and the pieces of the body.
//!
//! Two parsers that disagree about where a message ends are how requests are smuggled. So
//! nothing here is repaired: a head that RFC 9112 lets a recipient guess about is refused with
//! the status the standard names, and the connection is then closed by the caller. In
//! particular: a bare line feed or carriage return, whitespace before a colon, folded lines,
//! `Content-Length` next to `Transfer-Encoding`, signed lengths and repeated ones (in a response
//! only those that differ), a transfer coding other than exactly `chunked`, chunk sizes without
//! digits, and `Host` missing, repeated or malformed.
//!
//! ```
//! use dwell_proto::http1::{self, BodyFraming, FieldStorage, HeadLimits};
//!
//! let input = b"GET /poll/alice?wait=25 HTTP/1.1\r\nHost: localhost\r\n\r\n";
//! let mut scanned = 0;
//! let end = http1::head_end(input, &mut scanned).expect("the head is complete");
//! let mut storage = FieldStorage::new();
//! let head = http1::parse_request(&input[..end], &mut storage, &HeadLimits::default())?;
//! assert_eq!((head.method, head.path, head.query), ("GET", "/poll/alice", Some("wait=25")));
//! assert_eq!((head.framing, head.keep_alive), (BodyFraming::None, true));
//! # Ok::<(), http1::HeadError>(())
//! ```

mod body;
mod chunk;
pub mod encode;
mod error;
mod fields;
mod framing;
mod head;
mod path;
mod request;
mod response;
mod response_decoder;
mod target;
mod trailers;
mod words;

pub use body::{BodyDecoder, BodyStep};
pub use error::{BodyError, HeadError, ResponseError};
pub(crate) use fields::is_field_value;
pub use fields::{Fields, is_hop_by_hop, is_token, list_tokens};
pub(crate) use framing::plain_decimal;
pub use framing::{BodyFraming, Version};
pub use head::{FieldStorage, HeadLimits, head_end, oversized_head};
pub use path::{PathError, any_reading, is_plain_path, normal_path, percent_decoded};
pub use request::{RequestHead, next_request, parse_request};
pub use response::{ResponseHead, parse_response};
pub use response_decoder::{ResponseDecoder, ResponseLimits, ResponsePart, ResponseStep};
pub(crate) use target::{is_host, parse_path};
pub use trailers::Trailers;
