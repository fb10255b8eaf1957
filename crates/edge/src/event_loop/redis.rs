//! Redis as the source of values on one loop.

use super::TokenEvent;
use super::cache::FILL;
use super::tokens::LEFT;
use crate::ids::CacheOperation;
use crate::metrics::{LoopMetrics, ServerState, add_handshakes};
use crate::polls::{Polls, Valued};
use dwell_engine::Http;
use dwell_evloop::{Context, Id, Readiness, Token};
use dwell_redis::{
    Client, ClusterStatus, Completion, Endpoint, Failure, Outcome, SetCondition, SetOptions,
    Status, Tracking,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The client of a loop, and what was logged of it last.
#[derive(Debug)]
pub(crate) struct RedisCache {
    client: Client,
    server: Endpoint,
    /// The servers, by their places in the client.
    followed: Vec<Followed>,
    cluster: ClusterNotices,
    /// The primaries of the cluster, as the metrics have them.
    primaries: Vec<(Endpoint, ServerState)>,
    /// The time of the last sweep over the keys of all servers.
    swept_at: Option<Instant>,
    refused: LoggedCodes,
    metrics: Arc<LoopMetrics>,
}

/// The codes of error replies that were logged, and when.
#[derive(Debug, Default)]
struct LoggedCodes(Vec<(Box<str>, Instant)>);

/// One server, and what was logged of it last.
#[derive(Debug)]
struct Followed {
    server: Endpoint,
    state: ServerState,
    tracking: Tracking,
    notices: Notices,
}

/// The state of a cluster that was logged last.
#[derive(Debug, Default)]
struct ClusterNotices {
    missing_slots: usize,
    is_unknown: bool,
    has_unknown_server: bool,
}

/// The state of the announcements of a server that was logged last.
#[derive(Debug, Default)]
struct Notices {
    /// The reason why it does not announce changes.
    refused: Option<Box<str>>,
    idle_pushes: bool,
    table: bool,
}

/// Interval of sweeps while the server announces no changes, as of memcached.
const UNTOLD_SWEEP: Duration = Duration::from_millis(250);
/// The time for which error replies of a code that was logged are not logged again.
const LOGGED_FOR: Duration = Duration::from_secs(60 * 60);
/// Codes that are logged within that time. Servers have fewer, and scripts may have any.
const LOGGED_CODES_MAX: usize = 16;

impl RedisCache {
    pub(crate) fn new(client: Client, server: Endpoint, metrics: Arc<LoopMetrics>) -> Self {
        Self {
            client,
            server,
            followed: Vec::new(),
            cluster: ClusterNotices::default(),
            primaries: Vec::new(),
            swept_at: None,
            refused: LoggedCodes::default(),
            metrics,
        }
    }

    /// Goes on with another address of the server, or of those that know it.
    pub(super) fn turn_to(&mut self, context: &mut Context, endpoint: &Endpoint) {
        if self.server != *endpoint {
            self.server = endpoint.clone();
            self.client.turn_to(context, endpoint);
            // What has to be asked again is asked at the end of the next turn.
            context.again(LEFT, Readiness::default());
        }
    }

    /// Interval at which all watched keys are read again; it is `sweep_interval` while the server
    /// announces their changes.
    pub(super) fn recheck_interval(&self, sweep_interval: Duration) -> Duration {
        match self.client.tracking() {
            Tracking::On | Tracking::Idle => sweep_interval,
            Tracking::Connecting | Tracking::Refused => UNTOLD_SWEEP.min(sweep_interval),
        }
    }

    /// Passes an event of one of its tokens to the client.
    pub(super) fn token_event(
        &mut self,
        context: &mut Context,
        token: Token,
        what: TokenEvent,
        polls: &mut Polls,
        http: &mut Http,
    ) {
        let mut sink = |context: &mut Context, completion: Completion<'_>| {
            polls.redis_completed(context, http, &completion);
        };
        match what {
            TokenEvent::Ready(readiness) => {
                self.client.ready(context, token, readiness, &mut sink);
            }
            TokenEvent::Expired => self.client.expired(context, token, &mut sink),
        }
    }

    /// Sends the lookups of the turn.
    pub(super) fn send_lookups(
        &mut self,
        context: &mut Context,
        polls: &mut Polls,
        http: &mut Http,
    ) {
        // Keys that have changed come before what requests ask for.
        self.follow_waits(polls);
        self.client.read_changed(context);
        for lookup in polls.lookups.take_unsent() {
            let may_wait = polls.lookups.may_wait(lookup);
            let Some(name) = polls.lookup_sent(lookup) else {
                continue;
            };
            let tag = lookup.to_bits();
            if let Some(outcome) = self.client.kept(name) {
                polls.redis_completed(context, http, &Completion { tag, outcome });
                continue;
            }
            let asked = if may_wait {
                self.client.read(context, name, tag)
            } else {
                self.client.get(context, name, tag)
            };
            if asked.is_err() {
                // The queue to the server is full, which counts as a failed server.
                let outcome = Outcome::Failed(Failure::Unavailable);
                polls.redis_completed(context, http, &Completion { tag, outcome });
            }
        }
        self.flush(context, polls, http);
    }

    /// Has all watched keys read again; more often than `interval` only those of servers that do
    /// not announce their changes.
    pub(super) fn sweep(&mut self, context: &Context, interval: Duration) {
        let now = context.now();
        if self.swept_at.is_some_and(|at| now < at + interval) {
            return self.client.sweep_untold(context);
        }
        self.swept_at = Some(now);
        self.client.sweep(context);
    }

    /// Sends the requests of publishers.
    pub(super) fn send_publishes(
        &mut self,
        context: &mut Context,
        polls: &mut Polls,
        http: &mut Http,
    ) {
        if polls.publisher.has_commands() {
            polls.publisher.ask_redis(context, &mut self.client);
            self.flush(context, polls, http);
        }
    }

    /// Stores fetched values under keys without a value; nothing waits for the outcome.
    pub(super) fn send_fills(&mut self, context: &mut Context, polls: &mut Polls, http: &mut Http) {
        let fills = polls.lookups.take_fills();
        if fills.is_empty() {
            return;
        }
        for fill in fills {
            let options = SetOptions {
                lifetime: u64::try_from(fill.exptime).ok().map(Duration::from_secs),
                condition: SetCondition::Absent,
            };
            // A value without room is not stored: the next miss fetches it again.
            let tag = FILL.to_bits();
            let _ = (self.client).set(context, &fill.name, &fill.body, options, tag);
        }
        self.flush(context, polls, http);
    }

    /// Looks a key up for an explanation; returns the reason if that fails at once.
    pub(super) fn look_up(
        &mut self,
        context: &mut Context,
        key: &[u8],
        tag: Token,
        polls: &mut Polls,
        http: &mut Http,
    ) -> Option<Valued> {
        debug_assert!(matches!(
            CacheOperation::of(tag.to_bits()),
            CacheOperation::Explained(_)
        ));
        if let Err(error) = self.client.get(context, key, tag.to_bits()) {
            return Some(Valued::Unknown(error.to_string()));
        }
        self.flush(context, polls, http);
        None
    }

    /// Describes the server, and the way in which this loop finds changes of a key.
    pub(super) fn place(&self, key: &[u8]) -> String {
        let known = self.client.server_of(key);
        let (server, status) = (known.endpoint, known.status);
        let state = if status.is_up { "up" } else { "down" };
        let is_refused = status.tracking == Tracking::Refused;
        let changes = match self.client.is_armed(key) {
            None => "nothing waits for the key here",
            Some(true) => "the next change of the key is announced",
            Some(false) if is_refused => "the key is swept, as changes are not announced",
            Some(false) => "the next change of the key is not announced yet",
        };
        match status.last_failure {
            Some(failure) => format!("Redis {server}, {state}: {failure}; {changes}"),
            None => format!("Redis {server}, {state}; {changes}"),
        }
    }

    /// Operations without a completion.
    #[cfg(test)]
    pub(super) fn operations(&self) -> usize {
        self.client.operations()
    }

    /// Copies the state of the server to the metrics, and logs changes.
    pub(super) fn keep_states(&mut self, now: Instant) {
        let handshakes = self.client.take_handshakes();
        add_handshakes(&self.metrics.redis_handshakes, &handshakes);
        let mut state = ServerState::Up;
        for known in self.client.servers() {
            let index = known.index;
            if self
                .followed
                .get(index)
                .is_none_or(|it| it.server != *known.endpoint)
            {
                let of_place = |_| Followed::new(known.endpoint.clone());
                self.followed
                    .extend((self.followed.len()..=index).map(of_place));
                self.followed[index] = Followed::new(known.endpoint.clone());
            }
            let of_server = self.followed[index].follow(&known.status);
            state = worse(state, of_server);
        }
        if let Some(status) = self.client.cluster() {
            state = worse(state, self.cluster.follow(&status));
            self.keep_primaries(status.primaries);
        }
        if let Some(cell) = self.metrics.servers.first()
            && cell.state() != state
        {
            cell.set(state);
        }
        let is_on = self.client.tracking() == Tracking::On;
        self.metrics.redis.tracking_loops.set(i64::from(is_on));
        let mut reasons = self.client.servers().map(|it| it.status.tracking_reason);
        let is_refused = reasons.any(|reason| reason.is_some());
        self.metrics.redis.refused_loops.set(i64::from(is_refused));
        drop(reasons);
        let reply = self.client.take_error_reply().unwrap_or_default();
        let code = reply.split(' ').next().unwrap_or_default();
        // Metrics count them: a log of every one would be as long as their list.
        if !code.is_empty() && self.refused.enter(code, now) {
            let server = &self.server;
            tracing::warn!(%server, reply, "Redis refuses a command");
        }
    }

    /// Copies the states of so many primaries to the metrics, if one has changed.
    fn keep_primaries(&mut self, count: usize) {
        let mut has_changed = self.primaries.len() != count;
        self.primaries.truncate(count);
        // Before they are known, the servers are those of the configuration.
        for (place, known) in self.client.servers().take(count).enumerate() {
            let state = self.followed[known.index].state;
            let is_same = |(server, of_server): &(Endpoint, ServerState)| {
                server == known.endpoint && *of_server == state
            };
            if self.primaries.get(place).is_some_and(is_same) {
                continue;
            }
            has_changed = true;
            self.primaries.truncate(place);
            self.primaries.push((known.endpoint.clone(), state));
        }
        if has_changed {
            let named = |(server, state): &(Endpoint, ServerState)| (server.to_string(), *state);
            let named = self.primaries.iter().map(named);
            self.metrics.redis_primaries.set(named.collect());
        }
    }

    /// Tells the client which keys have begun or ended to be waited for.
    fn follow_waits(&mut self, polls: &mut Polls) {
        for (name, key) in polls.take_changed_waits() {
            match key {
                Some(key) => self.client.wait(&name, key.to_bits()),
                None => self.client.unwait(&name),
            }
        }
    }

    /// Tells the client which keys are waited for, and sends what there is.
    pub(super) fn flush(&mut self, context: &mut Context, polls: &mut Polls, http: &mut Http) {
        self.follow_waits(polls);
        let mut sink = |context: &mut Context, completion: Completion<'_>| {
            polls.redis_completed(context, http, &completion);
        };
        self.client.flush(context, &mut sink);
    }
}

