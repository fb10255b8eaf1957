//! Actions of the proxy, carried out when the turn ends.

use super::actions::Action;
use super::arriving::{PROBE_TIMEOUT, Proxy};
use super::tunnels::Tunnels;
use crate::held::hold;
use crate::ids::{FetchId, ProxiedId};
use bytes::Bytes;
use dwell_engine::Http;
use dwell_evloop::{Context, Id, Token};
use dwell_upstream::{Unsent, Upstreams, Written};

/// Carries out the actions of a loop; returns the failures of requests that were not sent, or not
/// to their end, and whose clients have been sent a response.
pub(crate) fn carry_out(
    context: &mut Context,
    upstreams: &mut Upstreams,
    proxy: &mut Proxy,
    http: &mut Http,
    tunnels: &mut Tunnels,
) -> Vec<Unsent> {
    let mut unsent = Vec::new();
    loop {
        let actions = proxy.actions.take();
        if actions.is_empty() {
            return unsent;
        }
        for action in actions {
            match action {
                Action::Send(request) => {
                    let id = ProxiedId::from_bits(request.tag);
                    if let Err(failure) = upstreams.send(context, *request) {
                        proxy.failed(context, http, id, &failure.error);
                        unsent.push(failure);
                    }
                }
                Action::Write { id, piece, is_last } => {
                    let piece = Bytes::from(piece);
                    let copy = piece.clone();
                    match write(context, upstreams, proxy, id, copy, is_last) {
                        Written::Taken => proxy.body_taken(context, http, id),
                        Written::Queued => {}
                        // Its response has ended, or its client has left.
                        Written::Gone if !proxy.contains(id) => {}
                        // Its connection has ended, and it is being retried on another.
                        Written::Gone if upstreams.is_unannounced(id.to_bits()) => {
                            proxy.keep(id, &piece, is_last);
                        }
                        // Its body can no longer be completed.
                        Written::Gone => {
                            upstreams.cancel(context, id.to_bits());
                            let failure = upstreams.lost(context.now(), proxy.connection(id));
                            proxy.failed(context, http, id, &failure.error);
                            unsent.push(failure);
                        }
                    }
                }
                Action::Grant {
                    id,
                    connection,
                    bytes,
                } => grant(context, upstreams, id, connection, bytes),
                Action::TakeOver {
                    connection,
                    fetch,
                    id,
                } => take_over(context, upstreams, connection, fetch, id),
                Action::Probe { id, exchange } => {
                    hold(http, context, exchange, id.to_bits(), PROBE_TIMEOUT);
                }
                Action::Cancel {
                    connection,
                    request,
                } => cancel(context, upstreams, connection, request.to_bits()),
                Action::Tunnel(tunnel) => tunnels.open(context, *tunnel),
            }
        }
    }
}

fn write(
    context: &mut Context,
    upstreams: &mut Upstreams,
    proxy: &Proxy,
    id: ProxiedId,
    piece: Bytes,
    is_last: bool,
) -> Written {
    let tag = id.to_bits();
    let Some(connection) = proxy.connection(id) else {
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
    id: ProxiedId,
    connection: Token,
    bytes: usize,
) {
    if let Some(upstream) = upstreams.client_of(connection) {
        upstream.grant(context, connection, id.to_bits(), bytes);
    }
}

fn take_over(
    context: &mut Context,
    upstreams: &mut Upstreams,
    connection: Token,
    fetch: FetchId,
    id: ProxiedId,
) {
    if let Some(upstream) = upstreams.client_of(connection) {
        upstream.take_over(context, connection, fetch.to_bits(), id.to_bits());
    }
}

fn cancel(context: &mut Context, upstreams: &mut Upstreams, connection: Option<Token>, tag: u64) {
    let Some(connection) = connection else {
        return upstreams.cancel(context, tag);
    };
    upstreams.abort(context, connection, tag);
}
