//! Connections whose handshake is over.

use crate::kept::KeptClient;
use crate::{ClientNames, PeerCertificates, Session, TlsError};
use crate::{FRAGMENT_BYTES_MAX, HEADER_BYTES, Keys, Opened, RECORD_BYTES_MAX};
use rustls::Connection;
use std::io::{Read, Write};
use zeroize::Zeroizing;

/// The record layer of a connection whose handshake is over.
#[derive(Debug)]
pub enum Established {
    /// TLS 1.3: our own record layer.
    Tls13(Session),
    /// TLS 1.2: that of rustls, some kilobytes.
    Tls12(Box<Tls12>),
    /// TLS 1.3 with a client of which something is kept. Other connections are no larger for it.
    Known(Box<Known>),
}

/// A connection of TLS 1.3 with its client.
#[derive(Debug)]
pub struct Known {
    pub(crate) session: Session,
    pub(crate) shown: Shown,
}

/// The facts of a client that are kept.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) client: Option<KeptClient>,
    /// The name that it has asked for (SNI).
    pub(crate) server_name: Option<Box<str>>,
}

impl Shown {
    pub(crate) fn is_empty(&self) -> bool {
        self.client.is_none() && self.server_name.is_none()
    }

    /// Returns true if all of it can go to another process.
    fn is_freezable(&self) -> bool {
        matches!(self.client, Some(KeptClient::Names(_))) && self.server_name.is_none()
    }
}

/// A connection of TLS 1.2.
pub struct Tls12 {
    connection: Connection,
    shown: Shown,
    is_ended: bool,
    is_closed: bool,
}

impl Established {
    /// The certificates that a client has shown, if they are kept.
    pub fn peer_certificates(&self) -> Option<&PeerCertificates> {
        match self.client()? {
            KeptClient::Chain(certificates) => Some(certificates),
            KeptClient::Names(_) => None,
        }
    }

    /// The names of a client, or that it has shown no certificate; `None` if they are not kept.
    pub fn client_names(&self) -> Option<&ClientNames> {
        match self.client()? {
            KeptClient::Chain(_) => None,
            KeptClient::Names(names) => Some(names),
        }
    }

    /// The name that a client has asked for, if it is kept.
    ///
    /// Source: RFC 6066 section 3.
    pub fn server_name(&self) -> Option<&str> {
        self.shown()?.server_name.as_deref()
    }

    fn client(&self) -> Option<&KeptClient> {
        self.shown()?.client.as_ref()
    }

    fn shown(&self) -> Option<&Shown> {
        match self {
            Self::Tls13(_) => None,
            Self::Tls12(session) => Some(&session.shown),
            Self::Known(known) => Some(&known.shown),
        }
    }

    /// Goes on with a session of TLS 1.3 that another process has frozen, and with the names of
    /// its client, if they came along.
    pub fn thawed(session: Session, names: Option<ClientNames>) -> Self {
        match names {
            None => Self::Tls13(session),
            Some(names) => Self::Known(Box::new(Known {
                session,
                shown: Shown {
                    client: Some(KeptClient::Names(names)),
                    server_name: None,
                },
            })),
        }
    }

