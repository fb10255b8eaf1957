//! Queries of operators: the first loop asks all loops, and reads the value of a key itself.

use super::Message;
use super::cache::Cache;
use crate::config::Config;
use crate::ops::admin::Admin;
use crate::ops::query::{ClientQuery, LoopQuery, render_watched};
use crate::polls::{Live, Polls, Question, Valued, explain, explained_key};
use dwell_engine::Http;
use dwell_evloop::{Context, Fleet};
use dwell_upstream::Upstreams;
use std::sync::Arc;

/// The parts of a loop that answer queries.
pub(super) struct QueryContext<'l> {
    pub(super) config: &'l Config,
    pub(super) polls: &'l mut Polls,
    pub(super) http: &'l mut Http,
    pub(super) cache: &'l mut Cache,
    pub(super) upstreams: &'l Upstreams,
    pub(super) fleet: &'l Fleet<Message>,
}

impl QueryContext<'_> {
    /// Sends the queries of the admin listener's clients to the loops, and sends the results of
    /// complete queries.
    pub(super) fn follow(&mut self, context: &mut Context, admin: &mut Admin) {
        for query in admin.queries() {
            self.fleet.send_all(&Message::Query(Arc::clone(&query)));
            self.read_value(context, admin, &query);
        }
        for (token, value) in self.polls.lookups.take_found() {
            admin.found(token, &value);
        }
        let loops = self.fleet.loops();
        for (exchange, asked) in admin.answered_queries(loops) {
            let (status, body) = match &asked {
                ClientQuery::Explained { query } => self.explanation(query),
                ClientQuery::Watched { query, limit } => {
                    let loops = (loops, query.loops());
                    (200, render_watched(query.take(), *limit, loops))
                }
            };
            admin.queried(context, exchange, status, body.as_bytes());
        }
    }

    /// Reads the value of a request that is to be explained.
    fn read_value(&mut self, context: &mut Context, admin: &mut Admin, query: &Arc<LoopQuery>) {
        let Question::Request(explained) = &query.question else {
            return;
        };
        let Some(key) = explained_key(self.config, explained) else {
            return query.found(Valued::Unasked);
        };
        if let Some(value) = self.cache.stored(context, &key) {
            return query.found(value);
        }
        let tag = admin.lookup_tag(query);
        let (polls, http) = (&mut *self.polls, &mut *self.http);
        if let Some(failed) = self.cache.look_up(context, &key, tag, polls, http) {
            query.found(failed);
        }
    }

    /// Status and body of the response that explains a request.
    fn explanation(&self, query: &LoopQuery) -> (u16, String) {
        let Question::Request(explained) = &query.question else {
            return (404, String::new());
        };
        let late = || Valued::Unknown("memcached has not answered in time".to_owned());
        let place = explained_key(self.config, explained);
        let place = place.map(|key| self.cache.place_of(&key));
        let statuses = self.upstreams.statuses();
        let live = Live {
            place: place.unwrap_or_default(),
            value: query.value().unwrap_or_else(late),
            watchers: query.take().into_values().next().unwrap_or_default(),
            loops: (self.fleet.loops(), query.loops()),
            upstreams: statuses
                .map(|status| (status.address.to_string(), status.is_up))
                .collect(),
        };
        match explain(self.config, explained, Some(&live)) {
            Ok(explanation) => (200, explanation.json()),
            Err(text) => (400, text + "\n"),
        }
    }
}
