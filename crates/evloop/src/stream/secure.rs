//! Streams under TLS, and those that another connection carries.

use super::beside::{Beside, Place};
use super::queue::Queue;
use super::socket::Socket;
use super::tls::{Acceptor, ClientNames, Connector, PeerCertificates, Tls, failure};
use super::{Agreed, Flushed, HandshakeFailure, ReadOutcome, Stream, TlsFacts};
use crate::carried::socket::CarriedSocket;
use std::io;

/// The state of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handshaking {
    /// The stream can be read and written; also one without TLS.
    Done,
    /// It is done by this call.
    Agreed(Agreed),
    /// It goes on when the socket is ready.
    Pending,
    /// The client does not speak TLS. The stream is one without TLS from now on; what the client
    /// has sent so far is gone. (A server that does not is an error.)
    Plain,
}

impl Stream {
    pub(crate) fn from_carried(socket: CarriedSocket) -> Self {
        Self {
            socket: Socket::Carried(socket),
            beside: Beside::default(),
        }
    }

    /// Returns true if it is [carried](crate::Carrier) by another connection, and has no descriptor
    /// that could be given away.
    pub fn is_carried(&self) -> bool {
        matches!(self.socket, Socket::Carried(_))
    }

    /// Bytes in memory that wait for the socket to take them, of which the peer can have none. The
    /// records that TLS has sealed, one or two, are left out: their size differs from that of their
    /// content.
    pub fn unsealed_bytes(&self) -> usize {
        self.beside.queue().map_or(0, Queue::unsealed_bytes)
    }

    /// Puts TLS between this stream and its socket, as the server of a handshake that the client
    /// begins.
    ///
    /// Shape: to be called before anything is read or written. Reads do the handshake; see
    /// [`handshake`](Self::handshake). It takes some tens of kilobytes from the client's first
    /// record on, see [`handshakes_max`](Self::handshakes_max). Afterwards an idle stream of TLS
    /// 1.3 is 220 bytes larger, and one of TLS 1.2 eight kilobytes.
    pub fn secure(&mut self, acceptor: &Acceptor) {
        self.beside.begin_tls(|| Tls::new(acceptor));
    }

    /// Returns how many handshakes are to be in progress at once in a loop, if one is on this
    /// stream whose client has sent its first record. Do not count those whose client has sent
    /// nothing: they hold no more than the stream does.
    pub fn handshakes_max(&self) -> Option<usize> {
        self.beside.handshakes_max()
    }

    /// Puts TLS between this stream and its socket, as the client of a handshake with the server of
    /// the connector.
    ///
    /// Shape: to be called before anything is read or written, also while the stream connects. The
    /// handshake begins with the first call of [`handshake`](Self::handshake) after that, and the
    /// stream is written to when it is done.
    ///
    /// # Errors
    /// When the system's cryptography fails.
    pub fn secure_client(&mut self, connector: &Connector) -> io::Result<()> {
        let tls = Tls::begin_client(connector)?;
        self.beside.begin_tls(|| tls);
        Ok(())
    }

    /// Returns true if the stream is under TLS and the peer has not told that it sends no more
    /// (`close_notify`). An end of the stream is not one that the peer has made then.
    ///
    /// Source: RFC 9112 section 9.8.
    pub fn is_cut_off(&self) -> bool {
        self.beside.is_cut_off()
    }

    /// Returns true if TLS is between the stream and its socket, whose descriptor is of no use to
    /// others then.
    pub fn is_secure(&self) -> bool {
        self.beside.has_tls()
    }

    /// Returns true if the stream can be [frozen](Self::freeze) once its output is out: it is under
    /// TLS 1.3 whose handshake is over, and neither certificates of its peer nor an address that
    /// was [set](Self::set_peer_address) would stay here. Streams of TLS 1.2 cannot.
    pub fn can_freeze(&self) -> bool {
        self.beside.can_freeze()
    }

    /// Returns the number of the cipher suite, if the stream is under TLS and its handshake is
    /// over: from 0x1301 to 0x1303 for TLS 1.3, another one for TLS 1.2.
    pub fn suite_number(&self) -> Option<u16> {
        self.beside.suite_number()
    }