    /// Opens the records at the front of `input` that are whole, as [`Session::open`] does.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open(&mut self, keys: &mut Keys, input: &mut [u8]) -> Result<Opened, TlsError> {
        match self {
            Self::Tls13(session) => session.open(keys, input),
            Self::Known(known) => known.session.open(keys, input),
            Self::Tls12(session) => session.open(input),
        }
    }

    /// Appends records with the data of all `parts` to `out`, as [`Session::seal`] does.
    ///
    /// # Errors
    /// As [`Session::seal`].
    pub fn seal(
        &mut self,
        keys: &mut Keys,
        parts: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<usize, TlsError> {
        match self {
            Self::Tls13(session) => session.seal(keys, parts, out),
            Self::Known(known) => known.session.seal(keys, parts, out),
            Self::Tls12(session) => session.seal(parts, out),
        }
    }

    /// Returns true if the peer has said that it sends no more.
    pub fn is_ended(&self) -> bool {
        match self {
            Self::Tls13(session) => session.is_ended(),
            Self::Known(known) => known.session.is_ended(),
            Self::Tls12(session) => session.is_ended,
        }
    }

    /// Returns true if something is to be sent that is no data.
    pub fn owes(&self) -> bool {
        match self {
            Self::Tls13(session) => session.owes(),
            Self::Known(known) => known.session.owes(),
            Self::Tls12(session) => session.connection.wants_write(),
        }
    }

    /// Appends to `out` what is [owed](Self::owes).
    ///
    /// # Errors
    /// As [`Session::seal`].
    pub fn answer(&mut self, keys: &mut Keys, out: &mut Vec<u8>) -> Result<(), TlsError> {
        match self {
            Self::Tls13(session) => session.answer(keys, out),
            Self::Known(known) => known.session.answer(keys, out),
            Self::Tls12(session) => session.transmit(out),
        }
    }

    /// Appends to `out` that nothing more is sent; at most once.
    ///
    /// # Errors
    /// As [`Session::seal`].
    pub fn close(&mut self, keys: &mut Keys, out: &mut Vec<u8>) -> Result<(), TlsError> {
        match self {
            Self::Tls13(session) => session.close(keys, out),
            Self::Known(known) => known.session.close(keys, out),
            Self::Tls12(session) => session.close(out),
        }
    }

    /// Appends the alert that an error calls for to `out`.
    ///
    /// # Errors
    /// As [`Session::seal`].
    pub fn abort(
        &mut self,
        keys: &mut Keys,
        error: &TlsError,
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        match self {
            Self::Tls13(session) => session.abort(keys, error, out),
            Self::Known(known) => known.session.abort(keys, error, out),
            // rustls has its alert among what it sends.
            Self::Tls12(session) => session.transmit(out),
        }
    }

    /// The number of the cipher suite: from 0x1301 to 0x1303 for TLS 1.3.
    ///
    /// Source: RFC 8446 appendix B.4, RFC 5289 section 3.
    pub fn suite_number(&self) -> u16 {
        match self {
            Self::Tls13(session) => session.suite().number(),
            Self::Known(known) => known.session.suite().number(),
            Self::Tls12(session) => session.suite_number(),
        }
    }

    /// Returns true if another process can go on with it: it is of TLS 1.3, whose sessions can be
    /// [frozen](Session::freeze), not closed, and keeps nothing of its client but names and its
    /// own certificate. The rest would stay here.
    pub fn is_freezable(&self) -> bool {
        match self {
            Self::Tls13(session) => !session.is_closed,
            Self::Known(known) => known.shown.is_freezable() && !known.session.is_closed,
            Self::Tls12(_) => false,
        }
    }

    /// Freezes the session, as [`Session::freeze`] does; `None` unless it
    /// [is freezable](Self::is_freezable).
    ///
    /// Shape: the secrets are erased here, and nothing can be sealed or opened any more. The names
    /// of a client stay, to be sent beside it.
    pub fn freeze(&mut self, keys: &mut Keys) -> Option<Zeroizing<Vec<u8>>> {
        if !self.is_freezable() {
            return None;
        }
        match self {
            Self::Tls13(session) => Some(session.freeze_in_place(keys)),
            Self::Known(known) => Some(known.session.freeze_in_place(keys)),
            Self::Tls12(_) => None,
        }
    }

    /// Drops the keys, as [`Session::forget`] does.
    pub fn forget(&mut self, keys: &mut Keys) {
        match self {
            Self::Tls13(session) => session.forget(keys),
            Self::Known(known) => known.session.forget(keys),
            Self::Tls12(_) => {}
        }
    }
}

impl Tls12 {
    pub(crate) fn new(connection: Connection, shown: Shown) -> Self {
        Self {
            connection,
            shown,
            is_ended: false,
            is_closed: false,
        }
    }

    fn suite_number(&self) -> u16 {
        let suite = self.connection.negotiated_cipher_suite();
        suite.map_or(0, |suite| suite.suite().into())
    }

    fn open(&mut self, input: &mut [u8]) -> Result<Opened, TlsError> {
        let (mut used, mut data) = (0, 0);
        while !self.is_ended {
            let [_, _, _, high, low, ..] = input[used..] else {
                return Ok(Opened { used, data });
            };
            let length = usize::from(u16::from_be_bytes([high, low]));
            // TLS 1.2 allows for longer records than 1.3; no suite of ours needs that.
            if length > RECORD_BYTES_MAX - HEADER_BYTES {
                return Err(TlsError::RecordTooLong(length));
            }
            let end = used + HEADER_BYTES + length;
            if end > input.len() {
                return Ok(Opened { used, data });
            }
            self.take(&input[used..end])?;
            // A record is longer than its data.
            while let Ok(read @ 1..) = self.connection.reader().read(&mut input[data..end]) {
                data += read;
            }
            used = end;
        }
        let used = input.len();
        Ok(Opened { used, data })
    }

    fn take(&mut self, mut record: &[u8]) -> Result<(), TlsError> {
        while !record.is_empty() {
            if self.connection.read_tls(&mut record).is_err() {
                return Err(TlsError::BadRecord);
            }
            let state = self
                .connection
                .process_new_packets()
                .map_err(|error| fault(&error))?;
            self.is_ended = state.peer_has_closed();
        }
        Ok(())
    }

    fn seal(&mut self, parts: &[&[u8]], out: &mut Vec<u8>) -> Result<usize, TlsError> {
        if self.is_closed {
            return Ok(0);
        }
        let mut total = 0;
        for piece in parts
            .iter()
            .flat_map(|part| part.chunks(FRAGMENT_BYTES_MAX))
        {
            let written = self.connection.writer().write_all(piece);
            written.map_err(|_| TlsError::Keys)?;
            total += piece.len();
            self.transmit(out)?;
        }
        Ok(total)
    }

    fn close(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        if !self.is_closed {
            self.is_closed = true;
            self.connection.send_close_notify();
        }
        self.transmit(out)
    }

    fn transmit(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        while self.connection.wants_write() {
            self.connection.write_tls(out).map_err(|_| TlsError::Keys)?;
        }
        Ok(())
    }
}

/// The fault that rustls has found, which sends the alert itself.
fn fault(error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::AlertReceived(alert) => TlsError::PeerAlert((*alert).into()),
        rustls::Error::DecryptError => TlsError::BadRecord,
        _ => TlsError::Protocol,
    }
}

impl std::fmt::Debug for Tls12 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls12")
    }
}
