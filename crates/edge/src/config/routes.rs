//! The routes of one loop: chosen by path, and named by ids that stay the same over reloads.
//!
//! A route is chosen by the path as received, and the application gets that path. But the
//! application may decode it, resolve its dot segments, and then serve a path that another route
//! guards. So a path is rejected if it can be read as that of another route, and one of the two
//! routes checks or grants anything.

use super::{Config, Methods, OnDelete, RouteConfig};
use dwell_proto::http1::{any_reading, is_plain_path};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

/// A route, and what a request has to know of its options, which is found out when the
/// configuration is taken.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) options: Arc<RouteConfig>,
    pub(crate) rules: Rules,
    /// A request is checked, or granted anything, before it is served.
    pub(crate) is_guarded: bool,
    /// It checks or grants anything that other routes do not.
    is_special: bool,
}

/// Inputs of the decision on a poll from the configuration: the route's rule for a key that goes
/// away, and if there is an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    pub(crate) on_delete: OnDelete,
    pub(crate) has_upstream: bool,
}

impl Route {
    fn new(options: &Arc<RouteConfig>, has_upstream: bool) -> Self {
        let access = &options.access;
        let is_guarded = access.is_guarded() || options.key.takes_client();
        let is_special = is_guarded
            || access.is_limited()
            || access.publish
            || options.websocket_publish
            || !options.allowed_origins.is_empty()
            || options.methods != Methods::ALL;
        Self {
            options: Arc::clone(options),
            rules: Rules {
                on_delete: options.on_delete,
                has_upstream,
            },
            is_guarded,
            is_special,
        }
    }
}

impl Deref for Route {
    type Target = RouteConfig;

    fn deref(&self) -> &RouteConfig {
        &self.options
    }
}

/// Names a route on one loop for as long as a request is held under it: its prefix stays the same,
/// its options are those of the last configuration that had it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RouteId(u16);

impl RouteId {
    /// First route of a configuration at its start.
    #[cfg(test)]
    pub(crate) const FIRST: Self = Self(0);

    /// Place of the route in [`Routes::by_id`].
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Routes of one loop: those of the configuration, and those gone from it that requests are still
/// held under.
///
/// Shape: uses are not counted, so that holding a request costs nothing here. Routes go only when
/// the configuration changes, and then the ids in use are asked for once.
#[derive(Debug)]
pub(crate) struct Routes {
    /// By id, no prefix twice. A place that is not in use keeps its route until another takes it.
    by_id: Vec<Route>,
    /// Ids of the configuration's routes, in its order.
    current: Vec<RouteId>,
}

/// Marks of the places of a [`Routes`] that are in use.
#[derive(Debug, Default)]
pub(crate) struct InUse(Vec<bool>);

/// A path of one route that the application may read as a path of another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ambiguous {
    /// The other reading; `None` if the path has a NUL, or more readings than are tried.
    pub(crate) reading: Option<String>,
    /// The prefix of the other route, if there is one.
    pub(crate) prefix: Option<String>,
}

impl Routes {
    /// A table of the routes of a configuration.
    pub(crate) fn new(config: &Config) -> Self {
        let (by_id, current) = (Vec::new(), Vec::new());
        let mut table = Self { by_id, current };
        table.replace(config, InUse::default());
        table
    }

    /// The route for `path`; `None` if no route begins it.
    ///
    /// # Errors
    /// [`Ambiguous`] if the application may read the path as that of another route, and one of the
    /// two is guarded.
    pub(crate) fn choose(&self, path: &str) -> Result<Option<RouteId>, Ambiguous> {
        let chosen = self.leads_to(path.as_bytes());
        if is_plain_path(path) || !self.current.iter().any(|id| self.get(*id).is_special) {
            return Ok(chosen);
        }
        let mut ambiguous = Ambiguous {
            reading: None,
            prefix: None,
        };
        let is_special = |route: Option<RouteId>| route.is_some_and(|id| self.get(id).is_special);
        let is_other = |reading: &[u8]| {
            let other = self.leads_to(reading);
            let is_other = other != chosen && (is_special(chosen) || is_special(other));
            if is_other {
                ambiguous.reading = Some(String::from_utf8_lossy(reading).into_owned());
                ambiguous.prefix = other.map(|other| self.get(other).prefix.clone());
            }
            is_other
        };
        if any_reading(path, is_other) {
            return Err(ambiguous);
        }
        Ok(chosen)
    }

