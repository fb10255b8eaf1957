//! Bytes of streams that have left HTTP, or are about to, which their owners have not read.

use crate::budget::{Budget, Charge};
use dwell_evloop::Token;
use std::collections::BTreeMap;
use std::time::Instant;

/// The streams that have such bytes, with their parts in what all connections keep, and the times
/// since which their owners have read nothing.
///
/// Shape: an owner mostly reads what has come in the same turn, so there are few.
#[derive(Debug, Default)]
pub(super) struct Unread(BTreeMap<u64, (Charge, Instant)>);

impl Unread {
    /// Charges for bytes that have come, as far as `budget` and its bound allow; false where there
    /// is no room.
    pub(super) fn charge_for(
        &mut self,
        stream: Token,
        bytes: usize,
        (budget, bytes_max): (&Budget, usize),
        now: Instant,
    ) -> bool {
        if bytes == 0 {
            return true;
        }
        if let Some((charge, _)) = self.0.get_mut(&stream.to_bits()) {
            return charge.grow(bytes, bytes_max);
        }
        let charge = budget.charge(bytes, bytes_max);
        let is_charged = charge.is_some();
        self.0
            .extend(charge.map(|charge| (stream.to_bits(), (charge, now))));
        is_charged
    }

    /// The owner has read so many bytes; what is left counts as new.
    pub(super) fn was_read(&mut self, stream: Token, bytes: usize, now: Instant) {
        let Some((charge, since)) = self.0.get_mut(&stream.to_bits()).filter(|_| bytes > 0) else {
            return;
        };
        charge.shrink(bytes);
        *since = now;
        if charge.bytes() == 0 {
            self.remove(stream);
        }
    }

    /// The stream is gone, or its bytes are.
    pub(super) fn remove(&mut self, stream: Token) {
        self.0.remove(&stream.to_bits());
    }

    /// The streams, and the times since which nothing of theirs was read.
    pub(super) fn since(&self) -> impl Iterator<Item = (Instant, Token)> + '_ {
        let all = self.0.iter();
        all.map(|(token, (_, since))| (*since, Token::from_bits(*token)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn bytes_count_until_they_are_read_or_their_stream_is_gone() {
        let (budget, mut unread) = (Budget::default(), Unread::default());
        let [first, second] = [0, 1].map(|index| Token::new(3, 0, index));
        let (now, bound) = (Instant::now(), (&budget, 100));
        let later = now + Duration::from_secs(1);
        assert!(unread.charge_for(first, 0, bound, now));
        assert_eq!(unread.since().count(), 0);
        assert!(unread.charge_for(first, 60, bound, now));
        assert!(unread.charge_for(second, 30, bound, later));
        assert!(!unread.charge_for(first, 11, bound, later));
        assert!(unread.charge_for(first, 10, bound, later));
        assert_eq!(budget.bytes(), 100);
        let since = |unread: &Unread| {
            let mut all: Vec<_> = unread.since().collect();
            all.sort_unstable_by_key(|(_, token)| token.index());
            all
        };
        assert_eq!(since(&unread), [(now, first), (later, second)]);
        unread.was_read(first, 0, later);
        assert_eq!(since(&unread)[0], (now, first));
        unread.was_read(first, 20, later);
        assert_eq!((since(&unread)[0], budget.bytes()), ((later, first), 80));
        unread.was_read(first, 50, later);
        assert_eq!(since(&unread), [(later, second)]);
        unread.remove(second);
        assert_eq!((budget.bytes(), unread.since().count()), (0, 0));
    }
}
