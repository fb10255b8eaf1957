//! The source of values on one loop: the embedded store, or a client of memcached servers or Redis.

use super::TokenEvent;
use super::redis::RedisCache;
use super::tokens::{EXPIRE, LEFT};
use crate::event_loop::Settings;
use crate::ids::kind;
use crate::metrics::{LoopMetrics, ServerCell, ServerState, add_handshakes};
use crate::polls::{Polls, Source, Value, Valued, seconds};
use dwell_engine::Http;
use dwell_evloop::{Context, Id, Readiness, Token};
use dwell_memcache::on_loop::{
    Client, Completion, Error, Failure, MetaCommand, Outcome, ServerStatus, State,
};
use dwell_proto::memcache::StoreVerb;
use dwell_proto::memcache::encode::request::StoreOptions;
use dwell_store::{MetaGet, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The source of values, and the loop's upkeep of it.
#[derive(Debug)]
pub(crate) struct Cache {
    source: Source,
    memcached: Option<Client>,
    redis: Option<RedisCache>,
    /// Interval at which all watched keys are read again.
    recheck_interval: Duration,
    metrics: Arc<LoopMetrics>,
}

/// Interval for keys of the embedded store. It is a safeguard: the store reports every change.
const EMBEDDED_RECHECK: Duration = Duration::from_secs(15);
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);
/// Items that one sweep checks.
const EXPIRE_BUDGET: usize = 4096;
/// Most versions that are queried at a time. It leaves lookups of new polls their room in the
/// requests to memcached; the rest follows as replies arrive.
const VERSIONS_AT_ONCE: usize = 2048;
/// Tag of values that memcached or Redis is given.
pub(super) const FILL: Token = Token::new(kind::FILL, 0, 0);

impl Cache {
    /// Makes the cache; keys of memcached servers are read again by `sweep_interval`.
    pub(crate) fn new(
        source: Source,
        (memcached, redis): (Option<Client>, Option<RedisCache>),
        sweep_interval: Duration,
        metrics: Arc<LoopMetrics>,
    ) -> Self {
        let mut cache = Self {
            source,
            memcached,
            redis,
            recheck_interval: sweep_interval,
            metrics,
        };
        cache.set_sweep_interval(sweep_interval);
        cache
    }

    pub(super) fn set_sweep_interval(&mut self, sweep_interval: Duration) {
        self.recheck_interval = match self.source {
            Source::Embedded(..) => EMBEDDED_RECHECK,
            Source::Memcached | Source::Redis => sweep_interval,
        };
    }

    pub(super) fn recheck_interval(&self) -> Duration {
        let redis = self.redis.as_ref();
        redis.map_or(self.recheck_interval, |redis| {
            redis.recheck_interval(self.recheck_interval)
        })
    }

