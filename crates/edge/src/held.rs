//! Held exchanges, each with a deadline.
//!
//! The engine holds an exchange for ever if it is given no time. This is the one file of the crate
//! that names [`Outcome::Held`] or has the server hold an exchange, and it always gives a time. So
//! every wait ends, whatever fails. A tidy test checks this.

use dwell_engine::{ExchangeId, Http, Outcome};
use dwell_evloop::Context;
use std::time::Duration;

/// Holds the exchange at hand until its response or its deadline.
pub(crate) fn held(tag: u64, timeout: Duration) -> Outcome {
    Outcome::Held {
        tag,
        timeout: Some(timeout),
    }
}

/// Holds a held exchange under another tag, until another deadline.
pub(crate) fn hold(
    http: &mut Http,
    context: &mut Context,
    exchange: ExchangeId,
    tag: u64,
    timeout: Duration,
) {
    http.hold(context, exchange, tag, Some(timeout));
}
