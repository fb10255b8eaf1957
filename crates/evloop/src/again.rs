//! What is to be delivered once more in the next turn.

use crate::{Readiness, Token};
use std::ops::Range;

/// Deliveries that were put back, at most one for a token.
///
/// Without the bound a peer that never stops sending would be put back once for every event of
/// its socket, and take a larger share of each turn than the last.
#[derive(Debug, Default)]
pub(crate) struct Again {
    queue: Vec<(Token, Readiness)>,
    /// By kind and index: where in `queue` a token may be. An entry of an earlier turn points
    /// anywhere, which the token found there tells.
    places: Vec<Vec<u32>>,
    /// Where in `queue` those stand that were put back before and are so once more.
    repeated: Range<usize>,
}

impl Again {
    /// What was put back in the turn before is delivered from here on.
    pub(crate) fn begin_repeating(&mut self) {
        self.repeated = self.queue.len()..self.queue.len();
    }

    /// It has been delivered.
    pub(crate) fn end_repeating(&mut self) {
        self.repeated.end = self.queue.len();
    }

    /// Puts `readiness` of `token` back, together with what was put back before.
    pub(crate) fn push(&mut self, token: Token, readiness: Readiness) {
        let (kind, index) = (usize::from(token.kind()), token.index() as usize);
        if self.places.len() <= kind {
            self.places.resize_with(kind + 1, Vec::new);
        }
        let places = &mut self.places[kind];
        if places.len() <= index {
            places.resize(index + 1, 0);
        }
        match self.queue.get_mut(places[index] as usize) {
            Some((queued, merged)) if *queued == token => *merged = merged.and(readiness),
            _ => {
                places[index] = self.queue.len() as u32;
                self.queue.push((token, readiness));
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Exchanges the queue for `empty`, whose memory is used again. Those that have waited for
    /// longest come first.
    pub(crate) fn swap(&mut self, empty: &mut Vec<(Token, Readiness)>) {
        let Range { start, end } = std::mem::take(&mut self.repeated);
        self.queue[..end].rotate_left(start);
        std::mem::swap(&mut self.queue, empty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_queued_once_with_all_its_readiness() {
        let mut again = Again::default();
        let (first, second) = (Token::new(1, 0, 7), Token::new(1, 1, 7));
        again.push(first, Readiness::default());
        again.push(second, Readiness::READABLE);
        again.push(second, Readiness::READ_CLOSED);
        again.push(Token::new(2, 0, 7), Readiness::WRITABLE);
        let mut queue = Vec::new();
        again.swap(&mut queue);
        assert!(again.is_empty());
        assert_eq!(
            queue,
            [
                (first, Readiness::default()),
                (second, Readiness::READABLE.and(Readiness::READ_CLOSED)),
                (Token::new(2, 0, 7), Readiness::WRITABLE),
            ]
        );
    }

    #[test]
    fn whoever_was_put_back_first_comes_first() {
        let mut again = Again::default();
        let token = |index| Token::new(1, 0, index);
        let put = |again: &mut Again, index| again.push(token(index), Readiness::READABLE);
        put(&mut again, 5);
        again.begin_repeating();
        put(&mut again, 1);
        put(&mut again, 5);
        put(&mut again, 2);
        again.end_repeating();
        put(&mut again, 6);
        let mut queue = Vec::new();
        again.swap(&mut queue);
        let order: Vec<_> = queue.iter().map(|(token, _)| token.index()).collect();
        assert_eq!(order, [1, 2, 5, 6]);
        // The next turn has none of them.
        queue.clear();
        put(&mut again, 7);
        put(&mut again, 8);
        again.swap(&mut queue);
        assert_eq!(
            queue,
            [
                (token(7), Readiness::READABLE),
                (token(8), Readiness::READABLE)
            ]
        );
    }

    #[test]
    fn places_of_an_earlier_turn_mislead_nobody() {
        let mut again = Again::default();
        let tokens: Vec<_> = (0..50).map(|index| Token::new(3, 0, index)).collect();
        for round in 0..20 {
            let put_back: Vec<_> = (0..50).map(|n| tokens[(n * 7 + round) % 50]).collect();
            for token in put_back.iter().chain(&put_back) {
                again.push(*token, Readiness::READABLE);
            }
            let mut queue = Vec::new();
            again.swap(&mut queue);
            let seen: Vec<_> = queue.iter().map(|(token, _)| *token).collect();
            assert_eq!(seen, put_back);
        }
    }
}
