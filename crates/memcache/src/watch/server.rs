//! One server: what it tells, and what its statistics say of what it has not told.

use super::connection::Place;
use super::findings::Findings;
use super::statistics::Statistics;
use super::subscription::{Watch, WatchState};
use dwell_evloop::{Context, Readiness, Token};
use std::net::SocketAddr;
use std::time::Duration;

/// The two connections to one server.
#[derive(Debug)]
pub(super) struct WatchedServer {
    watch: Watch,
    statistics: Statistics,
    /// Lines since the statistics were compared last.
    pub(super) lines: u64,
    /// Times in a row that values were stored and no line came.
    silences: u32,
}

/// The purpose of a token of the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The time has come to go on.
    Beat,
    /// The watch of the server with this index.
    Watch(usize),
    /// The statistics of the server with this index.
    Statistics(usize),
}

impl Purpose {
    /// Its first token. Indices are dense: there is a deadline for each.
    pub(super) fn token(self, kind: u8) -> Token {
        let index = match self {
            Self::Beat => 0,
            Self::Watch(server) => 1 + server * 2,
            Self::Statistics(server) => 2 + server * 2,
        };
        Token::new(kind, 0, index as u32)
    }

    pub(super) fn of(token: Token) -> Self {
        match (token.index() as usize).checked_sub(1) {
            None => Self::Beat,
            Some(index) if index.is_multiple_of(2) => Self::Watch(index / 2),
            Some(index) => Self::Statistics(index / 2),
        }
    }
}

impl WatchedServer {
    pub(super) fn new(place: Place, kind: u8, index: usize, seed: u64) -> Self {
        let watch = Purpose::Watch(index).token(kind);
        let statistics = Purpose::Statistics(index).token(kind);
        Self {
            watch: Watch::new(place.clone(), watch, seed),
            statistics: Statistics::new(place, statistics, seed.rotate_left(32)),
            lines: 0,
            silences: 0,
        }
    }

    /// Tells whether the server reports changes.
    pub(super) fn state(&self) -> WatchState {
        self.watch.state()
    }

    /// Begins or goes on; the statistics are of use where nothing is told, too.
    pub(super) fn go_on(&mut self, context: &mut Context, timeout: Duration) {
        self.watch.begin(context, timeout);
        self.statistics.ask(context, timeout);
    }

    /// Goes on at another address; returns true if it is another one.
    pub(super) fn turn_to(&mut self, context: &mut Context, address: SocketAddr) -> bool {
        let is_other = address != self.watch.address();
        if is_other {
            self.watch.turn_to(context, address);
            self.statistics.turn_to(context, address);
            (self.lines, self.silences) = (0, 0);
        }
        is_other
    }

    pub(super) fn end(&mut self, context: &mut Context) {
        self.watch.end(context);
        self.statistics.end(context);
    }

    /// The watch may have come about, take bytes or have some.
    pub(super) fn watch_ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        findings: &mut Findings<'_>,
    ) {
        self.watch.ready(context, token, readiness, findings);
    }

    /// The connection for the statistics may have.
    pub(super) fn statistics_ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        timeout: Duration,
        findings: &mut Findings<'_>,
    ) {
        let tells_deletions = self.watch.tells_deletions();
        let statistics = &mut self.statistics;
        let difference = statistics.ready(context, token, readiness, timeout, tells_deletions);
        let Some(difference) = difference else { return };
        findings.metrics.lines_lost.add(difference.lost_lines);
        if let Some(reason) = difference.reason {
            findings.resync(reason);
        }
        let lines = std::mem::take(findings.lines);
        let is_silent = difference.has_stored && lines == 0 && self.watch.is_told();
        self.silences = if is_silent { self.silences + 1 } else { 0 };
        if self.silences >= SILENCES_MAX {
            // Something on the way has forgotten the connection, and nothing else would tell.
            self.silences = 0;
            self.watch.lost(context);
        }
    }

    pub(super) fn watch_expired(&mut self, context: &mut Context, token: Token, timeout: Duration) {
        self.watch.expired(context, token, timeout);
    }

    pub(super) fn statistics_expired(
        &mut self,
        context: &mut Context,
        token: Token,
        timeout: Duration,
    ) {
        self.statistics.expired(context, token, timeout);
    }
}

/// The logger of memcached sleeps for up to a second; beyond this nothing more will come.
const SILENCES_MAX: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_what_it_is_for() {
        let mut purposes = vec![Purpose::Beat];
        purposes
            .extend((0..3).flat_map(|index| [Purpose::Watch(index), Purpose::Statistics(index)]));
        for (index, purpose) in purposes.into_iter().enumerate() {
            let token = purpose.token(7);
            assert_eq!((token.kind(), token.index() as usize), (7, index));
            assert_eq!(Purpose::of(token), purpose);
        }
    }
}
