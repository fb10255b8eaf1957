//! Tickets that hold the state of a session, for clients that come again.
//!
//! A ticket is the name of its key (16 bytes), a nonce (12), and by AES-256-GCM the time of its
//! making (8) with the state of the session; its tag (16) stands for the name too. The tag alone
//! decides about a ticket, in constant time: the name is sent in the clear and no secret.

mod frozen;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{constant_time, rand};
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zeroize::{Zeroize, Zeroizing};

/// A key of session tickets.
///
/// Shape: a name of 16 bytes, which its tickets show, and a secret of 32. The secret is erased when
/// the last ticket that is made or read under it is done.
pub struct TicketKey {
    name: [u8; NAME_BYTES],
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    aead: RandomizedNonceKey,
    /// Tickets made under it.
    sealed: AtomicU64,
}

impl TicketKey {
    /// Bytes of a key: its name, then its secret.
    pub const BYTES: usize = NAME_BYTES + SECRET_BYTES;

    /// Takes the bytes of a key; `None` where the cryptography refuses them.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (name, secret) = bytes.split_at(NAME_BYTES);
        let aead = RandomizedNonceKey::new(&AES_256_GCM, secret).ok()?;
        let mut key = Self {
            name: [0; NAME_BYTES],
            secret: Zeroizing::new([0; SECRET_BYTES]),
            aead,
            sealed: AtomicU64::new(0),
        };
        key.name.copy_from_slice(name);
        key.secret.copy_from_slice(secret);
        Some(key)
    }

    /// Makes a key of random bytes.
    fn random() -> Option<Self> {
        let mut bytes = Zeroizing::new([0; Self::BYTES]);
        rand::fill(&mut bytes[..]).ok()?;
        Self::from_bytes(&bytes)
    }

    /// The name, which tickets show to everybody.
    pub fn name(&self) -> &[u8; NAME_BYTES] {
        &self.name
    }

    fn is(&self, other: &Self) -> bool {
        let is_same = constant_time::verify_slices_are_equal(&self.secret[..], &other.secret[..]);
        self.name == other.name && is_same.is_ok()
    }

    fn seal(&self, state: &[u8], now: u64) -> Option<Vec<u8>> {
        if HEAD_BYTES + TIME_BYTES + state.len() + TAG_BYTES > TICKET_BYTES_MAX {
            return None;
        }
        // Beyond the bound, two of the random nonces might be the same one.
        if self.sealed.fetch_add(1, Ordering::Relaxed) >= TICKETS_PER_KEY_MAX {
            self.sealed.store(TICKETS_PER_KEY_MAX, Ordering::Relaxed);
            return None;
        }
        // All of its room at once, so that no copy of the state is left behind.
        let mut sealed = Vec::with_capacity(TIME_BYTES + state.len() + TAG_BYTES);
        sealed.extend_from_slice(&now.to_be_bytes());
        sealed.extend_from_slice(state);
        let of_name = Aad::from(&self.name);
        let nonce = self.aead.seal_in_place_append_tag(of_name, &mut sealed);
        let Ok(nonce) = nonce else {
            sealed.zeroize();
            return None;
        };
        Some([&self.name[..], nonce.as_ref(), &sealed].concat())
    }

    /// Opens a ticket, whose name is this key's; returns its state unless its time is over.
    fn open(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        let (nonce, sealed) = ticket.get(NAME_BYTES..)?.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let of_name = Aad::from(&self.name);
        let opened = self.aead.open_in_place(nonce, of_name, &mut sealed).ok()?;
        let (made, state) = opened.split_first_chunk()?;
        let made = u64::from_be_bytes(*made);
        let is_alive = now.saturating_sub(made) < u64::from(LIFETIME)
            && made.saturating_sub(now) <= CLOCKS_APART_MAX;
        is_alive.then(|| state.to_vec())
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey")
    }
}

/// Makes and reads the tickets of all handshakes of an acceptor.
#[derive(Debug)]
pub(crate) struct Tickets {
    clock: Arc<dyn TimeProvider>,
    keys: Mutex<KeyRing>,
}

/// The keys, of which the first one makes tickets.
#[derive(Debug)]
enum KeyRing {
    /// Given ones, which stay until others are given.
    Given(Vec<Arc<TicketKey>>),
    /// Made ones, the newest first.
    Made(MadeKeys),
}

/// Keys that are made when they are wanted, and that go by age.
#[derive(Debug, Default)]
struct MadeKeys {
    /// Each with the time, in seconds, from which it makes tickets.
    keys: Vec<(Arc<TicketKey>, u64)>,
    /// Keys for the time after, the next one last.
    ahead: Vec<TicketKey>,
}

impl Tickets {
    /// Has no key yet: the first one is made for the first ticket.
    pub(crate) fn new(clock: Arc<dyn TimeProvider>) -> Self {
        let keys = Mutex::new(KeyRing::Made(MadeKeys::default()));
        Self { clock, keys }
    }

