//! A loop's part in presence: it notes which keys are watched, and the first one sends events.

use super::{EdgeLoop, Occurrence};
use crate::metrics::WebhookOutcome;
use dwell_evloop::{Context, Lifecycle, Token};
use std::time::UNIX_EPOCH;

impl EdgeLoop {
    /// Something has happened to a token of the webhook's client.
    pub(crate) fn tell_webhook(&mut self, context: &mut Context, token: Token, what: Occurrence) {
        let Some(webhooks) = &mut self.webhooks else {
            return;
        };
        match what {
            Occurrence::Ready(ready) => webhooks.ready(context, token, ready, &self.metrics),
            Occurrence::Expired => webhooks.expired(context, token, &self.metrics),
        }
    }

    /// Notes what the turn has changed of who is watched; the first loop tells it on.
    pub(crate) fn follow_presence(&mut self, context: &mut Context) {
        let Some(presence) = &self.presence else {
            return;
        };
        let changes = self.front.polls.take_presence();
        // Whoever is sent away now comes back, perhaps to another process that says so first.
        let serves = self.fleet.lifecycle() == Lifecycle::Serve;
        if serves && !changes.is_empty() {
            let since = context.wall().duration_since(UNIX_EPOCH);
            let unix_ms = since.map_or(0, |since| since.as_millis() as u64);
            let noted = presence.note(changes, context.now(), unix_ms);
            let dropped = self.metrics.webhook_events.of(WebhookOutcome::Dropped);
            dropped.add(noted.dropped);
            if noted.is_news && self.index > 0 {
                self.fleet.wake(0);
            }
        }
        if let Some(webhooks) = &mut self.webhooks {
            webhooks.follow(context, presence, &self.metrics, serves);
        }
    }
}
