//! Whether a request is looked at at all, and who asks it.

use super::Polls;
use super::ask::Ask;
use super::responder::Responder;
use crate::access::{Claims, Counted, Granted, Origin, Refusal, client_address, counted_as};
use crate::config::{Rate, Requested, RouteConfig};
use crate::metrics::PollOutcome;
use dwell_engine::{Body, Outcome, Request, Response};
use dwell_evloop::Context;
use dwell_proto::http1::{Fields, RequestHead};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who asks, as far as the route wants to know; of the request at hand.
#[derive(Debug, Default)]
pub(super) struct Visitor {
    pub(super) origin: Origin,
    claims: Option<Arc<Claims>>,
    /// What the application has said.
    pub(super) granted: Option<Arc<Granted>>,
    /// When the claims are no longer good. Units: seconds of Unix time.
    ends: Option<u64>,
}

impl Visitor {
    /// Somebody of whom nothing else is known.
    pub(super) fn of(origin: Origin) -> Self {
        Self {
            origin,
            ..Self::default()
        }
    }
}

/// What a key is made of: a request, and who asks it.
pub(super) struct Visit<'v, 'h> {
    fields: Fields<'h, 'h>,
    visitor: &'v Visitor,
}

impl<'h> Requested<'h> for Visit<'_, 'h> {
    fn header(&self, name: &str) -> Option<&'h [u8]> {
        self.fields.find(name)
    }

    fn claim(&self, name: &str) -> Option<&str> {
        self.visitor.claims.as_ref()?.text(name)
    }

    fn granted(&self, name: &str) -> Option<&[u8]> {
        self.visitor.granted.as_ref()?.field(name)
    }
}

impl Polls {
    /// What the key of the request at hand is made of.
    pub(super) fn visit<'v, 'h>(&'v self, head: &RequestHead<'h, 'h>) -> Visit<'v, 'h> {
        Visit {
            fields: head.fields,
            visitor: &self.visitor,
        }
    }

