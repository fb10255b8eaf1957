//! Findings of the connections to the servers, until they are spread over the loops.

use super::metrics::{HintOutcome, ResyncReason, WatchMetrics};
use super::waited::WaitedKeys;
use dwell_proto::memcache::{KeyScratch, WatchLine, WatchedKey};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// All waited keys of one server have to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resync {
    /// Place of the server.
    pub server: usize,
    /// Versions say nothing any more: the server counts from the start, so that an old value's
    /// version may be a new value's, too.
    pub is_distrusted: bool,
}

/// Findings since they were spread last.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The keys that may have changed, for each loop; a key is in it once, however often it was
    /// written.
    pub(super) hints: Vec<BTreeSet<Box<[u8]>>>,
    pub(super) resyncs: Vec<Resync>,
}

/// The place for what one server reports.
#[derive(Debug)]
pub(super) struct Findings<'f> {
    pub(super) server: usize,
    pub(super) found: &'f mut Found,
    pub(super) waited: &'f WaitedKeys,
    pub(super) metrics: &'f WatchMetrics,
    /// Lines the server has told since its statistics were compared last.
    pub(super) lines: &'f mut u64,
}

impl Findings<'_> {
    /// Takes a line that is no answer.
    pub(super) fn line(&mut self, line: &WatchLine<'_>) {
        *self.lines += 1;
        self.metrics.lines.increment();
        match line {
            WatchLine::Item {
                key,
                at,
                is_changed: true,
            } => self.changed(*key, *at),
            WatchLine::Skipped { lines } => {
                self.metrics.lines_lost.add(*lines);
                self.resync(ResyncReason::Skipped);
            }
            _ => {}
        }
    }

    fn changed(&mut self, key: WatchedKey<'_>, at: Duration) {
        let mut scratch = KeyScratch::new();
        let name = key.decode(&mut scratch);
        let mut is_full = false;
        let mut is_new = false;
        for of_loop in self.waited.loops_of(name) {
            let hints = &mut self.found.hints[of_loop];
            if hints.contains(name) {
                self.metrics.hints.increment(HintOutcome::Joined);
            } else if hints.len() >= HINTS_MAX {
                is_full = true;
            } else {
                hints.insert(name.into());
                is_new = true;
            }
        }
        if is_new {
            // The clock of the server and this one need not agree.
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let lag = now.unwrap_or_default().saturating_sub(at);
            self.metrics.lag.observe(lag);
        }
        if is_full {
            self.resync(ResyncReason::Crowded);
        }
    }

    /// Everything that is waited for on this server has to be checked.
    pub(super) fn resync(&mut self, reason: ResyncReason) {
        self.metrics.resyncs.increment(reason);
        let server = self.server;
        let is_distrusted = reason == ResyncReason::Restarted || reason == ResyncReason::Reversed;
        self.found.resync(Resync {
            server,
            is_distrusted,
        });
    }
}

impl Found {
    pub(super) fn new(loops: usize) -> Self {
        Self {
            hints: vec![BTreeSet::new(); loops],
            resyncs: Vec::new(),
        }
    }

    /// One check of a server is enough, however many reasons there are.
    fn resync(&mut self, resync: Resync) {
        let mut known = self.resyncs.iter_mut();
        match known.find(|known| known.server == resync.server) {
            Some(known) => known.is_distrusted |= resync.is_distrusted,
            None => self.resyncs.push(resync),
        }
    }
}

/// Keys that are reported to one loop at a time. Beyond it, it checks all that it waits for.
const HINTS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::memcache::WatchDecoder;
    use std::sync::Arc;

    struct Bench {
        found: Found,
        waited: Arc<WaitedKeys>,
        metrics: WatchMetrics,
        lines: u64,
    }

    impl Bench {
        fn new() -> Self {
            let waited = WaitedKeys::new(2);
            waited.of_loop(1).enter(b"/poll/a");
            Self {
                found: Found::new(2),
                waited,
                metrics: WatchMetrics::default(),
                lines: 0,
            }
        }

        fn line(&mut self, text: &str) {
            let mut decoder = WatchDecoder::default();
            let (_, line) = decoder.decode(text.as_bytes()).unwrap().unwrap();
            self.findings().line(&line);
        }

        fn findings(&mut self) -> Findings<'_> {
            Findings {
                server: 0,
                found: &mut self.found,
                waited: &self.waited,
                metrics: &self.metrics,
                lines: &mut self.lines,
            }
        }

        fn hints(&self) -> [usize; 2] {
            [self.found.hints[0].len(), self.found.hints[1].len()]
        }
    }

    fn stored(key: &str) -> String {
        format!("ts=1.5 gid=3 type=item_store key={key} status=stored cmd=set\n")
    }

    #[test]
    fn a_burst_of_writes_to_one_key_is_one_hint() {
        let mut bench = Bench::new();
        for _ in 0..20_000 {
            bench.line(&stored("%2Fpoll%2Fa"));
        }
        assert_eq!(bench.hints(), [0, 1]);
        assert_eq!(bench.metrics.lines.value(), 20_000);
        assert_eq!(bench.lines, 20_000);
        let joined = bench.metrics.hints.of(HintOutcome::Joined).value();
        assert_eq!(joined, 19_999);
    }

    #[test]
    fn writes_that_nobody_waits_for_or_that_were_not_done_are_only_counted() {
        let mut bench = Bench::new();
        bench.line("ts=1.5 gid=3 type=item_store key=%2Fpoll%2Fa status=exists cmd=cas\n");
        bench.line("ts=1.5 gid=3 type=item_store key=%zz status=stored cmd=set\n");
        bench.line("ts=1.5 gid=3 type=item_get key=%2Fpoll%2Fa status=found\n");
        assert_eq!(bench.hints(), [0, 0]);
        assert_eq!(bench.metrics.lines.value(), 3);
        assert_eq!(bench.found.resyncs, []);
    }

    #[test]
    fn a_lost_line_makes_everything_be_looked_at_once() {
        let mut bench = Bench::new();
        bench.line("skipped=37541\n");
        bench.line("skipped=2\n");
        let once = Resync {
            server: 0,
            is_distrusted: false,
        };
        assert_eq!(bench.found.resyncs, [once]);
        assert_eq!(bench.metrics.lines_lost.value(), 37_543);
        bench.findings().resync(ResyncReason::Restarted);
        let distrusted = Resync {
            is_distrusted: true,
            ..once
        };
        assert_eq!(bench.found.resyncs, [distrusted]);
    }

    #[test]
    fn more_hints_than_fit_become_a_look_at_everything() {
        let mut bench = Bench::new();
        let loop_1 = bench.waited.of_loop(1);
        for number in 0..=HINTS_MAX {
            let key = format!("k{number}");
            loop_1.enter(key.as_bytes());
            bench.line(&stored(&key));
        }
        assert_eq!(bench.hints()[1], HINTS_MAX);
        assert_eq!(bench.found.resyncs.len(), 1);
        let crowded = bench.metrics.resyncs.of(ResyncReason::Crowded);
        assert_eq!(crowded.value(), 1);
    }
}
