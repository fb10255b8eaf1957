//! The members of `dwell.Event`, made once.

use dwell_engine::manager::EventKind;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Numbers of events are below this.
const NUMBERS: usize = 34;

static MEMBERS: PyOnceLock<Vec<Py<PyAny>>> = PyOnceLock::new();

/// The member of `Event` for `kind`.
pub(super) fn object(py: Python<'_>, kind: EventKind) -> PyResult<Py<PyAny>> {
    let members = MEMBERS.get_or_try_init(py, || members(py))?;
    // The table has every number that an `EventKind` can have.
    Ok(members[kind as usize].clone_ref(py))
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
