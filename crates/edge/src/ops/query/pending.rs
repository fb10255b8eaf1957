//! Queries of the admin listener's clients that wait for the loops.

use super::LoopQuery;
use crate::held::held;
use crate::ids::kind;
use crate::polls::{Explained, Question, Valued};
use crate::query::parameters;
use dwell_engine::{Body, ExchangeId, Outcome, Reply, Request, Response};
use dwell_evloop::Token;
use std::sync::Arc;
use std::time::Duration;

/// Path of the query for watched keys.
pub(crate) const WATCHED_PATH: &str = "/-/watched";

/// Path of the query that explains a request.
pub(crate) const EXPLAIN_PATH: &str = "/-/explain";

/// Open queries.
#[derive(Debug, Default)]
pub(crate) struct PendingQueries {
    waiting: Vec<Waiting>,
    /// Queries that the loops have not been asked yet.
    outbox: Vec<Arc<LoopQuery>>,
    number: u64,
    /// Open lookups of values, by tag.
    lookups: Vec<(Token, Arc<LoopQuery>)>,
    lookup_number: u32,
}

#[derive(Debug)]
struct Waiting {
    tag: u64,
    exchange: ExchangeId,
    asked: ClientQuery,
    /// Its timeout has passed.
    is_overdue: bool,
}

/// The query of a client.
#[derive(Debug)]
pub(crate) enum ClientQuery {
    /// The most watched keys, at most `limit`.
    Watched { query: Arc<LoopQuery>, limit: usize },
    /// The explanation of a request.
    Explained { query: Arc<LoopQuery> },
}

impl ClientQuery {
    fn query(&self) -> &Arc<LoopQuery> {
        match self {
            Self::Watched { query, .. } | Self::Explained { query } => query,
        }
    }
}

/// Set in the tags of exchanges that wait for a query.
const QUERY: u64 = 1 << 63;
/// Most queries at a time: each costs every loop a walk through its tables.
const WAITING_MAX: usize = 8;
/// Timeout of the loops; the response has the results that have arrived by then.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Bound of the tags of lookups; there are never more at a time.
const LOOKUP_MAX: u32 = 0xffff;
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 10_000;

impl PendingQueries {
    /// Returns true for the tag of an open query.
    pub(crate) fn is_own(tag: u64) -> bool {
        tag & QUERY != 0
    }

    /// Takes a query for watched keys.
    pub(crate) fn watched(&mut self, request: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        match watched_of(request.head.query.unwrap_or_default()) {
            Ok((prefix, limit)) => {
                let query = LoopQuery::new(Question::Prefix(prefix));
                self.take(request, ClientQuery::Watched { query, limit }, reply)
            }
            Err(text) => {
                reply.text(400, &text);
                Outcome::Answered
            }
        }
    }

    /// Takes a query that explains a request.
    pub(crate) fn explain(&mut self, request: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        match Explained::of_query(request.head.query.unwrap_or_default()) {
            Ok(explained) => {
                let query = LoopQuery::new(Question::Request(explained));
                self.take(request, ClientQuery::Explained { query }, reply)
            }
            Err(text) => {
                reply.text(400, &text);
                Outcome::Answered
            }
        }
    }

    fn take(
        &mut self,
        request: &Request<'_>,
        asked: ClientQuery,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if !matches!(request.head.method, "GET" | "HEAD") {
            reply.send(&Response {
                status: 405,
                fields: &[("Allow", b"GET, HEAD")],
                body: Body::Empty,
            });
            return Outcome::Answered;
        }
        if self.waiting.len() >= WAITING_MAX {
            reply.send(&Response {
                status: 503,
                fields: &[("Retry-After", b"1"), ("Cache-Control", b"no-store")],
                body: Body::Slice(b"too many ask the loops\n"),
            });
            return Outcome::Answered;
        }
        // Below the tag of a publisher's request, which has every bit set.
        self.number = (self.number + 1) % (QUERY - 1);
        let tag = QUERY | self.number;
        self.outbox.push(Arc::clone(asked.query()));
        self.waiting.push(Waiting {
            tag,
            exchange: request.exchange,
            asked,
            is_overdue: false,
        });
        held(tag, TIMEOUT)
    }

