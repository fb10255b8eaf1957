//! The state of an established connection.

use crate::keys::{Keys, Place};
use crate::suite::{Secret, Suite};
use crate::{Alert, TlsError};
use zeroize::{Zeroize, Zeroizing};

/// The record layer of one established TLS 1.3 connection.
///
/// Shape: a few machine words and two secrets, of at most 160 bytes; no buffer.
/// [`open`](Self::open) takes received bytes, and [`seal`](Self::seal) makes those to send. An
/// error of either ends the connection: its peer is to be sent [`abort`](Self::abort).
///
/// ```
/// use dwell_tls::{Keys, Secrets, Session, Suite};
///
/// let mut keys = Keys::new(16);
/// let (one, two) = ([1; 32], [2; 32]);
/// let mut ours = Session::new(Suite::Aes128Gcm, Secrets::new(&one, &two))?;
/// let mut theirs = Session::new(Suite::Aes128Gcm, Secrets::new(&two, &one))?;
/// let mut wire = Vec::new();
/// assert_eq!(ours.seal(&mut keys, &[b"wait", b"ing"], &mut wire)?, 7);
/// let opened = theirs.open(&mut keys, &mut wire)?;
/// assert_eq!((&wire[..opened.data], opened.used), (&b"waiting"[..], wire.len()));
/// # Ok::<(), dwell_tls::TlsError>(())
/// ```
#[derive(Debug)]
pub struct Session {
    pub(crate) receiving: Direction,
    pub(crate) sending: Direction,
    pub(crate) suite: Suite,
    /// The head of a handshake message that has not come to its end: its type, and the length of
    /// what is missing.
    pub(crate) fragment: [u8; 4],
    /// Bytes of it that have come.
    pub(crate) fragment_bytes: u8,
    pub(crate) peer: Peer,
    /// Records in a row without data.
    pub(crate) without_data: u8,
    /// The peer has asked for an update of our keys.
    pub(crate) owes_update: bool,
    /// The peer has said that it sends no more.
    pub(crate) is_ended: bool,
    /// We have said that we send no more.
    pub(crate) is_closed: bool,
}

/// The role of the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Client,
    /// A server, which may send tickets.
    Server,
}

/// One direction of a session.
#[derive(Debug)]
pub(crate) struct Direction {
    pub(crate) secret: Secret,
    /// Records under this secret so far.
    pub(crate) sequence: u64,
    pub(crate) place: Place,
}

/// The secrets of an established connection, as the handshake has left them.
#[derive(Clone, Copy)]
pub struct Secrets<'a> {
    /// The traffic secret of what is received.
    pub receiving: &'a [u8],
    /// The traffic secret of what is sent.
    pub sending: &'a [u8],
    /// Records that were received under it.
    pub received: u64,
    /// Records that were sent under it, those of session tickets for example.
    pub sent: u64,
}

impl<'a> Secrets<'a> {
    /// Secrets that no record was protected by.
    pub fn new(receiving: &'a [u8], sending: &'a [u8]) -> Self {
        Self {
            receiving,
            sending,
            received: 0,
            sent: 0,
        }
    }
}

impl std::fmt::Debug for Secrets<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({}, {})", self.received, self.sent)
    }
}

impl Session {
    /// Goes on where a handshake has ended.
    ///
    /// # Errors
    /// [`TlsError::Keys`] if a secret has not the length that the suite wants.
    pub fn new(suite: Suite, secrets: Secrets<'_>) -> Result<Self, TlsError> {
        let direction = |bytes, sequence| {
            Ok(Direction {
                secret: Secret::new(suite, bytes)?,
                sequence,
                place: Place::default(),
            })
        };
        Ok(Self {
            receiving: direction(secrets.receiving, secrets.received)?,
            sending: direction(secrets.sending, secrets.sent)?,
            suite,
            fragment: [0; 4],
            fragment_bytes: 0,
            peer: Peer::Client,
            without_data: 0,
            owes_update: false,
            is_ended: false,
            is_closed: false,
        })
    }

    /// The cipher suite.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Returns true if the peer has said that it sends no more (`close_notify`).
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Ends the session here, so that another process goes on with it.
    ///
    /// Shape: 90 or 122 bytes, which hold the secrets and are erased when they are dropped. A nonce
    /// is the number of a record under its key, so no record may be sealed here any more: the
    /// session is taken by value, it cannot be cloned, and its keys are forgotten.
    /// [Thaw](Self::thaw) the frozen bytes at most once.
    ///
    /// ```
    /// use dwell_tls::{Keys, Secrets, Session, Suite};
    ///
    /// let mut keys = Keys::new(16);
    /// let (one, two) = ([1; 32], [2; 32]);
    /// let mut ours = Session::new(Suite::Aes128Gcm, Secrets::new(&one, &two))?;
    /// let mut theirs = Session::new(Suite::Aes128Gcm, Secrets::new(&two, &one))?;
    /// let mut wire = Vec::new();
    /// ours.seal(&mut keys, &[b"before"], &mut wire)?;
    /// let frozen = ours.freeze(&mut keys);
    /// let mut ours = Session::thaw(&frozen)?;
    /// ours.seal(&mut keys, &[b", after"], &mut wire)?;
    /// let opened = theirs.open(&mut keys, &mut wire)?;
    /// assert_eq!(&wire[..opened.data], b"before, after");
    /// # Ok::<(), dwell_tls::TlsError>(())
    /// ```
    pub fn freeze(mut self, keys: &mut Keys) -> Zeroizing<Vec<u8>> {
        self.freeze_in_place(keys)
    }

