//! Answers of a poll whose lookup in memcached may have failed.

use super::Owed;
use crate::answer::Answer;
use crate::around::Around;
use crate::failure::Oracle;
use crate::keys::{Broken, Key};
use crate::patience::APP_PATIENCE;
use crate::step::{Ask, Method};
use std::time::Duration;

/// The time for which a value stands in for one that cannot be had (`stale_if_error`), and a
/// moment.
const STALE: Duration = Duration::from_secs(62);

impl Owed {
    /// Returns true if a lookup for it may have failed.
    pub(super) fn may_fail(&self, around: &Around<'_>) -> bool {
        around
            .fails_until
            .is_some_and(|until| self.asked_at <= until)
    }

    /// Returns true if a value of before may stand in for what it asks for: the application fails,
    /// too.
    pub(super) fn may_be_stale(&self, around: &Around<'_>) -> bool {
        let app_fails = around.app.is_some() && !around.is_calm;
        self.may_fail(around) || around.fails_until.is_some() && app_fails
    }

    /// Returns true if its answer has no body.
    pub(super) fn is_head(&self) -> bool {
        matches!(
            self.ask,
            Ask::Poll {
                method: Method::Head,
                ..
            } | Ask::Several {
                method: Method::Head,
                ..
            }
        )
    }

    /// Returns true if it waits.
    pub(super) fn waits(&self) -> bool {
        matches!(self.ask, Ask::Poll { wait, .. } if !wait.is_zero())
    }
}

impl Owed {
    /// Checks the answer to a poll, if it is one that only a failure excuses.
    pub(super) fn check_unlooked(
        &self,
        has: &mut Option<(usize, String)>,
        answer: &Answer,
        key: usize,
        around: &mut Around<'_>,
    ) -> Option<Result<(), Broken>> {
        if answer.status == 503 && around.app.is_none() && self.may_fail(around) {
            around.counts.reach("memcached does not answer");
            return Some(Ok(()));
        }
        let is_stored = around.keys[key].place_of_answer(&answer.body).is_some();
        let is_of_app = answer.body.contains(&b'@') && !is_stored;
        if !answer.is_stale || !self.may_be_stale(around) || is_of_app {
            return None;
        }
        around.counts.reach("stale value");
        Some(check_stale(has, answer, key, around))
    }
}

/// Returns true if this was the value of a key a short while ago.
pub(super) fn was_known(model: &Key, place: usize, now: Duration) -> bool {
    model.was_there_since(place, now.saturating_sub(STALE))
}

/// Checks a value of before.
fn check_stale(
    has: &mut Option<(usize, String)>,
    answer: &Answer,
    key: usize,
    around: &mut Around<'_>,
) -> Result<(), Broken> {
    let (model, now) = (&mut around.keys[key], around.network.elapsed());
    if answer.status != 200 || answer.body.is_empty() {
        return Ok(());
    }
    let place = model.place_of(&answer.body)?;
    let cursor = answer.cursor.as_deref().unwrap_or_default();
    model.note_cursor(cursor, place)?;
    *has = Some((place, cursor.to_owned()));
    if was_known(model, place, now) {
        return Ok(());
    }
    let reason = format!("state {place} was over more than {STALE:?} ago");
    Err((Oracle::Order, reason))
}

impl Around<'_> {
    /// Returns true if those who follow keys may be told what memcached does not have: what the
    /// application says of a key, or a value of before.
    fn may_guess(&self, now: Duration) -> bool {
        let app_fails = self.app.is_some() && !self.is_calm;
        (self.fails_until).is_some_and(|until| app_fails || now <= until + APP_PATIENCE)
    }

    /// Checks that somebody who follows a key may be told that it has no value; returns the newest
    /// state that is seen by that.
    pub(crate) fn is_told_nothing(
        &self,
        key: usize,
        floor: usize,
        last: usize,
        now: Duration,
    ) -> Result<usize, Broken> {
        let seen = self.keys[key].saw_nothing(floor, last, now);
        seen.or_else(|broken| self.may_guess(now).then_some(last).ok_or(broken))
    }

    /// Checks that somebody who follows a key may be told this value; returns as before.
    pub(crate) fn is_told_value(
        &self,
        key: usize,
        place: usize,
        floor: usize,
        last: usize,
        now: Duration,
    ) -> Result<usize, Broken> {
        let model = &self.keys[key];
        let is_known = was_known(model, place, now);
        match model.saw_value(place, floor, last, now) {
            Err(broken) if !is_known || !self.may_guess(now) => Err(broken),
            _ => Ok(place.max(last)),
        }
    }
}
