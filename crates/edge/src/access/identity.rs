//! The client of one request: what is known of it, and what keys are made of.

use super::{Claims, Granted, Origin};
use crate::config::Requested;
use dwell_proto::http1::{Fields, RequestHead};
use std::sync::Arc;
use std::time::Duration;

/// The client of one request, as far as its route asks for it. A value that goes along with the
/// request: nothing that lasts longer has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) origin: Origin,
    /// Claims of its token.
    pub(super) claims: Option<Arc<Claims>>,
    /// Fields of the answer by which the application has let it in.
    pub(super) granted: Option<Arc<Granted>>,
    /// The end of the claims. Units: seconds of Unix time.
    pub(super) ends: Option<u64>,
}

/// Everything that a key may be made of beside path and query.
pub(crate) struct KeyInputs<'i, 'h> {
    fields: Fields<'h, 'h>,
    identity: &'i Identity,
}

impl Identity {
    /// A client of which nothing but the origin of its page is known.
    pub(crate) fn of(origin: Origin) -> Self {
        Self {
            origin,
            ..Self::default()
        }
    }

    /// The inputs of the key of its request.
    pub(crate) fn key_inputs<'i, 'h>(&'i self, head: &RequestHead<'h, 'h>) -> KeyInputs<'i, 'h> {
        KeyInputs {
            fields: head.fields,
            identity: self,
        }
    }

    /// The time for which the identity is known; `None` where that has no end.
    ///
    /// Units: `now` is seconds of Unix time.
    pub(crate) fn time_left(&self, now: u64) -> Option<Duration> {
        let left = |ends: u64| Duration::from_secs(ends.saturating_sub(now));
        self.ends.map(left)
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
