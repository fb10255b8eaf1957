//! The fields of an app on their way into a head.
//!
//! The engine frames every answer, so what a program says of the framing must not stand beside it:
//! two lengths in one head are what a proxy in front is desynchronised with. Such fields are taken
//! out here, for every face there is of the engine, and what they can still ask for is kept.

use super::Body;
use super::framed::encode_lines;
use dwell_proto::http1::{encode, list_tokens};
use dwell_proto::http2::encode_status;
use std::sync::OnceLock;

/// The wishes among the fields of an app for fields that the engine writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asked {
    /// `Connection: close`.
    pub(super) close: bool,
    /// `Connection: upgrade`, which belongs to the `Upgrade` of a 426 (RFC 9110 section 7.8).
    pub(super) upgrade: bool,
    /// The length of a body that is not sent.
    pub(super) content_length: Option<u64>,
}

impl Asked {
    /// The wishes of both.
    fn or(self, other: Self) -> Self {
        Self {
            close: self.close || other.close,
            upgrade: self.upgrade || other.upgrade,
            content_length: self.content_length.or(other.content_length),
        }
    }

    /// The length of a body, as the head tells it.
    pub(super) fn length_of(&self, body: &Body<'_>, is_head: bool) -> Option<u64> {
        match body.len() {
            // The length of what a GET would be sent, the app alone can tell.
            None | Some(0) if is_head && self.content_length.is_some() => self.content_length,
            length => length,
        }
    }
}

/// Appends the fields of a head that has this status, but those that are the engine's to write.
///
/// Shape: the `Connection` of a 101 names what is switched to, and is the app's.
pub(crate) fn append<'f>(
    output: &mut Vec<u8>,
    status: u16,
    fields: impl Iterator<Item = (&'f str, &'f [u8])>,
) -> Asked {
    let mut asked = Asked::default();
    for (name, value) in fields {
        match Own::of(name) {
            None => encode::field(output, name, value),
            Some(Own::Connection) if status == 101 => encode::field(output, name, value),
            Some(Own::Connection) => {
                for option in list_tokens(value) {
                    asked.close |= option.eq_ignore_ascii_case(b"close");
                    asked.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
                }
            }
            Some(Own::ContentLength) => asked.content_length = asked.content_length.or(size(value)),
            Some(Own::Other) => {}
        }
    }
    asked
}

/// The status and fields of responses that go to many, encoded once for all of them.
///
/// ```
/// use dwell_engine::{Body, ExchangeId, Http, SharedFields};
/// use dwell_evloop::Context;
///
/// /// Answers all who wait.
/// fn tell(http: &mut Http, context: &mut Context, waiting: &[ExchangeId]) {
///     let fields = SharedFields::new(200, &[("Content-Type", b"text/plain")]);
///     for exchange in waiting {
///         http.with_reply(context, *exchange, |reply| {
///             reply.send_shared(&fields, &Body::Slice(b"news"));
///         });
///     }
/// }
/// #
/// # let answer = dwell_testkit::hold_once(|http, context, exchange| {
/// #     tell(http, context, &[exchange]);
/// # });
/// # assert!(answer.contains("\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n"));
/// # assert!(answer.ends_with("\r\n\r\nnews"), "{answer}");
/// ```
#[derive(Clone, Debug)]
pub struct SharedFields {
    pub(super) status: u16,
    text: Vec<u8>,
    asked: Asked,
    /// The same as a field block of HTTP/2, once it is wanted.
    block: OnceLock<Box<[u8]>>,
}

/// The fields of one answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fields<'f> {
    Own(&'f [(&'f str, &'f [u8])]),
    Shared(&'f SharedFields),
    /// Its own, and behind them those of many.
    Joined(&'f [(&'f str, &'f [u8])], &'f SharedFields),
}

impl Fields<'_> {
    /// Appends them as lines.
    pub(super) fn append(self, status: u16, output: &mut Vec<u8>) -> Asked {
        match self {
            Self::Own(fields) => append(output, status, fields.iter().copied()),
            Self::Shared(fields) => {
                output.extend_from_slice(&fields.text);
                fields.asked
            }
            Self::Joined(own, fields) => {
                let asked = append(output, status, own.iter().copied());
                output.extend_from_slice(&fields.text);
                asked.or(fields.asked)
            }
        }
    }

    /// Appends the status and them to a field block; `text` is empty memory to do it in.
    pub(super) fn append_block(
        self,
        status: u16,
        text: &mut Vec<u8>,
        block: &mut Vec<u8>,
    ) -> Asked {
        match self {
            Self::Own(_) | Self::Joined(..) => {
                let asked = self.append(status, text);
                encode_status(status, block);
                encode_lines(text, block);
                text.clear();
                asked
            }
            Self::Shared(fields) => {
                block.extend_from_slice(fields.block());
                fields.asked
            }
        }
    }
}

impl SharedFields {
    /// Encodes the fields of a response of this status.
    pub fn new(status: u16, fields: &[(&str, &[u8])]) -> Self {
        let mut text = Vec::new();
        let asked = append(&mut text, status, fields.iter().copied());
        Self {
            status,
            text,
            asked,
            block: OnceLock::new(),
        }
    }

