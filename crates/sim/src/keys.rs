//! The model of the store: for each key all states that it was ever told to have, in their order.
//!
//! Each key has one writer, whose commands are carried out in their order; so the states of a key
//! stand in a line, and whatever is read must be one of them that is not older than the newest
//! whose command had ended before the read began.

use crate::failure::Oracle;
use std::collections::HashMap;
use std::time::Duration;

/// One state of a key.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The value; `None` where the key is deleted.
    pub(crate) value: Option<Vec<u8>>,
    /// Seconds of its life; 0 is no end.
    seconds: u32,
    issued_at: Duration,
    /// The number of the answer of the application that it is, if it is one.
    number: Option<u64>,
    /// Its command was refused, so the key has never had it.
    is_refused: bool,
    /// The newest state when it was issued, which the key has if it is refused.
    follows: usize,
}

/// The states of one key.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    states: Vec<State>,
    /// The newest state whose command has ended.
    known: usize,
    known_at: Duration,
    /// The newest state whose command was not lost.
    newest: usize,
    /// Cursors that clients were sent, with their states.
    cursors: HashMap<String, usize>,
    /// A command was lost with its connection; reads tell whether it was carried out.
    pub(crate) is_unsure: bool,
    /// The moment from which a read tells that.
    pub(crate) sure_at: Duration,
    published: Published,
}

/// Values of a key that its WebSocket publishes to memcached. They are states from the moment on at
/// which they are stored there.
#[derive(Default, Debug)]
struct Published {
    /// Their number.
    count: u64,
    /// The connection and the number of the one that was stored last.
    last: [u64; 2],
    /// States that were stored over one that was sent behind them on their connection.
    late: Vec<usize>,
}

/// A promise that a read did not keep, and why.
pub(crate) type Broken = (Oracle, String);

/// The beginning of the number of a value that was published to a server.
const PUBLISHED: &str = "p";
/// The store counts whole seconds.
const SECOND: Duration = Duration::from_secs(1);

impl Key {
    pub(crate) fn new(number: usize) -> Self {
        let nothing = State {
            value: None,
            seconds: 0,
            issued_at: Duration::ZERO,
            number: None,
            is_refused: false,
            follows: 0,
        };
        Self {
            name: format!("/poll/k{number}"),
            states: vec![nothing],
            known: 0,
            known_at: Duration::ZERO,
            newest: 0,
            cursors: HashMap::new(),
            is_unsure: false,
            sure_at: Duration::ZERO,
            published: Published::default(),
        }
    }

    /// The state that a command which is sent now leads to; returns its place.
    pub(crate) fn issue(&mut self, value: Option<Vec<u8>>, seconds: u32, now: Duration) -> usize {
        let number = value.as_deref().and_then(number_in);
        self.states.push(State {
            value,
            seconds,
            issued_at: now,
            number,
            is_refused: false,
            follows: self.newest,
        });
        self.newest = self.states.len() - 1;
        self.newest
    }

    /// The value that a `set` is to store next: it names its key and place.
    pub(crate) fn next_value(&self, length: usize) -> Vec<u8> {
        let mut value = format!("{}#{}#", self.name, self.states.len()).into_bytes();
        value.resize(value.len() + length, b'.');
        value
    }

    /// The value that a WebSocket publishes next to memcached, on this connection.
    pub(crate) fn next_published(&mut self, connection: u64, length: usize) -> Vec<u8> {
        self.published.count += 1;
        let number = self.published.count;
        let mut value = format!("{}#{PUBLISHED}{connection}.{number}#", self.name).into_bytes();
        value.resize(value.len() + length, b'.');
        value
    }

    /// Takes in a value that memcached was sent for a WebSocket, if it is one.
    pub(crate) fn store_published(
        &mut self,
        value: &[u8],
        now: Duration,
    ) -> Option<Result<(), Broken>> {
        let text = String::from_utf8_lossy(value);
        let own = text.strip_prefix(&self.name)?.strip_prefix('#')?;
        let (numbers, _) = own.strip_prefix(PUBLISHED)?.split_once('#')?;
        let (connection, number) = numbers.split_once('.')?;
        let stored = [connection.parse().ok()?, number.parse().ok()?];
        let last = std::mem::replace(&mut self.published.last, stored);
        let broken = |oracle, what| Some(Err((oracle, format!("{text:.60?} is stored {what}"))));
        if stored[1] > self.published.count {
            return broken(Oracle::Map, "and was never sent");
        }
        if self.place_of(value).is_ok() {
            return broken(Oracle::OneRequest, "twice");
        }
        let state = self.becomes(Some(value.to_vec()), now);
        if stored[0] == last[0] && stored[1] < last[1] {
            self.published.late.push(state);
        }
        Some(Ok(()))
    }

