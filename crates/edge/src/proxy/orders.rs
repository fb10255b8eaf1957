//! What forwards have left to do is done when the turn ends.

use super::arriving::PROBE_TIMEOUT;
use super::{Order, Tunnels};
use crate::held::hold;
use crate::polls::Polls;
use bytes::Bytes;
use dwell_engine::Http;
use dwell_evloop::{Context, Token};
use dwell_upstream::{UpstreamError, UpstreamEvent, Upstreams, Written};

/// Does what the forwards of a loop have ordered in this turn.
pub(crate) fn carry_out(
    context: &mut Context,
    upstreams: &mut Upstreams,
    polls: &mut Polls,
    http: &mut Http,
    tunnels: &mut Tunnels,
) {
    loop {
        let orders = polls.forwards.take_orders();
        if orders.is_empty() {
            return;
        }
        for order in orders {
            match order {
                Order::Send(request) => {
                    let tag = request.tag;
                    if let Err(error) = upstreams.send(context, *request) {
                        polls.told(context, http, UpstreamEvent::failed(tag, error));
                    }
                }
                Order::Write {
                    forward,
                    piece,
                    is_last,
                } => {
                    let piece = Bytes::from(piece);
                    let copy = piece.clone();
                    let written = write(context, upstreams, polls, forward, copy, is_last);
                    match written {
                        Written::Taken => polls.forwards.body_taken(context, http, forward),
                        Written::Queued => {}
                        // Its answer has ended, or its client has left.
                        Written::Gone if !polls.forwards.contains(forward) => {}
                        // Its connection has ended, and it is on its way to another.
                        Written::Gone if upstreams.is_unannounced(forward.to_bits()) => {
                            polls.forwards.keep(forward, &piece, is_last);
                        }
                        Written::Gone => lose(context, upstreams, polls, http, forward),
                    }
                }
                Order::Grant {
                    forward,
                    connection,
                    bytes,
                } => {
                    if let Some(upstream) = upstreams.client_of(connection) {
                        upstream.grant(context, connection, forward.to_bits(), bytes);
                    }
                }
                Order::TakeOver {
                    connection,
                    fetch,
                    forward,
                } => {
                    if let Some(upstream) = upstreams.client_of(connection) {
                        let (fetch, forward) = (fetch.to_bits(), forward.to_bits());
                        upstream.take_over(context, connection, fetch, forward);
                    }
                }
                Order::Probe { forward, exchange } => {
                    hold(http, context, exchange, forward.to_bits(), PROBE_TIMEOUT);
                }
                Order::Cancel {
                    connection: Some(connection),
                    tag,
                } => upstreams.abort(context, connection, tag),
                Order::Cancel {
                    connection: None,
                    tag,
                } => upstreams.cancel(context, tag),
                Order::Tunnel(tunnel) => tunnels.open(context, *tunnel),
            }
        }
    }
}

fn write(
    context: &mut Context,
    upstreams: &mut Upstreams,
    polls: &Polls,
    forward: Token,
    piece: Bytes,
    is_last: bool,
) -> Written {
    let tag = forward.to_bits();
    let Some(connection) = polls.forwards.connection(forward) else {
        return Written::Gone;
    };
    match upstreams.client_of(connection) {
        Some(upstream) if is_last => upstream.finish_body(context, connection, tag, piece),
        Some(upstream) => upstream.write_body(context, connection, tag, piece),
        None => Written::Gone,
    }
}

/// A piece of a body has no connection to go to any more: the request cannot become whole.
fn lose(
    context: &mut Context,
    upstreams: &mut Upstreams,
    polls: &mut Polls,
    http: &mut Http,
    forward: Token,
) {
    let tag = forward.to_bits();
    upstreams.cancel(context, tag);
    let error = UpstreamError::Closed;
    polls.told(context, http, UpstreamEvent::failed(tag, error));
}
