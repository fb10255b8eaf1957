//! Answers that a handler writes as bytes.

use crate::reply::{Reply, WriteError};
use dwell_proto::http1::{FieldStorage, ResponseDecoder, ResponseLimits};

/// The decoder of the answer that is being written; `None` for bytes that it cannot read, whose end
/// only their handler can tell.
pub(super) type Written = Option<Box<ResponseDecoder>>;

/// Writes bytes of an answer. The exchange ends where their framing does, and the connection where
/// that leaves it no next request, or more bytes follow.
pub(super) fn write(
    written: &mut Written,
    reply: &mut Reply<'_>,
    bytes: &[u8],
) -> Result<(), WriteError> {
    if !reply.is_sent() {
        let method = if reply.is_head() { "HEAD" } else { "GET" };
        *written = Some(Box::new(ResponseDecoder::new(method)));
        reply.verbatim();
    } else if !reply.is_verbatim() {
        return Err(WriteError::NotOpen);
    }
    reply.write(bytes)?;
    if let Some(keep_alive) = follow(written, bytes) {
        if !keep_alive {
            reply.close_after();
        }
        reply.finish(&[])?;
    }
    Ok(())
}

/// Takes in the next bytes of an answer. Returns whether the connection persists after their last.
fn follow(written: &mut Written, bytes: &[u8]) -> Option<bool> {
    let mut rest = bytes;
    loop {
        let decoder = written.as_deref_mut()?;
        let mut storage = FieldStorage::new();
        let Ok(step) = decoder.decode(rest, &mut storage, &ResponseLimits::default()) else {
            *written = None;
            return None;
        };
        rest = &rest[step.consumed..];
        if step.done {
            let keep_alive = decoder.keep_alive() && rest.is_empty();
            *written = None;
            return Some(keep_alive);
        }
        if rest.is_empty() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many bytes the answer is done, fed `step` at a time.
    fn done_after(answer: &[u8], step: usize, is_head: bool) -> Option<(usize, bool)> {
        let method = if is_head { "HEAD" } else { "GET" };
        let mut written = Some(Box::new(ResponseDecoder::new(method)));
        for start in (0..answer.len()).step_by(step) {
            let end = (start + step).min(answer.len());
            if let Some(keep_alive) = follow(&mut written, &answer[start..end]) {
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
