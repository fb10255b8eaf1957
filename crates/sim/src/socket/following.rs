//! The keys that a WebSocket follows, and the frames that tell of them.

use crate::around::Around;
use crate::failure::Oracle;
use crate::keys::{Broken, number_of};
use crate::patience::{APP_PATIENCE, PROMPT};
use crate::pick::Pick;
use std::time::Duration;

/// The keys that a WebSocket follows, and what it was told.
pub(super) struct Following {
    pub(super) follows: Vec<Follow>,
    /// The names of keys that it was refused to follow.
    refused: Vec<String>,
    /// The state of each key that it has been told last, and the cursor of that.
    pub(super) last: Vec<Option<(usize, String)>>,
    /// The one that it was told before that.
    older: Vec<Option<(usize, String)>>,
    /// The newest state of each key that it has seen, values and deletions.
    seen: Vec<usize>,
}

/// A key that it follows by a name.
pub(super) struct Follow {
    pub(super) key: usize,
    /// The name in its frames; none where the path names the key.
    pub(super) label: Option<String>,
    pub(super) has: What,
    /// The oldest state that it may be told.
    pub(super) floor: usize,
    pub(super) repeats: Repeats,
    /// The barrier behind the message by which it has given the key up, until that is answered.
    pub(super) ends_with: Option<String>,
    pub(super) since: Duration,
    /// The message that was answered last asked for it, and was refused.
    pub(super) is_refused: bool,
}

/// Frames that may tell what was told already: a client that follows a key again may get the frame
/// that was on its way, and then what there is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Repeats {
    Never,
    /// All until this barrier is answered.
    Until(String),
    Once,
}

/// The last thing that it was told of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Nothing,
    State(usize),
    /// The answer of the application with this number.
    OfApp(u64),
}

impl Follow {
    /// Returns true if it has given the key up, and the server may not know yet.
    pub(super) fn is_ending(&self) -> bool {
        self.ends_with.is_some()
    }
}

impl Follow {
    /// Returns true if the frame that has come may tell what was told already.
    fn take_repeat(&mut self) -> bool {
        let may = self.repeats != Repeats::Never || self.is_ending();
        if self.repeats == Repeats::Once {
            self.repeats = Repeats::Never;
        }
        may
    }
}

impl Following {
    pub(super) fn new(keys: usize) -> Self {
        Self {
            follows: Vec::new(),
            refused: Vec::new(),
            last: vec![None; keys],
            older: vec![None; keys],
            seen: vec![0; keys],
        }
    }

    /// The keys that it follows, with the states that it was told last.
    pub(super) fn told(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        let told = |follow: &Follow| match follow.has {
            What::State(state) => (follow.key, Some(state)),
            What::Nothing | What::OfApp(_) => (follow.key, None),
        };
        self.follows.iter().filter(|one| !one.is_ending()).map(told)
    }

    /// It was told a state of a key, with its cursor, or that there is none.
    fn note(&mut self, key: usize, told: Option<(usize, String)>) {
        if self.last[key] != told {
            self.older[key] = std::mem::replace(&mut self.last[key], told);
        }
    }

    /// A state of a key that it was told, and its cursor.
    pub(super) fn cursor_of(&self, key: usize, pick: Pick) -> Option<&(usize, String)> {
        match pick {
            Pick::Last => self.last[key].as_ref(),
            Pick::Older => self.older[key].as_ref(),
            Pick::Nothing => None,
        }
    }

    /// It is refused to follow a key; false if it has not asked for that.
    pub(super) fn refuse(&mut self, label: Option<&str>) -> bool {
        let Ok(place) = self.place_of(label) else {
            return false;
        };
        self.follows[place].is_refused = true;
        self.refused.extend(label.map(str::to_owned));
        true
    }

    /// Returns true if it was refused to follow a key, which it may have given up since.
    pub(super) fn was_refused(&self, label: Option<&str>) -> bool {
        self.refused.iter().any(|refused| Some(&**refused) == label)
    }

    /// The connection has ended.
    pub(super) fn clear(&mut self) {
        self.follows.clear();
        self.refused.clear();
    }

