//! The client of one request: what is known of it, and what keys are made of.

use super::ask::Ask;
use super::hold::Arrival;
use crate::access::{Claims, Granted, Origin};
use crate::config::Requested;
use dwell_engine::Request;
use dwell_proto::http1::{Fields, RequestHead};
use std::sync::Arc;
use std::time::Duration;

/// The client of one request, as far as its route asks for it. A value that goes along with the
/// request: nothing that lasts longer has one.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    pub(super) origin: Origin,
    /// Claims of its token.
    pub(super) claims: Option<Arc<Claims>>,
    /// Fields of the answer by which the application has let it in.
    pub(super) granted: Option<Arc<Granted>>,
    /// The end of the claims. Units: seconds of Unix time.
    pub(super) ends: Option<u64>,
}

/// A request that its route has admitted, with its client.
#[derive(Clone, Copy)]
pub(super) struct Admitted<'a> {
    pub(super) route: u16,
    pub(super) request: &'a Request<'a>,
    pub(super) identity: &'a Identity,
}

/// Everything that a key may be made of beside path and query.
pub(super) struct KeyInputs<'i, 'h> {
    fields: Fields<'h, 'h>,
    identity: &'i Identity,
}

impl<'a> Admitted<'a> {
    /// The request as one for the key `name`.
    pub(super) fn arrival(self, ask: Ask, name: &'a [u8]) -> Arrival<'a> {
        Arrival {
            ask,
            route: self.route,
            name,
            request: self.request,
            origin: self.identity.origin,
        }
    }
}

impl Identity {
    /// A client of which nothing but the origin of its page is known.
    pub(super) fn of(origin: Origin) -> Self {
        Self {
            origin,
            ..Self::default()
        }
    }

    /// The inputs of the key of its request.
    pub(super) fn key_inputs<'i, 'h>(&'i self, head: &RequestHead<'h, 'h>) -> KeyInputs<'i, 'h> {
        KeyInputs {
            fields: head.fields,
            identity: self,
        }
    }

    /// The time for which the identity is known. Units: `now` is seconds of Unix time.
    pub(super) fn time_left(&self, now: u64) -> Duration {
        let left = |ends: u64| Duration::from_secs(ends.saturating_sub(now));
        self.ends.map_or(Duration::MAX, left)
    }

    /// Cuts a wait, or the life of a stream, to the time for which the identity is known.
    ///
    /// Units: `now` is seconds of Unix time.
    pub(super) fn cut(&self, ask: &mut Ask, now: u64) {
        if ask.is_stream {
            ask.wait_ms = u32::MAX;
        }
        if self.ends.is_none() {
            return;
        }
        let left = self.time_left(now).as_millis();
        let left = u32::try_from(left).unwrap_or(u32::MAX - 1);
        // A wait may last a sixteenth longer than asked for.
        let wait = if ask.is_stream { left } else { left / 17 * 16 };
        ask.wait_ms = ask.wait_ms.min(wait);
    }
}

impl<'h> Requested<'h> for KeyInputs<'_, 'h> {
    fn header(&self, name: &str) -> Option<&'h [u8]> {
        self.fields.find(name)
    }

    fn claim(&self, name: &str) -> Option<&str> {
        self.identity.claims.as_ref()?.text(name)
    }

    fn granted(&self, name: &str) -> Option<&[u8]> {
        self.identity.granted.as_ref()?.field(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::{Condition, Method};
    use super::*;

    /// Milliseconds that are left of a wait or a stream, for a token with so many seconds left.
    fn left(ends: Option<u64>, is_stream: bool) -> u32 {
        let identity = Identity {
            ends,
            ..Identity::default()
        };
        let mut ask = Ask {
            method: Method::Get,
            condition: Condition::None,
            wait_ms: 25_000,
            preferred: false,
            anybodys: false,
            is_stream,
        };
        identity.cut(&mut ask, 1000);
        ask.wait_ms
    }

    #[test]
    fn a_wait_and_its_jitter_end_with_the_token() {
        assert_eq!(left(None, false), 25_000);
        assert_eq!(left(Some(2000), false), 25_000);
        for seconds in [1, 2, 17, 26] {
            let wait = left(Some(1000 + seconds), false);
            assert!(u64::from(wait + wait / 16) <= seconds * 1000, "{seconds}");
        }
        assert_eq!(left(Some(1000), false), 0);
        assert_eq!(left(Some(10), false), 0, "a token that has ended");
    }

    #[test]
    fn a_stream_lasts_until_the_token_ends() {
        assert_eq!(left(None, true), u32::MAX);
        assert_eq!(left(Some(1017), true), 17_000);
        assert_eq!(left(Some(u64::MAX), true), u32::MAX - 1);
    }
}
