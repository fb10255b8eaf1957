//! The body of an answer on its way to the engine.

use crate::reply::{Reply, WriteError};
use bytes::Bytes;
use std::collections::VecDeque;

/// Pieces of an answer that the engine has no room for yet, and its end behind them.
///
/// ```
/// use dwell_engine::desk::Outflow;
/// use dwell_engine::{Body, Reply, Response};
///
/// fn answer(reply: &mut Reply<'_>) {
///     reply.send(&Response { status: 200, fields: &[], body: Body::Stream(None) });
///     let mut body = Outflow::default();
///     body.push("hello ".into());
///     let mut taken = 0;
///     assert!(!body.pump(reply, |bytes| taken += bytes), "more may follow");
///     body.push("there\n".into());
///     body.finish(vec![("Digest".into(), b"none".to_vec())]);
///     assert!(body.is_finished() && !body.is_empty());
///     assert!(body.pump(reply, |bytes| taken += bytes));
///     assert!(body.is_empty());
///     assert_eq!(taken, 12);
///     body.push("for a client that has left".into());
///     body.clear();
///     assert!(body.is_empty());
/// }
///
/// # let answer = dwell_testkit::serve_once(answer);
/// # let pieces = "6\r\nhello \r\n6\r\nthere\n\r\n0\r\nDigest: none\r\n\r\n";
/// # assert!(answer.ends_with(pieces), "{answer}");
/// ```
#[derive(Debug, Default)]
pub struct Outflow {
    pieces: VecDeque<Bytes>,
    /// The trailer fields, once the end is known.
    end: Option<Vec<(String, Vec<u8>)>>,
}

impl Outflow {
    /// Adds a piece.
    pub fn push(&mut self, piece: Bytes) {
        self.pieces.push_back(piece);
    }

    /// Ends the body behind the pieces that are here; the first end counts.
    pub fn finish(&mut self, trailers: Vec<(String, Vec<u8>)>) {
        self.end.get_or_insert(trailers);
    }

    /// Drops the pieces: their client has left.
    pub fn clear(&mut self) {
        self.pieces.clear();
    }

    /// Returns true if no piece waits for room.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns true if no further piece comes.
    pub fn is_finished(&self) -> bool {
        self.end.is_some()
    }

    /// Writes the pieces for which there is room, and the end behind the last one; returns true if
    /// that was written. Each piece taken is counted, even one beyond the announced length, of
    /// which nothing is sent.
    pub fn pump(&mut self, reply: &mut Reply<'_>, mut taken: impl FnMut(usize)) -> bool {
        while let Some(piece) = self.pieces.front() {
            if let Err(WriteError::Full { .. }) = reply.write_shared(piece) {
                return false;
            }
            taken(piece.len());
            self.pieces.pop_front();
        }
        let Some(trailers) = &self.end else {
            return false;
        };
        let trailers = trailers.iter().map(|(name, value)| (&**name, &**value));
        // It fails only where the answer is over already.
        let _ = reply.finish(&trailers.collect::<Vec<_>>());
        true
    }
}
