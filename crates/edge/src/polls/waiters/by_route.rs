//! The number of waits on each route.

use crate::config::RouteId;

/// Waits by the place of their route: polls of one key, polls of several, and followed keys.
#[derive(Debug, Default)]
pub(in crate::polls) struct WaitsByRoute {
    counts: Vec<i64>,
    has_changed: bool,
}

impl WaitsByRoute {
    pub(super) fn begins(&mut self, route: RouteId) {
        self.add(route, 1);
    }

    pub(super) fn ends(&mut self, route: RouteId) {
        self.add(route, -1);
    }

    fn add(&mut self, route: RouteId, count: i64) {
        let place = route.index();
        if place >= self.counts.len() {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += count;
        self.has_changed = true;
    }

    /// The counts by the places of routes, if they have changed since the last call.
    pub(in crate::polls) fn take_changed(&mut self) -> Option<&[i64]> {
        std::mem::take(&mut self.has_changed).then_some(&self.counts)
    }

    /// Has them given once more.
    pub(in crate::polls) fn tell_again(&mut self) {
        self.has_changed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_given_when_they_change() {
        let mut waits = WaitsByRoute::default();
        assert_eq!(waits.take_changed(), None);
        waits.begins(RouteId::FIRST);
        waits.begins(RouteId::FIRST);
        waits.ends(RouteId::FIRST);
        assert_eq!(waits.take_changed(), Some(&[1][..]));
        assert_eq!(waits.take_changed(), None);
        waits.tell_again();
        assert_eq!(waits.take_changed(), Some(&[1][..]));
    }
}
