//! TLS between a stream and its socket.
//!
//! An idle connection of TLS 1.3 has its secrets here, and no buffer. Input goes through a buffer
//! of the thread, and only the beginning of a record and data for which the reader had no room
//! stay. Output is sealed in a buffer of the thread; only what the socket refuses is kept, at the
//! front of the stream's queue.

mod frozen;

use super::outcome::{Agreed, HandshakeFailure, ReadOutcome, TlsFacts};
use super::socket::Socket;
pub(super) use dwell_tls::TlsError as Fault;
pub use dwell_tls::{
    Acceptor, Certificate, CertificateError, ClientNames, ClientTls, ClientVerification, Connector,
    KeptOfClient, NameError, PeerCertificates, Roots, TicketKey,
};
use dwell_tls::{Established, Handshake, HandshakeError, HandshakeFault, Keys};
use dwell_tls::{FRAGMENT_BYTES_MAX, RECORD_BYTES_MAX, TlsError};
use std::cell::RefCell;
use std::io;

/// The TLS of one stream.
#[derive(Debug)]
pub(super) struct Tls {
    state: State,
    unread: Option<Box<Unread>>,
    /// See [`Stream::end_writes_alone`](super::Stream::end_writes_alone).
    ends_alone: bool,
    result: HandshakeResult,
}

/// The facts of a handshake that is over.
#[derive(Clone, Copy, Debug, Default)]
struct HandshakeResult {
    is_resumed: bool,
    has_protocol: bool,
    is_http2: bool,
}

#[derive(Debug)]
enum State {
    /// The first record of the client has not come.
    Waiting(Acceptor),
    /// The acceptor is that of a server.
    Handshake(Box<Handshake>, Option<Acceptor>),
    Established(Established),
    /// It has failed: nothing is read or written any more.
    Failed,
}

/// Input that was not read; at least one of the fields is not empty.
#[derive(Debug, Default)]
struct Unread {
    /// The beginning of a record, or what a handshake needs more of.
    record: Vec<u8>,
    /// Data that was opened, of which the first `read` bytes were read.
    data: Vec<u8>,
    read: usize,
}

/// The keys and buffers that the streams of a thread share.
struct Local {
    keys: Keys,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// Keys of the connections used last, of about 700 bytes each.
const KEYS_MAX: usize = 512;

/// Bytes that are read at once.
const INPUT_BYTES: usize = 64 * 1024;

/// Data that is sealed at once; what the socket refuses of it is kept.
pub(super) const SEALED_AT_ONCE: usize = 64 * 1024;

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::new(Local {
        keys: Keys::new(KEYS_MAX),
        input: vec![0; INPUT_BYTES],
        output: Vec::new(),
    });
}

impl Tls {
    /// Waits for the first record of a client, which begins a handshake.
    pub(super) fn new(acceptor: &Acceptor) -> Self {
        Self::at(State::Waiting(acceptor.clone()))
    }

    fn at(state: State) -> Self {
        Self {
            state,
            unread: None,
            ends_alone: false,
            result: HandshakeResult::default(),
        }
    }

    /// Begins a handshake with a server.
    pub(super) fn begin_client(connector: &Connector) -> io::Result<Self> {
        let handshake = connector.begin().map_err(refused)?;
        Ok(Self::at(State::Handshake(Box::new(handshake), None)))
    }

    /// Returns true if the peer has told that it sends no more.
    pub(super) fn is_ended(&self) -> bool {
        matches!(&self.state, State::Established(established) if established.is_ended())
    }

