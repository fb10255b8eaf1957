//! The parts of a stream beside its socket, which most streams do not have.

use super::queue::Queue;
use std::any::Any;

/// A queue while the socket refuses bytes, and what is kept for as long as the stream lives.
#[derive(Debug, Default)]
pub(super) struct Beside(Option<Box<Parts>>);

#[derive(Debug, Default)]
struct Parts {
    queue: Option<Queue>,
    kept: Option<Box<dyn Any + Send>>,
}

impl Beside {
    pub(super) fn queue(&self) -> Option<&Queue> {
        self.0.as_ref()?.queue.as_ref()
    }

    pub(super) fn queue_mut(&mut self) -> Option<&mut Queue> {
        self.0.as_mut()?.queue.as_mut()
    }

    /// The queue; where there is none, it begins by this.
    pub(super) fn queue_or_else(&mut self, begin: impl FnOnce() -> Queue) -> &mut Queue {
        let parts = self.0.get_or_insert_default();
        parts.queue.get_or_insert_with(begin)
    }

    /// Lets go of the queue, and of its memory.
    pub(super) fn drop_queue(&mut self) {
        match &mut self.0 {
            Some(parts) if parts.kept.is_some() => parts.queue = None,
            parts => *parts = None,
        }
    }

    pub(super) fn keep(&mut self, kept: Box<dyn Any + Send>) {
        self.0.get_or_insert_default().kept = Some(kept);
    }
}