    /// Finds out who asks, as far as the route wants to know; `Some` where that has ended it.
    pub(super) fn admit(
        &mut self,
        context: &mut Context,
        route: u16,
        request: &Request<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Option<Outcome> {
        self.visitor = Visitor::default();
        let access = &self.config.routes[usize::from(route)].access;
        if !access.is_guarded() {
            return None;
        }
        let (per_address, needs_token) = (access.rate_per_address, access.jwt);
        self.visitor.origin = self.responses.cors.origin(route, request.head);
        to.tell_origin(route, self.visitor.origin);
        if self.preflight(context, route, request, to) {
            return Some(Outcome::Answered);
        }
        if let Some(rate) = per_address {
            let client = Counted::Address(self.counted_address(request.head, to));
            if !self.is_within(context, route, client, rate, to) {
                return Some(Outcome::Answered);
            }
        }
        if needs_token && !self.identify(context, request, to) {
            return Some(Outcome::Answered);
        }
        self.ask_application(context, route, request, to)
    }

    /// Answers a browser that asks whether it may ask; false where it does not.
    fn preflight(
        &self,
        context: &mut Context,
        route: u16,
        request: &Request<'_>,
        to: &mut Responder<'_, '_>,
    ) -> bool {
        let rules = &self.config.routes[usize::from(route)];
        let mut methods = rules.methods.allow_field();
        if rules.access.publish {
            methods.push_str(", PUT, DELETE");
        }
        let (responses, head) = (Arc::clone(&self.responses), request.head);
        let granted = responses
            .cors
            .preflight(route, self.visitor.origin, head, &methods);
        let Some(fields) = granted else { return false };
        to.send(
            context,
            &Response {
                status: 204,
                fields: &fields,
                body: Body::Empty,
            },
        );
        true
    }

    /// Whether a key may be asked for once more; answers 429 if not.
    pub(super) fn is_within_key_rate(
        &mut self,
        context: &mut Context,
        route: u16,
        name: &[u8],
        to: &mut Responder<'_, '_>,
    ) -> bool {
        match self.config.routes[usize::from(route)].access.rate_per_key {
            Some(rate) => self.is_within(context, route, Counted::Key(name), rate, to),
            None => true,
        }
    }

    /// Counts the keys of a request beyond the first, which its admission has counted: each can be
    /// a request to the application.
    pub(super) fn count_further_keys(
        &self,
        context: &Context,
        route: u16,
        head: &RequestHead<'_, '_>,
        keys: usize,
        to: &Responder<'_, '_>,
    ) {
        let rules = &self.config.routes[usize::from(route)];
        let further = u32::try_from(keys.saturating_sub(1)).unwrap_or(u32::MAX);
        if let Some(rate) = rules.access.rate_per_address.filter(|_| further > 0) {
            let client = Counted::Address(self.counted_address(head, to));
            let whose = (rules.prefix.as_str(), rate, client);
            let limiter = &self.access.limiter;
            limiter.charge(whose, rate, context.now(), further);
        }
    }

    /// Whether a client that is connected already may ask for one more key.
    ///
    /// Shape: behind a proxy that is trusted nobody knows any more who it is, and its address is
    /// not counted.
    ///
    /// # Errors
    /// The rate that it goes beyond.
    pub(super) fn may_ask_on(
        &self,
        now: Instant,
        route: u16,
        name: &[u8],
        peer: Option<SocketAddr>,
    ) -> Result<(), String> {
        let Some(rules) = self.route(route) else {
            return Ok(());
        };
        let trusted = &self.config.server.trusted_proxies;
        let is_proxy = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
        let address = peer.map(|peer| peer.ip().to_canonical());
        if let (Some(rate), Some(address)) = (rules.access.rate_per_address, address)
            && !is_proxy(address)
        {
            let client = Counted::Address(Some(counted_as(address)));
            let taken = self.take_share(now, rules, client, rate);
            taken.map_err(|_| format!("more than {rate}"))?;
        }
        if let Some(rate) = rules.access.rate_per_key {
            let taken = self.take_share(now, rules, Counted::Key(name), rate);
            taken.map_err(|_| format!("more than {rate}"))?;
        }
        Ok(())
    }

    /// The address of whoever asks, as far as rates tell addresses apart.
    pub(super) fn counted_address(
        &self,
        head: &RequestHead<'_, '_>,
        to: &Responder<'_, '_>,
    ) -> Option<IpAddr> {
        self.client_of(head, to.peer_address())
    }

    /// Whose request this is, as far as clients are told apart by their addresses.
    pub(super) fn client_of(
        &self,
        head: &RequestHead<'_, '_>,
        peer: Option<SocketAddr>,
    ) -> Option<IpAddr> {
        let trusted = &self.config.server.trusted_proxies;
        client_address(peer, head.fields, trusted).map(counted_as)
    }

    fn is_within(
        &self,
        context: &mut Context,
        route: u16,
        who: Counted<'_>,
        rate: Rate,
        to: &mut Responder<'_, '_>,
    ) -> bool {
        let rules = &self.config.routes[usize::from(route)];
        let Err(wait) = self.take_share(context.now(), rules, who, rate) else {
            return true;
        };
        to.ends(PollOutcome::Limited);
        refuse_share(context, rate, wait, to);
        false
    }

    /// Takes one request from the share that somebody has of a route.
    ///
    /// Shape: shares are known by the prefix and the rate, so they outlive a reload that changes
    /// neither.
    ///
    /// # Errors
    /// How long it takes until there is one.
    pub(super) fn take_share(
        &self,
        now: Instant,
        route: &RouteConfig,
        who: Counted<'_>,
        rate: Rate,
    ) -> Result<(), Duration> {
        let whose = (route.prefix.as_str(), rate, who);
        self.access.limiter.take(whose, rate, now)
    }

    /// Finds out who asks by a token; answers 401 where it is none.
    pub(super) fn identify(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        to: &mut Responder<'_, '_>,
    ) -> bool {
        let now = context.unix_seconds();
        match self.verifier.claims(request.head, now) {
            Ok(claims) => {
                self.visitor.ends = self.verifier.ends(&claims);
                self.visitor.claims = Some(claims);
                true
            }
            Err(refusal) => {
                to.ends(PollOutcome::Denied);
                let (challenge, text) = challenge(refusal);
                let fields = [("WWW-Authenticate", challenge.as_bytes())];
                to.text_with(context, 401, &text, &fields);
                false
            }
        }
    }

    /// How long it is known who asks.
    pub(super) fn time_left(&self, context: &Context) -> Duration {
        let left = |ends: u64| Duration::from_secs(ends.saturating_sub(context.unix_seconds()));
        self.visitor.ends.map_or(Duration::MAX, left)
    }

    /// Cuts a wait, or the life of a stream, to the time in which it is known who asks.
    pub(super) fn cut_to_token(&self, context: &Context, ask: &mut Ask) {
        if ask.is_stream {
            ask.wait_ms = u32::MAX;
        }
        if self.visitor.ends.is_none() {
            return;
        }
        let left = self.time_left(context).as_millis();
        let left = u32::try_from(left).unwrap_or(u32::MAX - 1);
        // A wait may last a sixteenth longer than asked for.
        let wait = if ask.is_stream { left } else { left / 17 * 16 };
        ask.wait_ms = ask.wait_ms.min(wait);
    }
}

/// Answers 429.
pub(super) fn refuse_share(
    context: &mut Context,
    rate: Rate,
    wait: Duration,
    to: &mut Responder<'_, '_>,
) {
    let seconds = retry_after(wait).to_string();
    let text = format!("more than {rate}");
    to.text_with(context, 429, &text, &[("Retry-After", seconds.as_bytes())]);
}

/// Whole seconds after which there is room; never none, which would be a loop.
fn retry_after(wait: Duration) -> u64 {
    (wait + ALMOST_A_SECOND).as_secs().max(1)
}

/// Source: RFC 6750 section 3.
fn challenge(refusal: Refusal) -> (String, String) {
    match refusal {
        Refusal::NoToken => (
            "Bearer realm=\"dwell\"".to_owned(),
            "this takes a token".to_owned(),
        ),
        Refusal::Token(error) => (
            format!(
                "Bearer realm=\"dwell\", error=\"invalid_token\", error_description=\"{error}\""
            ),
            error.to_string(),
        ),
    }
}

const ALMOST_A_SECOND: Duration = Duration::from_nanos(999_999_999);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_back_when_told_finds_room() {
        for (milliseconds, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (1999, 2)] {
            let wait = Duration::from_millis(milliseconds);
            assert_eq!(retry_after(wait), seconds, "{wait:?}");
            assert!(Duration::from_secs(seconds) >= wait);
        }
    }
}
