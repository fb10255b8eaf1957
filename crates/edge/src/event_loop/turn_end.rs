//! The end of a turn: the loop sends what it has collected, and applies what has changed around it:
//! the lifecycle, its settings, connections of another process.

use super::ending::DrainStep;
use super::queries::QueryContext;
use super::settings::Settings;
use super::tokens::{DRAIN, ENCODINGS, FOLLOW, LEFT, OWED, RECHECK};
use super::{EdgeLoop, Message, http2_figures, listener_figures, upstream_figures};
use crate::ids::Requested;
use crate::metrics::{Histogram, UpstreamCells, figure};
use crate::polls::{self, FlightResult, LoopFetch};
use dwell_evloop::{Context, Id, Lifecycle, Readiness, Token};
use dwell_upstream::{UpstreamEvent, UpstreamRequest};
use std::time::{Duration, Instant};

/// Interval at which a loop checks the sources of held exchanges.
const OWED_RECHECK: Duration = Duration::from_secs(15);
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
const ENCODINGS_INTERVAL: Duration = Duration::from_secs(1);

impl EdgeLoop {
    /// Runs the steps at the end of a turn. The order matters: decisions of the turn are sent under
    /// the settings they were made by, and only connections that then owe nothing are handed over.
    pub(super) fn end_turn(&mut self, context: &mut Context) {
        self.wait_at_barrier(context);
        self.follow_lifecycle(context);
        let (polls, cache) = (&mut self.front.polls, &self.cache);
        let place = (&*self.fleet, self.index);
        self.hints.follow(context, polls, cache, place);
        let slowest = self.output.follow(context, place);
        self.cut_off(context, &slowest);
        self.send_outbox(context);
        self.answer_queries(context);
        if let Some(presence) = &mut self.presence {
            let changes = self.front.polls.take_presence();
            presence.follow(context, changes, &self.fleet);
        }
        self.cache.follow_resize(context);
        self.arm_timers(context);
        self.upstreams.start(context);
        self.follow_settings(context);
        if self.servers.count_elsewhere() {
            let settings = self.settings.newest();
            self.servers.limit(&settings.config, self.fleet.loops());
        }
        let arrived = self.handoff.queue.take(self.index);
        self.servers.adopt(context, &mut self.front, arrived);
        self.hand_over(context);
        self.end_when_done(context);
        self.metrics.loop_turns.increment();
        self.keep_counts(context.now());
        self.follow_history(context);
    }

    /// Takes part in a round at the barrier; decisions made in a pause are followed next.
    fn wait_at_barrier(&mut self, context: &mut Context) {
        if self.handoff.barrier.is_wanted() {
            self.settle(context);
            let sockets = || self.servers.sockets();
            self.handoff.barrier.come(self.index, sockets);
        }
    }

    /// Comes to rest before a pause: nothing of the turn is left, and the sockets are those of the
    /// newest settings.
    pub(crate) fn settle(&mut self, context: &mut Context) {
        self.send_outbox(context);
        self.follow_settings(context);
    }

    /// Follows the lifecycle of the fleet; a stage that was followed already changes nothing.
    fn follow_lifecycle(&mut self, context: &mut Context) {
        if !self.ending.has_begun() && self.servers.is_shutdown_asked() {
            self.fleet.advance(Lifecycle::Drain);
            tracing::info!("ending, as a memcached client asks");
        }
        match self.fleet.lifecycle() {
            Lifecycle::HandOver if !self.ending.has_begun() => self.begin_hand_over(context),
            Lifecycle::Drain if !self.ending.has_begun() => self.begin_drain(context),
            Lifecycle::Stop => context.stop(),
            _ => {}
        }
    }

    fn begin_drain(&mut self, context: &mut Context) {
        let waiting = self.front.polls.waiting();
        self.ending.drain(context.now(), waiting);
        self.servers.drain(context, &mut self.front);
        self.front.polls.refuse_waits();
        if let Some(supervisor) = &self.supervisor {
            supervisor.drains();
        }
        self.drain_step(context);
    }

    /// Begins to hand connections over to the process that serves now, and ends waits.
    fn begin_hand_over(&mut self, context: &mut Context) {
        let waiting = self.front.polls.waiting();
        let is_blind = self.cache.store().is_some();
        // The loop has been paused since its clock was read.
        self.ending
            .hand_over(dwell_evloop::now(), waiting, is_blind);
        if let Some(supervisor) = &self.supervisor {
            supervisor.hands_over();
        }
        self.hand_over(context);
        self.front.polls.refuse_waits();
        self.drain_step(context);
    }