    /// Checks that a key named besides a path stays below the prefix of `route`, in every way in
    /// which the application may read `path`, the path of the key.
    ///
    /// # Errors
    /// The reason why it does not.
    pub(crate) fn stays_below(&self, route: RouteId, path: &str) -> Result<(), &'static str> {
        if any_reading(path, has_dot_segments) {
            return Err(DOT_SEGMENT);
        }
        if any_reading(path, |reading| self.leads_to(reading) != Some(route)) {
            return Err(OTHER_ROUTE);
        }
        Ok(())
    }

    fn leads_to(&self, path: &[u8]) -> Option<RouteId> {
        let is_its = |id: &RouteId| path.starts_with(self.get(*id).prefix.as_bytes());
        self.current.iter().copied().find(is_its)
    }

    /// Returns the id of the route with this index in the configuration.
    #[cfg(test)]
    pub(crate) fn id(&self, index: usize) -> RouteId {
        self.current[index]
    }

    /// Returns a route as the last configuration has it that had it.
    pub(crate) fn get(&self, id: RouteId) -> &Route {
        &self.by_id[id.index()]
    }

    /// Returns true if the configuration has the route.
    pub(crate) fn is_current(&self, id: RouteId) -> bool {
        self.current.contains(&id)
    }

    /// Returns every route in the order of ids, those that are not in use among them.
    pub(crate) fn by_id(&self) -> &[Route] {
        &self.by_id
    }

    /// Marks the places of routes that requests are held under.
    pub(crate) fn in_use(&self, held: impl IntoIterator<Item = RouteId>) -> InUse {
        let mut is_used = vec![false; self.by_id.len()];
        for id in held {
            is_used[id.index()] = true;
        }
        InUse(is_used)
    }

    /// Takes the routes of another configuration; ids in use go on naming the same prefixes.
    pub(crate) fn replace(&mut self, config: &Config, in_use: InUse) {
        let (routes, has_upstream) = (&config.routes, config.has_upstream());
        let InUse(mut is_used) = in_use;
        let places = self.by_id.iter().enumerate();
        let known: HashMap<_, _> = places
            .map(|(place, route)| (&*route.prefix, place))
            .collect();
        let place_of = |route: &Arc<RouteConfig>| known.get(&*route.prefix).copied();
        let kept: Vec<Option<usize>> = routes.iter().map(place_of).collect();
        #[cfg(feature = "sim")]
        let kept = if dwell_evloop::sim::Planted::RoutesByOrder.is_in() {
            is_used.fill(false);
            vec![None; routes.len()]
        } else {
            kept
        };
        for place in kept.iter().flatten() {
            is_used[*place] = true;
        }
        for gone in &mut self.by_id {
            if gone.rules.has_upstream != has_upstream {
                *gone = Route::new(&gone.options, has_upstream);
            }
        }
        self.current.clear();
        for (route, kept) in routes.iter().zip(kept) {
            let free = || is_used.iter().position(|is_used| !is_used);
            let place = kept.or_else(free).unwrap_or(is_used.len());
            if place == is_used.len() {
                is_used.push(true);
                self.by_id.push(Route::new(route, has_upstream));
            } else {
                is_used[place] = true;
                self.by_id[place] = Route::new(route, has_upstream);
            }
            // As many routes as a file has tables, far below 2^16.
            self.current
                .push(RouteId(u16::try_from(place).unwrap_or(u16::MAX)));
        }
        let end = is_used.iter().rposition(|is_used| *is_used);
        self.by_id.truncate(end.map_or(0, |last| last + 1));
    }
}

fn has_dot_segments(path: &[u8]) -> bool {
    let mut segments = path.split(|byte| *byte == b'/');
    segments.any(|segment| matches!(segment, b"." | b".."))
}

/// Message for a key that another route might refuse.
pub(crate) const OTHER_ROUTE: &str = "a key is named that is another route's";
const DOT_SEGMENT: &str = "a key is named that has a dot segment";

#[cfg(test)]
mod tests;
