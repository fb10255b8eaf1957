//! The TLS of a stream on its way to another process.

use super::{INPUT_BYTES, LOCAL, State, Tls, Unread};
use dwell_tls::{Established, RECORD_BYTES_MAX, Session};
use zeroize::Zeroizing;

/// The format: the version, the length of a record's beginning and that of data which was not read
/// (4 bytes each, big-endian), both, and the frozen session.
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 9;

impl Tls {
    /// Returns true if TLS 1.3 is established without certificates that are kept, and has not been
    /// closed.
    pub(in crate::stream) fn can_freeze(&self) -> bool {
        matches!(&self.state, State::Established(established) if established.is_freezable())
    }

    /// Takes the session out, and what was not read; `None` where it cannot go.
    pub(in crate::stream) fn freeze(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        let State::Established(established) = &mut self.state else {
            return None;
        };
        let session = LOCAL.with_borrow_mut(|local| established.freeze(&mut local.keys))?;
        self.state = State::Failed;
        let unread = self.unread.take().unwrap_or_default();
        let (record, data) = (&unread.record, &unread.data[unread.read..]);
        // All of its room at once, so that no copy of a secret is left behind.
        let bytes = HEAD_BYTES + record.len() + data.len() + session.len();
        let mut frozen = Zeroizing::new(Vec::with_capacity(bytes));
        frozen.push(VERSION);
        for part in [record, data] {
            frozen.extend_from_slice(&(part.len() as u32).to_be_bytes());
        }
        for part in [record, data, &session] {
            frozen.extend_from_slice(part);
        }
        Some(frozen)
    }

    /// Decodes the output of [`freeze`](Self::freeze); `None` where it cannot be that.
    pub(in crate::stream) fn thaw(frozen: &[u8]) -> Option<Self> {
        let (&VERSION, rest) = frozen.split_first()? else {
            return None;
        };
        let (record_bytes, rest) = rest.split_first_chunk()?;
        let (data_bytes, rest) = rest.split_first_chunk()?;
        let (record, rest) = rest.split_at_checked(u32::from_be_bytes(*record_bytes) as usize)?;
        let (data, session) = rest.split_at_checked(u32::from_be_bytes(*data_bytes) as usize)?;
        // What is kept goes back into a buffer of this size.
        if record.len() > RECORD_BYTES_MAX || data.len() > INPUT_BYTES {
            return None;
        }
        let session = Session::thaw(session).ok()?;
        let unread = Unread {
            record: record.to_vec(),
            data: data.to_vec(),
            read: 0,
        };
        let is_empty = record.is_empty() && data.is_empty();
        Some(Self {
            state: State::Established(Established::Tls13(session)),
            unread: (!is_empty).then(|| Box::new(unread)),
            // A wish of the writer, who tells it to each of its streams.
            ends_alone: false,
        })
    }
}
