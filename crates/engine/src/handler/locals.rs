//! The parts of handlers that stay on one loop.

use std::any::Any;
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// The parts of handlers that stay on one loop, each for as long as its handler lives.
#[derive(Default)]
pub(crate) struct Locals(Vec<(Weak<()>, Rc<dyn Any>)>);

impl Locals {
    /// The part of the handler of this life, made when it is first asked for.
    pub(super) fn of<T: 'static>(&mut self, life: &Arc<()>, make: impl FnOnce() -> T) -> Rc<T> {
        let is_its = |kept: &&(Weak<()>, _)| kept.0.as_ptr() == Arc::as_ptr(life);
        let kept = self.0.iter().find(is_its);
        let kept = kept.and_then(|(_, kept)| Rc::clone(kept).downcast().ok());
        kept.unwrap_or_else(|| {
            self.0.retain(|(life, _)| life.strong_count() > 0);
            let local = Rc::new(make());
            self.0.push((Arc::downgrade(life), local.clone()));
            local
        })
    }
}
