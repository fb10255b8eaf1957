//! Actions of the proxy: what proxied requests need done is carried out when the turn ends.

use super::arriving::PROBE_TIMEOUT;
use super::{Proxy, Tunnel, Tunnels};
use crate::held::hold;
use bytes::Bytes;
use dwell_engine::{ExchangeId, Http};
use dwell_evloop::{Context, Token};
use dwell_upstream::{UpstreamError, UpstreamRequest, Upstreams, Written};

/// A thing to be done for a proxied request when the turn ends.
#[derive(Debug)]
pub(super) enum Action {
    /// Send a request.
    Send(Box<UpstreamRequest>),
    /// Write a piece of its body, framed already.
    Write {
        forward: Token,
        piece: Vec<u8>,
        is_last: bool,
    },
    /// Read on with an answer.
    Grant {
        forward: Token,
        connection: Token,
        bytes: usize,
    },
    /// Read on with an answer that was too large for those who shared it.
    TakeOver {
        connection: Token,
        fetch: Token,
        forward: Token,
    },
    /// Find out if a client that sends no more is still there.
    Probe {
        forward: Token,
        exchange: ExchangeId,
    },
    /// Give up an answer that no client waits for any more.
    Cancel { connection: Option<Token>, tag: u64 },
    /// Begin a tunnel: the application has changed the protocol.
    Tunnel(Box<Tunnel>),
}

/// Does what the proxied requests of a loop need now; returns why requests failed at once, which
/// their clients have been told.
pub(crate) fn carry_out(
    context: &mut Context,
    upstreams: &mut Upstreams,
    proxy: &mut Proxy,
    http: &mut Http,
    tunnels: &mut Tunnels,
) -> Vec<UpstreamError> {
    let mut errors = Vec::new();
    loop {
        let actions = proxy.take_actions();
        if actions.is_empty() {
            return errors;
        }
        for action in actions {
            match action {
                Action::Send(request) => {
                    let forward = Token::from_bits(request.tag);
                    if let Err(error) = upstreams.send(context, *request) {
                        errors.push(lose(context, proxy, http, forward, error));
                    }
                }
                Action::Write {
                    forward,
                    piece,
                    is_last,
                } => {
                    let piece = Bytes::from(piece);
                    let copy = piece.clone();
                    match write(context, upstreams, proxy, forward, copy, is_last) {
                        Written::Taken => proxy.body_taken(context, http, forward),
                        Written::Queued => {}
                        // Its answer has ended, or its client has left.
                        Written::Gone if !proxy.contains(forward) => {}
                        // Its connection has ended, and it is on its way to another.
                        Written::Gone if upstreams.is_unannounced(forward.to_bits()) => {
                            proxy.keep(forward, &piece, is_last);
                        }
                        // It cannot become whole any more.
                        Written::Gone => {
                            upstreams.cancel(context, forward.to_bits());
                            errors.push(lose(context, proxy, http, forward, UpstreamError::Closed));
                        }
                    }
                }
                Action::Grant {
                    forward,
                    connection,
                    bytes,
                } => grant(context, upstreams, forward, connection, bytes),
                Action::TakeOver {
                    connection,
                    fetch,
                    forward,
                } => take_over(context, upstreams, connection, fetch, forward),
                Action::Probe { forward, exchange } => {
                    hold(http, context, exchange, forward.to_bits(), PROBE_TIMEOUT);
                }
                Action::Cancel { connection, tag } => cancel(context, upstreams, connection, tag),
                Action::Tunnel(tunnel) => tunnels.open(context, *tunnel),
            }
        }
    }
}

fn write(
    context: &mut Context,
    upstreams: &mut Upstreams,
    proxy: &Proxy,
    forward: Token,
    piece: Bytes,
    is_last: bool,
) -> Written {
    let tag = forward.to_bits();
    let Some(connection) = proxy.connection(forward) else {
        return Written::Gone;
    };
    match upstreams.client_of(connection) {
        Some(upstream) if is_last => upstream.finish_body(context, connection, tag, piece),
        Some(upstream) => upstream.write_body(context, connection, tag, piece),
        None => Written::Gone,
    }
}

fn grant(
    context: &mut Context,
    upstreams: &mut Upstreams,
    forward: Token,
    connection: Token,
    bytes: usize,
) {
    if let Some(upstream) = upstreams.client_of(connection) {
        upstream.grant(context, connection, forward.to_bits(), bytes);
    }
}

fn take_over(
    context: &mut Context,
    upstreams: &mut Upstreams,
    connection: Token,
    fetch: Token,
    forward: Token,
) {
    if let Some(upstream) = upstreams.client_of(connection) {
        upstream.take_over(context, connection, fetch.to_bits(), forward.to_bits());
    }
}

fn cancel(context: &mut Context, upstreams: &mut Upstreams, connection: Option<Token>, tag: u64) {
    let Some(connection) = connection else {
        return upstreams.cancel(context, tag);
    };
    upstreams.abort(context, connection, tag);
}

/// Tells the client of a request that it has failed.
fn lose(
    context: &mut Context,
    proxy: &mut Proxy,
    http: &mut Http,
    forward: Token,
    error: UpstreamError,
) -> UpstreamError {
    proxy.failed(context, http, forward, &error);
    error
}
