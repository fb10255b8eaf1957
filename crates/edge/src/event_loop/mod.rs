//! One loop of the edge: which component owns which token, and what a turn sends at its end.

mod admission;
mod app;
mod cache_servers;
mod change_feed;
mod ending;
mod handoff;
mod message;
mod output;
mod presence;
mod queries;
mod settings;
mod supervise;
mod tokens;
mod upstream_figures;

pub(crate) use admission::Admission;
pub(crate) use app::Front;
pub(crate) use message::Message;
pub(crate) use output::OutputBound;
pub(crate) use settings::{Listening, Settings, http_limits};
pub(crate) use supervise::Supervise;
pub(crate) use tokens::{ADMIN_KINDS, CLIENT_KINDS, PRESENCE, UPSTREAM_KINDS, kind};

use crate::change_feed::{ChangeFeed, WaitedKeys};
use crate::handoff::Handoff;
use crate::metrics::{LoopMetrics, figure};
use crate::ops::admin::Admin;
use crate::polls::{self, Follower, Source, Told, seconds};
use crate::presence::{Presence, Webhooks};
use crate::proxy::Tunnels;
use crate::published;
use dwell_engine::Http;
use dwell_engine::websocket::WebSockets;
use dwell_evloop::{Context, Driver, Fleet, Lifecycle, Readiness, Token};
use dwell_memcache::on_loop::{Client, Completion, Failure, Outcome};
use dwell_proto::memcache::StoreVerb;
use dwell_proto::memcache::encode::request::StoreOptions;
use dwell_store_server::StoreServer;
use dwell_upstream::{UpstreamEvent, UpstreamRequest, Upstreams};
use ending::Drain;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokens::{DRAIN, ENCODINGS, EXPIRE, FOLLOW, LEFT, OWED, RECHECK, RELEASE, WATCHDOG};

/// The tag of what memcached is given.
const FILL: Token = Token::new(polls::kind::FILL, 0, 0);

/// How often a loop looks at keys of the embedded store that its polls wait for, although the
/// store tells of every change.
const EMBEDDED_RECHECK: Duration = Duration::from_secs(15);
/// How often a loop looks whether what exchanges wait for is still there.
const OWED_RECHECK: Duration = Duration::from_secs(15);
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
const ENCODINGS_INTERVAL: Duration = Duration::from_secs(1);
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);
/// Items one sweep looks at.
const EXPIRE_BUDGET: usize = 4096;

/// What happened to a token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Occurrence {
    Ready(Readiness),
    Expired,
}

/// Everything on one loop.
#[derive(Debug)]
pub(crate) struct EdgeLoop {
    pub(crate) http: Http,
    pub(crate) websockets: WebSockets,
    pub(crate) front: Front,
    pub(crate) admin: Option<Admin>,
    pub(crate) store_server: Option<StoreServer>,
    pub(crate) memcached: Option<Client>,
    /// What external servers tell of changes, on the first loop.
    pub(crate) change_feed: Option<ChangeFeed>,
    /// Where all loops say what they wait for, if there is such a feed.
    pub(crate) waited: Option<Arc<WaitedKeys>>,
    pub(crate) upstreams: Upstreams,
    pub(crate) tunnels: Tunnels,
    /// Who is watched, where somebody wants to be told; by the first loop.
    pub(crate) presence: Option<Arc<Presence>>,
    pub(crate) webhooks: Option<Webhooks>,
    /// Connections of clients that are not in `http`.
    pub(crate) elsewhere: usize,
    /// What it does about clients that take too little.
    pub(crate) output: OutputBound,
    pub(crate) source: Source,
    pub(crate) metrics: Arc<LoopMetrics>,
    pub(crate) fleet: Arc<Fleet<Message>>,
    /// Which loop it is; the first hears the signals, and ends last.
    pub(crate) index: usize,
    pub(crate) settings: published::Follower<Settings>,
    pub(crate) handoff: Arc<Handoff>,
    /// The clients' listeners, by their addresses as they were configured.
    pub(crate) listening: Vec<(SocketAddr, Token)>,
    /// What the first loop does beside serving.
    pub(crate) supervisor: Option<Box<dyn Supervise>>,
    pub(crate) recheck_interval: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) draining: Option<Drain>,
}

impl EdgeLoop {
    /// How often what polls wait for is looked at again.
    pub(crate) fn recheck_interval(source: &Source, sweep_interval: Duration) -> Duration {
        match source {
            Source::Embedded(..) => EMBEDDED_RECHECK,
            Source::Memcached => sweep_interval,
        }
    }

