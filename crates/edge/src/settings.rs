//! What a loop does with a configuration that was read anew.

use crate::driver::{EdgeLoop, UPSTREAM_KINDS};
use crate::metrics::{LoopMetrics, ServerState, UpstreamOutcome, figure};
use crate::reload::Settings;
use crate::server::http_limits;
use crate::upstream::{GroupOptions, UpstreamError, UpstreamGroup, UpstreamPlan, UpstreamRequest};
use dwell_evloop::Context;
use std::hash::{BuildHasher, RandomState};

/// The clients of the application that a loop has.
///
/// Shape: other options make another client. Requests that are under way stay with the one that
/// has sent them until they have ended; while there is such a one, further options wait.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    pub(crate) current: Option<UpstreamGroup>,
    /// Has requests under way, and gets no more.
    pub(crate) retired: Option<UpstreamGroup>,
    /// What follows when the retired one is done.
    next: Next,
    /// Which of the two kinds of tokens `current` has.
    is_second: bool,
}

/// What becomes of the client that a loop has.
#[derive(Debug, Default)]
enum Next {
    #[default]
    Stays,
    /// It is replaced by one with these options, or by none.
    Replaced(Option<UpstreamPlan>),
}

impl Upstreams {
    /// Begins with one client, or none.
    pub(crate) fn new(plan: Option<&UpstreamPlan>) -> Self {
        Self {
            current: plan.map(|plan| group(UPSTREAM_KINDS[0], plan)),
            ..Self::default()
        }
    }

    /// Goes by another plan for the requests from now on, as soon as that can be.
    pub(crate) fn change(&mut self, plan: Option<UpstreamPlan>) {
        self.next = Next::Replaced(plan);
        self.settle();
    }

    /// Lets go of a retired client that has ended, and makes the one that waits for that.
    pub(crate) fn settle(&mut self) {
        if self.retired.as_ref().is_some_and(UpstreamGroup::is_done) {
            self.retired = None;
        }
        if self.retired.is_none()
            && let Next::Replaced(plan) = std::mem::take(&mut self.next)
        {
            self.is_second = !self.is_second;
            let kind = UPSTREAM_KINDS[usize::from(self.is_second)];
            let next = plan.map(|plan| group(kind, &plan));
            self.retired = std::mem::replace(&mut self.current, next);
            if self.retired.as_ref().is_some_and(UpstreamGroup::is_done) {
                self.retired = None;
            }
        }
    }

    /// The client that a token of this kind belongs to.
    pub(crate) fn of_kind(&mut self, kind: u8) -> Option<&mut UpstreamGroup> {
        if self.is_second == (kind >= UPSTREAM_KINDS[1]) {
            self.current.as_mut()
        } else {
            self.retired.as_mut()
        }
    }

    /// Sends a request to the application as it is now.
    ///
    /// # Errors
    /// As [`UpstreamGroup::send`]; no event follows then.
    pub(crate) fn send(
        &mut self,
        context: &mut Context,
        request: UpstreamRequest,
    ) -> Result<(), UpstreamError> {
        match &mut self.current {
            Some(current) => current.send(context, request),
            None => Err(UpstreamError::Unavailable),
        }
    }

    /// Forgets a request, whichever client has it.
    pub(crate) fn cancel(&mut self, context: &mut Context, tag: u64) {
        for group in self.current.iter_mut().chain(&mut self.retired) {
            group.cancel(context, tag);
        }
    }

    /// Copies gauges.
    pub(crate) fn keep_counts(&mut self, metrics: &LoopMetrics) {
        let both = self.current.iter_mut().chain(&mut self.retired);
        let (mut open, mut outstanding) = (0, 0);
        for group in both {
            open += group.connections();
            outstanding += group
                .statuses()
                .map(|status| status.outstanding)
                .sum::<usize>();
            let moved = metrics.upstream_requests.of(UpstreamOutcome::Moved);
            moved.add(group.take_moved());
        }
        metrics.upstream_connections_open.set(figure(open));
        metrics.upstream_outstanding.set(figure(outstanding));
        let statuses = self.current.iter().flat_map(UpstreamGroup::statuses);
        for (cell, status) in metrics.upstreams.iter().zip(statuses) {
            cell.set(if status.is_up {
                ServerState::Up
            } else {
                ServerState::Down
            });
        }
    }
}

fn group(kind: u8, plan: &UpstreamPlan) -> UpstreamGroup {
    let options = GroupOptions {
        seed: RandomState::new().hash_one(kind),
        ..plan.options.clone()
    };
    UpstreamGroup::new(kind, &plan.servers, options)
}

impl EdgeLoop {
    /// Takes over the newest settings, if they are not the ones it runs by.
    pub(crate) fn follow_settings(&mut self, context: &mut Context) {
        self.upstreams.settle();
        let generation = self.fleet.generation();
        if generation == self.generation {
            return;
        }
        let settings = self.fleet.settings();
        self.generation = generation;
        self.apply(context, &settings);
        self.metrics.config_generation.set(figure(generation));
    }

    fn apply(&mut self, context: &mut Context, settings: &Settings) {
        let config = &settings.config;
        let before = self.polls.reconfigure(config);
        self.http.set_limits(http_limits(config, self.loops));
        if config.upstream != before.upstream {
            self.upstreams.change(settings.upstream.clone());
        }
        if let Some(access) = &settings.access {
            self.polls.change_access(access);
            if let Some(admin) = &mut self.admin {
                admin.admit_publishers(&access.tokens, config.publish.value_bytes_max);
            }
        }
        self.recheck_interval =
            Self::recheck_interval(&self.source, config.memcached.sweep_interval);
        self.drain_timeout = config.limits.drain_timeout;
        if self.draining.is_none() {
            self.listen_as_configured(context, settings);
        }
    }

    /// Listeners that are gone from the configuration close, and the new ones open.
    fn listen_as_configured(&mut self, context: &mut Context, settings: &Settings) {
        let addresses = &settings.config.server.listen;
        let listening = std::mem::take(&mut self.listening);
        let (stays, goes): (Vec<_>, Vec<_>) = listening
            .into_iter()
            .partition(|(address, _)| addresses.contains(address));
        for (_, listener) in goes {
            self.http.retire(context, listener, &mut self.polls);
        }
        self.listening = stays;
        for (address, listener) in settings.take_listeners(self.index) {
            match self.http.listen_as(context, listener) {
                Ok(token) => self.listening.push((address, token)),
                Err(error) => tracing::error!(%address, %error, "cannot listen"),
            }
        }
    }
}
