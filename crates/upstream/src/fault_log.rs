//! Failures of the application's servers, as the log has them.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The log lines of all loops about servers that fail: for each server one in a second, and one
/// when it answers again.
///
/// Shape: for failures and for what follows them, as it takes a lock.
#[derive(Debug, Default)]
pub struct FaultLog(Mutex<Vec<ServerFaults>>);

/// The failures of one server.
#[derive(Debug)]
struct ServerFaults {
    /// `None` where no server was asked.
    server: Option<SocketAddr>,
    logged_at: Option<Instant>,
    /// Failures since the last line.
    count: u64,
    /// The last line is of a failure.
    is_failing: bool,
}

/// A failure, as it is to be logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// The server; `None` where no server was asked.
    pub server: Option<SocketAddr>,
    /// Failures of this server since the last line; `None` where no line is due.
    pub count: Option<u64>,
}

impl FaultLog {
    /// Counts a failure.
    pub(crate) fn failed(&self, now: Instant, server: Option<SocketAddr>) -> FaultReport {
        let mut servers = self.lock();
        let place = servers.iter().position(|faults| faults.server == server);
        let place = place.unwrap_or_else(|| {
            // The servers of one plan, of which there are no more than `UPSTREAMS_MAX`.
            servers.push(ServerFaults {
                server,
                logged_at: None,
                count: 0,
                is_failing: false,
            });
            servers.len() - 1
        });
        let faults = &mut servers[place];
        faults.count += 1;
        let is_due = |at| now.saturating_duration_since(at) >= PAUSE;
        let count = faults.logged_at.is_none_or(is_due).then(|| {
            faults.logged_at = Some(now);
            faults.is_failing = true;
            std::mem::take(&mut faults.count)
        });
        FaultReport { server, count }
    }

    /// Notes an answer of a server that has failed; returns true if it is to be logged.
    pub(crate) fn answered(&self, server: SocketAddr) -> bool {
        let mut servers = self.lock();
        let faults = servers
            .iter_mut()
            .find(|faults| faults.server == Some(server));
        faults.is_some_and(|faults| std::mem::take(&mut faults.is_failing))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ServerFaults>> {
        // Each change is complete once it is made, so a panicking thread leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time after a line about a server in which there is no other about its failures.
const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_line_a_second_with_the_failures_since() {
        let (log, start) = (FaultLog::default(), Instant::now());
        let [one, other] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let failed = |after, server| {
            let now = start + Duration::from_millis(after);
            let report = log.failed(now, server);
            assert_eq!(report.server, server);
            report.count
        };
        assert_eq!(failed(0, Some(one)), Some(1));
        assert_eq!(failed(0, Some(other)), Some(1));
        assert_eq!(failed(0, None), Some(1));
        for after in 1..1000 {
            assert_eq!(failed(after, Some(one)), None);
        }
        assert_eq!(failed(1000, Some(one)), Some(1000));
        assert_eq!(failed(1500, Some(other)), Some(1));
    }

    #[test]
    fn an_answer_is_logged_once_after_a_failure_that_was() {
        let (log, start) = (FaultLog::default(), Instant::now());
        let [one, other] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert!(!log.answered(one));
        log.failed(start, Some(one));
        assert!(!log.answered(other));
        assert!(log.answered(one));
        assert!(!log.answered(one));
        // This failure has no line, so its end has none.
        assert_eq!(log.failed(start, Some(one)).count, None);
        assert!(!log.answered(one));
    }
}