    /// Returns the status and the fields as a block, which all streams of all connections share:
    /// the encoder puts nothing into a table of theirs.
    fn block(&self) -> &[u8] {
        self.block.get_or_init(|| {
            let mut block = Vec::with_capacity(self.text.len() + STATUS_BYTES_MAX);
            encode_status(self.status, &mut block);
            encode_lines(&self.text, &mut block);
            block.into()
        })
    }

    /// Returns the status.
    pub fn status(&self) -> u16 {
        self.status
    }
}

/// The most bytes that a status takes in a field block.
const STATUS_BYTES_MAX: usize = 5;

/// A field that only the engine writes, or that is never written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Own {
    Connection,
    ContentLength,
    Other,
}

impl Own {
    fn of(name: &str) -> Option<Self> {
        let (known, own) = match name.len() {
            4 => ("date", Self::Other),
            10 if name.as_bytes()[0] | 0x20 == b'k' => ("keep-alive", Self::Other),
            10 => ("connection", Self::Connection),
            14 => ("content-length", Self::ContentLength),
            16 => ("proxy-connection", Self::Other),
            17 => ("transfer-encoding", Self::Other),
            _ => return None,
        };
        name.eq_ignore_ascii_case(known).then_some(own)
    }
}

fn size(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number
        .then(|| str::from_utf8(digits).ok()?.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appended(status: u16, fields: &[(&str, &[u8])]) -> (String, Asked) {
        let mut output = Vec::new();
        let asked = append(&mut output, status, fields.iter().copied());
        (String::from_utf8(output).unwrap(), asked)
    }

    #[test]
    fn what_frames_a_message_is_taken_out_in_any_case() {
        let own: [(&str, &[u8]); 6] = [
            ("DATE", b"now"),
            ("Keep-Alive", b"timeout=5"),
            ("connection", b"keep-alive"),
            ("Content-Length", b"999"),
            ("Proxy-Connection", b"keep-alive"),
            ("Transfer-Encoding", b"gzip, chunked"),
        ];
        let (text, asked) = appended(200, &own);
        assert_eq!(text, "");
        assert_eq!(asked.content_length, Some(999));
        assert!(!asked.close && !asked.upgrade);
        // Of the same lengths, and names that only look like one of them.
        let others: [(&str, &[u8]); 5] = [
            ("Vary", b"a"),
            ("Connectiom", b"close"),
            ("Kontection", b"close"),
            ("Content-Length ", b"1"),
            ("Content-Lengths", b"1"),
        ];
        let (text, asked) = appended(200, &others);
        let kept = "Vary: a\r\nConnectiom: close\r\nKontection: close\r\nContent-Lengths: 1\r\n";
        assert_eq!((text.as_str(), asked), (kept, Asked::default()));
    }

    #[test]
    fn a_shared_block_is_what_own_fields_make() {
        let fields: [(&str, &[u8]); 3] = [
            ("Content-Type", b"text/plain"),
            ("Upgrade", b"h2c"),
            ("X-One", b" 1 "),
        ];
        for status in [200, 418] {
            let shared = SharedFields::new(status, &fields);
            let (mut own, mut text) = (Vec::new(), Vec::new());
            Fields::Own(&fields).append_block(status, &mut text, &mut own);
            for _ in 0..2 {
                let mut block = Vec::new();
                Fields::Shared(&shared).append_block(status, &mut text, &mut block);
                assert_eq!(block, own);
            }
            assert!(text.is_empty() && !own.is_empty());
        }
    }

    #[test]
    fn joined_fields_are_those_of_both_in_their_order() {
        let own: [(&str, &[u8]); 2] = [("X-One", b"1"), ("Content-Length", b"7")];
        let many: [(&str, &[u8]); 2] = [("Connection", b"close"), ("X-Two", b"2")];
        let shared = SharedFields::new(200, &many);
        let joined = Fields::Joined(&own, &shared);
        let mut text = Vec::new();
        let asked = joined.append(200, &mut text);
        assert_eq!(text, b"X-One: 1\r\nX-Two: 2\r\n");
        assert!(asked.close && asked.content_length == Some(7));
        let (mut of_both, mut of_own) = (Vec::new(), Vec::new());
        joined.append_block(200, &mut Vec::new(), &mut of_both);
        let all = [own, many].concat();
        Fields::Own(&all).append_block(200, &mut Vec::new(), &mut of_own);
        assert_eq!(of_both, of_own);
    }

    #[test]
    fn wishes_are_kept() {
        let (_, asked) = appended(426, &[("Connection", b"Upgrade , CLOSE")]);
        assert!(asked.close && asked.upgrade);
        let (text, asked) = appended(101, &[("Connection", b"close"), ("Content-Length", b"3")]);
        assert_eq!(text, "Connection: close\r\n");
        assert!(!asked.close);
        for value in [
            &b""[..],
            b"+1",
            b"-1",
            b"1 2",
            b"99999999999999999999",
            b"0x1",
        ] {
            assert_eq!(
                appended(200, &[("Content-Length", value)]).1.content_length,
                None
            );
        }
        let twice: [(&str, &[u8]); 2] = [("Content-Length", b" 7 "), ("Content-Length", b"8")];
        assert_eq!(appended(200, &twice).1.content_length, Some(7));
    }
}
