//! Addresses that are cut off without a word.

use super::end::{End, Phase};
use super::network::{Network, Place};
use std::io;
use std::net::SocketAddr;

impl Network {
    /// Has everything to and from an address disappear.
    pub(super) fn cut_off(&mut self, at: SocketAddr) {
        if !self.is_cut_off(at) {
            self.cut_off.push(at);
        }
        for place in self.places_mut() {
            if let Place::End(end) = place
                && (end.local == at || end.remote == at)
            {
                end.is_silenced = true;
            }
        }
    }

    /// Has connections to an address be as others, from now on.
    pub(super) fn join_at(&mut self, at: SocketAddr) {
        self.cut_off.retain(|it| *it != at);
    }

    /// Silent connections to an address whose clients have not closed them.
    pub(super) fn silent_at(&mut self, at: SocketAddr) -> Vec<u32> {
        let first = self.first;
        let is_it = |end: &End| end.remote == at && end.is_silenced && !end.is_closed;
        let places = self.places_mut().zip(first..);
        let silent = places.filter_map(|(place, handle)| match place {
            Place::End(end) if is_it(end) => Some(handle),
            _ => None,
        });
        silent.collect()
    }

    /// Has the clients of these connections be told at last that nobody is there.
    pub(super) fn reset_silent_at(&mut self, at: SocketAddr) {
        for handle in self.silent_at(at) {
            if let Some(end) = self.end(handle) {
                end.phase = Phase::Failed(io::ErrorKind::ConnectionReset);
            }
            self.mark(handle);
        }
    }

    /// Returns true if nothing comes to this address.
    pub(super) fn is_cut_off(&self, at: SocketAddr) -> bool {
        self.cut_off.contains(&at)
    }
}