    fn timer(&mut self, context: &mut Context, timer: Token) {
        match timer {
            RECHECK => self.front.polls.recheck(context, &mut self.http),
            EXPIRE => {
                if let Source::Embedded(store, _) = &self.source {
                    store.sweep(seconds(context), EXPIRE_BUDGET);
                    if store.statistics().curr_items > 0 {
                        context.arm(EXPIRE, EXPIRE_INTERVAL);
                    }
                }
            }
            DRAIN => self.drain_step(context),
            WATCHDOG => {
                if let Some(supervisor) = &mut self.supervisor {
                    supervisor.check_loops();
                }
                self.arm_watchdog(context);
            }
            ENCODINGS => self.front.polls.encodings.let_go(0),
            RELEASE => self.release_memory(),
            FOLLOW => self.front.polls.recheck_flights(context, &mut self.http),
            OWED => self.front.polls.recheck_owed(context, &mut self.http),
            _ => {}
        }
    }

    /// Tells the service manager, if there is one, that the process serves.
    pub(crate) fn supervise(&mut self, context: &mut Context) {
        if let Some(supervisor) = &self.supervisor {
            supervisor.serves();
        }
        self.arm_watchdog(context);
    }

    fn arm_watchdog(&self, context: &mut Context) {
        let supervisor = self.supervisor.as_deref();
        if let Some(interval) = supervisor.and_then(Supervise::watchdog_interval) {
            context.arm(WATCHDOG, interval);
        }
    }

    /// Sends what the turn has collected: lookups first, as their failures may cause forwards.
    pub(crate) fn send_outbox(&mut self, context: &mut Context) {
        self.front.polls.adopt(context, &mut self.websockets);
        self.send_versions(context);
        self.send_orders(context);
        loop {
            self.send_lookups(context);
            for (fetch, recall) in std::mem::take(&mut self.front.polls.outbox.recalled) {
                self.front
                    .polls
                    .recalled(context, &mut self.http, fetch, recall);
            }
            let forwards = std::mem::take(&mut self.front.polls.outbox.requests);
            let outbox = &self.front.polls.outbox;
            let has_unsent = self.front.polls.lookups.has_unsent();
            if forwards.is_empty() && outbox.recalled.is_empty() && !has_unsent {
                break;
            }
            for forward in forwards {
                self.send_forward(context, forward);
            }
        }
        let (http, tunnels) = (&mut self.http, &mut self.tunnels);
        self.front
            .carry_out(context, &mut self.upstreams, http, tunnels);
        for Told { follower, verdict } in std::mem::take(&mut self.front.polls.outbox.told) {
            let fetch = follower.fetch;
            self.fleet
                .send(follower.of_loop, Message::Fetched { fetch, verdict });
        }
        self.tell_joins(context);
        self.send_fills(context);
        self.front.polls.answer_ripe(context, &mut self.http);
        let (http, websockets) = (&mut self.http, &mut self.websockets);
        self.front.polls.tell_changes(context, http, websockets);
        self.front.polls.begin_turn();
        if self.front.has_left() {
            context.again(LEFT, Readiness::default());
        }
    }

    /// Goes on with a change of the store's bound, which takes many turns.
    fn follow_resize(&mut self, context: &mut Context) {
        if let Source::Embedded(store, _) = &self.source
            && store.is_resizing()
            && store.resize_step(seconds(context))
        {
            context.again(LEFT, Readiness::default());
        }
    }

