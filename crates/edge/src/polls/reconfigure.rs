//! Another configuration, while polls are held.
//!
//! What is read from `Polls::config` when it is needed changes by itself. What was copied out of
//! it, such as the size of a table, is copied again here.

use super::Polls;
use super::recall;
use super::responder::Responses;
use super::tables::NO_ROUTE;
use crate::access::Access;
use crate::config::{Config, RouteConfig, share};
use std::sync::Arc;

impl Polls {
    /// Goes by `config` from now on.
    ///
    /// Shape: held polls and open streams stay. Each goes by the route of its prefix as that is
    /// now, or as it was where there is none any more. Smaller limits end nothing that is there.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>) {
        let before = std::mem::replace(&mut self.config, Arc::clone(config));
        self.move_routes(&before.routes);
        let log = self.responses.log.reconfigured(config);
        self.responses = Arc::new(Responses::new(log, config));
        let would_keep = recall::keeps_last_known(&self.config.routes);
        self.keeps_last_known = would_keep && self.memory.keeps_values();
        let limits = &self.config.limits;
        let held_max = share(limits.connections_max, self.loops);
        let waiting_max = share(limits.waiters_max, self.loops);
        self.waiters.set_limits(held_max, waiting_max);
        self.lookups.set_lookups_max(held_max);
        self.fetches.set_capacity_max(held_max);
        self.missing.set_capacity_max(waiting_max);
        self.gate.reconfigure(config);
    }

    /// Goes by other tokens, keys and rates from now on.
    pub(crate) fn change_access(&mut self, access: &Arc<Access>) {
        self.gate.change_access(access);
    }

    /// Gives everybody who waits the index that their route has now.
    fn move_routes(&mut self, before: &[RouteConfig]) {
        let mut moves = Moves::new(before, &self.retired_routes, &self.config.routes);
        for poll in self.waiters.records.values_mut() {
            poll.route = moves.index(poll.route);
        }
        for fetch in self.fetches.values_mut() {
            fetch.route = moves.index(fetch.route);
        }
        for feed in self.waiters.feeds.values_mut() {
            feed.route = moves.index(feed.route);
        }
        for poll in self.waiters.several.values_mut() {
            poll.route = moves.index(poll.route);
        }
        for missing in self.missing.values_mut() {
            missing.behalf.route = moves.index(missing.behalf.route);
        }
        for set in self.waiters.sets.values_mut() {
            if let Some(socket) = &mut set.socket {
                socket.route = moves.index(socket.route);
            }
        }
        self.retired_routes = moves.retired;
    }
}

/// Where routes were, and where they are.
struct Moves<'a> {
    before: &'a [RouteConfig],
    /// Those that had gone before.
    gone: &'a [RouteConfig],
    now: &'a [RouteConfig],
    /// By the old index.
    known: Vec<Option<u16>>,
    /// Those that have gone and are still needed; their indices follow those of `now`.
    retired: Vec<RouteConfig>,
}

impl<'a> Moves<'a> {
    fn new(before: &'a [RouteConfig], gone: &'a [RouteConfig], now: &'a [RouteConfig]) -> Self {
        Self {
            before,
            gone,
            now,
            known: vec![None; before.len() + gone.len()],
            retired: Vec::new(),
        }
    }

    fn index(&mut self, old: u16) -> u16 {
        let place = usize::from(old);
        if old == NO_ROUTE || place >= self.known.len() {
            return NO_ROUTE;
        }
        if let Some(known) = self.known[place] {
            return known;
        }
        let route =
            (self.before.get(place)).unwrap_or_else(|| &self.gone[place - self.before.len()]);
        let is_it = |other: &RouteConfig| other.prefix == route.prefix;
        let index = self.now.iter().position(is_it).unwrap_or_else(|| {
            self.retired.push(route.clone());
            self.now.len() + self.retired.len() - 1
        });
        // The number of routes is that of tables in a file, far below 2^16.
        let index = u16::try_from(index).unwrap_or(NO_ROUTE);
        self.known[place] = Some(index);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(prefixes: &[&str]) -> Vec<RouteConfig> {
        prefixes
            .iter()
            .map(|prefix| RouteConfig::new(prefix))
            .collect()
    }

    #[test]
    fn a_route_is_followed_by_its_prefix_and_kept_while_needed() {
        let (before, now) = (
            routes(&["/long/", "/a/", "/b/"]),
            routes(&["/other/", "/b/"]),
        );
        let mut moves = Moves::new(&before, &[], &now);
        assert_eq!(moves.index(2), 1);
        assert_eq!(moves.index(1), 2, "gone, and behind those that are there");
        assert_eq!(moves.index(1), 2);
        assert_eq!(moves.index(NO_ROUTE), NO_ROUTE);
        let retired = moves.retired;
        assert_eq!(retired, routes(&["/a/"]), "nobody needs /long/");
        let later = routes(&["/a/"]);
        let mut moves = Moves::new(&now, &retired, &later);
        assert_eq!(moves.index(2), 0, "it is back");
        assert_eq!(moves.index(1), 1);
        assert_eq!(moves.retired, routes(&["/b/"]));
    }
}
