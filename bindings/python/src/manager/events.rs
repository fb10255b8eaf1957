//! The members of `dwell.Event`, made once.

use dwell_engine::manager::{EventKind, EventSet};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Numbers of events are below this.
const NUMBERS: usize = 34;

static MEMBERS: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();

/// The member of `Event` for `kind`.
pub(super) fn object(py: Python<'_>, kind: EventKind) -> PyResult<&Bound<'_, PyAny>> {
    let members = MEMBERS.get_or_try_init(py, || members(py))?;
    // The table has every number that an `EventKind` can have.
    Ok(members[kind as usize].bind(py))
}

fn members(py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
    let class = py.import("dwell._events")?.getattr("Event")?;
    (0..NUMBERS)
        .map(|number| {
            // A number that is no event stands for itself.
            let member = class.call1((number,));
            member
                .or_else(|_| Ok(number.into_pyobject(py)?.into_any()))
                .map(Bound::unbind)
        })
        .collect()
}

/// Every event that a handler can be called for.
const EVENTS: &[EventKind] = &[
    EventKind::Error,
    EventKind::Open,
    EventKind::Poll,
    EventKind::Resolve,
    EventKind::Connect,
    EventKind::Accept,
    EventKind::Read,
    EventKind::Write,
    EventKind::Close,
    EventKind::HttpHeaders,
    EventKind::HttpMessage,
    EventKind::WebSocketOpen,
    EventKind::WebSocketMessage,
    EventKind::WebSocketControl,
    EventKind::Wakeup,
    EventKind::HttpBody,
    EventKind::Drained,
];

/// The events of an iterable of numbers.
pub(super) fn event_set(events: &Bound<'_, PyAny>) -> PyResult<EventSet> {
    // By its last event a connection is forgotten.
    let mut set = EventSet::NONE.with(EventKind::Close);
    for number in events.try_iter()? {
        let number: i64 = number?.extract()?;
        let mut known = EVENTS.iter();
        let kind = known.find(|kind| **kind as i64 == number);
        let kind = kind.ok_or_else(|| {
            PyValueError::new_err(format!("events has a number that is none: {number}"))
        })?;
        set = set.with(*kind);
    }
    Ok(set)
}