    /// All that was sent before a barrier was carried out.
    pub(super) fn passes(&mut self, name: &str) {
        self.follows
            .retain(|it| it.ends_with.as_deref() != Some(name));
        // What was refused came right before the reply to the barrier behind it.
        let until = Repeats::Until(name.to_owned());
        self.follows
            .retain(|it| !it.is_refused || it.repeats != until);
        for follow in &mut self.follows {
            follow.is_refused = false;
            if matches!(&follow.repeats, Repeats::Until(barrier) if barrier == name) {
                follow.repeats = Repeats::Once;
            }
        }
    }

    fn place_of(&self, label: Option<&str>) -> Result<usize, Broken> {
        let mut follows = self.follows.iter();
        let place = follows.position(|follow| follow.label.as_deref() == label);
        place.ok_or_else(|| (Oracle::OwnKey, format!("it does not follow {label:?}")))
    }

    /// It is told that a key has no value.
    pub(super) fn gone(
        &mut self,
        label: Option<&str>,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        around.counts.reach("deletion frame");
        let place = self.place_of(label)?;
        let follow = &mut self.follows[place];
        let key = follow.key;
        let last = self.seen[key];
        self.seen[key] = around.is_told_nothing(key, follow.floor, last, now)?;
        let before = std::mem::replace(&mut follow.has, What::Nothing);
        let may_repeat = follow.take_repeat();
        self.note(key, None);
        if before == What::Nothing && !may_repeat {
            return Err((Oracle::OneAnswer, format!("{label:?} is gone again")));
        }
        if around.keeps_waiting && around.app.is_none() {
            let reason = format!("{label:?} is gone, and its route keeps that to itself");
            return Err((Oracle::OneAnswer, reason));
        }
        Ok(())
    }

    /// It is told the value of a key.
    pub(super) fn value(
        &mut self,
        label: Option<&str>,
        (value, cursor): (&str, &str),
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let place = self.place_of(label)?;
        let follow = &mut self.follows[place];
        let key = follow.key;
        let (model, last) = (&mut around.keys[key], self.seen[key]);
        let is_stored = model.place_of_answer(value.as_bytes()).is_some();
        let is_of_app = value.starts_with(&format!("{}@", model.name)) && !is_stored;
        if around.app.is_some() && is_of_app {
            around.counts.reach("frame of the application");
            self.seen[key] = around.is_told_nothing(key, follow.floor, last, now)?;
            follow.has = What::OfApp(number_of(value).unwrap_or_default());
            follow.take_repeat();
            self.note(key, None);
            return Ok(());
        }
        around.counts.reach("value frame");
        let state = model.place_of(value.as_bytes())?;
        model.note_cursor(cursor, state)?;
        let seen = around.is_told_value(key, state, follow.floor, last, now)?;
        let before = std::mem::replace(&mut follow.has, What::State(state));
        let may_repeat = follow.take_repeat();
        self.seen[key] = seen;
        self.note(key, Some((state, cursor.to_owned())));
        if before == What::State(state) && !may_repeat {
            return Err((Oracle::Order, format!("{label:?} is state {state} again")));
        }
        Ok(())
    }

    /// Checks that it was told of the newest state of each key.
    pub(super) fn check_news(
        &self,
        clear_since: Duration,
        around: &Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let patience = PROMPT + around.app.map_or(Duration::ZERO, |_| APP_PATIENCE);
        for follow in self.follows.iter().filter(|it| !it.is_ending()) {
            let has = match follow.has {
                What::State(state) => Some(state),
                What::Nothing => None,
                // It may have been stored since.
                What::OfApp(number) => around.keys[follow.key].place_of_number(number),
            };
            let model = &around.keys[follow.key];
            // An application that fails says nothing of a key that is gone.
            let keeps_waiting = around.keeps_waiting || around.app.is_some();
            if let Some((state, since)) = model.is_news_since(has, keeps_waiting)
                && now > clear_since.max(since).max(follow.since) + patience
            {
                let (name, label) = (&model.name, &follow.label);
                let reason = format!("{name} as {label:?} has {has:?}, and is not told of {state}");
                return Err((Oracle::Newest, reason));
            }
        }
        Ok(())
    }
}
