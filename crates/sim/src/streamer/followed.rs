//! One key of an event stream, and what is told of it.

use crate::around::Around;
use crate::failure::Oracle;
use crate::keys::{Broken, Key, number_of};
use std::time::Duration;

/// A key that a stream follows.
pub(super) struct Followed {
    pub(super) key: usize,
    label: String,
    /// The stream names several keys.
    is_named: bool,
    /// The state that it was told last.
    has: Option<usize>,
    /// The number of the application's answer that it was told last, if nothing has come since.
    of_app: Option<u64>,
    /// The cursor of what it was told last, which may be of the application.
    cursor: String,
    /// The newest state that it has seen.
    seen: usize,
    /// The oldest state that it may be told.
    pub(super) floor: usize,
}

impl Followed {
    pub(super) fn new(key: usize, is_named: bool) -> Self {
        Self {
            key,
            label: format!("k{key}"),
            is_named,
            has: None,
            of_app: None,
            cursor: String::new(),
            seen: 0,
            floor: 0,
        }
    }

    /// The name of the key behind the path of its route.
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn told(&self) -> (usize, Option<usize>) {
        (self.key, self.has)
    }

    /// The state that it has: an answer of the application may have been stored since.
    pub(super) fn has_now(&self, model: &Key) -> Option<usize> {
        let stored = self.of_app.and_then(|number| model.place_of_number(number));
        self.has.or(stored)
    }

    /// The cursor that is its part of an id.
    pub(super) fn cursor(&self) -> &str {
        &self.cursor
    }

    /// A stream begins; returns the cursor that it is to say.
    pub(super) fn begin(&mut self) -> String {
        if self.has.is_none() {
            self.cursor.clear();
        }
        self.cursor.clone()
    }

    /// It is told that there is no value.
    pub(super) fn gone(&mut self, around: &mut Around<'_>, now: Duration) -> Result<(), Broken> {
        around.counts.reach("delete event");
        self.seen = around.is_told_nothing(self.key, self.floor, self.seen, now)?;
        (self.has, self.of_app) = (None, None);
        self.cursor.clear();
        if self.is_named && around.keeps_waiting {
            let reason = format!("{} is gone, and its route keeps that to itself", self.label);
            return Err((Oracle::OneAnswer, reason));
        }
        Ok(())
    }

    /// It is told a value with its cursor.
    pub(super) fn value(
        &mut self,
        data: &str,
        cursor: &str,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let model = &mut around.keys[self.key];
        cursor.clone_into(&mut self.cursor);
        let is_stored = model.place_of_answer(data.as_bytes()).is_some();
        let is_of_app = data.starts_with(&format!("{}@", model.name)) && !is_stored;
        if around.app.is_some() && is_of_app {
            if self.is_named {
                around
                    .counts
                    .reach("event of several keys, of the application");
            }
            self.seen = around.is_told_nothing(self.key, self.floor, self.seen, now)?;
            (self.has, self.of_app) = (None, number_of(data));
            return Ok(());
        }
        around.counts.reach(if self.is_named {
            "event of several keys"
        } else {
            "event"
        });
        let place = model.place_of(data.as_bytes())?;
        model.note_cursor(cursor, place)?;
        self.seen = around.is_told_value(self.key, place, self.floor, self.seen, now)?;
        self.of_app = None;
        if self.has.replace(place) == Some(place) {
            let name = &around.keys[self.key].name;
            let reason = format!("a stream of {name} gives {place} again");
            return Err((Oracle::Order, reason));
        }
        Ok(())
    }
}