impl LoggedCodes {
    /// Returns true if a reply with this code is to be logged.
    fn enter(&mut self, code: &str, now: Instant) -> bool {
        self.0.retain(|(_, at)| now < *at + LOGGED_FOR);
        let is_known = self.0.iter().any(|(logged, _)| **logged == *code);
        let is_logged = !is_known && self.0.len() < LOGGED_CODES_MAX;
        if is_logged {
            self.0.push((code.into(), now));
        }
        is_logged
    }
}

impl Followed {
    fn new(server: Endpoint) -> Self {
        Self {
            server,
            state: ServerState::Unknown,
            tracking: Tracking::Idle,
            notices: Notices::default(),
        }
    }

    /// Logs changes; returns the state.
    fn follow(&mut self, status: &Status<'_>) -> ServerState {
        let (server, state) = (&self.server, state_of(status));
        if self.state != state {
            self.state = state;
            log_state(server, status, state);
        }
        if self.tracking != status.tracking {
            self.tracking = status.tracking;
            self.notices.follow_tracking(server, status);
        }
        self.notices.follow_announcements(server, status);
        state
    }
}

impl ClusterNotices {
    /// Logs changes; returns the state of the cluster beside those of its servers.
    fn follow(&mut self, status: &ClusterStatus<'_>) -> ServerState {
        let missing_slots = status.missing_slots;
        if missing_slots != self.missing_slots {
            self.missing_slots = missing_slots;
            if missing_slots > 0 {
                tracing::warn!(
                    missing_slots,
                    "slots of the Redis cluster have no primary: polls for their keys are misses"
                );
            } else {
                tracing::info!("every slot of the Redis cluster has a primary");
            }
        }
        let has_unknown_server = status.unknown.is_some();
        if has_unknown_server != self.has_unknown_server {
            self.has_unknown_server = has_unknown_server;
            if let Some(server) = status.unknown {
                tracing::warn!(
                    server,
                    "a server of the Redis cluster is named without an address: set \
                     cluster-preferred-endpoint-type to ip"
                );
            }
        }
        let is_unknown = status.reason.is_some();
        if is_unknown != self.is_unknown {
            self.is_unknown = is_unknown;
            if let Some(reason) = status.reason {
                tracing::warn!(reason, "the Redis cluster does not return its slots");
            } else {
                let primaries = status.primaries;
                tracing::info!(primaries, "the Redis cluster returns its slots");
            }
        }
        match (status.primaries, missing_slots) {
            (0, _) if !is_unknown => ServerState::Unknown,
            (0, _) | (_, 1..) => ServerState::Down,
            _ => ServerState::Up,
        }
    }
}

