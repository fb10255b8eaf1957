//! Settings that the loops run by, and a loop's way to the newest.

use super::EdgeLoop;
use crate::access::Access;
use crate::config::{Config, share};
use crate::metrics::{Histogram, figure};
use dwell_engine::Limits;
use dwell_evloop::{Context, Listener};
use dwell_proto::http1::HeadLimits;
use dwell_upstream::UpstreamPlan;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Settings that the loops run by.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) config: Arc<Config>,
    /// The servers of the application, their names looked up.
    pub(crate) upstream: Option<UpstreamPlan>,
    /// Rights of clients and publishers.
    pub(crate) access: Option<Arc<Access>>,
    /// The new listeners of each loop.
    pub(crate) listeners: Mutex<Vec<Listening>>,
}

/// One loop's listeners, with the addresses as they were configured.
pub(crate) type Listening = Vec<(SocketAddr, Listener)>;

impl Settings {
    /// Takes the new listeners of one loop.
    pub(crate) fn take_listeners(&self, index: usize) -> Listening {
        let mut all = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.get_mut(index).map(std::mem::take).unwrap_or_default()
    }

    /// Hands the new listeners that no loop has taken yet on to the settings that follow, as far
    /// as `addresses` still has theirs: a loop may never see the ones in between.
    pub(crate) fn hand_on(&self, listeners: &mut [Listening], addresses: &[SocketAddr]) {
        for (index, of_loop) in listeners.iter_mut().enumerate() {
            let untaken = self.take_listeners(index).into_iter();
            of_loop.extend(untaken.filter(|(address, _)| addresses.contains(address)));
        }
    }
}

impl EdgeLoop {
    /// Takes over the newest settings, if they are not the ones it runs by.
    pub(crate) fn follow_settings(&mut self, context: &mut Context) {
        self.upstreams.settle(context);
        if let Some((settings, generation)) = self.settings.next() {
            self.apply(context, &settings);
            self.metrics.config_generation.set(figure(generation));
        }
    }

    /// Connections that have left HTTP count among those that clients may have.
    pub(crate) fn limit_connections(&mut self) {
        let elsewhere = self.websockets.connections() + self.tunnels.len();
        if elsewhere != self.elsewhere {
            self.elsewhere = elsewhere;
            let settings = self.settings.newest();
            self.http
                .set_limits(http_limits(&settings.config, self.fleet.loops(), elsewhere));
        }
    }

    fn apply(&mut self, context: &mut Context, settings: &Settings) {
        let config = &settings.config;
        let before = self.front.reconfigure(config);
        self.http
            .set_limits(http_limits(config, self.fleet.loops(), self.elsewhere));
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
            self.front.polls.change_access(access);
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
            self.http.retire(context, listener, &mut self.front);
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

/// Limits of the clients of one of `loops` loops, whose clients have left HTTP on `elsewhere`
/// connections.
pub(crate) fn http_limits(config: &Config, loops: usize, elsewhere: usize) -> Limits {
    let limits = &config.limits;
    Limits {
        head: HeadLimits {
            head_bytes_max: limits.head_bytes_max,
            target_bytes_max: limits.target_bytes_max,
            field_count_max: limits.header_count_max,
        },
        connections_max: share(limits.connections_max, loops).saturating_sub(elsewhere),
        requests_per_connection_max: u32::try_from(limits.requests_per_connection_max)
            .unwrap_or(u32::MAX),
        header_timeout: limits.header_timeout,
        body_timeout: limits.body_timeout,
        body_rate_min: limits.body_rate_min,
        gathered_bytes_max: limits.gathered_bytes_max,
        idle_timeout: limits.idle_timeout,
        write_timeout: limits.write_timeout,
        write_rate_min: limits.write_rate_min,
        ..Limits::default()
    }
}
