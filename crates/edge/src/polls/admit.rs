//! Whether a request is looked at at all, and who asks it.

use super::Polls;
use super::identity::Identity;
use super::responder::Responder;
use crate::access::{Counted, Origin, Refusal, client_address, counted_as};
use crate::config::{Rate, RouteConfig};
use crate::metrics::PollOutcome;
use dwell_engine::{Body, Outcome, Request, Response};
use dwell_evloop::Context;
use dwell_proto::http1::RequestHead;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Polls {
    /// Identifies the client of a request, as far as its route asks for it.
    ///
    /// # Errors
    /// The outcome of a request that was answered instead, or waits for the application.
    pub(super) fn admit(
        &mut self,
        context: &mut Context,
        route: u16,
        request: &Request<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Result<Identity, Outcome> {
        let access = &self.config.routes[usize::from(route)].access;
        if !access.is_guarded() {
            return Ok(Identity::default());
        }
        let (per_address, needs_token) = (access.rate_per_address, access.jwt);
        let origin = self.responses.cors.origin(route, request.head);
        to.tell_origin(route, origin);
        if self.preflight(context, route, origin, request, to) {
            return Err(Outcome::Answered);
        }
        if let Some(rate) = per_address {
            let client = Counted::Address(self.counted_address(request.head, to));
            if !self.is_within(context, route, client, rate, to) {
                return Err(Outcome::Answered);
            }
        }
        let mut identity = Identity::of(origin);
        if needs_token && !self.identify(context, request, &mut identity, to) {
            return Err(Outcome::Answered);
        }
        self.ask_application(context, route, request, identity, to)
    }

    /// Answers a browser that asks whether it may ask; false where it does not.
    fn preflight(
        &self,
        context: &mut Context,
        route: u16,
        origin: Origin,
        request: &Request<'_>,
        to: &mut Responder<'_, '_>,
    ) -> bool {
        let rules = &self.config.routes[usize::from(route)];
        let mut methods = rules.methods.allow_field();
        if rules.access.publish {
            methods.push_str(", PUT, DELETE");
        }
        let (responses, head) = (Arc::clone(&self.responses), request.head);
        let granted = responses.cors.preflight(route, origin, head, &methods);
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
        identity: &mut Identity,
        to: &mut Responder<'_, '_>,
    ) -> bool {
        let now = context.unix_seconds();
        match self.verifier.claims(request.head, now) {
            Ok(claims) => {
                identity.ends = self.verifier.ends(&claims);
                identity.claims = Some(claims);
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
