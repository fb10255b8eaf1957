//! The polls of one loop: answered, held or forwarded; and the streams that last.
//!
//! A request becomes: route, key, lookup, and by [`decide`] one of *answer*, *wait*, *miss*. A poll
//! that is not answered at once is a [`Poll`](tables::Poll) record in one of the four places of
//! [`places`]: an access subrequest, a lookup, a wait, a fetch. [`Polls`] never does I/O: its
//! [`Lookups`] and its [`Misses`] have what the driver sends when the turn ends, so that the
//! lookups of a turn share one request.

mod admit;
mod answers;
mod arrive;
mod ask;
mod auth;
mod budget;
mod common;
mod cursors;
mod decide;
mod delivery;
mod encodings;
mod events;
mod explain;
mod explanation;
mod feeds;
mod fetch;
mod fetched;
mod follow;
mod frames;
mod freshness;
mod hold;
mod json;
mod kept_request;
mod key_state;
mod large;
mod looked_up;
mod lookups;
mod messages;
mod misses;
mod missing;
mod multi_poll;
mod owed;
mod parts;
mod places;
mod poll_error;
mod publishing;
mod queued;
mod refusals;
mod sharing;
mod sockets;
mod spread;
mod tables;
mod waiters;
mod wake;
mod watchers;

pub use explain::explain_configuration;
pub(crate) use explain::{explain, explained_key};
pub use explanation::{Explained, Explanation, Topic};
pub(crate) use explanation::{Live, Question, Value, Valued};
pub(crate) use large::TooLarge;
pub(crate) use lookups::{Lookups, Source, seconds};
pub(crate) use misses::{FetchRequest, FlightResult, LoopFetch, Memory, Misses, UpstreamResult};
pub(crate) use publishing::Asker;
pub(crate) use refusals::LimitLog;
pub(crate) use watchers::Watchers;

use crate::access::{Access, AuthSubrequests, Gate};
use crate::config::{Config, Routes};
use crate::ids::{FetchId, KeyId, LookupId, SubrequestId};
use crate::metrics::LoopMetrics;
use crate::presence::WatchChange;
use crate::publish::Publisher;
use crate::responder::{ResponseLog, Responses};
use crate::route_figures::RouteFigures;
use admit::AccessChecks;
use delivery::Delivery;
use dwell_evloop::Context;
use dwell_memcache::watch::WaitedByLoop;
use dwell_store::{Item, SharedKey};
use feeds::EventStreams;
use fetch::Fetching;
use hold::Holding;
use messages::Messages;
use missing::SubFetches;
use multi_poll::MultiPolls;
use owed::owed_time;
use publishing::Publications;
use refusals::Refusals;
use sockets::Sockets;
use spread::Spread;
use std::sync::Arc;
use std::time::Duration;
use waiters::Waiters;

/// The place of a loop among the others, and the memory that they share.
#[derive(Clone, Debug)]
pub(crate) struct LoopMember {
    pub(crate) memory: Arc<Memory>,
    pub(crate) limit_log: Arc<LimitLog>,
    pub(crate) of_loop: usize,
    pub(crate) loops: usize,
    /// The keys of this loop that the change feed watches.
    pub(crate) waited: Option<WaitedByLoop>,
}

/// Everything one loop knows of its polls.
#[derive(Debug)]
pub(crate) struct Polls {
    config: Arc<Config>,
    pub(crate) routes: Routes,
    metrics: Arc<LoopMetrics>,
    responses: Arc<Responses>,
    pub(crate) lookups: Lookups,
    pub(crate) misses: Misses,
    waiters: Waiters,
    delivery: Delivery,
    gate: Gate,
    pub(crate) publisher: Publisher<Asker>,
    spread: Spread,
    refusals: Refusals,
    scratch: Scratch,
}

/// Memory that each request uses again.
#[derive(Debug, Default)]
struct Scratch {
    key: Vec<u8>,
    /// A small value of the embedded store, while it is answered with.
    value: Vec<u8>,
}