    pub(super) fn is_handshaking(&self) -> bool {
        matches!(self.state, State::Waiting(_) | State::Handshake(..))
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed)
    }

    /// The number of the cipher suite, once the handshake is over.
    pub(super) fn suite_number(&self) -> Option<u16> {
        match &self.state {
            State::Established(established) => Some(established.suite_number()),
            _ => None,
        }
    }

    /// The facts of a handshake that is over.
    pub(super) fn facts(&self) -> Option<TlsFacts<'_>> {
        let State::Established(established) = &self.state else {
            return None;
        };
        Some(TlsFacts {
            suite_number: established.suite_number(),
            is_resumed: self.result.is_resumed,
            has_protocol: self.result.has_protocol,
            is_http2: self.result.is_http2,
            server_name: established.server_name(),
        })
    }

    /// The certificates that a client has shown.
    pub(super) fn peer_certificates(&self) -> Option<&PeerCertificates> {
        match &self.state {
            State::Established(established) => established.peer_certificates(),
            _ => None,
        }
    }

    /// The names of a client.
    pub(super) fn client_names(&self) -> Option<&ClientNames> {
        match &self.state {
            State::Established(established) => established.client_names(),
            _ => None,
        }
    }

    /// Returns true if data was opened that was not read, or the end of the peer was read.
    pub(super) fn holds_input(&self) -> bool {
        self.is_ended() || matches!(&self.unread, Some(unread) if !unread.data.is_empty())
    }

    /// Returns true if the beginning of a record is kept.
    pub(super) fn has_begun_record(&self) -> bool {
        matches!(&self.unread, Some(unread) if !unread.record.is_empty())
    }

    /// Bytes that are kept: of a record that has begun, and data that was opened and not read.
    pub(super) fn kept_input_bytes(&self) -> usize {
        let unread = self.unread.as_ref();
        unread.map_or(0, |unread| unread.record.len() + unread.data.len())
    }

    /// Handshakes that are to be in progress at once, where one is and holds memory for it.
    pub(super) fn handshakes_max(&self) -> Option<usize> {
        match &self.state {
            State::Handshake(_, Some(acceptor)) => Some(acceptor.handshakes_max()),
            _ => None,
        }
    }

    /// Goes on with the handshake as far as the input that is here goes. `send` is given what is to
    /// be sent. Returns what was agreed on when it is complete.
    ///
    /// Shape: reads about a record at once, so that not much of what is behind the handshake is
    /// kept here.
    pub(super) fn shake(
        &mut self,
        socket: &Socket,
        mut send: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Option<Agreed>> {
        LOCAL.with_borrow_mut(|local| {
            loop {
                let have = take_record(&mut self.unread, &mut local.input);
                let (read, is_drained) =
                    match socket.read_some(&mut local.input[have..RECORD_BYTES_MAX])? {
                        ReadOutcome::More(read) => (read, false),
                        ReadOutcome::Drained(read) => (read, true),
                        ReadOutcome::WouldBlock => (0, true),
                        ReadOutcome::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
                    };
                let input = &local.input[..have + read];
                if let State::Waiting(acceptor) = &self.state
                    && Handshake::is_due(input)
                {
                    let handshake = acceptor.begin();
                    let handshake = handshake.ok_or_else(|| refused(TlsError::Keys.into()))?;
                    self.state = State::Handshake(Box::new(handshake), Some(acceptor.clone()));
                }
                let mut used = 0;
                if let State::Handshake(handshake, _) = &mut self.state {
                    let received = handshake.receive(input).map_err(refused);
                    local.output.clear();
                    handshake.transmit(&mut local.output);
                    let outcome = match local.output.as_slice() {
                        [] => Ok(()),
                        output => send(output),
                    };
                    match received.and_then(|used| outcome.map(|()| used)) {
                        Ok(bytes) => used = bytes,
                        Err(error) => {
                            self.state = State::Failed;
                            return Err(error);
                        }
                    }
                }
                keep_record(&mut self.unread, &input[used..]);
                match self.establish(local) {
                    Ok(None) => {}
                    Err(error) => {
                        // The connection ends, whether or not the client hears why.
                        if !local.output.is_empty() {
                            let _ = send(&local.output);
                        }
                        return Err(error);
                    }
                    agreed => return agreed,
                }
                if is_drained {
                    return Ok(None);
                }
            }
        })
    }

    /// Leaves a handshake that is done. The output has the alert for an error.
    fn establish(&mut self, local: &mut Local) -> io::Result<Option<Agreed>> {
        if !matches!(&self.state, State::Handshake(handshake, _) if handshake.is_done()) {
            return Ok(None);
        }
        let state = std::mem::replace(&mut self.state, State::Failed);
        let State::Handshake(handshake, _) = state else {
            return Ok(None);
        };
        let agreed = Agreed {
            is_tls13: handshake.is_tls13(),
            is_resumed: handshake.is_resumed(),
            is_http2: handshake.is_http2(),
        };
        self.result = HandshakeResult {
            is_resumed: agreed.is_resumed,
            has_protocol: handshake.has_protocol(),
            is_http2: agreed.is_http2,
        };
        local.output.clear();
        let mut established = handshake.finish().map_err(refused)?;
        #[cfg(feature = "sim")]
        if crate::sim::Planted::ForgetBehindHandshake.is_in() {
            self.unread = None;
        }
        // Records that came with the last one of the handshake are the first data.
        if let Some(unread) = &mut self.unread {
            let opened = established.open(&mut local.keys, &mut unread.record);
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    local.alert(&mut established, &error);
                    established.forget(&mut local.keys);
                    return Err(fault(error));
                }
            };
            unread.data = unread.record[..opened.data].to_vec();
            unread.record.drain(..opened.used);
            if unread.record.is_empty() && unread.data.is_empty() {
                self.unread = None;
            }
        }
        self.state = State::Established(established);
        Ok(Some(agreed))
    }

    /// Reads once and opens what is whole.
    ///
    /// Shape: as [`Stream::read`](super::Stream::read), but with [`ReadOutcome::More`] also where
    /// data is left here. More of 0 bytes says that records without data came.
    /// An alert is sent where `may_send` says that nothing waits for the socket.
    pub(super) fn read(
        &mut self,
        socket: &Socket,
        may_send: bool,
        buffer: &mut [u8],
    ) -> io::Result<ReadOutcome> {
        if let Some(read) = self.read_kept(buffer) {
            return Ok(ReadOutcome::More(read));
        }
        let State::Established(established) = &mut self.state else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if established.is_ended() {
            return Ok(ReadOutcome::Closed);
        }
        let unread = &mut self.unread;
        let outcome = LOCAL
            .with_borrow_mut(|local| local.read(established, unread, socket, may_send, buffer));
        if outcome.is_err() {
            self.fail();
        }
        outcome
    }

    /// Ends its use, and erases its keys.
    fn fail(&mut self) {
        if let State::Established(established) = &mut self.state {
            // At the end of the thread its keys are gone already.
            let _ = LOCAL.try_with(|local| {
                if let Ok(mut local) = local.try_borrow_mut() {
                    established.forget(&mut local.keys);
                }
            });
        }
        self.state = State::Failed;
    }

    /// Reads data that was opened before; `None` if there is no such data.
    fn read_kept(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let unread = self.unread.as_mut()?;
        let left = &unread.data[unread.read..];
        if left.is_empty() {
            return None;
        }
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        unread.read += count;
        if unread.read == unread.data.len() {
            unread.data = Vec::new();
            unread.read = 0;
            if unread.record.is_empty() {
                self.unread = None;
            }
        }
        Some(count)
    }

    /// Returns true if an answer to the peer's records is to be sent.
    pub(super) fn owes(&self) -> bool {
        #[cfg(feature = "sim")]
        if crate::sim::Planted::KeepKeys.is_in() {
            return false;
        }
        matches!(&self.state, State::Established(established) if established.owes())
    }

    /// From now on the last byte of a write of several records has one of its own.
    pub(super) fn end_alone(&mut self) {
        self.ends_alone = true;
    }

    /// Seals up to [`SEALED_AT_ONCE`] bytes of `parts` and gives the records to `send`, with what
    /// is owed before them. Returns how many bytes those are. `begins` tells that the first of the
    /// bytes begins a write.
    pub(super) fn seal(
        &mut self,
        parts: &[&[u8]],
        begins: bool,
        mut send: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        let State::Established(established) = &mut self.state else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        LOCAL.with_borrow_mut(|local| {
            local.output.clear();
            let mut limited = [&[][..]; super::socket::PARTS_PER_WRITE];
            let mut left = SEALED_AT_ONCE;
            let mut count = 0;
            for (place, part) in limited.iter_mut().zip(parts) {
                *place = &part[..part.len().min(left)];
                left -= place.len();
                count += 1;
            }
            let bytes = SEALED_AT_ONCE - left;
            let is_several = bytes > FRAGMENT_BYTES_MAX || !begins;
            let last = if self.ends_alone && is_several && bytes > 1 {
                split_last_byte(&mut limited[..count])
            } else {
                &[]
            };
            let mut sealed = established
                .seal(&mut local.keys, &limited[..count], &mut local.output)
                .map_err(fault)?;
            if !last.is_empty() {
                sealed += established
                    .seal(&mut local.keys, &[last], &mut local.output)
                    .map_err(fault)?;
            }
            if sealed == 0 && left < SEALED_AT_ONCE {
                // Nothing may follow what was told to be the last.
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if !local.output.is_empty() {
                send(&local.output)?;
            }
            Ok(sealed)
        })
    }

    /// Appends records with `bytes` to `out`, with what is owed before them; false where nothing
    /// can be sealed that way, as by TLS 1.2, whose records its own object may hold.
    pub(super) fn seal_to(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let State::Established(established) = &mut self.state else {
            return false;
        };
        if matches!(established, Established::Tls12(_)) {
            return false;
        }
        let sealed =
            LOCAL.with_borrow_mut(|local| established.seal(&mut local.keys, &[bytes], out));
        if sealed.is_err() {
            // Records that nobody gets may have been numbered.
            self.fail();
        }
        matches!(sealed, Ok(1..))
    }

    /// Tells the peer that nothing more is sent.
    pub(super) fn close(&mut self, socket: &Socket) {
        let State::Established(established) = &mut self.state else {
            return;
        };
        LOCAL.with_borrow_mut(|local| {
            local.output.clear();
            // A peer that does not hear of it sees the end of the connection all the same.
            let closed = established.close(&mut local.keys, &mut local.output);
            if closed.is_ok() && !local.output.is_empty() {
                let _ = socket.write_parts(&[&local.output], false);
            }
        });
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        self.fail();
    }
}

