//! Deliveries that come again in the next turn.

use crate::{Readiness, Token};

/// Deliveries that were put back, at most one for a token.
///
/// Without the bound a peer that never stops sending would be put back once for every event of
/// its socket, and take a larger share of each turn than the last.
#[derive(Debug, Default)]
pub(crate) struct Again {
    queue: Vec<(Token, Readiness)>,
    /// Places in `queue` where a token may be, by kind and index. An entry of an earlier turn
    /// points anywhere, so the token found there is compared.
    places: Vec<Vec<u32>>,
    /// Places in `queue` of the deliveries that come before the others, in their order.
    first: Vec<u32>,
}

impl Again {
    /// Puts a delivery back as [`push`](Self::push) does, but before the others that are put back.
    pub(crate) fn push_first(&mut self, token: Token, readiness: Readiness) {
        let place = self.push(token, readiness);
        self.first.push(place);
    }

    /// Puts `readiness` of `token` back, together with what was put back before; returns where it
    /// stands.
    pub(crate) fn push(&mut self, token: Token, readiness: Readiness) -> u32 {
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
        self.places[kind][index]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Exchanges the queue for `empty`, whose memory is used again. Deliveries that keep their
    /// place come first.
    pub(crate) fn swap(&mut self, empty: &mut Vec<(Token, Readiness)>) {
        if self.first.is_empty() {
            return std::mem::swap(&mut self.queue, empty);
        }
        let mut is_first = vec![false; self.queue.len()];
        for place in self.first.drain(..) {
            if !std::mem::replace(&mut is_first[place as usize], true) {
                empty.push(self.queue[place as usize]);
            }
        }
        let others = self.queue.drain(..).zip(is_first);
        empty.extend(others.filter_map(|(one, is_first)| (!is_first).then_some(one)));
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
    fn a_delivery_that_keeps_its_place_comes_first_and_once() {
        let mut again = Again::default();
        let token = |index| Token::new(1, 0, index);
        let put = |again: &mut Again, index| {
            again.push(token(index), Readiness::READABLE);
        };
        let keep = |again: &mut Again, index| again.push_first(token(index), Readiness::READABLE);
        put(&mut again, 5);
        keep(&mut again, 1);
        put(&mut again, 2);
        keep(&mut again, 5);
        keep(&mut again, 3);
        put(&mut again, 3);
        keep(&mut again, 1);
        put(&mut again, 6);
        let mut queue = Vec::new();
        again.swap(&mut queue);
        assert!(again.is_empty());
        let order: Vec<_> = queue.iter().map(|(token, _)| token.index()).collect();
        assert_eq!(order, [1, 5, 3, 2, 6]);
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