    /// Freezes where the session is, as moving it would leave a copy of its secrets there. Nothing
    /// can be sealed or opened by what is left, which has no secrets.
    pub(crate) fn freeze_in_place(&mut self, keys: &mut Keys) -> Zeroizing<Vec<u8>> {
        self.forget(keys);
        let secret_bytes = self.suite.secret_bytes();
        // All of its room at once, so that no copy of a secret is left behind.
        let mut frozen = Zeroizing::new(Vec::with_capacity(FROZEN_HEAD_BYTES + 2 * secret_bytes));
        frozen.push(FROZEN_VERSION);
        frozen.extend_from_slice(&self.suite.number().to_be_bytes());
        let flags = [
            (self.peer == Peer::Server, OF_CLIENT),
            (self.owes_update, OWES_UPDATE),
            (self.is_ended, IS_ENDED),
            (self.is_closed, IS_CLOSED),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
        frozen.push(flags.map(|(_, flag)| flag).sum());
        frozen.extend_from_slice(&[self.without_data, self.fragment_bytes]);
        frozen.extend_from_slice(&self.fragment);
        let directions = [&self.receiving, &self.sending];
        for Direction { sequence, .. } in directions {
            frozen.extend_from_slice(&sequence.to_be_bytes());
        }
        for Direction { secret, .. } in directions {
            frozen.extend_from_slice(secret.bytes(self.suite));
        }
        self.receiving.secret.zeroize();
        self.sending.secret.zeroize();
        (self.is_closed, self.is_ended) = (true, true);
        frozen
    }

    /// Goes on with a session that another process has [frozen](Self::freeze).
    ///
    /// # Errors
    /// [`TlsError::Frozen`] if the bytes are not those of a frozen session, or of one of another
    /// version of this format.
    pub fn thaw(frozen: &[u8]) -> Result<Self, TlsError> {
        Self::thawed(frozen).ok_or(TlsError::Frozen)
    }

    fn thawed(frozen: &[u8]) -> Option<Self> {
        let (head, secrets) = frozen.split_first_chunk::<FROZEN_HEAD_BYTES>()?;
        let (
            [
                FROZEN_VERSION,
                high,
                low,
                flags,
                without_data,
                fragment_bytes,
            ],
            counts,
        ) = head.split_first_chunk()?
        else {
            return None;
        };
        let (fragment, counts) = counts.split_first_chunk()?;
        let (received, sent) = counts.split_first_chunk()?;
        let suite = Suite::numbered(u16::from_be_bytes([*high, *low]))?;
        let (receiving, sending) = secrets.split_at_checked(suite.secret_bytes())?;
        let secrets = Secrets {
            receiving,
            sending,
            received: u64::from_be_bytes(*received),
            sent: u64::from_be_bytes(sent.try_into().ok()?),
        };
        let is = |flag| flags & flag != 0;
        let session = Self {
            fragment: *fragment,
            fragment_bytes: *fragment_bytes,
            peer: if is(OF_CLIENT) {
                Peer::Server
            } else {
                Peer::Client
            },
            without_data: *without_data,
            owes_update: is(OWES_UPDATE),
            is_ended: is(IS_ENDED),
            is_closed: is(IS_CLOSED),
            ..Self::new(suite, secrets).ok()?
        };
        let is_known = flags & !FLAGS == 0 && session.has_legal_counts();
        is_known.then_some(session)
    }

    /// Drops the keys of this session, which erases them. To be called before it is dropped.
    pub fn forget(&mut self, keys: &mut Keys) {
        keys.forget(&mut self.receiving);
        keys.forget(&mut self.sending);
    }

    /// Appends to `out` that nothing more is sent (`close_notify`); at most once.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    pub fn close(&mut self, keys: &mut Keys, out: &mut Vec<u8>) -> Result<(), TlsError> {
        const WARNING: u8 = 1;
        self.end(keys, [WARNING, Alert::CloseNotify as u8], out)
    }

    /// Appends the alert to `out` that an error calls for, if it does; nothing is sent after it.
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    pub fn abort(
        &mut self,
        keys: &mut Keys,
        error: &TlsError,
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        const FATAL: u8 = 2;
        match error.alert() {
            Some(alert) => self.end(keys, [FATAL, alert as u8], out),
            None => Ok(()),
        }
    }
}

impl Direction {
    /// Goes over to the next secret.
    pub(crate) fn update(&mut self, keys: &mut Keys, suite: Suite) -> Result<(), TlsError> {
        self.secret = self.secret.next(suite)?;
        self.sequence = 0;
        keys.forget(self);
        Ok(())
    }
}

/// The format of a frozen session: the version, the suite's number (2), flags, records in a row
/// without data, bytes of a fragment, the fragment (4), the records received and sent (8 each), and
/// the two secrets. Numbers are big-endian.
const FROZEN_VERSION: u8 = 1;
const FROZEN_HEAD_BYTES: usize = 26;

/// The session is that of a client.
const OF_CLIENT: u8 = 1;
const OWES_UPDATE: u8 = 2;
const IS_ENDED: u8 = 4;
const IS_CLOSED: u8 = 8;
const FLAGS: u8 = OF_CLIENT | OWES_UPDATE | IS_ENDED | IS_CLOSED;
