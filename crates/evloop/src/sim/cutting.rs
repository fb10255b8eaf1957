//! Addresses that are cut off without a word.

use super::end::{End, Phase};
use super::network::{Network, Place};
use std::io;
use std::net::SocketAddr;

/// Has everything to and from an address disappear.
pub(super) fn cut_off(network: &mut Network, at: SocketAddr) {
    if !network.cut_off.contains(&at) {
        network.cut_off.push(at);
    }
    for place in network.places_mut() {
        if let Place::End(end) = place
            && (end.local == at || end.remote == at)
        {
            end.is_silenced = true;
        }
    }
}

/// Has connections to an address be as others, from now on.
pub(super) fn join_at(network: &mut Network, at: SocketAddr) {
    network.cut_off.retain(|it| *it != at);
}

/// Silent connections to an address whose clients have not closed them.
pub(super) fn silent_at(network: &mut Network, at: SocketAddr) -> Vec<u32> {
    let first = network.first;
    let is_it = |end: &End| end.remote == at && end.is_silenced && !end.is_closed;
    let places = network.places_mut().zip(first..);
    let silent = places.filter_map(|(place, handle)| match place {
        Place::End(end) if is_it(end) => Some(handle),
        _ => None,
    });
    silent.collect()
}

/// Has the clients of these connections be told at last that nobody is there.
pub(super) fn reset_silent_at(network: &mut Network, at: SocketAddr) {
    for handle in silent_at(network, at) {
        if let Some(end) = network.end(handle) {
            end.phase = Phase::Failed(io::ErrorKind::ConnectionReset);
        }
        network.mark(handle);
    }
}