impl Local {
    /// The alert that an error calls for; empty where it calls for none.
    fn alert(&mut self, established: &mut Established, error: &TlsError) -> &[u8] {
        self.output.clear();
        if established
            .abort(&mut self.keys, error, &mut self.output)
            .is_err()
        {
            self.output.clear();
        }
        &self.output
    }

    /// Reads once from the socket, opens what is whole, and keeps what is not, or finds no room.
    fn read(
        &mut self,
        established: &mut Established,
        unread: &mut Option<Box<Unread>>,
        socket: &Socket,
        may_send: bool,
        buffer: &mut [u8],
    ) -> io::Result<ReadOutcome> {
        let have = take_record(unread, &mut self.input);
        // Not much more than the reader has room for: the rest stays in the socket.
        let want = buffer.len().max(RECORD_BYTES_MAX);
        let want = want.min(self.input.len());
        let (read, is_drained) = match socket.read_some(&mut self.input[have..want])? {
            ReadOutcome::More(read) => (read, false),
            ReadOutcome::Drained(read) => (read, true),
            other => {
                keep_record(unread, &self.input[..have]);
                return Ok(other);
            }
        };
        let input = &mut self.input[..have + read];
        let opened = match established.open(&mut self.keys, input) {
            Ok(opened) => opened,
            Err(error) => {
                // The connection ends, whether or not the peer hears why. Among the bytes of a
                // record that the socket has refused an alert is none.
                if may_send && !self.alert(established, &error).is_empty() {
                    let _ = socket.write_parts(&[&self.output], false);
                }
                return Err(fault(error));
            }
        };
        keep_record(unread, &input[opened.used..]);
        let (now, later) = input[..opened.data].split_at(opened.data.min(buffer.len()));
        buffer[..now.len()].copy_from_slice(now);
        if !later.is_empty() {
            unread.get_or_insert_default().data = later.to_vec();
        }
        let has_more = !later.is_empty() || !is_drained || established.is_ended();
        Ok(match now.len() {
            read if has_more => ReadOutcome::More(read),
            0 => ReadOutcome::WouldBlock,
            read => ReadOutcome::Drained(read),
        })
    }
}