    /// The embedded store, if it is the source.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        match &self.source {
            Source::Embedded(store, _) => Some(store),
            Source::Memcached | Source::Redis => None,
        }
    }

    /// Open operations of memcached.
    #[cfg(test)]
    pub(crate) fn operations(&self) -> usize {
        let redis = self.redis.as_ref().map_or(0, RedisCache::operations);
        redis + self.memcached.as_ref().map_or(0, Client::operations)
    }

    /// Schedules a sweep of the embedded store, since a client may have stored items that expire.
    pub(super) fn expect_expiry(&self, context: &mut Context) {
        if self.store().is_some() && !context.is_armed(EXPIRE) {
            context.arm(EXPIRE, EXPIRE_INTERVAL);
        }
    }

    /// Drops expired items, and schedules the next sweep while there are items.
    pub(super) fn sweep(&self, context: &mut Context) {
        if let Some(store) = self.store() {
            store.sweep(seconds(context), EXPIRE_BUDGET);
            if store.statistics().curr_items > 0 {
                context.arm(EXPIRE, EXPIRE_INTERVAL);
            }
        }
    }

    /// Continues a change of the store's bound, which takes many turns.
    pub(super) fn follow_resize(&self, context: &mut Context) {
        if let Some(store) = self.store()
            && store.is_resizing()
            && store.resize_step(seconds(context))
        {
            context.again(LEFT, Readiness::default());
        }
    }

    /// Passes an event of one of its tokens to the client of memcached or Redis.
    pub(super) fn token_event(
        &mut self,
        context: &mut Context,
        token: Token,
        what: TokenEvent,
        polls: &mut Polls,
        http: &mut Http,
    ) {
        if let Some(redis) = &mut self.redis {
            return redis.token_event(context, token, what, polls, http);
        }
        let Some(client) = &mut self.memcached else {
            return;
        };
        let mut sink = |context: &mut Context, completion: Completion<'_>| {
            polls.completed(context, http, &completion);
        };
        match what {
            TokenEvent::Ready(readiness) => client.ready(context, token, readiness, &mut sink),
            TokenEvent::Expired => client.expired(context, token, &mut sink),
        }
    }

    /// Sends the lookups of the turn.
    pub(super) fn send_lookups(
        &mut self,
        context: &mut Context,
        polls: &mut Polls,
        http: &mut Http,
    ) {
        if let Some(redis) = &mut self.redis {
            return redis.send_lookups(context, polls, http);
        }
        let Some(client) = &mut self.memcached else {
            return;
        };
        for lookup in polls.lookups.take_unsent() {
            let Some(name) = polls.lookup_sent(lookup) else {
                continue;
            };
            if client.get(name, lookup.to_bits()).is_err() {
                // The queue to memcached is full, which counts as a failed server.
                let failed = Completion {
                    tag: lookup.to_bits(),
                    server: 0,
                    epoch: 0,
                    outcome: Outcome::Failed(Failure::Unavailable),
                };
                polls.completed(context, http, &failed);
            }
        }
        flush(client, context, polls, http);
    }

    /// Goes on with other addresses of the servers, where they are others.
    pub(super) fn turn_to(&mut self, context: &mut Context, settings: &Settings) {
        if let Some(client) = &mut self.memcached {
            client.turn_to(context, &settings.memcached);
        }
        if let (Some(redis), Some(endpoint)) = (&mut self.redis, &settings.redis) {
            redis.turn_to(context, endpoint);
        }
    }

    /// Returns true if the client of the source knows the watched keys, and reads them again.
    pub(super) fn sweeps_itself(&self) -> bool {
        self.redis.is_some()
    }

    /// Has all watched keys read again by the client of Redis.
    pub(super) fn sweep_waited(&mut self, context: &Context) {
        if let Some(redis) = &mut self.redis {
            redis.sweep(context, self.recheck_interval);
        }
    }

    /// Queries the versions of the keys of a sweep, as many as may be open.
    pub(super) fn send_versions(
        &mut self,
        context: &mut Context,
        polls: &mut Polls,
        http: &mut Http,
    ) {
        let Some(client) = &mut self.memcached else {
            return;
        };
        polls.lookups.resume_sweep();
        let (mut put_off, mut is_over) = (0, false);
        // If a server is down, they fail in `flush`, which makes room for the next.
        while !is_over && put_off < VERSIONS_AT_ONCE && client.operations() < VERSIONS_AT_ONCE {
            let room = VERSIONS_AT_ONCE - client.operations();
            for _ in 0..room {
                let Some(key) = polls.lookups.next_version() else {
                    is_over = true;
                    break;
                };
                if let Some(name) = polls.waited_name(key)
                    && let Err(error) = client.version(name, key.to_bits())
                    && is_for_want_of_room(&error)
                {
                    // What has the room ends within its timeout, in a turn like this one.
                    polls.lookups.put_off_version(key);
                    put_off += 1;
                }
            }
            flush(client, context, polls, http);
        }
    }

    /// Sends the requests of publishers.
    pub(super) fn send_publishes(
        &mut self,
        context: &mut Context,
        polls: &mut Polls,
        http: &mut Http,
    ) {
        if let Some(redis) = &mut self.redis {
            return redis.send_publishes(context, polls, http);
        }
        if let (Some(client), true) = (&mut self.memcached, polls.publisher.has_commands()) {
            polls.publisher.ask(client);
            flush(client, context, polls, http);
        }
    }

    /// Stores fetched values in memcached. The application stores the values it depends on itself,
    /// so nothing waits for the outcome.
    pub(super) fn send_fills(&mut self, context: &mut Context, polls: &mut Polls, http: &mut Http) {
        if let Some(redis) = &mut self.redis {
            return redis.send_fills(context, polls, http);
        }
        let fills = polls.lookups.take_fills();
        let Some(client) = self.memcached.as_mut().filter(|_| !fills.is_empty()) else {
            return;
        };
        for fill in fills {
            let options = StoreOptions {
                exptime: fill.exptime,
                ..StoreOptions::default()
            };
            let tag = FILL.to_bits();
            // A value without room is not stored: the next miss fetches it again.
            let verb = StoreVerb::Add;
            #[cfg(feature = "sim")]
            let verb = if dwell_evloop::sim::Planted::FillReplaces.is_in() {
                StoreVerb::Set
            } else {
                verb
            };
            let _ = client.store(verb, &fill.name, &fill.body, options, tag);
        }
        flush(client, context, polls, http);
    }

    /// Follows which keys have begun or ended to be waited for, where Redis announces changes.
    pub(super) fn follow_waits(
        &mut self,
        context: &mut Context,
        polls: &mut Polls,
        http: &mut Http,
    ) {
        if let Some(redis) = &mut self.redis {
            redis.flush(context, polls, http);
        }
    }

    /// The value of a key in the embedded store, for an explanation; it does not count as a use.
    pub(super) fn stored(&self, context: &Context, key: &[u8]) -> Option<Valued> {
        let options = MetaGet {
            no_bump: true,
            ..MetaGet::default()
        };
        let now = seconds(context);
        let hit = self.store()?.meta_get(key, &options, now);
        Some(hit.map_or(Valued::Missing, |hit| {
            let ttl = hit.expiry.remaining(now).map(u64::from);
            let item = &hit.item;
            Valued::There(Value::new(&item.value, item.flags, item.cas, ttl))
        }))
    }

    /// Looks a key up in memcached or Redis, for an explanation; returns the reason if that fails
    /// at once.
    pub(super) fn look_up(
        &mut self,
        context: &mut Context,
        key: &[u8],
        tag: Token,
        polls: &mut Polls,
        http: &mut Http,
    ) -> Option<Valued> {
        if let Some(redis) = &mut self.redis {
            return redis.look_up(context, key, tag, polls, http);
        }
        let client = self.memcached.as_mut()?;
        let asked = client.meta(MetaCommand::Get, key, tag.to_bits(), |line| {
            line.flag(b'v').flag(b'f').flag(b'c').flag(b't')
        });
        if let Err(error) = asked {
            return Some(Valued::Unknown(error.to_string()));
        }
        flush(client, context, polls, http);
        None
    }

    /// Describes the place of a key.
    pub(super) fn place_of(&self, key: &[u8]) -> String {
        if let Some(redis) = &self.redis {
            return redis.place(key);
        }
        let Some(client) = &self.memcached else {
            return "the embedded store".to_owned();
        };
        let index = client.server_of(key);
        let count = client.statuses().len();
        let Some(status) = client.statuses().nth(index) else {
            return "memcached".to_owned();
        };
        let state = format!("{:?}", status.state).to_ascii_lowercase();
        let place = format!(
            "memcached {}, {} of {count} in the ring, {state}",
            status.address,
            index + 1
        );
        match status.last_failure {
            Some(failure) if status.failures_in_row > 0 => format!("{place}: {failure}"),
            _ => place,
        }
    }

    /// Index of the memcached server of a key.
    pub(super) fn server_of(&self, key: &[u8]) -> Option<usize> {
        Some(self.memcached.as_ref()?.server_of(key))
    }

    /// Servers that have come back since the last call of [`keep_states`](Self::keep_states).
    pub(super) fn returned(&self) -> Vec<usize> {
        let statuses = self.memcached.iter().flat_map(Client::statuses);
        returned(&self.metrics.servers, statuses)
    }

    /// Copies the states of the servers to the metrics, and logs changes.
    pub(super) fn keep_states(&mut self, now: Instant) {
        if let Some(redis) = &mut self.redis {
            return redis.keep_states(now);
        }
        if let Some(client) = &mut self.memcached {
            let counts = client.take_handshakes();
            add_handshakes(&self.metrics.memcached_handshakes, &counts);
        }
        let statuses = self.memcached.iter().flat_map(Client::statuses);
        let reasons = self.memcached.iter().flat_map(Client::handshake_errors);
        let servers = self.metrics.servers.iter().zip(statuses).zip(reasons);
        for ((cell, status), reason) in servers {
            let state = state_of(&status);
            if cell.state() != state {
                cell.set(state);
                log_state(&status, state, reason);
            }
        }
    }
}

