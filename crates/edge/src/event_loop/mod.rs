//! One loop of the edge, and the components that own its tokens.
//!
//! [`EdgeLoop`] is the switchboard: a token's kind chooses the component that gets an event. Each
//! component owns its state and is passed what else it needs. `turn_end` has the steps at the end
//! of a turn.

mod admission;
mod app;
mod cache;
mod challenges;
mod change_feed;
mod ending;
mod history;
mod http2_figures;
mod listener_figures;
mod message;
mod output;
mod presence;
mod queries;
mod redis;
mod servers;
mod settings;
mod supervise;
mod tokens;
mod turn_end;
mod upstream_figures;

pub(crate) use admission::Admission;
pub(crate) use app::Front;
pub(crate) use cache::Cache;
pub(crate) use change_feed::Hints;
pub(crate) use ending::Ending;
pub(crate) use history::{HistoryClock, HistoryRest};
pub(crate) use message::Message;
pub(crate) use output::OutputBound;
pub(crate) use presence::PresenceReports;
pub(crate) use redis::RedisCache;
pub(crate) use servers::{Servers, shown_address};
pub(crate) use settings::{Listening, Settings, http_limits};
pub(crate) use supervise::Supervise;
pub(crate) use tokens::{ADMIN_KINDS, CLIENT_KINDS, PRESENCE, TokenEvent, UPSTREAM_KINDS, kind};

use crate::handoff::Handoff;
use crate::metrics::LoopMetrics;
use crate::published;
use dwell_evloop::{Context, Driver, Fleet, Id, Lifecycle, Readiness, Token};
use dwell_upstream::Upstreams;
use std::sync::Arc;
use tokens::{DRAIN, ENCODINGS, EXPIRE, FOLLOW, HISTORY, OWED, RECHECK, RELEASE, WATCHDOG};

/// One event loop with its components.
#[derive(Debug)]
pub(crate) struct EdgeLoop {
    pub(crate) servers: Servers,
    pub(crate) front: Front,
    pub(crate) cache: Cache,
    pub(crate) hints: Hints,
    pub(crate) upstreams: Upstreams,
    /// Reports of watched keys, if presence is on.
    pub(crate) presence: Option<PresenceReports>,
    pub(crate) output: OutputBound,
    pub(crate) metrics: Arc<LoopMetrics>,
    pub(crate) fleet: Arc<Fleet<Message>>,
    /// Index in the fleet; the first loop handles signals, and ends last.
    pub(crate) index: usize,
    pub(crate) settings: published::Follower<Settings>,
    pub(crate) handoff: Arc<Handoff>,
    /// Supervision of the process, on the first loop.
    pub(crate) supervisor: Option<Box<dyn Supervise>>,
    pub(crate) ending: Ending,
    /// Times of the dashboard's history.
    pub(crate) history: HistoryClock,
}

impl EdgeLoop {
    /// Notifies the service manager, if there is one, that the process serves.
    pub(crate) fn supervise(&mut self, context: &mut Context) {
        if let Some(supervisor) = &self.supervisor {
            supervisor.serves();
        }
        self.arm_watchdog(context);
        self.follow_history(context);
    }

    fn follow_history(&mut self, context: &mut Context) {
        let admin = self.servers.admin.as_mut();
        self.history.follow(context, &self.fleet, admin);
    }

    fn arm_watchdog(&self, context: &mut Context) {
        let supervisor = self.supervisor.as_deref();
        if let Some(interval) = supervisor.and_then(Supervise::watchdog_interval) {
            context.arm(WATCHDOG, interval);
        }
    }