/// The state of two servers together.
fn worse(one: ServerState, other: ServerState) -> ServerState {
    let is_either = |state| one == state || other == state;
    [ServerState::Down, ServerState::Unknown]
        .into_iter()
        .find(|state| is_either(*state))
        .unwrap_or(ServerState::Up)
}

/// The state of a server in health and metrics.
fn state_of(status: &Status<'_>) -> ServerState {
    match (status.is_up, status.last_failure, status.connects) {
        (true, ..) => ServerState::Up,
        (false, None, 0) => ServerState::Unknown,
        (false, ..) => ServerState::Down,
    }
}

/// Logs a server that has come or gone for this loop.
fn log_state(server: &Endpoint, status: &Status<'_>, state: ServerState) {
    let reason = status.reason.unwrap_or_default();
    match (state, status.last_failure) {
        (ServerState::Up, _) => {
            let primary = status.primary.map(tracing::field::display);
            tracing::info!(%server, primary, "Redis answers");
        }
        (ServerState::Down, Some(failure)) if reason.is_empty() => {
            tracing::warn!(%server, %failure, "Redis does not answer");
        }
        (ServerState::Down, Some(failure)) => {
            tracing::warn!(%server, %failure, reason, "Redis does not answer");
        }
        (ServerState::Down, None) => tracing::warn!(%server, "Redis has closed the connection"),
        (ServerState::Unknown, _) => {}
    }
}