/// Sends the client's queue, and completes what fails at once.
fn flush(client: &mut Client, context: &mut Context, polls: &mut Polls, http: &mut Http) {
    let mut sink = |context: &mut Context, completion: Completion<'_>| {
        polls.completed(context, http, &completion);
    };
    client.flush(context, &mut sink);
}

/// Returns true if an operation may be taken later, as others end.
fn is_for_want_of_room(error: &Error) -> bool {
    matches!(
        error,
        Error::TooManyOperations { .. } | Error::TooManyRequestBytes { .. }
    )
}

/// Servers that respond, and did not according to `cells`.
fn returned(cells: &[ServerCell], statuses: impl IntoIterator<Item = ServerStatus>) -> Vec<usize> {
    let servers = cells.iter().zip(statuses).enumerate();
    let has_returned = |(cell, status): &(&ServerCell, ServerStatus)| {
        cell.state() != ServerState::Up && state_of(status) == ServerState::Up
    };
    let returned = servers.filter(|(_, server)| has_returned(server));
    returned.map(|(index, _)| index).collect()
}

/// The state of a server in health and metrics.
fn state_of(status: &ServerStatus) -> ServerState {
    match status.state {
        State::Up => ServerState::Up,
        State::Connecting if status.last_failure.is_none() => ServerState::Unknown,
        _ => ServerState::Down,
    }
}

