//! One re-armable deadline per token.

use crate::Token;
use dwell_timers::{Tick, Wheel, ticks_ceil};
use std::time::Duration;

/// A wheel for each kind; the index of a token is its id in the wheel of its kind.
#[derive(Debug)]
pub(crate) struct Deadlines {
    kinds: Vec<Kind>,
    start: Tick,
}

#[derive(Debug)]
struct Kind {
    wheel: Wheel,
    /// The generation each index was armed for, so that an expiry names one tenant only.
    generations: Vec<u32>,
}

impl Deadlines {
    pub(crate) fn new(start: Tick) -> Self {
        Self {
            kinds: Vec::new(),
            start,
        }
    }

    /// Arms or re-arms. Never early: the tick in progress counts for nothing, so one is added.
    ///
    /// Shape: moved later, that is one store of the wheel's and one of the generation, both into
    /// what belongs to this token. `bench/timers` measures it.
    pub(crate) fn arm(&mut self, token: Token, now: Tick, timeout: Duration) {
        let start = self.start;
        let kind = usize::from(token.kind());
        if self.kinds.len() <= kind {
            self.kinds.resize_with(kind + 1, || Kind {
                wheel: Wheel::new(start),
                generations: Vec::new(),
            });
        }
        let kind = &mut self.kinds[kind];
        let index = token.index() as usize;
        if kind.generations.len() <= index {
            kind.generations.resize(index + 1, 0);
        }
        kind.generations[index] = token.generation();
        kind.wheel.arm(
            token.index(),
            now.plus(ticks_ceil(timeout).saturating_add(1)),
        );
    }

    /// Arms, unless the deadline that is there already comes first.
    pub(crate) fn arm_sooner(&mut self, token: Token, now: Tick, timeout: Duration) {
        let deadline = now.plus(ticks_ceil(timeout).saturating_add(1));
        if !self.deadline(token).is_some_and(|it| it.is_due(deadline)) {
            self.arm(token, now, timeout);
        }
    }

    pub(crate) fn disarm(&mut self, token: Token) {
        if let Some(kind) = self.kinds.get_mut(usize::from(token.kind()))
            && kind.generations.get(token.index() as usize) == Some(&token.generation())
        {
            kind.wheel.cancel(token.index());
        }
    }

    pub(crate) fn is_armed(&self, token: Token) -> bool {
        self.deadline(token).is_some()
    }

    fn deadline(&self, token: Token) -> Option<Tick> {
        let kind = self.kinds.get(usize::from(token.kind()))?;
        let generation = kind.generations.get(token.index() as usize)?;
        if *generation == token.generation() {
            kind.wheel.deadline(token.index())
        } else {
            None
        }
    }

    /// A lower bound of the ticks from `now` to the first deadline.
    pub(crate) fn next_event(&self, now: Tick) -> Option<Tick> {
        self.kinds
            .iter()
            .filter_map(|kind| kind.wheel.next_event())
            .min_by_key(|tick| {
                if tick.is_due(now) {
                    0
                } else {
                    tick.ticks_since(now)
                }
            })
    }

    /// The next token of any kind whose deadline has passed.
    pub(crate) fn pop_due(&mut self, now: Tick) -> Option<Token> {
        self.kinds.iter_mut().enumerate().find_map(|(kind, state)| {
            let index = state.wheel.pop_due(now)?;
            let generation = state.generations.get(index as usize).copied()?;
            Some(Token::new(kind as u8, generation, index))
        })
    }

    pub(crate) fn armed(&self) -> usize {
        self.kinds.iter().map(|kind| kind.wheel.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_belongs_to_one_tenant_of_a_place() {
        let now = Tick::new(0);
        let mut deadlines = Deadlines::new(now);
        let first = Token::new(2, 0, 5);
        let second = Token::new(2, 1, 5);
        deadlines.arm(first, now, Duration::from_millis(10));
        deadlines.arm(second, now, Duration::from_millis(10));
        deadlines.disarm(first);
        assert!(deadlines.is_armed(second));
        assert!(!deadlines.is_armed(first));
        assert_eq!(
            deadlines.pop_due(Tick::new(1)),
            None,
            "the tick in progress is not counted"
        );
        assert_eq!(deadlines.pop_due(Tick::new(2)), Some(second));
        assert_eq!(deadlines.pop_due(Tick::new(2)), None);
    }

    #[test]
    fn a_deadline_is_moved_sooner_and_never_later() {
        let now = Tick::new(100);
        let mut deadlines = Deadlines::new(now);
        let token = Token::new(2, 1, 5);
        deadlines.arm_sooner(token, now, Duration::from_millis(50));
        deadlines.arm_sooner(token, now, Duration::from_millis(90));
        assert_eq!(deadlines.deadline(token), Some(Tick::new(106)));
        deadlines.arm_sooner(token, now, Duration::from_millis(20));
        assert_eq!(deadlines.deadline(token), Some(Tick::new(103)));
        // One of the tenant before is none.
        let next = Token::new(2, 2, 5);
        deadlines.arm_sooner(next, now, Duration::from_millis(70));
        assert_eq!(deadlines.deadline(next), Some(Tick::new(108)));
    }

    #[test]
    fn the_earliest_kind_decides_the_wait() {
        let now = Tick::new(100);
        let mut deadlines = Deadlines::new(now);
        deadlines.arm(Token::new(1, 0, 0), now, Duration::from_secs(10));
        deadlines.arm(Token::new(4, 0, 0), now, Duration::from_millis(30));
        let next = deadlines.next_event(now).unwrap();
        assert!(next.ticks_since(now) <= 4);
        assert_eq!(deadlines.armed(), 2);
    }
}
