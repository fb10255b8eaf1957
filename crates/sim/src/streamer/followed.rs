//! One key of an event stream, and what is told of it.

use crate::client::Around;
use crate::failure::Oracle;
use crate::keys::Broken;
use std::time::Duration;

/// A key that a stream follows.
pub(super) struct Followed {
    pub(super) key: usize,
    label: String,
    /// The stream names several keys.
    is_named: bool,
    /// The state that it was told last.
    has: Option<usize>,
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
        self.seen = around.keys[self.key].saw_nothing(self.floor, self.seen, now)?;
        self.has = None;
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
        if around.app.is_some() && data.starts_with(&format!("{}@", model.name)) {
            if self.is_named {
                around
                    .counts
                    .reach("event of several keys, of the application");
            }
            self.seen = model.saw_nothing(self.floor, self.seen, now)?;
            self.has = None;
            return Ok(());
        }
        around.counts.reach(if self.is_named {
            "event of several keys"
        } else {
            "event"
        });
        let place = model.place_of(data.as_bytes())?;
        model.note_cursor(cursor, place)?;
        let before = self.has.replace(place);
        if place < self.floor.max(self.seen) || before == Some(place) {
            let (name, seen) = (&model.name, self.seen);
            let reason = format!("a stream of {name} gives {place}, after {seen}");
            return Err((Oracle::Order, reason));
        }
        self.seen = place;
        Ok(())
    }
}
