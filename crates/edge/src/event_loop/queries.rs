//! Queries of operators: the first loop asks all loops, and reads the value of a key itself.

use super::{EdgeLoop, Message};
use crate::ops::inquiry::{Asked, Inquiry, render_watched};
use crate::polls::{Live, Question, Source, Value, Valued, seconds};
use dwell_evloop::Context;
use dwell_memcache::on_loop::{Completion, MetaCommand};
use dwell_store::{MetaGet, Store};
use std::sync::Arc;

impl EdgeLoop {
    /// Adds what this loop's tables have to an inquiry, and wakes the first, which collects it.
    pub(crate) fn answer_inquiry(&self, inquiry: &Inquiry) {
        inquiry.tell(self.front.polls.watched(&inquiry.question));
        self.fleet.wake(0);
    }

    /// Puts the questions of the admin listener's clients to the loops, and answers the clients
    /// whose questions are complete.
    pub(crate) fn follow_inquiries(&mut self, context: &mut Context) {
        let Some(admin) = &mut self.admin else { return };
        for inquiry in admin.inquiries() {
            self.fleet.send_all(&Message::Asked(Arc::clone(&inquiry)));
            self.look(context, &inquiry);
        }
        let Some(admin) = &mut self.admin else { return };
        for (token, value) in self.front.polls.outbox.found.drain(..) {
            admin.found(token, &value);
        }
        for (exchange, asked) in admin.answered_inquiries(self.fleet.loops()) {
            let (status, body) = match &asked {
                Asked::Explained { inquiry } => self.explanation(inquiry),
                Asked::Watched { inquiry, limit } => {
                    let loops = (self.fleet.loops(), inquiry.loops());
                    (200, render_watched(inquiry.take(), *limit, loops))
                }
            };
            if let Some(admin) = &mut self.admin {
                admin.inquired(context, exchange, status, body.as_bytes());
            }
        }
    }

    /// Reads the value of a request that is to be explained.
    fn look(&mut self, context: &mut Context, inquiry: &Arc<Inquiry>) {
        let Question::Request(explained) = &inquiry.question else {
            return;
        };
        let Some(key) = self.front.polls.explained_key(explained) else {
            return inquiry.found(Valued::Unasked);
        };
        if let Source::Embedded(store, _) = &self.source {
            return inquiry.found(stored(store, &key, seconds(context)));
        }
        let (Some(client), Some(admin)) = (&mut self.memcached, &mut self.admin) else {
            return;
        };
        let tag = admin.looks_up(inquiry).to_bits();
        let asked = client.meta(MetaCommand::Get, &key, tag, |line| {
            line.flag(b'v').flag(b'f').flag(b'c').flag(b't')
        });
        if let Err(error) = asked {
            return inquiry.found(Valued::Unknown(error.to_string()));
        }
        let (polls, http) = (&mut self.front.polls, &mut self.http);
        let mut sink = |context: &mut Context, completion: Completion<'_>| {
            polls.completed(context, http, &completion);
        };
        client.flush(context, &mut sink);
    }

    /// Status and body of the answer to a request that is explained.
    fn explanation(&self, inquiry: &Inquiry) -> (u16, String) {
        let Question::Request(explained) = &inquiry.question else {
            return (404, String::new());
        };
        let late = || Valued::Unknown("memcached has not answered in time".to_owned());
        let place = self.front.polls.explained_key(explained);
        let loops = (self.fleet.loops(), inquiry.loops());
        let live = Live {
            place: place.map_or_else(String::new, |key| self.place_of(&key)),
            value: inquiry.value().unwrap_or_else(late),
            watchers: inquiry.take().into_values().next().unwrap_or_default(),
            loops,
            upstreams: self
                .upstreams
                .statuses()
                .map(|status| (status.address.to_string(), status.is_up))
                .collect(),
        };
        match self.front.polls.explained(explained, &live) {
            Ok(explanation) => (200, explanation.json()),
            Err(text) => (400, text + "\n"),
        }
    }

    fn place_of(&self, key: &[u8]) -> String {
        let Some(client) = &self.memcached else {
            return "the embedded store".to_owned();
        };
        let index = client.server_of(key);
        let count = client.statuses().len();
        let Some(status) = client.statuses().nth(index) else {
            return "memcached".to_owned();
        };
        let state = format!("{:?}", status.state).to_ascii_lowercase();
        let place = format!(
            "memcached {}, {} of {count} in the ring, {state}",
            status.address,
            index + 1
        );
        match status.last_failure {
            Some(failure) if status.failures_in_row > 0 => format!("{place}: {failure}"),
            _ => place,
        }
    }
}

/// What the embedded store has; looking is not using.
fn stored(store: &Store, key: &[u8], now: u32) -> Valued {
    let options = MetaGet {
        no_bump: true,
        ..MetaGet::default()
    };
    store
        .meta_get(key, &options, now)
        .map_or(Valued::Missing, |hit| {
            let ttl = hit.expiry.remaining(now).map(u64::from);
            let item = &hit.item;
            Valued::There(Value::new(&item.value, item.flags, item.cas, ttl))
        })
}
