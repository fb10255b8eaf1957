//! Exchanges that are held, each with a deadline.
//!
//! The engine holds an exchange for ever where it is told no time. Nothing here may wait for ever,
//! whatever goes wrong with what it waits for, so this is the one file of the crate that names
//! [`Outcome::Held`] or has the server hold an exchange, and it always gives a time. A tidy test
//! sees to it.

use dwell_engine::{ExchangeId, Http, Outcome};
use dwell_evloop::Context;
use std::time::Duration;

/// Holds the exchange at hand: its answer follows, or its deadline comes first.
pub(crate) fn held(tag: u64, timeout: Duration) -> Outcome {
    Outcome::Held {
        tag,
        timeout: Some(timeout),
    }
}

/// Holds an exchange that is held already by another tag, and until another deadline.
pub(crate) fn hold(
    http: &mut Http,
    context: &mut Context,
    exchange: ExchangeId,
    tag: u64,
    timeout: Duration,
) {
    http.hold(context, exchange, tag, Some(timeout));
}

/// Does with an exchange that is held already what was decided as if it had just come.
pub(crate) fn hold_as(
    http: &mut Http,
    context: &mut Context,
    exchange: ExchangeId,
    outcome: &Outcome,
) {
    if let Outcome::Held { tag, timeout } = outcome {
        http.hold(context, exchange, *tag, *timeout);
    }
}