    /// Sends what publishers have ordered, and answers those whose orders have ended.
    fn send_orders(&mut self, context: &mut Context) {
        if let Some(admin) = &mut self.admin {
            for (exchange, order, key, value) in admin.orders() {
                self.front
                    .polls
                    .order(context, exchange, order, &key, &value);
            }
        }
        if let (Some(client), true) = (
            &mut self.memcached,
            self.front.polls.publisher.has_questions(),
        ) {
            self.front.polls.publisher.ask(client);
            let (polls, http) = (&mut self.front.polls, &mut self.http);
            client.flush(
                context,
                &mut |context: &mut Context, completion: Completion<'_>| {
                    polls.completed(context, http, &completion);
                },
            );
        }
        let of_admin = self.front.polls.answer_publishers(context, &mut self.http);
        if let Some(admin) = &mut self.admin {
            for (exchange, finished) in of_admin {
                admin.ordered(context, exchange, &finished);
            }
        }
    }

    /// Tells whoever has sent a request of the clients that have joined it.
    fn tell_joins(&mut self, context: &mut Context) {
        for join in self.front.polls.outbox.joins.take() {
            let fetch = join.fetch.to_bits();
            if join.leader.is_none() && !self.upstreams.may_be_given(fetch) {
                continue;
            }
            let Some(client) = self.front.polls.client_of_join(&self.http, &join) else {
                continue;
            };
            match join.leader {
                Some(Follower { of_loop, fetch }) => {
                    self.fleet.send(of_loop, Message::Joined { fetch, client });
                }
                None => self.upstreams.also_for(context, fetch, client),
            }
        }
    }

    /// Gives memcached what it does not have. It is the application's to store what it must have,
    /// so nobody waits to hear whether it was stored.
    fn send_fills(&mut self, context: &mut Context) {
        let fills = self.front.polls.lookups.take_fills();
        let Some(client) = self.memcached.as_mut().filter(|_| !fills.is_empty()) else {
            return;
        };
        for fill in fills {
            let options = StoreOptions {
                exptime: fill.exptime,
                ..StoreOptions::default()
            };
            // One that does not fit is not stored: the next miss brings it again.
            let _ = client.store(
                StoreVerb::Add,
                &fill.name,
                &fill.body,
                options,
                FILL.to_bits(),
            );
        }
        let (polls, http) = (&mut self.front.polls, &mut self.http);
        client.flush(
            context,
            &mut |context: &mut Context, completion: Completion<'_>| {
                polls.completed(context, http, &completion);
            },
        );
    }

    fn send_lookups(&mut self, context: &mut Context) {
        let Some(client) = &mut self.memcached else {
            return;
        };
        let (polls, http) = (&mut self.front.polls, &mut self.http);
        for lookup in polls.lookups.take_unsent() {
            let Some(name) = polls.lookup_sent(lookup) else {
                continue;
            };
            if client.get(name, lookup.to_bits()).is_err() {
                // The queue to memcached is full: as good as a server that does not answer.
                let outcome = Outcome::Failed(Failure::Unavailable);
                let tag = lookup.to_bits();
                polls.completed(
                    context,
                    http,
                    &Completion {
                        tag,
                        server: 0,
                        epoch: 0,
                        outcome,
                    },
                );
            }
        }
        let mut sink = |context: &mut Context, completion: Completion<'_>| {
            polls.completed(context, http, &completion);
        };
        client.flush(context, &mut sink);
    }

    fn send_forward(&mut self, context: &mut Context, forward: polls::FetchRequest) {
        let tag = forward.fetch.to_bits();
        let request = UpstreamRequest {
            is_head: forward.is_head,
            is_idempotent: forward.is_idempotent,
            client: forward.client,
            ..UpstreamRequest::new(forward.bytes, tag)
        };
        if let Err(error) = self.upstreams.send(context, request) {
            let event = UpstreamEvent::failed(tag, error);
            self.front.told(context, &mut self.http, event);
        }
    }

    fn keep_counts(&mut self) {
        self.metrics.turns.increment();
        self.metrics
            .connections_open
            .set(figure(self.http.connections() + self.elsewhere));
        self.metrics.tunnels_open.set(figure(self.tunnels.len()));
        self.metrics
            .websockets_open
            .set(figure(self.front.polls.sockets()));
        self.metrics
            .waits_held
            .set(figure(self.front.polls.waiting()));
        self.metrics.polls_held.set(figure(self.front.polls.held()));
        self.metrics
            .streams_open
            .set(figure(self.front.polls.streams()));
        if let Some(client) = &self.memcached {
            for (cell, status) in self.metrics.servers.iter().zip(client.statuses()) {
                let state = cache_servers::state_of(&status);
                if cell.state() != state {
                    cell.set(state);
                    cache_servers::log_state(&status, state);
                }
            }
        }
        upstream_figures::keep(&mut self.upstreams, &self.metrics);
        self.metrics
            .watched_keys
            .set(figure(self.front.polls.watched_keys()));
    }
}