    fn timer(&mut self, context: &mut Context, timer: Token) {
        let (polls, http) = (&mut self.front.polls, &mut self.servers.http);
        match timer {
            RECHECK if self.cache.sweeps_itself() => self.cache.sweep_waited(context),
            RECHECK => polls.recheck(context, http),
            EXPIRE => self.cache.sweep(context),
            DRAIN => self.drain_step(context),
            WATCHDOG => {
                if let Some(supervisor) = &mut self.supervisor {
                    supervisor.check_loops();
                }
                self.arm_watchdog(context);
            }
            ENCODINGS => polls.let_encodings_go(),
            RELEASE => self.output.release_memory(),
            HISTORY => self.history.expired(),
            FOLLOW => polls.recheck_flights(context, http),
            OWED => polls.recheck_owed(context, http),
            _ => {}
        }
    }

    /// Passes an event to the component that owns `token`.
    fn dispatch(&mut self, context: &mut Context, token: Token, what: TokenEvent) {
        let (servers, front) = (&mut self.servers, &mut self.front);
        match token.kind() {
            kind::CLIENT
            | kind::CLIENT_LISTENER
            | kind::CLIENT_STREAM
            | kind::WEBSOCKET
            | kind::TUNNEL
            | kind::ADMIN
            | kind::ADMIN_LISTENER => servers.token_event(context, token, what, front),
            kind::STORE | kind::STORE_LISTENER => {
                servers.token_event(context, token, what, front);
                self.cache.expect_expiry(context);
            }
            kind::MEMCACHED | kind::REDIS | kind::REDIS_KEY => {
                let (polls, http) = (&mut front.polls, &mut servers.http);
                self.cache.token_event(context, token, what, polls, http);
            }
            kind::WEBHOOK => {
                if let Some(presence) = &mut self.presence {
                    presence.token_event(context, token, what);
                }
            }
            kind::CHANGE_FEED => self.hints.token_event(context, token, what),
            kind::TIMER => self.timer(context, token),
            kind if kind >= kind::UPSTREAM => self.upstream_token_event(context, token, what),
            _ => {}
        }
    }

    fn upstream_token_event(&mut self, context: &mut Context, token: Token, what: TokenEvent) {
        let (front, http) = (&mut self.front, &mut self.servers.http);
        let upstreams = &mut self.upstreams;
        let mut sink = |context: &mut Context, event| front.upstream_event(context, http, event);
        match what {
            TokenEvent::Ready(readiness) => upstreams.ready(context, token, readiness, &mut sink),
            TokenEvent::Expired => upstreams.expired(context, token, &mut sink),
        }
    }
}

impl Driver for EdgeLoop {
    type Message = Message;

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.dispatch(context, token, TokenEvent::Ready(readiness));
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.dispatch(context, token, TokenEvent::Expired);
    }

    fn message(&mut self, context: &mut Context, message: Message) {
        let (polls, http) = (&mut self.front.polls, &mut self.servers.http);
        match message {
            Message::Changed { name, at } => polls.changed(context, http, &name, at),
            Message::Fetched { fetch, result } => {
                polls.followed(context, http, fetch, result.as_ref());
            }
            Message::Joined { fetch, client } => {
                self.upstreams.also_for(context, fetch.to_bits(), client);
            }
            Message::Hinted(names) => polls.hinted(&names),
            Message::Resync(resync) => change_feed::read_all(polls, &self.cache, resync),
            Message::TooSlow(tokens) => self.cut_off(context, &tokens),
            Message::Query(query) => {
                query.add(polls.watched(&query.question));
                // The first loop collects the results.
                self.fleet.wake(0);
            }
        }
    }

    fn signal(&mut self, _: &mut Context, signal: i32) {
        if let Some(supervisor) = &self.supervisor
            && supervisor.handle_signal(signal)
        {
            return;
        }
        self.fleet.advance(match self.fleet.lifecycle() {
            Lifecycle::Serve | Lifecycle::HandOver => Lifecycle::Drain,
            Lifecycle::Drain | Lifecycle::Stop => Lifecycle::Stop,
        });
        tracing::info!(signal, "ending");
    }

    fn turn_end(&mut self, context: &mut Context) {
        self.end_turn(context);
    }
}

#[cfg(test)]
mod tests;
