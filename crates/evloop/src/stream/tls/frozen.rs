//! The TLS of a stream on its way to another process.

use super::{INPUT_BYTES, LOCAL, State, Tls, Unread};
use dwell_tls::{ClientNames, Established, KeptOfClient, RECORD_BYTES_MAX, Session};
use zeroize::Zeroizing;

/// The format: the version, the length of a record's beginning and that of data which was not read
/// (4 bytes each, big-endian), both, and the frozen session. With the names of a client, these are
/// before the session with their length (4 bytes), and the version is another one.
const VERSION: u8 = 1;
const VERSION_WITH_NAMES: u8 = 2;
const HEAD_BYTES: usize = 9;

impl Tls {
    /// Returns true if TLS 1.3 is established without chains of certificates that are kept, and has
    /// not been closed.
    pub(in crate::stream) fn can_freeze(&self) -> bool {
        matches!(&self.state, State::Established(established) if established.is_freezable())
    }

    /// Erases the keys that were derived on this thread.
    pub(in crate::stream) fn forget_keys(&mut self) {
        if let State::Established(established) = &mut self.state {
            LOCAL.with_borrow_mut(|local| established.forget(&mut local.keys));
        }
    }

    /// Takes the session out, and what was not read; `None` where it cannot go. This `part` of
    /// the client goes along.
    pub(in crate::stream) fn freeze(&mut self, part: KeptOfClient) -> Option<Zeroizing<Vec<u8>>> {
        let State::Established(established) = &mut self.state else {
            return None;
        };
        let session = LOCAL.with_borrow_mut(|local| established.freeze(&mut local.keys))?;
        let names = established.client_names().cloned();
        let names = match part {
            KeptOfClient::Nothing => None,
            KeptOfClient::Names => names.map(ClientNames::without_certificate),
            KeptOfClient::Certificate | KeptOfClient::Chain => names,
        };
        self.state = State::Failed;
        let unread = self.unread.take().unwrap_or_default();
        let (record, data) = (&unread.record, &unread.data[unread.read..]);
        let length = |part: &[u8]| (part.len() as u32).to_be_bytes();
        let names = names.as_ref().map(ClientNames::as_bytes);
        let names_length = names.map(length);
        // All of its room at once, so that no copy of a secret is left behind.
        let bytes = HEAD_BYTES + record.len() + data.len() + session.len();
        let bytes = bytes + names.map_or(0, |names| 4 + names.len());
        let mut frozen = Zeroizing::new(Vec::with_capacity(bytes));
        frozen.push(names.map_or(VERSION, |_| VERSION_WITH_NAMES));
        for part in [record, data] {
            frozen.extend_from_slice(&length(part));
        }
        let beside = [names_length.as_ref().map(|length| &length[..]), names];
        let parts = [Some(&record[..]), Some(data)].into_iter().chain(beside);
        for part in parts.flatten().chain([&session[..]]) {
            frozen.extend_from_slice(part);
        }
        Some(frozen)
    }

    /// Decodes the output of [`freeze`](Self::freeze); `None` where it cannot be that.
    pub(in crate::stream) fn thaw(frozen: &[u8]) -> Option<Self> {
        let (version, rest) = frozen.split_first()?;
        let (record_bytes, rest) = rest.split_first_chunk()?;
        let (data_bytes, rest) = rest.split_first_chunk()?;
        let (record, rest) = rest.split_at_checked(u32::from_be_bytes(*record_bytes) as usize)?;
        let (data, rest) = rest.split_at_checked(u32::from_be_bytes(*data_bytes) as usize)?;
        let (names, session) = match *version {
            VERSION => (None, rest),
            VERSION_WITH_NAMES => {
                let (length, rest) = rest.split_first_chunk()?;
                let length = u32::from_be_bytes(*length) as usize;
                let (names, rest) = rest.split_at_checked(length)?;
                (Some(ClientNames::from_bytes(names)?), rest)
            }
            _ => return None,
        };
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
        // A wish of the writer, `ends_alone`, is told to each of its streams again.
        let mut tls = Self::at(State::Established(Established::thawed(session, names)));
        tls.unread = (!is_empty).then(|| Box::new(unread));
        Some(tls)
    }
}