    /// Makes keys for a day, so that processes that are forked later have the same ones.
    pub(crate) fn make_ahead(&self) {
        if let (KeyRing::Made(made), Some(now)) = (&mut *self.lock(), self.now()) {
            made.newest(now);
            while made.ahead.len() < KEYS_AHEAD
                && let Some(key) = TicketKey::random()
            {
                made.ahead.push(key);
            }
        }
    }

    /// Takes these keys from now on, of which the first one makes tickets; if `keys` is empty, keys
    /// are made again. A key that was here before keeps its count of tickets.
    pub(crate) fn give(&self, keys: Vec<TicketKey>) {
        let ring = &mut *self.lock();
        if keys.is_empty() {
            if let KeyRing::Given(_) = ring {
                *ring = KeyRing::Made(MadeKeys::default());
            }
            return;
        }
        let before = match ring {
            KeyRing::Given(keys) => std::mem::take(keys),
            KeyRing::Made(_) => Vec::new(),
        };
        let known = |key: &TicketKey| before.iter().find(|known| known.is(key)).cloned();
        let keys = keys.into_iter();
        let keys = keys.map(|key| known(&key).unwrap_or_else(|| Arc::new(key)));
        *ring = KeyRing::Given(keys.collect());
    }

    fn now(&self) -> Option<u64> {
        self.clock.current_time().map(|now| now.as_secs())
    }

    fn lock(&self) -> MutexGuard<'_, KeyRing> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyRing {
    fn newest(&mut self, now: u64) -> Option<Arc<TicketKey>> {
        match self {
            Self::Given(keys) => keys.first().cloned(),
            Self::Made(made) => made.newest(now),
        }
    }

    fn named(&mut self, name: &[u8], now: u64) -> Option<Arc<TicketKey>> {
        match self {
            Self::Given(keys) => keys.iter().find(|key| key.name == name).cloned(),
            Self::Made(made) => {
                made.advance(now);
                let mut keys = made.keys.iter().map(|(key, _)| key);
                keys.find(|key| key.name == name).cloned()
            }
        }
    }
}

impl MadeKeys {
    /// The key that makes tickets now, made if it is missing.
    fn newest(&mut self, now: u64) -> Option<Arc<TicketKey>> {
        self.advance(now);
        let is_over = |(key, since): &(Arc<TicketKey>, u64)| {
            let sealed = key.sealed.load(Ordering::Relaxed);
            now - since >= ROTATION || sealed >= TICKETS_PER_KEY_MAX
        };
        if self.keys.first().is_none_or(is_over) {
            self.push(TicketKey::random()?, now);
        }
        self.keys.first().map(|(key, _)| Arc::clone(key))
    }

    fn push(&mut self, key: TicketKey, since: u64) {
        self.keys.insert(0, (Arc::new(key), since));
        self.keys.truncate(KEYS_MAX);
    }

    /// Puts the keys to use that were made ahead for now. Drops those that began a lifetime ago,
    /// and those of a time that the clock, which was set back, has not reached.
    fn advance(&mut self, now: u64) {
        while let Some((_, since)) = self.keys.first()
            && now.saturating_sub(*since) >= ROTATION
            && let Some(next) = self.ahead.pop()
        {
            let since = since + ROTATION;
            self.push(next, since);
        }
        let is_of_now = |since: u64| since <= now && now - since < u64::from(LIFETIME);
        self.keys.retain(|(_, since)| is_of_now(*since));
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME
    }

    fn encrypt(&self, state: &[u8]) -> Option<Vec<u8>> {
        let now = self.now()?;
        let key = self.lock().newest(now)?;
        key.seal(state, now)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > TICKET_BYTES_MAX {
            return None;
        }
        let name = ticket.get(..NAME_BYTES)?;
        let now = self.now()?;
        let key = self.lock().named(name, now)?;
        key.open(ticket, now)
    }
}

const NAME_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
const TIME_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// Bytes of a ticket before what is sealed.
const HEAD_BYTES: usize = NAME_BYTES + NONCE_LEN;
/// Bytes of a ticket, at most. The state of a session is some hundred.
const TICKET_BYTES_MAX: usize = 8192;

/// Seconds that a ticket lives.
const LIFETIME: u32 = 12 * 60 * 60;
/// Seconds after which another key makes the tickets. When a key goes, two others have followed it.
const ROTATION: u64 = 4 * 60 * 60;
const KEYS_MAX: usize = 3;
/// Keys that are made ahead at once, for a day with the first one.
const KEYS_AHEAD: usize = 5;

/// Seconds that the clock of another machine with the same keys may be ahead.
const CLOCKS_APART_MAX: u64 = 300;

/// Tickets of one key. With twice as many the chance that two of the random nonces of 96 bits are
/// the same would be 2^-35 (NIST SP 800-38D section 8.3 allows 2^-32).
const TICKETS_PER_KEY_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests;