    /// A WebSocket is told that memcached has stored a value; returns its state. One that memcached
    /// had not answered in time may be stored at any time, which its client was told instead.
    pub(crate) fn is_published(&self, value: &[u8]) -> Result<usize, Broken> {
        let state = self.place_of(value)?;
        if !self.published.late.contains(&state) {
            return Ok(state);
        }
        let reason = format!("state {state} was stored over one that was sent behind it");
        Err((Oracle::Order, reason))
    }

    /// The command of this state has ended.
    pub(crate) fn acknowledge(&mut self, state: usize, now: Duration) {
        if state > self.known {
            (self.known, self.known_at) = (state, now);
        }
    }

    /// The command of this state was refused: nothing may be read of it, and those before and
    /// behind it follow one another. Commands that were sent behind it may still be in progress.
    pub(crate) fn refuse(&mut self, state: usize) {
        self.states[state].is_refused = true;
        while self.states[self.newest].is_refused {
            self.newest = self.states[self.newest].follows;
        }
    }

    /// The key has another state from now on, and whoever changed it knows that; returns its place.
    pub(crate) fn becomes(&mut self, value: Option<Vec<u8>>, now: Duration) -> usize {
        let state = self.issue(value, 0, now);
        self.acknowledge(state, now);
        state
    }

    /// The oldest state that a read which begins now may see.
    pub(crate) fn floor(&self) -> usize {
        self.known
    }

    /// The newest state.
    pub(crate) fn newest(&self) -> usize {
        self.newest
    }

    pub(crate) fn state(&self, place: usize) -> &State {
        &self.states[place]
    }

    /// The state whose value this is.
    pub(crate) fn place_of(&self, value: &[u8]) -> Result<usize, Broken> {
        if let Some(place) = self.place_of_answer(value) {
            return Ok(place);
        }
        let text = String::from_utf8_lossy(&value[..value.len().min(60)]);
        let mut parts = text.split('#');
        if parts.next() != Some(&self.name) {
            let reason = format!("a read of {} gives {text:?}", self.name);
            return Err((Oracle::OwnKey, reason));
        }
        let number = parts.next().unwrap_or_default();
        let place = if number.starts_with(PUBLISHED) {
            self.place_of_published(value)
        } else {
            let place = number.parse().ok();
            let is_it = |state: &State| !state.is_refused && state.value.as_deref() == Some(value);
            place.filter(|place: &usize| self.states.get(*place).is_some_and(is_it))
        };
        place.ok_or_else(|| (Oracle::Map, format!("{text:?} was never stored whole")))
    }

    /// The state whose value is this answer of the application, if it was stored.
    pub(crate) fn place_of_answer(&self, value: &[u8]) -> Option<usize> {
        if !value.contains(&b'@') {
            return None;
        }
        let is_it = |state: &State| state.value.as_deref() == Some(value);
        self.states.iter().rposition(is_it)
    }

    /// The value of a publisher whose place the server will tell: it names its key and itself.
    pub(crate) fn published_value(&self, serial: u64, length: usize) -> Vec<u8> {
        let mut value = format!("{}#{PUBLISHED}{serial}#", self.name).into_bytes();
        value.resize(value.len() + length, b'.');
        value
    }

    /// The state whose value this is, if there was one.
    pub(crate) fn place_of_published(&self, value: &[u8]) -> Option<usize> {
        let is_it = |state: &State| !state.is_refused && state.value.as_deref() == Some(value);
        self.states.iter().rposition(is_it)
    }

    /// Returns true if it has a value now.
    pub(crate) fn has_value(&self) -> bool {
        self.states[self.newest].value.is_some()
    }

    /// The state whose value is the answer of the application with this number, if it was stored.
    pub(crate) fn place_of_number(&self, number: u64) -> Option<usize> {
        let mut states = self.states.iter();
        states.rposition(|state| state.number == Some(number))
    }

    /// Returns true if this was the state at some time since then.
    pub(crate) fn was_there_since(&self, place: usize, time: Duration) -> bool {
        let mut behind = self.states[place + 1..].iter();
        let next = behind.find(|state| !state.is_refused);
        next.is_none_or(|next| next.issued_at >= time)
    }