    /// Handles a timeout; the response follows when the turn ends.
    pub(crate) fn expired(&mut self, tag: u64) -> Outcome {
        let waiting = self.waiting.iter_mut().find(|waiting| waiting.tag == tag);
        let Some(waiting) = waiting else {
            return Outcome::Close;
        };
        waiting.is_overdue = true;
        held(tag, TIMEOUT)
    }

    /// Handles a client that has left.
    pub(crate) fn abandoned(&mut self, tag: u64) {
        self.waiting.retain(|waiting| waiting.tag != tag);
    }

    /// Makes the tag of a lookup whose value is for `query`.
    pub(crate) fn lookup_tag(&mut self, query: &Arc<LoopQuery>) -> Token {
        // The value of a lookup whose query has ended is not needed.
        self.lookups
            .retain(|(_, query)| Arc::strong_count(query) > 1);
        self.lookup_number = self.lookup_number.wrapping_add(1);
        let token = Token::new(kind::EXPLAINED, 0, self.lookup_number & LOOKUP_MAX);
        self.lookups.push((token, Arc::clone(query)));
        token
    }

    /// Delivers the value of a lookup.
    pub(crate) fn found(&mut self, token: Token, value: &Valued) {
        let is_asked = |(asked, _): &mut (Token, Arc<LoopQuery>)| *asked == token;
        for (_, query) in self.lookups.extract_if(.., is_asked) {
            query.found(value.clone());
        }
    }

    /// Takes the queries that the loops are to be asked.
    pub(crate) fn outbox(&mut self) -> Vec<Arc<LoopQuery>> {
        std::mem::take(&mut self.outbox)
    }

    /// Takes the queries that `loops` loops have answered, or that have timed out.
    pub(crate) fn answered(&mut self, loops: usize) -> Vec<(ExchangeId, ClientQuery)> {
        let is_answered =
            |waiting: &mut Waiting| waiting.is_overdue || waiting.asked.query().is_answered(loops);
        let answered = self.waiting.extract_if(.., is_answered);
        answered
            .map(|waiting| (waiting.exchange, waiting.asked))
            .collect()
    }
}

/// Reads `prefix=P&limit=N`; if one is repeated, the first counts.
fn watched_of(query: &str) -> Result<(Box<[u8]>, usize), String> {
    let (mut prefix, mut limit) = (None, None);
    for (name, value) in parameters(query) {
        match &*name {
            "prefix" => {
                prefix.get_or_insert_with(|| value.as_bytes().into());
            }
            "limit" if limit.is_none() => {
                let number = value.parse().ok();
                let good = number.filter(|number| (1..=LIMIT_MAX).contains(number));
                let wrong = || format!("limit is not a number from 1 to {LIMIT_MAX}: {value}");
                limit = Some(good.ok_or_else(wrong)?);
            }
            _ => {}
        }
    }
    Ok((prefix.unwrap_or_default(), limit.unwrap_or(LIMIT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_bounds_and_defaults() {
        assert_eq!(watched_of(""), Ok((Box::default(), 100)));
        let both = watched_of("limit=10000&prefix=%2Fpoll%2F&prefix=x");
        assert_eq!(both, Ok((b"/poll/"[..].into(), 10_000)));
        for wrong in ["limit=0", "limit=10001", "limit=", "limit=-1", "limit=x"] {
            assert!(watched_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_tag_is_that_of_an_order() {
        assert!(!PendingQueries::is_own(1 << 62));
        assert!(PendingQueries::is_own(QUERY | (QUERY - 2)));
        assert_ne!(QUERY | (QUERY - 2), u64::MAX);
    }
}
