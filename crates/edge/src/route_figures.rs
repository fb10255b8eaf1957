//! The places of the figures of routes.

use crate::config::{RouteId, Routes};
use crate::metrics::{ListenerCells, LoopMetrics, RouteCells, StatusClass};

/// The places of the figures of routes, by the places of these, with their prefixes.
#[derive(Debug)]
pub(crate) struct RouteFigures {
    places: Vec<Option<usize>>,
    prefixes: Vec<Box<str>>,
}

impl RouteFigures {
    pub(crate) fn of(metrics: &LoopMetrics, routes: &Routes) -> Self {
        let prefixes = routes.by_id().iter().map(|route| &route.prefix);
        Self {
            places: (prefixes.clone())
                .map(|prefix| metrics.route_names.of(prefix))
                .collect(),
            prefixes: prefixes.map(|prefix| prefix.as_str().into()).collect(),
        }
    }

    /// The place of the figures of a route; `None` if there are too many routes.
    pub(crate) fn place(&self, route: RouteId) -> Option<usize> {
        self.places.get(route.index()).copied()?
    }

    pub(crate) fn cells<'m>(
        &self,
        metrics: &'m LoopMetrics,
        route: RouteId,
    ) -> Option<&'m RouteCells> {
        metrics.route_cells(self.place(route))
    }

    /// The prefix of a route.
    pub(crate) fn prefix(&self, route: RouteId) -> Option<&str> {
        Some(self.prefixes.get(route.index())?)
    }

    /// Tells how many wait on each route, by the places of these.
    pub(crate) fn tell_waiting(&self, metrics: &LoopMetrics, counts: &[i64]) {
        for (place, count) in self.places.iter().zip(counts) {
            let cells = place.and_then(|place| metrics.routes.get(place));
            if let Some(cells) = cells {
                cells.waiting.set(*count);
            }
        }
    }

    /// Sets the waiting clients of every route to zero.
    pub(crate) fn tell_nobody(&self, metrics: &LoopMetrics) {
        self.tell_waiting(metrics, &vec![0; self.places.len()]);
    }
}

impl LoopMetrics {
    /// The figures of the route at a place, if it has one.
    pub(crate) fn route_cells(&self, place: Option<usize>) -> Option<&RouteCells> {
        self.routes.get(place?)
    }

    /// The figures of the listener with a label, if it has one.
    pub(crate) fn listener_cells(&self, label: Option<u8>) -> Option<&ListenerCells> {
        self.listeners.get(usize::from(label?))
    }
}

pub(crate) fn count_response(cells: &RouteCells, status: u16) {
    cells.responses.increment(class_of(status));
    match status {
        401 | 403 => cells.denied.increment(),
        429 => cells.limited.increment(),
        _ => {}
    }
}

pub(crate) fn class_of(status: u16) -> StatusClass {
    StatusClass::BY_DIGIT[usize::from(status / 100).min(9)]
}
