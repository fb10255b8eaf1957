//! Finding the end of an answer that the app writes byte for byte.

use dwell_proto::http1::{
    BodyDecoder, BodyFraming, FieldStorage, HeadLimits, head_end, parse_response,
};

/// Follows the bytes of one answer to its end.
#[derive(Debug)]
pub(crate) struct RawAnswer {
    is_head: bool,
    /// What came of the head that is not complete yet.
    head: Vec<u8>,
    scanned: usize,
    /// The body, once its framing is known; an answer that cannot be read has one without end.
    body: Option<BodyDecoder>,
    keep_alive: bool,
}

/// How far an answer has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RawProgress {
    Open,
    Done { keep_alive: bool },
}

impl RawAnswer {
    pub(super) fn new(is_head: bool) -> Self {
        Self {
            is_head,
            head: Vec::new(),
            scanned: 0,
            body: None,
            keep_alive: false,
        }
    }

    /// Takes in the next bytes of the answer.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> RawProgress {
        let mut rest = bytes;
        while self.body.is_none() {
            let before = self.head.len();
            // Enough to see that it is too long, and no copy of a body that comes with it.
            let room = HeadLimits::default().head_bytes_max + 1 - before;
            self.head.extend_from_slice(&rest[..rest.len().min(room)]);
            let Some(end) = head_end(&self.head, &mut self.scanned) else {
                if rest.len() >= room {
                    self.head = Vec::new();
                    self.body = Some(endless());
                }
                return RawProgress::Open;
            };
            rest = &rest[end - before..];
            self.head.truncate(end);
            self.begin_body();
        }
        self.follow_body(rest)
    }

    /// Reads the head that is complete; after an informational one another follows.
    fn begin_body(&mut self) {
        let mut storage = FieldStorage::new();
        let method = if self.is_head { "HEAD" } else { "GET" };
        match parse_response(&self.head, &mut storage, &HeadLimits::default(), method) {
            Ok(head) if matches!(head.status, 100 | 102..=199) => {}
            Ok(head) => {
                // After a 101 nothing that follows is HTTP.
                self.keep_alive = head.keep_alive && head.status >= 200;
                self.body = Some(BodyDecoder::new(head.framing, u64::MAX));
            }
            Err(_) => self.body = Some(endless()),
        }
        self.head = Vec::new();
        self.scanned = 0;
    }

    fn follow_body(&mut self, bytes: &[u8]) -> RawProgress {
        let Some(body) = &mut self.body else {
            return RawProgress::Open;
        };
        let mut rest = bytes;
        loop {
            let Ok(part) = body.decode(rest) else {
                self.body = Some(endless());
                return RawProgress::Open;
            };
            rest = &rest[part.consumed..];
            if part.done {
                return RawProgress::Done {
                    keep_alive: self.keep_alive && rest.is_empty(),
                };
            }
            if part.consumed == 0 || rest.is_empty() {
                return RawProgress::Open;
            }
        }
    }
}

/// The body of an answer whose end only the app knows.
fn endless() -> BodyDecoder {
    BodyDecoder::new(BodyFraming::UntilClose, u64::MAX)
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
