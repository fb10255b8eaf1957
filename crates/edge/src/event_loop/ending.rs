//! The end of a loop: it drains, or another process takes over its work.

use super::EdgeLoop;
use super::tokens::DRAIN;
use crate::polls::Source;
use dwell_evloop::{Context, Lifecycle};
use dwell_store_server::StoreServer;
use std::time::{Duration, Instant};

const DRAIN_INTERVAL: Duration = Duration::from_millis(100);
/// Held polls that end at once when the server drains, before the rest is spread.
const DRAIN_SHARE_MIN: usize = 256;
/// Time within which waits for keys of a store that another process has come to an end.
const BLIND_WAIT_MAX: Duration = Duration::from_secs(1);

/// A server that is ending.
#[derive(Debug)]
pub(crate) struct Drain {
    ends: Instant,
    /// Held polls that end with each step.
    share: usize,
}

impl EdgeLoop {
    fn begin_drain(&mut self, context: &mut Context) {
        if self.draining.is_some() {
            return;
        }
        tracing::info!(waiting = self.front.polls.waiting(), "draining");
        if let Some(supervisor) = &self.supervisor {
            supervisor.drains();
        }
        // The first half of the time is for ending waits, the second for what is still under way.
        self.begin_ending(context.now(), self.drain_timeout / 2);
        self.http.drain(context, &mut self.front);
        if let Some(server) = &mut self.store_server {
            server.drain(context);
        }
        if let Some(admin) = &mut self.admin {
            admin.drain();
        }
        self.front.polls.refuse_waits();
        self.drain_step(context);
    }

    /// Another process serves: it gets the connections, and who waits here is sent to it.
    fn begin_hand_over(&mut self, context: &mut Context) {
        if self.draining.is_some() {
            return;
        }
        tracing::info!(waiting = self.front.polls.waiting(), "handing over");
        let half = self.drain_timeout / 2;
        let is_blind = matches!(self.source, Source::Embedded(..));
        let waits = if is_blind {
            half.min(BLIND_WAIT_MAX)
        } else {
            half
        };
        // The loop has stood still since its clock was read.
        self.begin_ending(Instant::now(), waits);
        self.hand_over(context);
        self.drain_step(context);
    }

    /// The waits are to end within `waits` from `now` on.
    fn begin_ending(&mut self, now: Instant, waits: Duration) {
        let steps = waits.as_millis() / DRAIN_INTERVAL.as_millis();
        let share = self
            .front
            .polls
            .waiting()
            .div_ceil((steps as usize).max(1))
            .max(DRAIN_SHARE_MIN);
        self.draining = Some(Drain {
            ends: now + self.drain_timeout,
            share,
        });
    }

    pub(crate) fn drain_step(&mut self, context: &mut Context) {
        let Some(drain) = &self.draining else { return };
        self.front.polls.drain(context, &mut self.http, drain.share);
        let left = drain.ends.saturating_duration_since(context.now());
        if left.is_zero() {
            tracing::warn!(connections = self.http.connections(), "drain time is over");
            self.http.close_all(context, &mut self.front);
            self.tunnels.close_all(context);
            self.websockets.close_all(context, &mut self.front.polls);
            if let Some(server) = &mut self.store_server {
                server.close_all(context);
            }
        } else {
            context.arm(DRAIN, left.min(DRAIN_INTERVAL));
        }
    }

    /// Does what the fleet was told; an order that is followed already changes nothing.
    pub(crate) fn follow_order(&mut self, context: &mut Context) {
        let is_shutdown_asked = |server: &StoreServer| server.is_shutdown_asked();
        if self.draining.is_none() && self.store_server.as_ref().is_some_and(is_shutdown_asked) {
            tracing::info!("ending, as a memcached client asks");
            self.fleet.advance(Lifecycle::Drain);
        }
        match self.fleet.lifecycle() {
            Lifecycle::Serve => {}
            Lifecycle::HandOver => self.begin_hand_over(context),
            Lifecycle::Drain => self.begin_drain(context),
            Lifecycle::Stop => context.stop(),
        }
    }

    /// Stands still where all loops are to; what has been decided meanwhile is followed next.
    pub(crate) fn stand_still(&mut self, context: &mut Context) {
        if self.handoff.barrier.is_wanted() {
            // The sockets are those of the newest settings.
            self.send_outbox(context);
            self.follow_settings(context);
            self.handoff.barrier.wait(|| self.sockets());
        }
    }

    /// Ends a loop that drains and has nothing left to do. The first one stays until the others
    /// have ended, so that a second signal is heard.
    pub(crate) fn end_when_done(&self, context: &mut Context) {
        let connections = self.http.connections() + self.websockets.connections();
        let is_done = connections == 0
            && self.front.is_idle()
            && self.tunnels.len() == 0
            && self.store_server.as_ref().is_none_or(StoreServer::is_left);
        if self.draining.is_some() && is_done && (self.index > 0 || self.fleet.running() <= 1) {
            self.front.polls.give_up_flights();
            context.stop();
        }
    }
}