    /// Checks that a value may be read now: by a read that has begun at `floor`, of a client that
    /// has read `last`.
    pub(crate) fn saw_value(
        &self,
        place: usize,
        floor: usize,
        last: usize,
        now: Duration,
    ) -> Result<(), Broken> {
        let name = &self.name;
        if place < floor.max(last) {
            let reason = format!("{name} gives state {place}, after {floor} (client: {last})");
            return Err((Oracle::Order, reason));
        }
        if self.is_surely_over(place, now) {
            let reason = format!("{name} gives state {place}, which has expired");
            return Err((Oracle::Map, reason));
        }
        Ok(())
    }

    /// Checks that nothing may be read now; returns the state of that.
    pub(crate) fn saw_nothing(
        &self,
        floor: usize,
        last: usize,
        now: Duration,
    ) -> Result<usize, Broken> {
        let first = floor.max(last);
        // A client may have read a value whose command was lost, and which is over.
        (first..=self.newest.max(first))
            .find(|place| self.may_be_gone(*place, now))
            .ok_or_else(|| {
                let reason = format!("{} has nothing, after state {first}", self.name);
                (Oracle::Order, reason)
            })
    }

    /// Checks that a cursor is the one of this state alone.
    pub(crate) fn note_cursor(&mut self, cursor: &str, place: usize) -> Result<(), Broken> {
        let known = *self.cursors.entry(cursor.to_owned()).or_insert(place);
        if known == place {
            return Ok(());
        }
        let name = &self.name;
        let reason = format!("{name}: {cursor} is the cursor of the states {known} and {place}");
        Err((Oracle::Order, reason))
    }

    /// The state that a cursor was sent with.
    pub(crate) fn state_of(&self, cursor: &str) -> Option<usize> {
        self.cursors.get(cursor).copied()
    }

    /// A state that a poll with a cursor of `has` must be told of now, and since when, if there is
    /// one that lasts.
    pub(crate) fn is_news_since(
        &self,
        has: Option<usize>,
        keeps_waiting: bool,
    ) -> Option<(usize, Duration)> {
        let state = self.states.get(self.known)?;
        let is_news = match (&state.value, has) {
            (Some(_), Some(has)) => has != self.known,
            (Some(_), None) => true,
            (None, Some(_)) => !keeps_waiting,
            (None, None) => false,
        };
        let lasts = state.seconds == 0 && self.known == self.newest && !self.is_unsure;
        (is_news && lasts).then_some((self.known, self.known_at))
    }

    /// Returns true if there was a value at all times since a read that began at `floor`.
    pub(crate) fn has_stayed(&self, floor: usize) -> bool {
        let mut states = self.states[floor..].iter();
        states.all(|state| state.value.is_some() && state.seconds == 0)
    }

    /// Returns true if the value may have ended by now, or is none.
    pub(crate) fn may_be_gone(&self, place: usize, now: Duration) -> bool {
        let state = &self.states[place];
        let life = SECOND * state.seconds.saturating_sub(1);
        state.value.is_none() || state.seconds > 0 && now >= state.issued_at + life
    }

    /// Returns true if the value has ended for certain, though its command may have ended late.
    fn is_surely_over(&self, place: usize, now: Duration) -> bool {
        let state = &self.states[place];
        let life = SECOND * (state.seconds + 5);
        let is_known = place == self.known && self.known_at <= state.issued_at + SECOND;
        state.seconds > 0 && is_known && now >= state.issued_at + life
    }

    /// A command is lost; what has become of it is settled at `sure_at`.
    pub(crate) fn lose(&mut self, sure_at: Duration) {
        (self.is_unsure, self.sure_at) = (true, sure_at);
    }

    /// A read has told, after a loss, that there is nothing: what was lost has come as far as to
    /// the last command that leads to that.
    pub(crate) fn resolve_nothing(&mut self, now: Duration) -> Result<(), Broken> {
        let first = self.saw_nothing(self.known, 0, now)?;
        let is_gone = |place: &usize| self.may_be_gone(*place, now);
        let last = (first..=self.newest).rev().find(is_gone);
        self.resolve(last.unwrap_or(first), now);
        Ok(())
    }

    /// A read has told, after a loss, what there is.
    pub(crate) fn resolve(&mut self, place: usize, now: Duration) {
        self.is_unsure = false;
        (self.known, self.known_at, self.newest) = (place, now, place);
    }
}

/// The number of the answer of the application that a value is.
fn number_in(value: &[u8]) -> Option<u64> {
    // Values of writers are long, and are no answers.
    let is_answer = value.contains(&b'@');
    is_answer.then(|| number_of(&String::from_utf8_lossy(value)))?
}

/// The number of an answer of the application.
pub(crate) fn number_of(answer: &str) -> Option<u64> {
    answer.split('@').nth(2)?.parse().ok()
}