impl Polls {
    /// The polls of one of several loops, which share the limits evenly.
    pub(crate) fn new(
        config: Arc<Config>,
        log: ResponseLog,
        source: Source,
        access: Arc<Access>,
        member: LoopMember,
        seed: u64,
    ) -> Self {
        let LoopMember {
            memory,
            limit_log,
            of_loop,
            loops,
            waited,
        } = member;
        let rooms = config.limits.rooms(loops);
        let waiters = {
            let (source, metrics) = (source.clone(), Arc::clone(&log.metrics));
            Waiters::new(source, metrics, waited, rooms, loops)
        };
        let lookups = Lookups::new(source, Arc::clone(&log.metrics), rooms.held_max);
        let metrics = Arc::clone(&log.metrics);
        let misses = Misses::new(Arc::clone(&metrics), memory, of_loop, &config.routes, rooms);
        let subrequests = AuthSubrequests::new(rooms.held_max);
        let gate = Gate::new(Arc::clone(&config), access, subrequests);
        let routes = Routes::new(&config);
        let responses = Arc::new(Responses::new(log, &routes));
        let refusals_seed = seed.rotate_left(16);
        let refusals = Refusals::new(refusals_seed, limit_log, Arc::clone(&config), loops);
        Self {
            config,
            routes,
            metrics,
            responses,
            lookups,
            misses,
            waiters,
            delivery: Delivery::default(),
            gate,
            publisher: Publisher::new(),
            spread: Spread::new(seed),
            refusals,
            scratch: Scratch::default(),
        }
    }

