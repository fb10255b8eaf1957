//! The answers that a request may get.

use super::{Client, Owed};
use crate::answer::Answer;
use crate::app::Record;
use crate::around::Around;
use crate::failure::Oracle;
use crate::keys::{Broken, Key};
use crate::step::{Ask, FIXED, Has, Method};
use std::cell::RefCell;
use std::time::Duration;

impl Client {
    /// Checks one answer to one request.
    pub(super) fn check(
        &mut self,
        owed: &Owed,
        answer: &Answer,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        if answer.status == 503 && around.refuses_answer(answer) {
            return Ok(());
        }
        let is_of_the_end = answer.body.starts_with(b"shutting down") || owed.is_head();
        if answer.status == 503 && around.may_end() && is_of_the_end {
            // A connection of HTTP/2 stays with a process that another one follows.
            around.counts.reach("refused by a process that ends");
            return Ok(());
        }
        let (key, method, has, wait) = match owed.ask {
            Ask::Fixed(number) => {
                around.counts.reach("answer to no poll");
                let is_right = answer.status == FIXED[number].1;
                let wrong = || (Oracle::OneAnswer, "another status".to_owned());
                return is_right.then_some(()).ok_or_else(wrong);
            }
            Ask::Elsewhere { .. } => return self.check_elsewhere(owed, answer, around),
            Ask::Several { .. } => return self.reader.check_several(owed, answer, around, now),
            Ask::Poll {
                key,
                method,
                has,
                wait,
            } => (key, method, has, wait),
        };
        let has_last = &mut self.reader.has[key];
        if let Some(checked) = owed.check_unlooked(has_last, answer, key, around) {
            return checked;
        }
        if let Some(app) = around.app
            && let Some(checked) = self.check_of_app(owed, answer, key, app, around)
        {
            return checked;
        }
        let last = self.reader.seen[key];
        // With nothing but a cursor that is none, anything is news.
        let is_by_tag = has == Has::Tag && method != Method::Post && owed.has.is_some();
        let has_condition = owed.has.is_some() || has == Has::Garbage;
        let unchanged = match (wait.is_zero(), method) {
            (true, Method::Post) => 204,
            (true, _) => 304,
            (false, _) if is_by_tag => 304,
            (false, _) => 204,
        };
        match answer.status {
            200 => {
                around.counts.reach("value");
                self.check_value(owed, answer, (key, method), &mut around.keys[key], now)
            }
            404 => {
                self.reader.seen[key] = around.keys[key].saw_nothing(owed.floor, last, now)?;
                self.reader.note(key, None);
                around.counts.reach("no such key");
                Ok(())
            }
            status if status == unchanged => {
                self.check_unchanged(owed, key, has_condition, around)?;
                if now < owed.asked_at + wait && !around.may_end() {
                    return Err((Oracle::Deadline, "before its time".to_owned()));
                }
                let state = if wait.is_zero() {
                    "unchanged"
                } else {
                    "wait ended"
                };
                around.counts.reach(state);
                Ok(())
            }
            503 if around.may_end() => Ok(()),
            _ => Err((Oracle::OneAnswer, "another status".to_owned())),
        }
    }

    /// Checks a value that the store had.
    fn check_value(
        &mut self,
        owed: &Owed,
        answer: &Answer,
        (key, method): (usize, Method),
        model: &mut Key,
        now: Duration,
    ) -> Result<(), Broken> {
        let cursor = answer.cursor.as_deref().unwrap_or_default();
        let last = self.reader.seen[key];
        if method == Method::Head {
            // The cursor alone names the value, if anybody has got that before.
            let place = model.state_of(cursor).unwrap_or(owed.floor);
            self.reader.seen[key] = place.max(last);
            return Ok(());
        }
        let place = model.place_of(&answer.body)?;
        model.note_cursor(cursor, place)?;
        self.reader.note(key, Some((place, cursor.to_owned())));
        model.saw_value(place, owed.floor, last, now)?;
        if owed.has == Some(place) {
            return Err((Oracle::OneAnswer, "it has that already".to_owned()));
        }
        self.reader.seen[key] = place;
        Ok(())
    }

    /// Checks the answer to a request that is no poll.
    fn check_elsewhere(
        &self,
        owed: &Owed,
        answer: &Answer,
        around: &mut Around<'_>,
    ) -> Result<(), Broken> {
        around.counts.reach("answer to no poll");
        let own = format!("elsewhere@{}-{}", self.reader.number, owed.mark);
        match (answer.status, around.app) {
            (404, None) => Ok(()),
            (200, Some(_)) if answer.body == own.as_bytes() => Ok(()),
            (200, Some(_)) => {
                let text = String::from_utf8_lossy(&answer.body);
                Err((Oracle::OwnKey, format!("{text} instead of {own}")))
            }
            (500 | 502 | 503 | 504, Some(_)) if !around.is_calm || around.ending.ends => Ok(()),
            _ => Err((Oracle::OneAnswer, "another status".to_owned())),
        }
    }

    /// Checks the answer to a poll, if the application may have made it.
    fn check_of_app(
        &mut self,
        owed: &Owed,
        answer: &Answer,
        key: usize,
        app: &RefCell<Record>,
        around: &mut Around<'_>,
    ) -> Option<Result<(), Broken>> {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        match answer.status {
            200 if text.contains('@') => {}
            404 => {}
            204 if answer.cursor.is_none() => {}
            500 | 502 | 503 | 504 if !around.is_calm => {}
            _ => return None,
        }
        let (now, last) = (around.network.elapsed(), self.reader.seen[key]);
        if around.keys[key].place_of_answer(&answer.body).is_some() {
            // It is stored.
            return None;
        }
        let may_fail = owed.may_fail(around);
        let seen = match around.keys[key].saw_nothing(owed.floor, last, now) {
            // A lookup that has failed does not say that there is nothing.
            Ok(_) if may_fail => last,
            Ok(seen) => seen,
            // So it was not for want of a value.
            Err(_) if answer.status == 204 && !may_fail => return None,
            Err(_) if may_fail => last,
            Err(broken) => return Some(Err(broken)),
        };
        self.reader.seen[key] = seen;
        around.counts.reach("answer of the application");
        self.reader.note(key, None);
        if answer.status != 200 {
            return Some(Ok(()));
        }
        Some(self.reader.check_own(&text, &around.keys[key].name, app))
    }

    /// Checks an answer that says that nothing has changed.
    fn check_unchanged(
        &mut self,
        owed: &Owed,
        key: usize,
        has_condition: bool,
        around: &Around<'_>,
    ) -> Result<(), Broken> {
        let (model, now) = (&around.keys[key], around.network.elapsed());
        let last = self.reader.seen[key];
        let is_still_there = owed.has.is_some_and(|has| has >= owed.floor.max(last));
        let may_lack = !has_condition || around.keeps_waiting;
        // With what was known before, or with nothing, it may have waited for the first lookup.
        if owed.may_be_stale(around) && owed.waits() && (owed.has.is_some() || !has_condition) {
            return Ok(());
        }
        if is_still_there || may_lack && model.saw_nothing(owed.floor, last, now).is_ok() {
            return Ok(());
        }
        let has = owed.has;
        let reason = format!(
            "it has {has:?}, after state {} (client: {last})",
            owed.floor
        );
        Err((Oracle::Order, reason))
    }
}
