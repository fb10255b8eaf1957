//! Polls of several keys: what is asked, and the answers that they may get.

use super::Owed;
use super::part::Part;
use super::reader::Reader;
use super::unlooked::was_known;
use crate::answer::Answer;
use crate::around::Around;
use crate::failure::Oracle;
use crate::keys::{Broken, Key};
use crate::patience::{APP_PATIENCE, PROMPT};
use crate::pick::Pick;
use crate::step::{Ask, Has, Method, Several};
use std::fmt::Write as _;
use std::time::Duration;

/// The texts of an answer: the cursor, and for each key that is named its value and cursor, or
/// nothing where it has gone.
type Told<'a> = (&'a str, Vec<(&'a str, Option<(&'a str, &'a str)>)>);

impl Reader {
    /// The keys of a poll, with what is said of each.
    pub(super) fn parts(&self, several: Several, has: Has, keys: &[Key]) -> Vec<Part> {
        let all = self.has.len();
        let part = |place: usize| {
            let key = (several.first + place) % all;
            let known = match several.picks[place] {
                _ if has == Has::Nothing => None,
                Pick::Last => self.has[key].clone(),
                Pick::Older => self.older[key].clone(),
                Pick::Nothing => None,
            };
            let is_garbage = has == Has::Garbage && place == 0;
            let known = known.filter(|_| !is_garbage);
            let label = if several.is_long {
                key.to_string()
            } else {
                format!("k{key}")
            };
            Part {
                key,
                label,
                has: known.as_ref().map(|(state, _)| *state),
                cursor: known.map(|(_, cursor)| cursor).unwrap_or_default(),
                is_garbage,
                floor: keys[key].floor(),
            }
        };
        (0..several.count).map(part).collect()
    }

    /// The text of a poll of several keys.
    pub(super) fn several_request(
        &self,
        parts: &[Part],
        (is_long, method, has, wait): (bool, Method, Has, Duration),
    ) -> String {
        let path = if is_long { "/poll/k" } else { "/poll/" };
        let (mut query, mut fields) = (String::from("x=1"), self.identity());
        for part in parts {
            // Writing to a string does not fail.
            let _ = write!(query, "&k={}", part.label);
        }
        let said = |part: &Part| {
            if part.is_garbage {
                "nonsense".to_owned()
            } else {
                part.cursor.clone()
            }
        };
        let said: Vec<_> = parts.iter().map(said).collect();
        let said = said.join(".");
        let _ = match has {
            Has::Tag if method != Method::Post => {
                write!(fields, "If-None-Match: \"{said}\"\r\n")
            }
            _ if parts.iter().all(Part::knows_nothing) => Ok(()),
            _ => write!(query, "&since={said}"),
        };
        if !wait.is_zero() {
            let _ = write!(query, "&wait={}ms", wait.as_millis());
        }
        let (name, body) = match method {
            Method::Get => ("GET", ""),
            Method::Head => ("HEAD", ""),
            Method::Post => {
                fields.push_str("Content-Length: 3\r\n");
                ("POST", "a=1")
            }
        };
        format!("{name} {path}?{query} HTTP/1.1\r\nHost: edge\r\n{fields}\r\n{body}")
    }

    /// Checks one answer to a poll of several keys.
    pub(super) fn check_several(
        &mut self,
        owed: &Owed,
        answer: &Answer,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let Ask::Several {
            method, has, wait, ..
        } = owed.ask
        else {
            return Ok(());
        };
        let knows_nothing = owed.parts.iter().all(Part::knows_nothing);
        let is_empty = knows_nothing && wait.is_zero();
        let is_unchanged = match answer.status {
            204 | 304 if around.may_end() => true,
            204 if wait.is_zero() => method == Method::Post && !is_empty,
            304 if wait.is_zero() => method != Method::Post && !is_empty,
            304 => has == Has::Tag && method != Method::Post,
            204 => has != Has::Tag || method == Method::Post,
            _ => false,
        };
        match answer.status {
            200 if method == Method::Head => self.check_cursors(owed, answer, around, now),
            200 => {
                around.counts.reach("values of several keys");
                let told = parse(&answer.body);
                let told = told.ok_or_else(|| wrong("no answer for several keys"))?;
                if told.1.is_empty() && !is_empty {
                    return Err(wrong("it tells of nothing"));
                }
                self.check_told(owed, answer, &told, around, now)
            }
            _ if is_unchanged => {
                around.counts.reach("several keys unchanged");
                self.check_told(owed, answer, &("", Vec::new()), around, now)?;
                if now < owed.asked_at + wait && !around.may_end() {
                    return Err((Oracle::Deadline, "before its time".to_owned()));
                }
                Ok(())
            }
            503 if around.may_end() => Ok(()),
            503 if owed.may_fail(around) => {
                around.counts.reach("several keys without memcached");
                Ok(())
            }
            503 | 504 if around.app.is_some() && !around.is_calm => {
                around.counts.reach("several keys without the application");
                Ok(())
            }
            _ => Err(wrong("another status")),
        }
    }

    /// Checks what is told of each key, and the cursor of it all.
    fn check_told(
        &mut self,
        owed: &Owed,
        answer: &Answer,
        (cursor, values): &Told<'_>,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let mut values = values.iter().peekable();
        let mut cursors = Vec::new();
        for part in &owed.parts {
            let told = values.next_if(|(label, _)| *label == part.label);
            match told {
                Some((_, Some((value, cursor)))) => {
                    self.check_part(owed, part, (value, cursor), around, now)?;
                    cursors.push((*cursor).to_owned());
                }
                Some((_, None)) => {
                    self.check_gone(owed, part, around, now)?;
                    cursors.push(String::new());
                }
                None => {
                    self.check_silent(owed, part, around, now)?;
                    cursors.push(part.cursor.clone());
                }
            }
        }
        if let Some((label, _)) = values.next() {
            return Err(wrong(&format!("{label} was not asked for, or not then")));
        }
        let expected = cursors.join(".");
        let is_right = answer.cursor.as_deref() == Some(&*expected)
            && (*cursor == expected || answer.status != 200);
        let reason = || wrong(&format!("{cursor} is the cursor instead of {expected}"));
        is_right.then_some(()).ok_or_else(reason)
    }

    /// Checks the value of one key.
    fn check_part(
        &mut self,
        owed: &Owed,
        part: &Part,
        (value, cursor): (&str, &str),
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let last = self.seen[part.key];
        let model = &mut around.keys[part.key];
        let is_stored = model.place_of_answer(value.as_bytes()).is_some();
        if let Some(app) = around.app
            && !is_stored
            && value.starts_with(&format!("{}@", model.name))
        {
            around.counts.reach("several keys with the application");
            self.seen[part.key] = owed.saw_nothing(part, last, around, now)?;
            self.note(part.key, None);
            return self.check_own(value, &around.keys[part.key].name, app);
        }
        let place = model.place_of(value.as_bytes())?;
        model.note_cursor(cursor, place)?;
        self.seen[part.key] = owed.saw_value(part, place, last, around, now)?;
        self.note(part.key, Some((place, cursor.to_owned())));
        if part.has == Some(place) {
            return Err(wrong(&format!("it has that of {} already", part.label)));
        }
        Ok(())
    }

    /// Checks that a key has gone, of which it had said that it has a value.
    fn check_gone(
        &mut self,
        owed: &Owed,
        part: &Part,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        around.counts.reach("several keys, one gone");
        let last = self.seen[part.key];
        self.seen[part.key] = owed.saw_nothing(part, last, around, now)?;
        self.note(part.key, None);
        let is_right = !part.knows_nothing() && !around.keeps_waiting;
        let reason = || wrong(&format!("{} is gone unasked", part.label));
        is_right.then_some(()).ok_or_else(reason)
    }

    /// Checks that nothing is told of a key.
    fn check_silent(
        &self,
        owed: &Owed,
        part: &Part,
        around: &Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let (model, last) = (&around.keys[part.key], self.seen[part.key]);
        let is_still_there = part.has.is_some_and(|has| has >= part.floor.max(last));
        // An application that fails says nothing of a key, and is not asked where others are news.
        let may_lack = part.knows_nothing() || around.keeps_waiting || around.app.is_some();
        // Nor does a lookup that has failed.
        if is_still_there
            || owed.may_fail(around)
            || around.app.is_some() && owed.may_be_stale(around)
            || may_lack && model.saw_nothing(part.floor, last, now).is_ok()
        {
            return Ok(());
        }
        let (label, has, floor) = (&part.label, part.has, part.floor);
        let reason = format!("{label} is left out, has {has:?}, after {floor} (client: {last})");
        Err((Oracle::Order, reason))
    }

    /// Checks the cursors of an answer without a body.
    fn check_cursors(
        &mut self,
        owed: &Owed,
        answer: &Answer,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        around.counts.reach("cursors of several keys");
        let cursors = answer.cursor.as_deref().unwrap_or_default();
        if cursors.split('.').count() != owed.parts.len() {
            return Err(wrong("cursors of other keys"));
        }
        for (part, cursor) in owed.parts.iter().zip(cursors.split('.')) {
            // A cursor that is none is given back as nothing, which says that the key has nothing
            // where its lookup has not failed.
            let says_gone = part.is_garbage && !around.keeps_waiting && around.app.is_none();
            let is_gone = says_gone && !owed.may_fail(around);
            if cursor == part.cursor && !is_gone {
                self.check_silent(owed, part, around, now)?;
            } else if cursor.is_empty() {
                self.check_gone(owed, part, around, now)?;
            } else if let Some(place) = around.keys[part.key].state_of(cursor) {
                let last = self.seen[part.key];
                self.seen[part.key] = owed.saw_value(part, place, last, around, now)?;
            }
        }
        Ok(())
    }
}

impl Owed {
    /// Checks that a key may have nothing, as far as the application is asked of it; returns the
    /// newest state that is seen by that.
    fn saw_nothing(
        &self,
        part: &Part,
        last: usize,
        around: &Around<'_>,
        now: Duration,
    ) -> Result<usize, Broken> {
        let seen = around.keys[part.key].saw_nothing(part.floor, last, now);
        // A lookup that has failed does not say that there is nothing.
        let is_guess = around.app.is_some() && self.may_fail(around);
        if is_guess { Ok(last) } else { seen }
    }

    /// Checks that this value of a key may be told; returns as above.
    fn saw_value(
        &self,
        part: &Part,
        place: usize,
        last: usize,
        around: &Around<'_>,
        now: Duration,
    ) -> Result<usize, Broken> {
        let model = &around.keys[part.key];
        // Where the application fails, a value of before stands in for what it would say.
        let is_stale = around.app.is_some() && self.may_be_stale(around);
        match model.saw_value(place, part.floor, last, now) {
            Err(broken) if !is_stale || !was_known(model, place, now) => Err(broken),
            _ => Ok(place.max(last)),
        }
    }

    /// A state that a poll which waits must be told of now, since when, and how long that may take.
    pub(super) fn news(&self, around: &Around<'_>) -> Option<(usize, Duration, Duration)> {
        // What the application is asked for comes first.
        let has_stayed = |part: &Part| around.keys[part.key].has_stayed(part.floor);
        let is_asked = around.app.is_some() && !self.parts.iter().all(has_stayed);
        let patience = if is_asked {
            PROMPT + APP_PATIENCE
        } else {
            PROMPT
        };
        let news = self.parts.iter().filter(|part| !part.is_garbage);
        let news = news.filter_map(|part| {
            let keeps_waiting = around.keeps_waiting || around.app.is_some();
            around.keys[part.key].is_news_since(part.has, keeps_waiting)
        });
        let first = news.min_by_key(|(_, since)| *since)?;
        Some((first.0, first.1, patience))
    }
}

fn wrong(reason: &str) -> Broken {
    (Oracle::OneAnswer, reason.to_owned())
}

/// Reads the body of an answer; nothing in what is expected here needs an escape.
fn parse(body: &[u8]) -> Option<Told<'_>> {
    let text = std::str::from_utf8(body).ok()?;
    let text = text.strip_prefix("{\"cursor\":\"")?.strip_suffix("}}\n")?;
    let (cursor, mut rest) = text.split_once("\",\"values\":{")?;
    let mut values = Vec::new();
    while !rest.is_empty() {
        let (label, behind) = rest.strip_prefix('"')?.split_once("\":")?;
        let (value, behind) = if let Some(behind) = behind.strip_prefix("null") {
            (None, behind)
        } else {
            let members = behind.strip_prefix("{\"v\":\"")?;
            let (value, members) = members.split_once("\",\"c\":\"")?;
            let (cursor, behind) = members.split_once("\"}")?;
            (Some((value, cursor)), behind)
        };
        values.push((label, value));
        rest = match behind.strip_prefix(',') {
            Some(next) => next,
            None if behind.is_empty() => behind,
            None => return None,
        };
    }
    Some((cursor, values))
}
