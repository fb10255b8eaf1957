//! Actions of the proxy, carried out when the turn ends.

use super::actions::Action;
use super::arriving::{PROBE_TIMEOUT, Proxy};
use super::tunnels::Tunnels;
use crate::held::hold;
use crate::ids::{FetchId, ProxiedId};
use bytes::Bytes;
use dwell_engine::Http;
use dwell_evloop::{Context, Id, Token};
use dwell_upstream::{UpstreamError, Upstreams, Written};

/// Carries out the actions of a loop; returns the errors of requests that failed at once, whose
/// clients have been sent a response.
pub(crate) fn carry_out(
    context: &mut Context,
    upstreams: &mut Upstreams,
    proxy: &mut Proxy,
    http: &mut Http,
    tunnels: &mut Tunnels,
) -> Vec<UpstreamError> {
    let mut errors = Vec::new();
    loop {
        let actions = proxy.actions.take();
        if actions.is_empty() {
            return errors;
        }
        for action in actions {
            match action {
                Action::Send(request) => {
                    let forward = ProxiedId::from_bits(request.tag);
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
                        // Its response has ended, or its client has left.
                        Written::Gone if !proxy.contains(forward) => {}
                        // Its connection has ended, and it is being retried on another.
                        Written::Gone if upstreams.is_unannounced(forward.to_bits()) => {
                            proxy.keep(forward, &piece, is_last);
                        }
                        // Its body can no longer be completed.
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
    forward: ProxiedId,
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
    forward: ProxiedId,
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
    fetch: FetchId,
    forward: ProxiedId,
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

/// Sends the client of a failed request an error.
fn lose(
    context: &mut Context,
    proxy: &mut Proxy,
    http: &mut Http,
    forward: ProxiedId,
    error: UpstreamError,
) -> UpstreamError {
    proxy.failed(context, http, forward, &error);
    error
}
