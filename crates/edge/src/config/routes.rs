//! Routes by ids that stay the same over reloads.

use super::RouteConfig;
use std::collections::HashMap;
use std::sync::Arc;

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
    by_id: Vec<Arc<RouteConfig>>,
    /// Ids of the configuration's routes, in its order.
    current: Vec<RouteId>,
}

/// Marks of the places of a [`Routes`] that are in use.
#[derive(Debug, Default)]
pub(crate) struct InUse(Vec<bool>);

impl Routes {
    /// A table of the routes of a configuration.
    pub(crate) fn new(routes: &[Arc<RouteConfig>]) -> Self {
        let (by_id, current) = (Vec::new(), Vec::new());
        let mut table = Self { by_id, current };
        table.replace(routes, InUse::default());
        table
    }

    /// Returns the id of the route with this index in the configuration.
    pub(crate) fn id(&self, index: usize) -> RouteId {
        self.current[index]
    }

    /// Returns a route as the last configuration has it that had it.
    pub(crate) fn get(&self, id: RouteId) -> &Arc<RouteConfig> {
        &self.by_id[id.index()]
    }

    /// Returns true if the configuration has the route.
    pub(crate) fn is_current(&self, id: RouteId) -> bool {
        self.current.contains(&id)
    }

    /// Returns every route in the order of ids, those that are not in use among them.
    pub(crate) fn by_id(&self) -> &[Arc<RouteConfig>] {
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
    pub(crate) fn replace(&mut self, routes: &[Arc<RouteConfig>], in_use: InUse) {
        let InUse(mut is_used) = in_use;
        let places = self.by_id.iter().enumerate();
        let known: HashMap<_, _> = places
            .map(|(place, route)| (&*route.prefix, place))
            .collect();
        let place_of = |route: &Arc<RouteConfig>| known.get(&*route.prefix).copied();
        let kept: Vec<Option<usize>> = routes.iter().map(place_of).collect();
        for place in kept.iter().flatten() {
            is_used[*place] = true;
        }
        self.current.clear();
        for (route, kept) in routes.iter().zip(kept) {
            let free = || is_used.iter().position(|is_used| !is_used);
            let place = kept.or_else(free).unwrap_or(is_used.len());
            if place == is_used.len() {
                is_used.push(true);
                self.by_id.push(Arc::clone(route));
            } else {
                is_used[place] = true;
                self.by_id[place] = Arc::clone(route);
            }
            // As many routes as a file has tables, far below 2^16.
            self.current
                .push(RouteId(u16::try_from(place).unwrap_or(u16::MAX)));
        }
        let end = is_used.iter().rposition(|is_used| *is_used);
        self.by_id.truncate(end.map_or(0, |last| last + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(prefixes: &[&str]) -> Vec<Arc<RouteConfig>> {
        let route = |prefix: &&str| Arc::new(RouteConfig::new(prefix));
        prefixes.iter().map(route).collect()
    }

    fn replace(table: &mut Routes, prefixes: &[&str], held: &[RouteId]) {
        let in_use = table.in_use(held.iter().copied());
        table.replace(&routes(prefixes), in_use);
    }

    fn prefix(table: &Routes, id: RouteId) -> &str {
        &table.get(id).prefix
    }

    #[test]
    fn the_routes_of_the_configuration_are_named_in_its_order() {
        let mut table = Routes::new(&routes(&["/long/", "/a/", "/b/"]));
        replace(&mut table, &["/other/", "/b/", "/a/"], &[]);
        for (index, expected) in ["/other/", "/b/", "/a/"].into_iter().enumerate() {
            assert_eq!(prefix(&table, table.id(index)), expected);
        }
        assert_eq!(table.by_id.len(), 3, "/other/ has the place of /long/");
    }

    #[test]
    fn a_prefix_keeps_its_id_and_takes_its_new_options() {
        let mut table = Routes::new(&routes(&["/a/", "/b/"]));
        let (a, b) = (table.id(0), table.id(1));
        let mut changed = RouteConfig::new("/b/");
        changed.content_type = "a/b".to_owned();
        let in_use = table.in_use([a, b]);
        table.replace(&[Arc::new(changed)], in_use);
        assert_eq!(table.id(0), b);
        assert_eq!(table.get(b).content_type, "a/b");
        assert_eq!((prefix(&table, a), table.is_current(a)), ("/a/", false));
        assert!(table.is_current(b));
    }

    #[test]
    fn a_route_that_a_request_is_held_under_stays_until_the_last_is_gone() {
        let mut table = Routes::new(&routes(&["/a/", "/b/"]));
        let a = table.id(0);
        for name in ["/1/", "/2/", "/3/"] {
            replace(&mut table, &["/b/", name], &[a]);
            assert_eq!((prefix(&table, a), table.is_current(a)), ("/a/", false));
            assert_eq!(table.by_id.len(), 3);
        }
        replace(&mut table, &["/a/", "/b/"], &[a, a]);
        assert_eq!(table.id(0), a, "it is back");
        replace(&mut table, &["/b/"], &[a]);
        replace(&mut table, &["/b/", "/4/"], &[]);
        assert_eq!(table.id(1), a, "another route has its place");
    }

    #[test]
    fn the_table_holds_no_more_than_is_in_use() {
        let mut table = Routes::new(&routes(&["/poll/"]));
        let mut held = vec![table.id(0)];
        for round in 0..100 {
            let names: Vec<String> = (0..=round % 7).map(|n| format!("/{round}.{n}/")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            replace(&mut table, &names, &held);
            assert!(table.by_id.len() <= 7 + 7 + held.len(), "{table:?}");
            assert_eq!(prefix(&table, held[0]), "/poll/");
            held.truncate(1);
            held.push(table.id(round % names.len()));
        }
        replace(&mut table, &["/poll/"], &[]);
        assert_eq!((table.by_id.len(), table.id(0)), (1, held[0]));
    }
}