    /// Goes by `config` from now on.
    ///
    /// Shape: held polls and open streams stay. Each goes by the route of its prefix as that is
    /// now, or as it was if no route has the prefix any more. Smaller limits end nothing that is
    /// there.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>) {
        self.config = Arc::clone(config);
        let held = self.waiters.routes().chain(self.misses.routes());
        let in_use = self.routes.in_use(held);
        self.routes.replace(config, in_use);
        let log = self.responses.log.reconfigured(config);
        self.responses.figures.tell_nobody(&log.metrics);
        self.waiters.by_route.tell_again();
        self.responses = Arc::new(self.responses.reconfigured(log, &self.routes));
        self.refusals.reconfigure(config);
        let rooms = self.waiters.set_limits(&config.limits);
        self.lookups.set_lookups_max(rooms.held_max);
        self.misses.reconfigure(&self.config.routes, rooms);
        self.gate.reconfigure(config, rooms.held_max);
    }

    /// Goes by other tokens, keys and rates from now on.
    pub(crate) fn change_access(&mut self, access: &Arc<Access>) {
        self.gate.change_access(access);
    }

    /// Watched keys that `question` asks for, each with its watchers.
    pub(crate) fn watched(&self, question: &Question) -> Vec<(Box<[u8]>, Watchers)> {
        match question {
            Question::Prefix(prefix) => self.waiters.watched_below(prefix),
            Question::Request(explained) => {
                let name = explained_key(&self.config, explained);
                let watched = name.and_then(|name| self.waiters.watched(name));
                watched.into_iter().collect()
            }
        }
    }

    /// The next turn has room for work again.
    pub(crate) fn begin_turn(&mut self) {
        self.delivery.begin_turn();
    }

    /// True while large values are kept encoded.
    pub(crate) fn has_encodings(&self) -> bool {
        !self.delivery.encodings.is_empty()
    }

    /// Forgets large values that no reader has any more.
    pub(crate) fn let_encodings_go(&mut self) {
        self.delivery.encodings.let_go(0);
    }

    /// Notes from now on which keys begin and end to be waited for.
    pub(crate) fn tell_presence(&mut self) {
        self.waiters.note_presence();
    }

    /// Takes what was noted of them.
    pub(crate) fn take_presence(&mut self) -> Vec<WatchChange> {
        self.waiters.take_presence()
    }

    /// Takes the keys that have begun or ended to be waited for since the last call, where Redis
    /// announces changes, each with its id if it is waited for now.
    pub(crate) fn take_changed_waits(&mut self) -> Vec<(SharedKey, Option<KeyId>)> {
        self.waiters.take_changed_waits()
    }

    /// Reads the keys among these that polls wait for, as they may have changed.
    pub(crate) fn hinted(&mut self, names: &[Box<[u8]>]) {
        for name in names {
            let outcome = self.lookups.hint(&mut self.waiters.keys, name);
            self.metrics.feed.hints.increment(outcome);
        }
    }

    /// Asks for everything that polls wait for on one server, before the next sweep would.
    pub(crate) fn resync(&mut self, is_of_server: impl Fn(&[u8]) -> bool, is_distrusted: bool) {
        self.lookups
            .resync(&mut self.waiters.keys, is_of_server, is_distrusted);
    }

    /// Polls and streams that wait for a change now.
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.waiting()
    }

    /// Copies the numbers of those by route, if they have changed.
    pub(crate) fn keep_waits_by_route(&mut self) {
        if let Some(counts) = self.waiters.by_route.take_changed() {
            let responses = &self.responses;
            responses
                .figures
                .tell_waiting(&responses.log.metrics, counts);
        }
    }

    /// The places of the figures of routes.
    pub(crate) fn route_figures(&self) -> &RouteFigures {
        &self.responses.figures
    }

    /// Polls that are held now.
    pub(crate) fn held(&self) -> usize {
        self.waiters
            .waiting()
            .saturating_sub(self.waiters.feeds.len())
    }

    /// Streams of events that are open now.
    pub(crate) fn streams(&self) -> usize {
        self.waiters.feeds.streams()
    }

    /// WebSockets that are open now.
    pub(crate) fn sockets(&self) -> usize {
        self.waiters.feeds.sockets()
    }

    /// Keys that polls and streams wait for now.
    pub(crate) fn watched_keys(&self) -> usize {
        self.waiters.keys.waited()
    }

    /// Returns true if no exchange waits for its response.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiters.is_idle()
    }

    /// The server ends: no further polls are held.
    pub(crate) fn refuse_waits(&mut self) {
        self.waiters.refuse_waits();
    }

    /// The name of the key a lookup is for; the lookup has gone out and is shared no further.
    pub(crate) fn lookup_sent(&mut self, lookup: LookupId) -> Option<&[u8]> {
        self.lookups.sent(&mut self.waiters.keys, lookup)
    }

    /// Returns true if an exchange waits for its response.
    pub(crate) fn owes(&self) -> bool {
        self.waiters.owes()
    }

    /// Longest time for a response that depends on memcached and the application.
    pub(crate) fn owed_time(&self) -> Duration {
        owed_time(&self.config)
    }

    /// Returns true if the end of a turn has left something to be sent: a step may produce work for
    /// one before it.
    pub(crate) fn has_left(&self) -> bool {
        let is_sent = !self.lookups.has_left() && !self.misses.has_left();
        let has_orders = self.publisher.has_commands() || self.publisher.has_finished();
        !is_sent || self.delivery.has_left() || has_orders
    }

    /// The name of a key that is still waited for.
    pub(crate) fn waited_name(&self, key: KeyId) -> Option<&[u8]> {
        self.waiters.keys.waited_name(key)
    }

    /// The prefix of the route that a request to the application is for.
    pub(crate) fn route_of_fetch(&self, fetch: FetchId) -> Option<&str> {
        let route = self.misses.route_of(fetch)?;
        Some(&self.routes.get(route).prefix)
    }

    /// The prefix of the route that a subrequest for access is for.
    pub(crate) fn route_of_subrequest(&self, subrequest: SubrequestId) -> Option<&str> {
        let mut waiting = self.gate.subrequests.waiting_for(subrequest).iter();
        let poll = waiting.find_map(|poll| self.waiters.polls().get(*poll))?;
        Some(&self.routes.get(poll.route).prefix)
    }

    /// Streams of events.
    pub(crate) fn event_streams(&mut self) -> EventStreams<'_> {
        EventStreams {
            config: &self.config,
            routes: &self.routes,
            metrics: &self.metrics,
            lookups: &mut self.lookups,
            waiters: &mut self.waiters,
            delivery: &mut self.delivery,
            spread: &mut self.spread,
            refusals: &mut self.refusals,
        }
    }

    /// WebSockets.
    pub(crate) fn socket_streams(&mut self) -> Sockets<'_> {
        Sockets {
            routes: &self.routes,
            metrics: &self.metrics,
            lookups: &mut self.lookups,
            waiters: &mut self.waiters,
            delivery: &mut self.delivery,
        }
    }

    /// Polls that cannot be answered at once.
    fn holding(&mut self) -> Holding<'_> {
        Holding {
            config: &self.config,
            routes: &self.routes,
            responses: &self.responses,
            lookups: &mut self.lookups,
            waiters: &mut self.waiters,
            spread: &mut self.spread,
            refusals: &mut self.refusals,
        }
    }

    /// Checks of access.
    fn access_checks(&mut self) -> AccessChecks<'_> {
        AccessChecks {
            config: &self.config,
            routes: &self.routes,
            metrics: &self.metrics,
            responses: &self.responses,
            gate: &mut self.gate,
            misses: &mut self.misses,
            waiters: &mut self.waiters,
            refusals: &mut self.refusals,
        }
    }

    /// Requests to the application.
    pub(crate) fn fetching(&mut self) -> Fetching<'_> {
        self.sub_fetches().fetching
    }

    /// Keys that the application is asked for beside polls.
    fn sub_fetches(&mut self) -> SubFetches<'_> {
        SubFetches {
            fetching: Fetching {
                config: &self.config,
                routes: &self.routes,
                gate: &self.gate,
                misses: &mut self.misses,
                waiters: &mut self.waiters,
            },
            lookups: &mut self.lookups,
        }
    }

    /// Polls of several keys.
    pub(crate) fn multi_polls(&mut self) -> MultiPolls<'_> {
        MultiPolls {
            config: &self.config,
            routes: &self.routes,
            metrics: &self.metrics,
            responses: &self.responses,
            gate: &self.gate,
            lookups: &mut self.lookups,
            misses: &mut self.misses,
            waiters: &mut self.waiters,
            delivery: &mut self.delivery,
            spread: &mut self.spread,
            refusals: &mut self.refusals,
        }
    }

    /// Messages of WebSocket clients.
    pub(crate) fn messages(&mut self) -> Messages<'_> {
        Messages {
            config: &self.config,
            routes: &self.routes,
            metrics: &self.metrics,
            gate: &self.gate,
            lookups: &mut self.lookups,
            misses: &mut self.misses,
            waiters: &mut self.waiters,
            delivery: &mut self.delivery,
            refusals: &mut self.refusals,
            publisher: &mut self.publisher,
        }
    }

    /// Orders of publishers.
    pub(crate) fn publications(&mut self) -> Publications<'_> {
        Publications {
            config: &self.config,
            routes: &self.routes,
            metrics: &self.metrics,
            responses: &self.responses,
            gate: &self.gate,
            lookups: &mut self.lookups,
            keys: &mut self.waiters.keys,
            replies: &mut self.delivery.replies,
            publisher: &mut self.publisher,
            scratch: &mut self.scratch.key,
        }
    }

    /// The item under `key` in the embedded store; `None` with memcached, which would have to be
    /// asked.
    fn last_look(&self, context: &Context, key: KeyId) -> Option<Item> {
        let keys = &self.waiters.keys;
        self.lookups.stored_key(keys, key, seconds(context))
    }

    /// Returns true if no state is left.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn is_empty(&self) -> bool {
        let is_sent = !self.lookups.has_unsent() && !self.misses.has_left();
        let tables = [
            self.lookups.len(),
            self.misses.fetches(),
            self.misses.sub_fetches(),
        ];
        is_sent && tables == [0; 3] && self.waiters.has_nothing()
    }
}

#[cfg(test)]
mod tests;
