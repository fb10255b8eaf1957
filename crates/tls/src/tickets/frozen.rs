//! Keys of tickets on their way to another process, which reads the tickets of this one.

use super::{KEYS_MAX, KeyRing, MadeKeys, TicketKey, Tickets};
use crate::TlsError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zeroize::Zeroizing;

/// The format: the version, then for each key, the newest first, the time from which it makes
/// tickets, the tickets it has made (8 bytes each, big-endian), and the key.
const VERSION: u8 = 1;
const ENTRY_BYTES: usize = 8 + 8 + TicketKey::BYTES;

impl Tickets {
    /// The keys that were made here, with their ages; `None` where none was, or keys were given.
    ///
    /// Shape: erased when they are dropped. Both processes may make tickets with them for a while:
    /// nonces are random, and the bound of tickets for a key leaves room for twice as many.
    pub(crate) fn freeze(&self) -> Option<Zeroizing<Vec<u8>>> {
        let ring = &mut *self.lock();
        let KeyRing::Made(MadeKeys { keys, .. }) = ring else {
            return None;
        };
        if keys.is_empty() {
            return None;
        }
        // All of its room at once, so that no copy of a secret is left behind.
        let mut frozen = Zeroizing::new(Vec::with_capacity(1 + keys.len() * ENTRY_BYTES));
        frozen.push(VERSION);
        for (key, since) in keys {
            frozen.extend_from_slice(&since.to_be_bytes());
            let sealed = key.sealed.load(Ordering::Relaxed);
            frozen.extend_from_slice(&sealed.to_be_bytes());
            frozen.extend_from_slice(&key.name);
            frozen.extend_from_slice(&key.secret[..]);
        }
        Some(frozen)
    }

    /// Takes the keys that another process has frozen, behind those that were made here. If keys
    /// were given, these stay alone.
    pub(crate) fn thaw(&self, frozen: &[u8]) -> Result<(), TlsError> {
        let thawed = thawed(frozen).ok_or(TlsError::Frozen)?;
        if let KeyRing::Made(made) = &mut *self.lock() {
            made.keys.extend(thawed);
            made.keys.truncate(KEYS_MAX);
        }
        Ok(())
    }
}

fn thawed(frozen: &[u8]) -> Option<Vec<(Arc<TicketKey>, u64)>> {
    let (&VERSION, entries) = frozen.split_first()? else {
        return None;
    };
    let entries = entries.chunks(ENTRY_BYTES);
    if !(1..=KEYS_MAX).contains(&entries.len()) {
        return None;
    }
    let entry = |bytes: &[u8]| {
        let (since, bytes) = bytes.split_first_chunk()?;
        let (sealed, key) = bytes.split_first_chunk()?;
        let key = TicketKey::from_bytes(key.try_into().ok()?)?;
        key.sealed
            .store(u64::from_be_bytes(*sealed), Ordering::Relaxed);
        Some((Arc::new(key), u64::from_be_bytes(*since)))
    };
    let keys: Vec<_> = entries.map(entry).collect::<Option<_>>()?;
    let is_newest_first = keys.is_sorted_by(|(_, one), (_, next)| one >= next);
    is_newest_first.then_some(keys)
}
