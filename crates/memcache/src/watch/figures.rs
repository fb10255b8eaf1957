//! Changes that a server has not reported, as its statistics show them.

use super::metrics::ResyncReason;

/// The statistics of one server that matter here. A server need not have them all.
///
/// Source: memcached `doc/protocol.txt`, "General-purpose statistics".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pid: Option<u64>,
    uptime: Option<u64>,
    curr_items: Option<u64>,
    cmd_flush: Option<u64>,
    cmd_set: Option<u64>,
    incr_hits: Option<u64>,
    decr_hits: Option<u64>,
    delete_hits: Option<u64>,
    log_worker_dropped: Option<u64>,
}

/// Changes between two readings of the statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// The reason to check everything, if there is one.
    pub(super) reason: Option<ResyncReason>,
    /// Lines that the server has lost before anybody could read them.
    pub(super) lost_lines: u64,
    /// Values were stored, each of which is a line.
    pub(super) has_stored: bool,
}

impl Figures {
    /// Takes one line of the statistics.
    pub(super) fn take(&mut self, name: &[u8], value: &[u8]) {
        let figure = match name {
            b"pid" => &mut self.pid,
            b"uptime" => &mut self.uptime,
            b"curr_items" => &mut self.curr_items,
            b"cmd_flush" => &mut self.cmd_flush,
            b"cmd_set" => &mut self.cmd_set,
            b"incr_hits" => &mut self.incr_hits,
            b"decr_hits" => &mut self.decr_hits,
            b"delete_hits" => &mut self.delete_hits,
            b"log_worker_dropped" => &mut self.log_worker_dropped,
            _ => return,
        };
        let text = std::str::from_utf8(value).ok();
        *figure = text.and_then(|text| text.parse().ok());
    }

    /// Compares these with those `before`; `tells_deletions` where deletions are lines, too.
    pub(super) fn since(&self, before: &Self, tells_deletions: bool) -> Difference {
        if self.pid != before.pid || self.uptime < before.uptime {
            let reason = Some(ResyncReason::Restarted);
            return Difference {
                reason,
                ..Difference::default()
            };
        }
        let growth = |of: fn(&Self) -> Option<u64>| match (of(before), of(self)) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            _ => 0,
        };
        let lost_lines = growth(|of| of.log_worker_dropped);
        let untold = growth(|of| of.incr_hits) + growth(|of| of.decr_hits);
        let deleted = growth(|of| of.delete_hits);
        let reason = if growth(|of| of.cmd_flush) > 0 {
            Some(ResyncReason::Flushed)
        } else if lost_lines > 0 {
            Some(ResyncReason::Dropped)
        } else if untold > 0 || (deleted > 0 && !tells_deletions) {
            Some(ResyncReason::Untold)
        } else if self.has_shrunk(before) {
            Some(ResyncReason::Shrunk)
        } else {
            None
        };
        Difference {
            reason,
            lost_lines,
            has_stored: growth(|of| of.cmd_set) > 0,
        }
    }

    /// Tells whether many items have gone at once.
    fn has_shrunk(&self, before: &Self) -> bool {
        let (Some(before), Some(now)) = (before.curr_items, self.curr_items) else {
            return false;
        };
        before.saturating_sub(now) > before / SHRUNK_SHARE + SHRUNK_MIN
    }
}

/// One in this many of the items that were there.
const SHRUNK_SHARE: u64 = 8;
/// Fewer than these come and go.
const SHRUNK_MIN: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(text: &str) -> Figures {
        let mut figures = Figures::default();
        let base = "pid 7,uptime 100,curr_items 1000,cmd_flush 1,cmd_set 5,incr_hits 2,decr_hits 3,\
                    delete_hits 4,log_worker_dropped 6";
        for line in base.split(',').chain(text.split(',')) {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            figures.take(name.as_bytes(), value.as_bytes());
        }
        figures
    }

    fn reason(now: &str) -> Option<ResyncReason> {
        figures(now).since(&figures(""), false).reason
    }

    #[test]
    fn each_sign_of_an_untold_change_has_its_reason() {
        assert_eq!(reason("uptime 101,cmd_set 50,curr_items 1001"), None);
        assert_eq!(reason("pid 8"), Some(ResyncReason::Restarted));
        assert_eq!(reason("uptime 99"), Some(ResyncReason::Restarted));
        assert_eq!(reason("cmd_flush 2"), Some(ResyncReason::Flushed));
        assert_eq!(reason("log_worker_dropped 7"), Some(ResyncReason::Dropped));
        assert_eq!(reason("incr_hits 3"), Some(ResyncReason::Untold));
        assert_eq!(reason("decr_hits 4"), Some(ResyncReason::Untold));
        assert_eq!(reason("delete_hits 5"), Some(ResyncReason::Untold));
        assert_eq!(reason("curr_items 859"), None);
        assert_eq!(reason("curr_items 858"), Some(ResyncReason::Shrunk));
    }

    #[test]
    fn deletions_that_are_told_need_no_look() {
        let difference = figures("delete_hits 9").since(&figures(""), true);
        assert_eq!(difference, Difference::default());
    }

    #[test]
    fn lost_lines_are_counted() {
        let now = figures("log_worker_dropped 1048,cmd_flush 2,cmd_set 6");
        let expected = Difference {
            reason: Some(ResyncReason::Flushed),
            lost_lines: 1042,
            has_stored: true,
        };
        assert_eq!(now.since(&figures(""), false), expected);
    }

    #[test]
    fn a_restart_makes_the_other_figures_say_nothing() {
        let now = figures("pid 9,log_worker_dropped 70,cmd_flush 9");
        let difference = now.since(&figures(""), false);
        assert_eq!(difference.reason, Some(ResyncReason::Restarted));
        assert_eq!(difference.lost_lines, 0);
    }

    #[test]
    fn a_server_without_these_statistics_says_nothing() {
        let bare = Figures::default();
        assert_eq!(bare.since(&bare, false), Difference::default());
        let mut odd = Figures::default();
        odd.take(b"curr_items", b"many");
        odd.take(b"cmd_set", b"\xff");
        odd.take(b"threads", b"4");
        assert_eq!(odd, bare);
    }
}
