//! Another configuration, while polls are held.
//!
//! What is read from `Polls::config` when it is needed changes by itself. What was copied out of
//! it, such as the size of a table, is copied again here.

use super::Polls;
use crate::access::Access;
use crate::config::{Config, RouteId};
use crate::responder::Responses;
use std::sync::Arc;

impl Polls {
    /// Goes by `config` from now on.
    ///
    /// Shape: held polls and open streams stay. Each goes by the route of its prefix as that is
    /// now, or as it was where there is none any more. Smaller limits end nothing that is there.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>) {
        self.config = Arc::clone(config);
        let in_use = self.routes.in_use(self.held_routes());
        self.routes.replace(config, in_use);
        let log = self.responses.log.reconfigured(config);
        self.responses = Arc::new(Responses::new(log, &self.routes));
        let rooms = self.waiters.set_limits(&config.limits);
        self.lookups.set_lookups_max(rooms.0);
        self.misses.reconfigure(&self.config.routes, rooms);
        self.gate.reconfigure(config);
    }

    /// Goes by other tokens, keys and rates from now on.
    pub(crate) fn change_access(&mut self, access: &Arc<Access>) {
        self.gate.change_access(access);
    }

    /// Routes that anything is held under, some more than once.
    fn held_routes(&self) -> impl Iterator<Item = RouteId> {
        self.waiters.routes().chain(self.misses.routes())
    }
}
