//! What the loop of the admin listener knows of a request that is to be explained.

use super::EdgeLoop;
use crate::ops::inquiry::{Inquiry, Question};
use crate::polls::{Live, Source, Value, Valued, seconds};
use dwell_evloop::Context;
use dwell_memcache::on_loop::{Answer, Completion, MetaCommand, Outcome};
use dwell_store::{MetaGet, Store};
use std::sync::Arc;

impl EdgeLoop {
    /// Looks for the value of a request that is to be explained.
    pub(crate) fn look(&mut self, context: &mut Context, inquiry: &Arc<Inquiry>) {
        let Question::Request(explained) = &inquiry.question else {
            return;
        };
        let Some(key) = self.polls.explained_key(explained) else {
            return inquiry.found(Valued::Unasked);
        };
        if let Source::Embedded(store, _) = &self.source {
            return inquiry.found(stored(store, &key, seconds(context)));
        }
        let Some(client) = &mut self.memcached else {
            return;
        };
        let tag = self.polls.looks(inquiry).to_bits();
        let asked = client.meta(MetaCommand::Get, &key, tag, |line| {
            line.flag(b'v').flag(b'f').flag(b'c').flag(b't')
        });
        if let Err(error) = asked {
            return inquiry.found(Valued::Unknown(error.to_string()));
        }
        let (polls, http) = (&mut self.polls, &mut self.http);
        let mut sink = |context: &mut Context, completion: Completion<'_>| {
            polls.completed(context, http, &completion);
        };
        client.flush(context, &mut sink);
    }

    /// Explains a request; the status, and what is said.
    pub(crate) fn explanation(&self, inquiry: &Inquiry) -> (u16, String) {
        let Question::Request(explained) = &inquiry.question else {
            return (404, String::new());
        };
        let late = || Valued::Unknown("memcached has not answered in time".to_owned());
        let place = self.polls.explained_key(explained);
        let groups = self.upstreams.current.iter();
        let statuses = groups.flat_map(crate::upstream::UpstreamGroup::statuses);
        let loops = (self.loops, inquiry.loops());
        let live = Live {
            place: place.map_or_else(String::new, |key| self.place_of(&key)),
            value: inquiry.value().unwrap_or_else(late),
            watchers: inquiry.take().into_values().next().unwrap_or_default(),
            loops,
            upstreams: statuses
                .map(|status| (status.address.to_string(), status.is_up))
                .collect(),
        };
        match self.polls.explained(explained, &live) {
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

/// What memcached has said.
pub(crate) fn answered(outcome: &Outcome<'_>) -> Valued {
    match outcome {
        Outcome::Miss => Valued::Missing,
        Outcome::Failed(failure) => Valued::Unknown(failure.to_string()),
        Outcome::Answer(Answer::Meta {
            flags,
            value: Some(value),
            ..
        }) => {
            let number = |letter| flags.number(letter);
            let client_flags = number(b'f').and_then(|number| u32::try_from(number).ok());
            let cas = flags.cas_unique().unwrap_or_default();
            let ttl = number(b't').and_then(|number| u64::try_from(number).ok());
            Valued::There(Value::new(
                value,
                client_flags.unwrap_or_default(),
                cas,
                ttl,
            ))
        }
        _ => Valued::Unknown("memcached answers otherwise".to_owned()),
    }
}