impl EdgeLoop {
    /// Tells the component that owns `token`.
    fn dispatch(&mut self, context: &mut Context, token: Token, what: Occurrence) {
        match token.kind() {
            kind::CLIENT | kind::CLIENT_LISTENER => {
                let (http, front) = (&mut self.http, &mut self.front);
                match what {
                    Occurrence::Ready(readiness) => http.ready(context, token, readiness, front),
                    Occurrence::Expired => http.expired(context, token, front),
                }
            }
            kind::WEBSOCKET => {
                let (websockets, polls) = (&mut self.websockets, &mut self.front.polls);
                match what {
                    Occurrence::Ready(readiness) => {
                        websockets.ready(context, token, readiness, polls);
                    }
                    Occurrence::Expired => websockets.expired(context, token, polls),
                }
            }
            kind::MEMCACHED => self.tell_memcached(context, token, what),
            kind::WEBHOOK => self.tell_webhook(context, token, what),
            kind::CHANGE_FEED => self.tell_feed(context, token, what),
            kind::TUNNEL => match what {
                Occurrence::Ready(readiness) => self.tunnels.ready(context, token, readiness),
                Occurrence::Expired => self.tunnels.expired(context, token),
            },
            kind::STORE | kind::STORE_LISTENER => {
                let Some(server) = &mut self.store_server else {
                    return;
                };
                match what {
                    Occurrence::Ready(readiness) => server.ready(context, token, readiness),
                    Occurrence::Expired => server.expired(context, token),
                }
                if !context.is_armed(EXPIRE) {
                    context.arm(EXPIRE, EXPIRE_INTERVAL);
                }
            }
            kind::ADMIN | kind::ADMIN_LISTENER => {
                let Some(admin) = &mut self.admin else { return };
                match what {
                    Occurrence::Ready(readiness) => admin.ready(context, token, readiness),
                    Occurrence::Expired => admin.expired(context, token),
                }
            }
            kind::TIMER => self.timer(context, token),
            kind if kind >= kind::UPSTREAM => self.tell_upstream(context, token, what),
            _ => {}
        }
    }

    fn tell_memcached(&mut self, context: &mut Context, token: Token, what: Occurrence) {
        let Some(client) = &mut self.memcached else {
            return;
        };
        let (polls, http) = (&mut self.front.polls, &mut self.http);
        let mut sink = |context: &mut Context, completion: Completion<'_>| {
            polls.completed(context, http, &completion);
        };
        match what {
            Occurrence::Ready(readiness) => client.ready(context, token, readiness, &mut sink),
            Occurrence::Expired => client.expired(context, token, &mut sink),
        }
    }

    fn tell_upstream(&mut self, context: &mut Context, token: Token, what: Occurrence) {
        let (front, http) = (&mut self.front, &mut self.http);
        let upstreams = &mut self.upstreams;
        let mut sink = |context: &mut Context, event| front.told(context, http, event);
        match what {
            Occurrence::Ready(readiness) => upstreams.ready(context, token, readiness, &mut sink),
            Occurrence::Expired => upstreams.expired(context, token, &mut sink),
        }
    }
}

impl Driver for EdgeLoop {
    type Message = Message;

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.dispatch(context, token, Occurrence::Ready(readiness));
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.dispatch(context, token, Occurrence::Expired);
    }

    fn message(&mut self, context: &mut Context, message: Message) {
        let (polls, http) = (&mut self.front.polls, &mut self.http);
        match message {
            Message::Changed { name, at } => polls.changed(context, http, &name, at),
            Message::Fetched { fetch, verdict } => {
                polls.followed(context, http, fetch, verdict.as_ref());
            }
            Message::Joined { fetch, client } => {
                self.upstreams.also_for(context, fetch, client);
            }
            Message::Hinted(names) => polls.hinted(&names),
            Message::Resync(resync) => self.resync(resync),
            Message::TooSlow(tokens) => self.cut_off(context, &tokens),
            Message::Asked(inquiry) => self.answer_inquiry(&inquiry),
        }
    }

    fn signal(&mut self, _: &mut Context, signal: i32) {
        if let Some(supervisor) = &self.supervisor
            && supervisor.heard(signal)
        {
            return;
        }
        tracing::info!(signal, "ending");
        self.fleet.advance(match self.fleet.lifecycle() {
            Lifecycle::Serve | Lifecycle::HandOver => Lifecycle::Drain,
            Lifecycle::Drain | Lifecycle::Stop => Lifecycle::Stop,
        });
    }

    fn turn_end(&mut self, context: &mut Context) {
        self.stand_still(context);
        self.follow_order(context);
        self.follow_feed(context);
        self.bound_output(context);
        self.send_outbox(context);
        self.follow_inquiries(context);
        self.follow_presence(context);
        self.follow_resize(context);
        if self.front.polls.watched_keys() > 0 && !context.is_armed(RECHECK) {
            context.arm(RECHECK, self.recheck_interval);
        }
        if self.front.polls.owes() && !context.is_armed(OWED) {
            context.arm(OWED, OWED_RECHECK);
        }
        if self.front.polls.following() > 0 && !context.is_armed(FOLLOW) {
            context.arm(FOLLOW, FOLLOW_INTERVAL);
        }
        if !self.front.polls.encodings.is_empty() && !context.is_armed(ENCODINGS) {
            context.arm(ENCODINGS, ENCODINGS_INTERVAL);
        }
        self.upstreams.start(context);
        // Last: what this turn has decided goes out by the settings it was decided by.
        self.follow_settings(context);
        self.limit_connections();
        self.take_arrivals(context);
        self.hand_over(context);
        self.end_when_done(context);
        self.keep_counts();
    }
}
