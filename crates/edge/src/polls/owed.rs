//! A bound on waits for memcached, the application and other loops. Each of these has deadlines of
//! its own; this one limits the effect of a fault in them.

use super::lookups::Lookups;
use super::misses::Misses;
use super::waiters::Waiters;
use crate::access::AuthSubrequests;
use crate::config::Config;
use crate::ids::{PollId, ResponseSource};
use std::time::Duration;

/// The reason for which an answer is given up, for the log.
pub(super) const OVERDUE: &str = "no answer in time";
/// Beyond the time that memcached and the application have.
const SPARE: Duration = Duration::from_secs(5);

/// Longest time for a response that depends on memcached and the application. The application may
/// have to be asked twice, if its first response was for another client.
pub(super) fn owed_time(config: &Config) -> Duration {
    let (memcached, redis) = (&config.memcached, &config.redis);
    let (connect_timeout, timeout) = if redis.is_on() {
        (redis.connect_timeout, redis.timeout)
    } else {
        (memcached.connect_timeout, memcached.timeout)
    };
    let (cache, upstream) = (connect_timeout.saturating_add(timeout), &config.upstream);
    let upstream = upstream.total_timeout.saturating_mul(2);
    cache.saturating_mul(3).saturating_add(upstream) + SPARE
}

/// Polls whose responses have lost their source.
pub(super) fn lost_polls(
    waiters: &Waiters,
    lookups: &Lookups,
    misses: &Misses,
    subrequests: &AuthSubrequests,
) -> Vec<PollId> {
    let is_there = |source| match source {
        ResponseSource::Key(key) => waiters.keys.get(key).is_some(),
        ResponseSource::Lookup(lookup) => lookups.is_open(lookup),
        ResponseSource::Fetch(fetch) => misses.is_open(fetch),
        ResponseSource::Subrequest(subrequest) => subrequests.is_open(subrequest),
    };
    let polls = waiters.polls();
    let is_lost = |token: &PollId| {
        let source = polls.get(*token).and_then(|poll| poll.place.source());
        source.is_some_and(|source| !is_there(source))
    };
    polls.tokens().filter(is_lost).collect()
}
