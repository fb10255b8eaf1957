//! The meaning of a connection's deadline, and the time that has passed of it.

use dwell_timers::{TICK, Tick};
use std::time::Duration;

/// The meaning of a connection's deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// The connection waits for nothing: its streams have their own deadlines.
    Streams,
    /// For a request.
    Idle,
    /// For the rest of a field block.
    Block,
    /// For the socket to take output.
    Write,
    /// For the client to have read that the connection ends.
    Leave,
}

/// The wait of a connection, and the one beneath it while output waits for the socket.
///
/// Output comes first. It may be a reply to a PING or a record of TLS, so a client can have the
/// server write whenever it likes: the wait beneath keeps its beginning, and goes on where it was.
#[derive(Debug)]
pub(super) struct Waiting {
    current: Wait,
    beneath: Wait,
    /// The wait beneath has begun, at `since`.
    has_begun: bool,
    since: Tick,
}

impl Waiting {
    /// A connection waits for its first request from now on, whose deadline is set.
    pub(super) fn new(now: Tick) -> Self {
        Self {
            current: Wait::Idle,
            beneath: Wait::Idle,
            has_begun: true,
            since: now,
        }
    }

    pub(super) fn current(&self) -> Wait {
        self.current
    }

    /// Notes what is waited for now. Returns the time that has passed of it if the deadline is to
    /// be set again.
    ///
    /// `is_anew`: the same wait begins once more.
    pub(super) fn turn(
        &mut self,
        beneath: Wait,
        is_flushed: bool,
        is_anew: bool,
        now: Tick,
    ) -> Option<Duration> {
        if beneath != self.beneath || is_anew {
            self.beneath = beneath;
            // The others have their time once everything before them is written.
            self.has_begun = beneath == Wait::Block;
            self.since = now;
        }
        let current = if is_flushed { beneath } else { Wait::Write };
        let begins = current != std::mem::replace(&mut self.current, current);
        if !begins && !is_anew {
            return None;
        }
        if current == Wait::Write {
            return begins.then_some(Duration::ZERO);
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            self.since = now;
        }
        Some(TICK * now.ticks_since(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Tick = Tick::new(7);

    #[test]
    fn output_moves_no_deadline_but_its_own() {
        for wait in [Wait::Idle, Wait::Block, Wait::Leave] {
            let mut waiting = Waiting::new(NOW);
            waiting.turn(Wait::Streams, true, false, NOW);
            assert_eq!(waiting.turn(wait, true, false, NOW), Some(Duration::ZERO));
            assert_eq!(waiting.turn(wait, true, false, NOW.plus(5)), None);
            let begins = waiting.turn(wait, false, false, NOW.plus(6));
            assert_eq!(
                (begins, waiting.current()),
                (Some(Duration::ZERO), Wait::Write)
            );
            assert_eq!(waiting.turn(wait, false, false, NOW.plus(7)), None);
            let goes_on = waiting.turn(wait, true, false, NOW.plus(30));
            assert_eq!((goes_on, waiting.current()), (Some(TICK * 30), wait));
        }
    }

    #[test]
    fn output_gives_the_first_request_no_more_time() {
        let mut waiting = Waiting::new(NOW);
        let output = waiting.turn(Wait::Idle, false, false, NOW.plus(1));
        assert_eq!(output, Some(Duration::ZERO));
        let idle = waiting.turn(Wait::Idle, true, false, NOW.plus(4));
        assert_eq!(idle, Some(TICK * 4));
    }

    #[test]
    fn each_of_the_field_blocks_in_a_row_has_its_own_time() {
        let mut waiting = Waiting::new(NOW);
        waiting.turn(Wait::Block, true, true, NOW.plus(1));
        assert_eq!(waiting.turn(Wait::Block, true, false, NOW.plus(5)), None);
        let next = waiting.turn(Wait::Block, true, true, NOW.plus(6));
        assert_eq!(next, Some(Duration::ZERO));
        // One that begins while output waits has its time from then on.
        waiting.turn(Wait::Block, false, false, NOW.plus(7));
        assert_eq!(waiting.turn(Wait::Block, false, true, NOW.plus(9)), None);
        let goes_on = waiting.turn(Wait::Block, true, false, NOW.plus(12));
        assert_eq!(goes_on, Some(TICK * 3));
    }

    #[test]
    fn an_idle_connection_has_its_time_once_its_last_answer_is_written() {
        let mut waiting = Waiting::new(NOW);
        assert_eq!(
            waiting.turn(Wait::Idle, false, true, NOW),
            Some(Duration::ZERO)
        );
        let idle = waiting.turn(Wait::Idle, true, false, NOW.plus(9));
        assert_eq!(idle, Some(Duration::ZERO));
        let again = waiting.turn(Wait::Idle, true, true, NOW.plus(20));
        assert_eq!(again, Some(Duration::ZERO));
    }

    #[test]
    fn a_field_block_has_its_time_from_its_beginning_on() {
        let mut waiting = Waiting::new(NOW);
        waiting.turn(Wait::Idle, false, false, NOW);
        assert_eq!(waiting.turn(Wait::Block, false, false, NOW.plus(1)), None);
        let block = waiting.turn(Wait::Block, true, false, NOW.plus(4));
        assert_eq!(block, Some(TICK * 3));
    }
}