    /// Ends a share of the waits, or everything if no time is left.
    pub(super) fn drain_step(&mut self, context: &mut Context) {
        let Some(DrainStep { share, next }) = self.ending.step(context.now()) else {
            return;
        };
        let http = &mut self.servers.http;
        self.front.polls.drain(context, http, share);
        if let Some(next) = next {
            return context.arm(DRAIN, next);
        }
        let connections = http.connections();
        self.servers.close_all(context, &mut self.front);
        tracing::warn!(connections, "drain time is over");
    }

    /// Hands idle connections over, if another process serves: at once, and at the ends of later
    /// turns those that become idle. Connections that it does not take end as in a drain.
    fn hand_over(&mut self, context: &mut Context) {
        let sender = self.handoff.sender();
        let Some(sender) = sender.filter(|_| self.ending.has_begun()) else {
            return;
        };
        let (servers, front) = (&mut self.servers, &mut self.front);
        if let Some(room) = sender.room() {
            servers.hand_over(context, front, sender, room);
        } else if self.ending.give_up_successor() {
            servers.keep_from_successor(context, front);
        }
    }

    /// Ends a loop that drains and has nothing left to do. The first one stays until the others
    /// have ended, so that it handles a second signal.
    fn end_when_done(&self, context: &mut Context) {
        let is_done = self.servers.is_left() && self.front.is_idle();
        let may_end = self.index > 0 || self.fleet.running() <= 1;
        if self.ending.has_begun() && is_done && may_end {
            self.front.polls.misses.give_up_flights();
            context.stop();
        }
    }

    /// Closes the connections of clients that are too slow.
    pub(super) fn cut_off(&mut self, context: &mut Context, tokens: &[Token]) {
        if tokens.is_empty() {
            return;
        }
        let count = self.servers.cut_off(context, &mut self.front, tokens);
        self.metrics.output_cuts.add(count as u64);
        self.output.log_cuts(context.now(), count);
    }

    /// Sends what the turn has collected: lookups first, as failures of lookups may cause requests
    /// to the application.
    fn send_outbox(&mut self, context: &mut Context) {
        let (polls, servers) = (&mut self.front.polls, &mut self.servers);
        polls
            .socket_streams()
            .adopt(context, &mut servers.websockets);
        self.cache.send_versions(context, polls, &mut servers.http);
        self.send_publishes(context);
        loop {
            let (polls, http) = (&mut self.front.polls, &mut self.servers.http);
            self.cache.send_lookups(context, polls, http);
            for (fetch, outcome) in polls.misses.take_cached() {
                polls.cached_came(context, http, fetch, outcome);
            }
            let requests = polls.misses.take_requests();
            let has_unsent = polls.lookups.has_unsent();
            if requests.is_empty() && !polls.misses.has_cached() && !has_unsent {
                break;
            }
            for (to, request) in requests {
                self.send_request(context, to, request);
            }
        }
        let (http, tunnels) = (&mut self.servers.http, &mut self.servers.tunnels);
        self.front
            .carry_out(context, &mut self.upstreams, http, tunnels);
        for FlightResult { follower, result } in self.front.polls.misses.take_flight_results() {
            let fetch = follower.fetch;
            self.fleet
                .send(follower.of_loop, Message::Fetched { fetch, result });
        }
        self.tell_joins(context);
        let (polls, servers) = (&mut self.front.polls, &mut self.servers);
        self.cache.send_fills(context, polls, &mut servers.http);
        polls.multi_polls().answer_ready(context, &mut servers.http);
        polls.tell_changes(context, &mut servers.http, &mut servers.websockets);
        self.cache.follow_waits(context, polls, &mut servers.http);
        polls.begin_turn();
        if self.front.has_left() {
            context.again(LEFT, Readiness::default());
        }
    }

    /// Sends the requests of publishers to memcached, and the responses to those that have ended.
    fn send_publishes(&mut self, context: &mut Context) {
        let (polls, http) = (&mut self.front.polls, &mut self.servers.http);
        if let Some(admin) = &mut self.servers.admin {
            for (exchange, request, key, value) in admin.publish_requests() {
                let mut publications = polls.publications();
                publications.take_for_admin(context, exchange, request, &key, &value);
            }
        }
        self.cache.send_publishes(context, polls, http);
        let of_admin = polls.publications().answer(context, http);
        if let Some(admin) = &mut self.servers.admin {
            for (exchange, finished) in of_admin {
                admin.publish_ended(context, exchange, &finished);
            }
        }
    }

