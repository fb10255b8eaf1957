//! The admission of requests: what the [gate](crate::access::Gate) decides, answered.

use super::ask::Admitted;
use super::misses::Misses;
use super::refusals::Refusals;
use super::waiters::Waiters;
use crate::access::{
    CertificateRefusal, CorsGrant, Denial, Gate, Identity, Limited, Refused, RequestTime,
    TokenRefusal,
};
use crate::config::{Config, RouteId, Routes};
use crate::metrics::{LoopMetrics, PollOutcome};
use crate::responder::{Responder, Responses};
use dwell_engine::{Body, Outcome, Request, Response};
use dwell_evloop::Context;
use std::sync::Arc;
use std::time::Duration;

/// Checks of access, with the parts of the loop that they touch: neither the cache nor the changes
/// of keys are among them.
pub(super) struct AccessChecks<'a> {
    pub(super) config: &'a Config,
    pub(super) routes: &'a Routes,
    pub(super) metrics: &'a LoopMetrics,
    pub(super) responses: &'a Arc<Responses>,
    pub(super) gate: &'a mut Gate,
    pub(super) misses: &'a mut Misses,
    pub(super) waiters: &'a mut Waiters,
    pub(super) refusals: &'a mut Refusals,
}

impl AccessChecks<'_> {
    /// Identifies the client of a request on a guarded route, as far as that asks for it.
    ///
    /// # Errors
    /// The outcome of a request that was answered instead, or waits for the application.
    pub(super) fn admit(
        &mut self,
        context: &mut Context,
        route: RouteId,
        request: &Request<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Result<Identity, Outcome> {
        let origin = self.responses.cors.origin(route, request.head);
        to.tell_origin(route, origin);
        if self.preflight(context, route, origin, request, to) {
            return Err(Outcome::Answered);
        }
        let mut identity = Identity::of(origin);
        let rules = self.routes.get(route);
        let peer = || to.peer_address();
        let client = || to.client(request.is_secure);
        let asked = RequestTime {
            at: context.now(),
            unix_seconds: context.unix_seconds(),
        };
        let admitted = self
            .gate
            .admit(rules, request.head, peer, asked, client, &mut identity);
        if let Err(denial) = admitted {
            return Err(deny(context, &denial, self.refusals, to));
        }
        self.ask_application(context, route, request, identity, to)
    }

    /// Answers a browser that asks whether it may ask; false where it does not.
    fn preflight(
        &self,
        context: &mut Context,
        route: RouteId,
        origin: Option<CorsGrant>,
        request: &Request<'_>,
        to: &mut Responder<'_, '_>,
    ) -> bool {
        let rules = self.routes.get(route);
        let mut methods = rules.methods.allow_field();
        if rules.access.publish {
            methods.push_str(", PUT, DELETE");
        }
        let head = request.head;
        let granted = self.responses.cors.preflight(route, origin, head, &methods);
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

    /// Counts one more request for a key; answers 429 and is false where that is too many.
    pub(super) fn is_within_key_rate(
        &mut self,
        context: &mut Context,
        route: RouteId,
        name: &[u8],
        to: &mut Responder<'_, '_>,
    ) -> bool {
        let rules = self.routes.get(route);
        let counted = self.gate.count_key(context.now(), rules, name);
        if let Err(limited) = counted {
            deny(context, &Denial::Limited(limited), self.refusals, to);
        }
        counted.is_ok()
    }

    /// Counts the keys of a request beyond the first, which its admission has counted.
    pub(super) fn count_further_keys(
        &self,
        context: &Context,
        admitted: Admitted<'_>,
        keys: usize,
        to: &Responder<'_, '_>,
    ) {
        let rules = self.routes.get(admitted.route);
        let (head, peer) = (admitted.request.head, || to.peer_address());
        self.gate
            .count_further_keys(context.now(), rules, head, peer, keys);
    }
}

/// Answers a request that is not admitted.
pub(super) fn deny(
    context: &mut Context,
    denial: &Denial,
    refusals: &mut Refusals,
    to: &mut Responder<'_, '_>,
) -> Outcome {
    if let Denial::Certificate(refusal @ CertificateRefusal::Unknown) = denial {
        to.close_after();
        return refusals.unavailable(context, to, PollOutcome::Refused, refusal.text());
    }
    to.ends(match denial {
        Denial::Limited(_) => PollOutcome::Limited,
        Denial::Certificate(_) | Denial::Token(_) | Denial::Refused(_) => PollOutcome::Denied,
    });
    match denial {
        Denial::Limited(limited) => refuse_share(context, *limited, to),
        Denial::Token(refusal) => {
            let (challenge, text) = challenge(*refusal);
            let fields = [("WWW-Authenticate", challenge.as_bytes())];
            to.text_with(context, 401, &text, &fields);
        }
        Denial::Certificate(refusal) => to.text(context, 403, refusal.text()),
        Denial::Refused(refused) => pass_on(context, refused, to),
    }
    Outcome::Answered
}

/// Answers 429.
pub(super) fn refuse_share(context: &mut Context, limited: Limited, to: &mut Responder<'_, '_>) {
    let seconds = retry_after(limited.wait).to_string();
    let text = format!("more than {}", limited.rate);
    to.text_with(context, 429, &text, &[("Retry-After", seconds.as_bytes())]);
}

/// Passes on the answer by which the application refuses a client.
fn pass_on(context: &mut Context, refused: &Refused, to: &mut Responder<'_, '_>) {
    let fields: Vec<(&str, &[u8])> = refused
        .fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_ref()))
        .collect();
    to.send(
        context,
        &Response {
            status: refused.status,
            fields: &fields,
            body: Body::Shared(refused.body.clone()),
        },
    );
}

/// Whole seconds after which there is room; never none, which would be a loop.
fn retry_after(wait: Duration) -> u64 {
    (wait + ALMOST_A_SECOND).as_secs().max(1)
}

/// Source: RFC 6750 section 3.
fn challenge(refusal: TokenRefusal) -> (String, String) {
    match refusal {
        TokenRefusal::NoToken => (
            "Bearer realm=\"dwell\"".to_owned(),
            "this takes a token".to_owned(),
        ),
        TokenRefusal::Token(error) => (
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