/// Logs a memcached server that has come or gone for this loop.
fn log_state(status: &ServerStatus, state: ServerState, reason: Option<&str>) {
    let server = status.address;
    let failure = status.last_failure.filter(|_| status.failures_in_row > 0);
    match (state, failure) {
        (ServerState::Up, _) => tracing::info!(%server, "memcached answers"),
        (ServerState::Down, Some(failure @ Failure::Handshake)) => {
            let reason = reason.unwrap_or_default();
            tracing::warn!(%server, %failure, reason, "memcached does not answer");
        }
        (ServerState::Down, Some(failure)) => {
            tracing::warn!(%server, %failure, "memcached does not answer");
        }
        (ServerState::Down, None) if status.epoch > 0 => {
            tracing::warn!(%server, "memcached has closed the connection");
        }
        // Not connected yet.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::cursor::Cursor;
    use crate::event_loop::{EdgeLoop, Message};
    use crate::process::single_loop;
    use dwell_evloop::EventLoop;
    use dwell_memcache::on_loop::Statistics;
    use dwell_testkit::sim::{SimMemcached, SimNet};
    use std::io::Write;
    use std::rc::Rc;

    fn status(state: State) -> ServerStatus {
        ServerStatus {
            address: ([127, 0, 0, 1], 11211).into(),
            state,
            epoch: 1,
            operations: 0,
            failures_in_row: 0,
            last_failure: None,
            statistics: Statistics::default(),
        }
    }

    #[test]
    fn a_server_returns_once_each_time_it_was_away() {
        let cells = [ServerCell::default(), ServerCell::default()];
        let turn = |states: [State; 2]| {
            let found = returned(&cells, states.map(status));
            for (cell, state) in cells.iter().zip(states) {
                cell.set(state_of(&status(state)));
            }
            found
        };
        assert_eq!(turn([State::Connecting, State::Up]), [1]);
        assert_eq!(turn([State::Up, State::Up]), [0]);
        assert_eq!(turn([State::Up, State::Up]), [0_usize; 0]);
        assert_eq!(turn([State::Broken, State::Down]), [0_usize; 0]);
        assert_eq!(turn([State::Broken, State::Connecting]), [0_usize; 0]);
        assert_eq!(turn([State::Up, State::Up]), [0, 1]);
    }

    #[test]
    fn a_version_without_room_is_asked_for_as_soon_as_there_is_some() {
        let network = Rc::new(SimNet::new(1));
        let memcached = SimMemcached::start(&network);
        let (at, clients) = (memcached.address(), "127.0.0.1:8080");
        let text = format!(
            "server.listen = \"{clients}\"\nserver.admin = \"off\"\nserver.pollers = 1\n\
             store.listen = \"off\"\nmemcached.servers = \"{at}\"\n\
             memcached.sweep_interval = \"60s\"\n"
        );
        let config = config::parse("test.toml", &text, &[]).unwrap();
        let (mut event_loop, mut driver) = single_loop(config).unwrap();
        let turn = |driver: &mut EdgeLoop, event_loop: &mut EventLoop<Message>| {
            let wait = Some(Duration::from_millis(5));
            event_loop.turn(driver, wait).unwrap();
            network.pass(Duration::from_millis(1));
        };
        memcached.set("/poll/a", "one");
        let cursor = Cursor::of(b"one", 0).text();
        let cursor = std::str::from_utf8(cursor.bare()).unwrap();
        let poll = format!("GET /poll/a?since={cursor}&wait=50s HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut client = network.connect(clients.parse().unwrap());
        client.write_all(poll.as_bytes()).unwrap();
        while driver.front.polls.waiting() == 0 || driver.cache.operations() > 0 {
            turn(&mut driver, &mut event_loop);
        }
        memcached.set("/poll/a", "two");
        // Values, and questions as long as the one that comes, take all the room; a sweep begins.
        let (cache, context) = (&mut driver.cache, event_loop.context());
        let (polls, http) = (&mut driver.front.polls, &mut driver.servers.http);
        let memcached_client = cache.memcached.as_mut().unwrap();
        let (options, tag) = (StoreOptions::default(), FILL.to_bits());
        for length in (0..=22).rev().map(|power| 1 << power) {
            let (verb, value) = (StoreVerb::Set, vec![0; length]);
            while memcached_client
                .store(verb, b"/poll/b", &value, options, tag)
                .is_ok()
            {}
        }
        while memcached_client.version(b"/poll/b", tag).is_ok() {}
        flush(memcached_client, context, polls, http);
        polls.resync(|_| true, false);
        cache.send_versions(context, polls, http);
        assert!(polls.lookups.is_sweeping(), "there is no room");
        let end = network.elapsed() + Duration::from_secs(5);
        let mut answer = Vec::new();
        while !answer.ends_with(b"two") {
            assert!(network.elapsed() < end, "not before the next sweep");
            turn(&mut driver, &mut event_loop);
            client.read_all(&mut answer);
        }
        assert!(!driver.front.polls.lookups.is_sweeping());
    }
}