    /// Returns the facts of a handshake that is over; `None` without TLS. A stream that was
    /// [thawed](Self::thaw) has the suite alone.
    pub fn tls_facts(&self) -> Option<TlsFacts<'_>> {
        self.beside.facts()
    }

    /// Returns the certificates that the client has shown, if the stream is under TLS and its
    /// handshake is over. A stream without any is no larger for it.
    pub fn peer_certificates(&self) -> Option<&PeerCertificates> {
        self.beside.peer_certificates()
    }

    /// Returns the names of the client, or that it has shown no certificate, if the stream is under
    /// TLS, its handshake is over, and they are kept.
    pub fn client_names(&self) -> Option<&ClientNames> {
        self.beside.client_names()
    }

    /// Returns true if its handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.beside.is_handshaking()
    }

    /// The failure of a handshake with a server that is given up now; `None` where none has begun,
    /// as the stream is not connected.
    pub fn handshake_given_up(&self) -> Option<HandshakeFailure> {
        let has_begun = self.is_handshaking() && matches!(self.connect_error(), Ok(None));
        has_begun.then_some(HandshakeFailure::Late)
    }

    /// The failure of a handshake whose connection has failed by an error of
    /// [`connect_error`](Self::connect_error); `None` where it was not connected before.
    pub fn handshake_broken_by(&self, error: &io::Error) -> Option<HandshakeFailure> {
        // Only what was connected is reset.
        let is_reset = self.is_handshaking() && error.kind() == io::ErrorKind::ConnectionReset;
        is_reset.then_some(HandshakeFailure::Reset)
    }

    /// Goes on with the handshake, if one is in progress.
    ///
    /// Shape: to be called on every readiness while it is [`Handshaking::Pending`]. Once it is
    /// done, data may be here already, for which no readiness comes: the stream is to be read.
    ///
    /// # Errors
    /// When the handshake fails, of which the client is told, or the connection does.
    pub fn handshake(&mut self) -> io::Result<Handshaking> {
        let Some((tls, _)) = self.beside.tls() else {
            return Ok(Handshaking::Done);
        };
        if !tls.is_handshaking() {
            return Ok(Handshaking::Done);
        }
        if self.flush()? != Flushed::All {
            return Ok(Handshaking::Pending);
        }
        let Some((tls, place)) = self.beside.tls() else {
            return Ok(Handshaking::Done);
        };
        let socket = &self.socket;
        match tls.shake(socket, |records| send_or_keep(socket, place, records)) {
            Ok(Some(agreed)) => Ok(Handshaking::Agreed(agreed)),
            Ok(None) => Ok(Handshaking::Pending),
            Err(error) if HandshakeFailure::of(&error) == HandshakeFailure::NotTls => {
                self.beside.drop_tls();
                Ok(Handshaking::Plain)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns true if input is to be read that the socket does not have any more, so that no
    /// readiness reports it: data that TLS has opened, or the peer's end.
    pub fn holds_input(&self) -> bool {
        self.beside.holds_input()
    }

    /// Returns true if the beginning of a record of TLS has come, of which nothing can be read yet.
    ///
    /// Shape: it is kept here, up to 16 KiB, so a peer is to be given a time for the rest.
    pub fn has_begun_record(&self) -> bool {
        self.beside.has_begun_record()
    }

    /// Input that TLS keeps until it can be read: the beginning of a record, and what was opened
    /// and found no room. Units: bytes.
    pub fn kept_input_bytes(&self) -> usize {
        self.beside.kept_input_bytes()
    }

    /// Tells the peer of a stream under TLS that nothing more is sent (`close_notify`), if all
    /// output is out. Without TLS it does nothing.
    pub fn close_notify(&mut self) {
        if let Some((tls, None)) = self.beside.tls() {
            tls.close(&self.socket);
        }
    }

    /// Erases the keys that this thread has derived for the stream, before another thread
    /// [freezes](Self::freeze) or closes it. A thread that goes on with it derives them again.
    ///
    /// ```
    /// use dwell_evloop::Stream;
    ///
    /// let (ours, _theirs) = mio::net::UnixStream::pair()?;
    /// let mut stream = Stream::from_unix(ours);
    /// stream.forget_keys(); // Without TLS there are none.
    /// std::thread::spawn(move || stream.close_notify()).join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "tls")]
    pub fn forget_keys(&mut self) {
        if let Some((tls, _)) = self.beside.tls() {
            tls.forget_keys();
        }
    }

    /// Ends TLS here, so that another process goes on with it on the same socket; `None` where that
    /// cannot be: unless it [can be frozen](Self::can_freeze), and while output waits for the
    /// socket. The `part` of [what is kept of the client](Self::client_names) goes along: the
    /// other process has to verify clients by the same authorities.
    ///
    /// Shape: some hundred bytes with the secrets, which are erased when they are dropped, and
    /// behind them the input that has come and was not read. From this call on nothing can be read
    /// or sealed here, whatever becomes of the bytes: a record that this process would seal might
    /// have the nonce of one that the other process seals.
    ///
    /// ```
    /// use dwell_evloop::{KeptOfClient, Stream};
    ///
    /// let (ours, _theirs) = mio::net::UnixStream::pair()?;
    /// let mut stream = Stream::from_unix(ours);
    /// assert!(stream.freeze(KeptOfClient::Nothing).is_none(), "it has no TLS");
    /// assert!(stream.thaw(b"nonsense").is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "tls")]
    pub fn freeze(&mut self, part: crate::KeptOfClient) -> Option<zeroize::Zeroizing<Vec<u8>>> {
        if !self.is_flushed() || !self.can_freeze() {
            return None;
        }
        let (tls, _) = self.beside.tls()?;
        tls.freeze(part)
    }

    /// Goes on with the TLS that another process has [frozen](Self::freeze), on its socket.
    ///
    /// Shape: to be called once, before anything is read or written. Input may be
    /// [here](Self::holds_input) already.
    ///
    /// # Errors
    /// `InvalidData` if the bytes are not those of a frozen stream, or of another version;
    /// `InvalidInput` for a stream that has TLS.
    #[cfg(feature = "tls")]
    pub fn thaw(&mut self, frozen: &[u8]) -> io::Result<()> {
        if self.is_secure() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let tls = Tls::thaw(frozen).ok_or(io::ErrorKind::InvalidData)?;
        self.beside.begin_tls(|| tls);
        Ok(())
    }

    /// Reads once what nothing wants: below TLS, if that has failed.
    pub(crate) fn discard(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        if self.beside.has_failed_tls() {
            return self.socket.read_some(buffer);
        }
        self.read(buffer)
    }

    /// Reads through TLS.
    pub(super) fn read_sealed(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        match self.handshake()? {
            Handshaking::Done | Handshaking::Agreed(_) => {}
            Handshaking::Pending => return Ok(ReadOutcome::WouldBlock),
            Handshaking::Plain => return Err(io::ErrorKind::InvalidData.into()),
        }
        let Some((tls, place)) = self.beside.tls() else {
            return Ok(ReadOutcome::WouldBlock);
        };
        loop {
            let outcome = tls.read(&self.socket, place.is_none(), buffer)?;
            // What waits for the socket is sealed behind the answer, when its turn comes.
            if place.is_none() && tls.owes() {
                let socket = &self.socket;
                tls.seal(&[], true, |records| send_or_keep(socket, place, records))?;
            }
            // Records without data came, of which there is a bounded number in a row.
            if outcome != ReadOutcome::More(0) || buffer.is_empty() {
                return Ok(outcome);
            }
        }
    }

    /// From now on the last byte of a write of more than 16 KiB, or of what waits for the socket,
    /// is sealed in a record of its own. Without TLS it does nothing.
    ///
    /// Shape: for servers that wait for their socket while a part of a record lies in their TLS,
    /// as memcached 1.6.18 does with what its buffer had no room for. They do not wait while a
    /// record is in the socket, and one byte is always read whole.
    pub fn end_writes_alone(&mut self) {
        if let Some((tls, _)) = self.beside.tls() {
            tls.end_alone();
        }
    }

    /// Seals and writes what need not wait behind the queue; returns how much of the two parts that
    /// is. Records that the socket has refused begin the queue.
    ///
    /// Shape: an error says that nothing of the parts is out. Behind bytes that are out a failure
    /// is that of the next flush, as without TLS.
    pub(super) fn seal_through(&mut self, parts: [&[u8]; 2]) -> io::Result<usize> {
        let [head, body] = parts;
        let total = head.len() + body.len();
        let mut done = 0;
        while done < total {
            let Some((tls, place @ None)) = self.beside.tls() else {
                break;
            };
            let rest = [
                &head[done.min(head.len())..],
                &body[done.saturating_sub(head.len())..],
            ];
            let socket = &self.socket;
            let begins = done == 0;
            let sealed = tls.seal(&rest, begins, |records| {
                match send_or_keep(socket, place, records) {
                    Err(_) if !begins => keep(place, records),
                    sent => sent?,
                }
                Ok(())
            })?;
            #[cfg(feature = "sim")]
            if place.is_some() && crate::sim::Planted::SealAgain.is_in() {
                break;
            }
            done += sealed;
        }
        Ok(done)
    }
}

impl HandshakeFailure {
    /// The reason for an error of [`Stream::handshake`](crate::Stream::handshake).
    ///
    /// ```
    /// use dwell_evloop::HandshakeFailure;
    /// use std::io::{Error, ErrorKind};
    ///
    /// let error = Error::from(ErrorKind::UnexpectedEof);
    /// assert_eq!(HandshakeFailure::of(&error), HandshakeFailure::Closed);
    /// ```
    pub fn of(error: &io::Error) -> Self {
        match failure(error) {
            Some(failure) => failure,
            None if error.kind() == io::ErrorKind::UnexpectedEof => Self::Closed,
            None => Self::Reset,
        }
    }
}

/// Writes records, and keeps what the socket refuses of them.
fn send_or_keep(socket: &Socket, place: &mut Place, records: &[u8]) -> io::Result<()> {
    let written = match place {
        None => socket.write_parts(&[records], false)?,
        Some(_) => 0,
    };
    if written < records.len() {
        keep(place, &records[written..]);
    }
    Ok(())
}

/// Keeps records for when the socket takes them.
fn keep(place: &mut Place, records: &[u8]) {
    place.get_or_insert_default().push_sealed(records.into());
}