impl Notices {
    /// Logs that the server announces changes to this loop, or does not; it is asked again now and
    /// then, and a refusal that was logged is not logged again.
    fn follow_tracking(&mut self, server: &Endpoint, status: &Status<'_>) {
        match (status.tracking, status.tracking_reason) {
            (Tracking::On, _) => {
                self.refused = None;
                tracing::debug!(%server, "Redis announces changes");
            }
            (Tracking::Refused, Some(reason)) if self.is_new(reason) => {
                tracing::warn!(
                    %server,
                    reason,
                    "Redis does not announce changes: keys that polls wait for are swept"
                );
            }
            _ => {}
        }
    }

    fn is_new(&mut self, reason: &str) -> bool {
        let is_new = self.refused.as_deref() != Some(reason);
        if is_new {
            self.refused = Some(reason.into());
        }
        is_new
    }

    /// Logs announcements that are of no use, and a table of the server that is nearly full.
    fn follow_announcements(&mut self, server: &Endpoint, status: &Status<'_>) {
        if status.has_idle_pushes && !self.idle_pushes {
            self.idle_pushes = true;
            tracing::warn!(
                %server,
                "Redis announces changes of keys that have not changed, and reads are slowed down: \
                 raise tracking-table-max-keys above the number of keys that polls wait for, \
                 unless publishers set the values that are there again and again"
            );
        }
        if let Some(table) = status.table
            && !self.table
        {
            let (keys, keys_max) = (table.keys, table.keys_max);
            tracing::warn!(
                %server,
                keys,
                keys_max,
                "the table of Redis for keys that polls wait for is nearly full: raise \
                 tracking-table-max-keys, or set redis.tracking to \"prefix\""
            );
        }
        self.table = status.table.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_said_once_until_the_server_announces_changes() {
        let server = Endpoint::Unix("/a".into());
        let status = |tracking, tracking_reason| Status {
            is_up: true,
            primary: None,
            connects: 1,
            last_failure: None,
            reason: None,
            tracking,
            tracking_reason,
            has_idle_pushes: false,
            table: None,
        };
        let mut notices = Notices::default();
        let refused = status(Tracking::Refused, Some("NOPERM"));
        for _ in 0..3 {
            notices.follow_tracking(&server, &refused);
            assert!(!notices.is_new("NOPERM"), "it was said");
            notices.follow_tracking(&server, &status(Tracking::Connecting, Some("NOPERM")));
        }
        assert!(notices.is_new("ERR other"));
        notices.follow_tracking(&server, &status(Tracking::On, None));
        assert!(notices.is_new("ERR other"));
    }

    #[test]
    fn a_code_of_error_replies_is_logged_once_an_hour_whatever_comes_between() {
        let (mut codes, now) = (LoggedCodes::default(), Instant::now());
        let logged = |codes: &mut LoggedCodes, at| {
            let replies = ["NOPERM", "OOM", "NOPERM", "OOM"].into_iter();
            replies.filter(|code| codes.enter(code, at)).count()
        };
        assert_eq!(logged(&mut codes, now), 2);
        assert_eq!(logged(&mut codes, now + LOGGED_FOR / 2), 0);
        let again = now + LOGGED_FOR;
        assert_eq!(logged(&mut codes, again), 2);
        let any = (0..1000).filter(|number| codes.enter(&number.to_string(), again));
        assert_eq!(any.count(), LOGGED_CODES_MAX - 2);
    }
}