/// Puts the beginning of a record, if one is kept, into `input`; returns its size.
fn take_record(unread: &mut Option<Box<Unread>>, input: &mut [u8]) -> usize {
    let Some(kept) = unread else {
        return 0;
    };
    let record = std::mem::take(&mut kept.record);
    input[..record.len()].copy_from_slice(&record);
    if kept.data.is_empty() {
        *unread = None;
    }
    record.len()
}

fn keep_record(unread: &mut Option<Box<Unread>>, rest: &[u8]) {
    if !rest.is_empty() {
        unread.get_or_insert_default().record = rest.to_vec();
    }
}

/// Takes the last byte off the parts.
fn split_last_byte<'p>(parts: &mut [&'p [u8]]) -> &'p [u8] {
    for part in parts.iter_mut().rev() {
        if let Some(before) = part.len().checked_sub(1) {
            let (rest, last) = part.split_at(before);
            *part = rest;
            return last;
        }
    }
    &[]
}

fn refused(error: HandshakeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn fault(error: TlsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The fault behind a handshake, if the error is one and not that of its connection.
pub(super) fn fault_of(error: &io::Error) -> Option<Fault> {
    error.get_ref()?.downcast_ref().copied()
}

/// The failure of a handshake, if the error is that of one and not of its connection.
pub(super) fn failure(error: &io::Error) -> Option<HandshakeFailure> {
    let inner = error.get_ref()?;
    // Behind its last record, what the client sent with it is opened already.
    if inner.is::<TlsError>() {
        return Some(HandshakeFailure::Protocol);
    }
    let error: &HandshakeError = inner.downcast_ref()?;
    Some(match error.fault() {
        HandshakeFault::NotTls => HandshakeFailure::NotTls,
        HandshakeFault::Incompatible => HandshakeFailure::Incompatible,
        HandshakeFault::Alert => HandshakeFailure::Alert,
        HandshakeFault::Certificate => HandshakeFailure::Certificate,
        HandshakeFault::Protocol => HandshakeFailure::Protocol,
        HandshakeFault::Internal => HandshakeFailure::Internal,
    })
}

#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod frozen_tests;
#[cfg(test)]
mod sends_tests;
#[cfg(test)]
mod tests;