    /// Reports clients that have joined a fetch to the loop that sends it.
    fn tell_joins(&mut self, context: &mut Context) {
        for join in self.front.polls.misses.take_joins() {
            let fetch = join.fetch.to_bits();
            if join.leader.is_none() && !self.upstreams.may_be_given(fetch) {
                continue;
            }
            let fetching = self.front.polls.fetching();
            let client = fetching.client_of_join(&self.servers.http, &join);
            let Some(client) = client else { continue };
            match join.leader {
                Some(LoopFetch { of_loop, fetch }) => {
                    self.fleet.send(of_loop, Message::Joined { fetch, client });
                }
                None => self.upstreams.also_for(context, fetch, client),
            }
        }
    }

    fn send_request(&mut self, context: &mut Context, to: Requested, request: polls::FetchRequest) {
        let tag = to.to_bits();
        let request = UpstreamRequest {
            is_head: request.is_head,
            is_idempotent: request.is_idempotent,
            client: request.client,
            ..UpstreamRequest::new(request.bytes, tag)
        };
        if let Err(unsent) = self.upstreams.send(context, request) {
            let event = UpstreamEvent::unsent(tag, unsent);
            self.front
                .upstream_event(context, &mut self.servers.http, event);
        }
    }

    /// Answers the queries of operators, on the loop with the admin listener.
    fn answer_queries(&mut self, context: &mut Context) {
        if let Some(admin) = &mut self.servers.admin {
            let mut answering = QueryContext {
                config: &self.front.config,
                polls: &mut self.front.polls,
                http: &mut self.servers.http,
                cache: &mut self.cache,
                upstreams: &self.upstreams,
                fleet: &self.fleet,
            };
            answering.follow(context, admin);
        }
    }

    fn arm_timers(&self, context: &mut Context) {
        let polls = &self.front.polls;
        let timers = [
            (
                RECHECK,
                polls.watched_keys() > 0,
                self.cache.recheck_interval(),
            ),
            (OWED, polls.owes(), OWED_RECHECK),
            (FOLLOW, polls.misses.following() > 0, FOLLOW_INTERVAL),
            (ENCODINGS, polls.has_encodings(), ENCODINGS_INTERVAL),
        ];
        for (timer, is_wanted, interval) in timers {
            // An interval may have become shorter, as where Redis announces no changes any more.
            if is_wanted {
                context.arm_sooner(timer, interval);
            }
        }
    }

    /// Applies the newest settings, unless it has already.
    fn follow_settings(&mut self, context: &mut Context) {
        self.upstreams.settle(context);
        if let Some((settings, generation)) = self.settings.next() {
            self.apply(context, &settings);
            self.metrics.config_generation.set(figure(generation));
        }
    }

    fn apply(&mut self, context: &mut Context, settings: &Settings) {
        let config = &settings.config;
        let before = self.front.reconfigure(config);
        self.servers.limit(config, self.fleet.loops());
        self.upstreams.change(context, settings.upstream.clone());
        if config.upstream.url != before.upstream.url {
            let heads = self.metrics.upstream_heads.iter();
            heads.for_each(Histogram::clear);
            let details = self.metrics.upstream_details.iter();
            details.for_each(UpstreamCells::forget_failures);
        }
        self.cache.turn_to(context, settings);
        self.hints.turn_to(context, &settings.memcached);
        if let Some(access) = &settings.access {
            self.front.polls.change_access(access);
            if let Some(admin) = &mut self.servers.admin {
                admin.reconfigure(config, &access.tokens);
            }
        }
        self.cache.set_sweep_interval(config.sweep_interval());
        self.ending.set_timeout(config.limits.drain_timeout);
        self.output.set_bytes_max(config.limits.output_bytes_max);
        if !self.ending.has_begun() {
            let (front, index) = (&mut self.front, self.index);
            self.servers
                .listen_as_configured(context, front, settings, index);
        }
    }

    /// Copies gauges for scrapes: at the end of every turn, and before the first, which may answer
    /// one.
    pub(crate) fn keep_counts(&mut self, now: Instant) {
        self.front.polls.keep_waits_by_route();
        let (metrics, polls) = (&self.metrics, &self.front.polls);
        let (servers, cells) = (&self.servers, metrics);
        cells.connections_open.set(figure(servers.connections()));
        http2_figures::keep(&servers.http, cells);
        listener_figures::keep(&servers.http, cells);
        let websockets = servers.websockets.connections();
        cells.websocket_connections.set(figure(websockets));
        cells.tunnels_open.set(figure(servers.tunnels.len()));
        cells.websockets_open.set(figure(polls.sockets()));
        cells.waits_held.set(figure(polls.waiting()));
        cells.polls_held.set(figure(polls.held()));
        cells.streams_open.set(figure(polls.streams()));
        self.cache.keep_states(now);
        upstream_figures::keep(&mut self.upstreams, &self.metrics);
        cells.watched_keys.set(figure(polls.watched_keys()));
    }
}
