//! A loop's way from the settings it runs by to the newest.

use super::EdgeLoop;
use crate::metrics::{Histogram, figure};
use crate::process::{Settings, http_limits};
use dwell_evloop::Context;

impl EdgeLoop {
    /// Takes over the newest settings, if they are not the ones it runs by.
    pub(crate) fn follow_settings(&mut self, context: &mut Context) {
        self.upstreams.settle(context);
        let generation = self.fleet.generation();
        if generation == self.generation {
            return;
        }
        let settings = self.fleet.settings();
        self.generation = generation;
        self.apply(context, &settings);
        self.metrics.config_generation.set(figure(generation));
    }

    /// Connections that have left HTTP count among those that clients may have.
    pub(crate) fn limit_connections(&mut self) {
        let elsewhere = self.websockets.connections() + self.tunnels.len();
        if elsewhere != self.elsewhere {
            self.elsewhere = elsewhere;
            let settings = self.fleet.settings();
            self.http
                .set_limits(http_limits(&settings.config, self.loops, elsewhere));
        }
    }

    fn apply(&mut self, context: &mut Context, settings: &Settings) {
        let config = &settings.config;
        let before = self.polls.reconfigure(config);
        self.http
            .set_limits(http_limits(config, self.loops, self.elsewhere));
        if config.upstream != before.upstream {
            self.upstreams.change(context, settings.upstream.clone());
            if config.upstream.url != before.upstream.url {
                self.metrics
                    .upstream_heads
                    .iter()
                    .for_each(Histogram::clear);
            }
        }
        if let Some(access) = &settings.access {
            self.polls.change_access(access);
            if let Some(admin) = &mut self.admin {
                admin.reconfigure(config, &access.tokens);
            }
        }
        self.recheck_interval =
            Self::recheck_interval(&self.source, config.memcached.sweep_interval);
        self.drain_timeout = config.limits.drain_timeout;
        self.output.set_bytes_max(config.limits.output_bytes_max);
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
