//! A loop's part in presence: it notes watched keys, and the first loop sends events.

use super::{Message, TokenEvent};
use crate::metrics::{LoopMetrics, WebhookOutcome};
use crate::presence::{Presence, WatchChange, Webhooks};
use dwell_evloop::{Context, Fleet, Lifecycle, Token};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Reports of one loop on keys that begin and cease to be watched.
#[derive(Debug)]
pub(crate) struct PresenceReports {
    presence: Arc<Presence>,
    /// The client that sends events, on the first loop.
    webhooks: Option<Webhooks>,
    metrics: Arc<LoopMetrics>,
}

impl PresenceReports {
    pub(crate) fn new(
        presence: Arc<Presence>,
        webhooks: Option<Webhooks>,
        metrics: Arc<LoopMetrics>,
    ) -> Self {
        Self {
            presence,
            webhooks,
            metrics,
        }
    }

    /// Passes an event of one of its tokens to the webhook's client.
    pub(super) fn token_event(&mut self, context: &mut Context, token: Token, what: TokenEvent) {
        let Some(webhooks) = &mut self.webhooks else {
            return;
        };
        match what {
            TokenEvent::Ready(ready) => webhooks.ready(context, token, ready, &self.metrics),
            TokenEvent::Expired => webhooks.expired(context, token, &self.metrics),
        }
    }

    /// Notes the changes of a turn; the first loop sends the resulting events.
    pub(super) fn follow(
        &mut self,
        context: &mut Context,
        changes: Vec<WatchChange>,
        fleet: &Fleet<Message>,
    ) {
        // Clients that are sent away now reconnect, perhaps to another process that reports them
        // first.
        let serves = fleet.lifecycle() == Lifecycle::Serve;
        if serves && !changes.is_empty() {
            let since = context.wall().duration_since(UNIX_EPOCH);
            let unix_ms = since.map_or(0, |since| since.as_millis() as u64);
            let noted = self.presence.note(changes, context.now(), unix_ms);
            let dropped = self.metrics.webhook_events.of(WebhookOutcome::Dropped);
            dropped.add(noted.dropped);
            if noted.is_news && self.webhooks.is_none() {
                fleet.wake(0);
            }
        }
        if let Some(webhooks) = &mut self.webhooks {
            webhooks.follow(context, &self.presence, &self.metrics, serves);
        }
    }
}
