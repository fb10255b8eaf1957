//! Finding the end of an answer that the app writes byte for byte.

use dwell_proto::http1::{FieldStorage, ResponseDecoder, ResponseLimits};

/// Follows the bytes of one answer to its end.
#[derive(Debug)]
pub(crate) struct RawAnswer {
    /// The decoder that follows the app's bytes; `None` after bytes that it cannot read, whose end
    /// only the app can tell.
    decoder: Option<ResponseDecoder>,
}

/// The progress of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RawProgress {
    Open,
    Done { keep_alive: bool },
}

impl RawAnswer {
    pub(super) fn new(is_head: bool) -> Self {
        let method = if is_head { "HEAD" } else { "GET" };
        Self {
            decoder: Some(ResponseDecoder::new(method)),
        }
    }

    /// Takes in the next bytes of the answer.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> RawProgress {
        let Some(decoder) = &mut self.decoder else {
            return RawProgress::Open;
        };
        let mut rest = bytes;
        loop {
            let mut storage = FieldStorage::new();
            let Ok(step) = decoder.decode(rest, &mut storage, &ResponseLimits::default()) else {
                self.decoder = None;
                return RawProgress::Open;
            };
            rest = &rest[step.consumed..];
            if step.done {
                return RawProgress::Done {
                    keep_alive: decoder.keep_alive() && rest.is_empty(),
                };
            }
            if rest.is_empty() {
                return RawProgress::Open;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many bytes the answer is done, fed `step` at a time.
    fn done_after(answer: &[u8], step: usize, is_head: bool) -> Option<(usize, bool)> {
        let mut raw = RawAnswer::new(is_head);
        for start in (0..answer.len()).step_by(step) {
            let end = (start + step).min(answer.len());
            if let RawProgress::Done { keep_alive } = raw.follow(&answer[start..end]) {
                return Some((end, keep_alive));
            }
        }
        None
    }

    #[test]
    fn an_answer_ends_where_its_framing_says_in_whatever_pieces_it_comes() {
        let complete: [&[u8]; 4] = [
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ];
        for answer in complete {
            for step in 1..=answer.len() {
                let done = done_after(answer, step, false);
                assert_eq!(done, Some((answer.len(), true)), "{step}");
            }
        }
    }

    #[test]
    fn what_cannot_be_followed_or_kept_alive_is_told() {
        let closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(
            done_after(closing, closing.len(), false),
            Some((closing.len(), false))
        );
        let switching = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n";
        assert_eq!(
            done_after(switching, 1, false),
            Some((switching.len(), false))
        );
        let beyond = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore";
        assert_eq!(
            done_after(beyond, beyond.len(), false),
            Some((beyond.len(), false))
        );
        assert_eq!(
            done_after(b"HTTP/1.1 200 OK\r\n\r\nuntil close", 3, false),
            None
        );
        assert_eq!(
            done_after(b"not an answer\r\n\r\n and more", 5, false),
            None
        );
        assert_eq!(done_after(&vec![b'a'; 100_000], 1000, false), None);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(done_after(head, 7, true), Some((head.len(), true)));
    }
}
