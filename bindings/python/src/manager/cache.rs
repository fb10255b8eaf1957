//! The Python objects of connections. An object is made when a program asks for it, and is the same
//! one as long as the program refers to it. A connection that no program refers to has none.

use super::connection::Connection;
use super::shared::{Shared, lock};
use super::trampoline::is_alone;
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The objects that a program has, or had not long ago.
#[derive(Default)]
pub(super) struct Cache {
    objects: Mutex<Objects>,
}

#[derive(Default)]
struct Objects {
    /// The object that was used last: events of one connection come in a row.
    last: Option<Py<Connection>>,
    /// All others, by the id of their connection.
    others: HashMap<u64, Py<Connection>>,
    /// Objects that were left when the unused ones were last dropped.
    swept: usize,
}

/// Unused objects that may be kept.
const UNSWEPT_MAX: usize = 64;

impl Cache {
    /// The object of connection `id`.
    pub(super) fn object(
        &self,
        py: Python<'_>,
        shared: &Arc<Shared>,
        id: u64,
    ) -> PyResult<Py<Connection>> {
        {
            let mut objects = lock(&self.objects);
            if let Some(object) = objects.known(py, id) {
                return Ok(object);
            }
            if let Some(object) = objects.reused(py, id) {
                return Ok(object);
            }
        }
        // Without the lock, as making one may run the garbage collector.
        let object = Py::new(py, Connection::new(Arc::clone(shared), id))?;
        let mut objects = lock(&self.objects);
        // Another thread, or the collector, may have asked meanwhile.
        if let Some(known) = objects.known(py, id) {
            drop(objects);
            return Ok(known);
        }
        objects.put_last(object.clone_ref(py));
        Ok(object)
    }

    /// Drops the object of a connection that has ended; the program may have it still.
    pub(super) fn forget(&self, py: Python<'_>, id: u64) {
        let object = {
            let mut objects = lock(&self.objects);
            let is_last = objects
                .last
                .as_ref()
                .is_some_and(|last| last.get().id() == id);
            if is_last {
                objects.last.take()
            } else {
                objects.others.remove(&id)
            }
        };
        if let Some(object) = object {
            object.get().end(py);
        }
    }

    /// Drops the unused objects, when there may be many.
    pub(super) fn sweep(&self, py: Python<'_>) {
        let unused: Vec<Py<Connection>> = {
            let mut objects = lock(&self.objects);
            if objects.others.len() <= 2 * objects.swept + UNSWEPT_MAX {
                return;
            }
            let unused = objects
                .others
                .extract_if(|_, object| is_unused(py, object))
                .map(|(_, object)| object)
                .collect();
            objects.swept = objects.others.len();
            unused
        };
        drop(unused);
    }

    pub(super) fn traverse(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(objects) = self.objects.try_lock() else {
            return Ok(());
        };
        for object in objects.others.values().chain(&objects.last) {
            visit.call(object)?;
        }
        Ok(())
    }

    /// Drops all; their connections are gone.
    pub(super) fn clear(&self, py: Python<'_>) {
        let objects = std::mem::take(&mut *lock(&self.objects));
        for object in objects.others.into_values().chain(objects.last) {
            object.get().end(py);
        }
    }
}

impl Objects {
    fn known(&mut self, py: Python<'_>, id: u64) -> Option<Py<Connection>> {
        if let Some(last) = &self.last
            && last.get().id() == id
        {
            return Some(last.clone_ref(py));
        }
        if self.others.is_empty() {
            return None;
        }
        let object = self.others.remove(&id)?;
        self.put_last(object.clone_ref(py));
        Some(object)
    }

    /// Takes the last object for another connection, if it is unused.
    fn reused(&mut self, py: Python<'_>, id: u64) -> Option<Py<Connection>> {
        let last = self.last.as_ref().filter(|last| is_unused(py, last))?;
        last.get().set_id(id);
        Some(last.clone_ref(py))
    }

    fn put_last(&mut self, object: Py<Connection>) {
        if let Some(before) = self.last.replace(object) {
            self.others.insert(before.get().id(), before);
        }
    }
}

/// Returns true if an object can be dropped or used for another connection: it keeps nothing, and
/// only the cache, which is locked, refers to it.
fn is_unused(py: Python<'_>, object: &Py<Connection>) -> bool {
    is_alone(py, object) && !object.get().keeps_something()
}
