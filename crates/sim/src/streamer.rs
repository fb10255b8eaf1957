//! A client that follows an event stream, and comes back when it ends.

use crate::client::{APP_PATIENCE, Around, PROMPT};
use crate::failure::Oracle;
use crate::keys::Broken;
use dwell_evloop::sim::SimStream;
use std::io::Write;
use std::time::Duration;

/// One client that follows one key.
pub(crate) struct Streamer {
    key: usize,
    stream: Option<SimStream>,
    /// Bytes that were not decoded yet.
    input: Vec<u8>,
    /// Text of events that are not whole yet; `None` before the head of the answer.
    text: Option<String>,
    /// The state that it was told last, and its cursor.
    has: Option<(usize, String)>,
    /// The newest state that it has seen.
    seen: usize,
    /// The oldest state that it may be told.
    floor: usize,
    slow_until: Duration,
    /// The moment from which it may be told of changes.
    clear_since: Duration,
    next_at: Duration,
}

/// The time after which it comes back.
const BACK: Duration = Duration::from_millis(500);
/// The time between two small reads of a slow client, the bytes of one, and its window.
const PACE: Duration = Duration::from_millis(20);
const LITTLE: usize = 64;
const SMALL_WINDOW: usize = 512;
const WINDOW: usize = 64 * 1024;

impl Streamer {
    pub(crate) fn new(key: usize) -> Self {
        Self {
            key,
            stream: None,
            input: Vec::new(),
            text: None,
            has: None,
            seen: 0,
            floor: 0,
            slow_until: Duration::ZERO,
            clear_since: Duration::ZERO,
            next_at: Duration::ZERO,
        }
    }

    /// The key that it follows, and the state of it that it was told last.
    pub(crate) fn told(&self) -> (usize, Option<usize>) {
        (self.key, self.has.as_ref().map(|(state, _)| *state))
    }

    pub(crate) fn next_at(&self) -> Duration {
        self.next_at
    }

    /// Leaves, and comes back later with what it has.
    pub(crate) fn leave(&mut self, leave: impl FnOnce(&SimStream), now: Duration) -> bool {
        let Some(stream) = self.stream.take() else {
            return false;
        };
        leave(&stream);
        self.input.clear();
        self.text = None;
        self.next_at = now + BACK;
        true
    }

    /// Reads little until then.
    pub(crate) fn slow_read(&mut self, until: Duration) -> bool {
        let Some(stream) = &self.stream else {
            return false;
        };
        stream.set_window(SMALL_WINDOW);
        self.slow_until = until;
        true
    }

    /// Takes in what has come, and checks that no change is late.
    pub(crate) fn attend(&mut self, around: &mut Around<'_>) -> Result<(), Broken> {
        let now = around.network.elapsed();
        if self.stream.is_none() {
            if now < self.next_at || around.ends {
                return Ok(());
            }
            self.connect(around, now);
        }
        self.clear_since = self
            .clear_since
            .max(around.hindered_until)
            .max(self.slow_until);
        let is_open = self.read(now);
        let goes_on = self.take_input(around, now)?;
        if !is_open || !goes_on {
            self.leave(SimStream::close, now);
            return Ok(());
        }
        self.check_patience(around, now)
    }

    fn connect(&mut self, around: &mut Around<'_>, now: Duration) {
        let mut stream = around.network.connect(around.edge);
        let id = self.has.as_ref().map_or_else(String::new, |(_, cursor)| {
            format!("Last-Event-ID: {cursor}\r\n")
        });
        let key = self.key;
        let text = format!(
            "GET /poll/k{key} HTTP/1.1\r\nHost: edge\r\nAccept: text/event-stream\r\n{id}\r\n"
        );
        // A window is larger than a request.
        let _ = stream.write(text.as_bytes());
        self.floor = around.keys[key].floor();
        self.clear_since = now;
        self.stream = Some(stream);
    }

    /// Reads what has come; returns false at the end of the connection.
    fn read(&mut self, now: Duration) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|it| it.is_readable()) else {
            return true;
        };
        if now >= self.slow_until {
            stream.set_window(WINDOW);
            return stream.read_all(&mut self.input);
        }
        if now < self.next_at {
            return true;
        }
        self.next_at = now + PACE;
        stream.read_little(&mut self.input, LITTLE)
    }

    /// Takes what is whole of the answer; returns false where the stream ends.
    fn take_input(&mut self, around: &mut Around<'_>, now: Duration) -> Result<bool, Broken> {
        if self.text.is_none() {
            let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else {
                return Ok(true);
            };
            let head = String::from_utf8_lossy(&self.input[..end]).into_owned();
            self.input.drain(..end + 4);
            if !head.contains("text/event-stream") {
                return self.refused(&head, around);
            }
            around.counts.reach("event stream");
            self.text = Some(String::new());
        }
        let goes_on = self
            .take_chunks()
            .map_err(|reason| (Oracle::OneAnswer, reason))?;
        while let Some(text) = &mut self.text
            && let Some(end) = text.find("\n\n")
        {
            let event: String = text.drain(..end + 2).collect();
            self.event(&event, around, now)?;
        }
        Ok(goes_on)
    }

    /// There is no stream: the application has answered, or the process ends.
    fn refused(&self, head: &str, around: &Around<'_>) -> Result<bool, Broken> {
        if around.app.is_some() || around.ends {
            return Ok(false);
        }
        let line = head.lines().next().unwrap_or_default();
        let reason = format!("an event stream of key {} gets {line:?}", self.key);
        Err((Oracle::OneAnswer, reason))
    }

    /// Takes whole chunks; returns false at the last one.
    fn take_chunks(&mut self) -> Result<bool, String> {
        loop {
            let Some(end) = self.input.windows(2).position(|two| two == b"\r\n") else {
                return Ok(true);
            };
            let line = String::from_utf8_lossy(&self.input[..end]);
            let length = usize::from_str_radix(&line, 16);
            let length = length.map_err(|_| format!("the length of a chunk is {line:?}"))?;
            if length == 0 {
                return Ok(false);
            }
            let begin = end + 2;
            let Some(chunk) = self.input.get(begin..begin + length + 2) else {
                return Ok(true);
            };
            let chunk = String::from_utf8_lossy(&chunk[..length]).into_owned();
            self.text.get_or_insert_default().push_str(&chunk);
            self.input.drain(..begin + length + 2);
        }
    }

    /// Checks one event.
    fn event(&mut self, text: &str, around: &mut Around<'_>, now: Duration) -> Result<(), Broken> {
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(": "));
            lines.find_map(|(known, value)| (known == name).then_some(value))
        };
        let model = &mut around.keys[self.key];
        if field("event") == Some("delete") {
            around.counts.reach("delete event");
            self.seen = model.saw_nothing(self.floor, self.seen, now)?;
            self.has = None;
            return Ok(());
        }
        let Some(data) = field("data") else {
            return Ok(());
        };
        if around.app.is_some() && data.starts_with(&format!("{}@", model.name)) {
            self.seen = model.saw_nothing(self.floor, self.seen, now)?;
            self.has = None;
            return Ok(());
        }
        around.counts.reach("event");
        let place = model.place_of(data.as_bytes())?;
        let cursor = field("id").unwrap_or_default();
        model.note_cursor(cursor, place)?;
        let has = self.has.replace((place, cursor.to_owned()));
        if place < self.floor.max(self.seen) || has.is_some_and(|(before, _)| before == place) {
            let (name, seen) = (&model.name, self.seen);
            let reason = format!("a stream of {name} gives {place}, after {seen}");
            return Err((Oracle::Order, reason));
        }
        self.seen = place;
        Ok(())
    }

    /// Checks that it was told of the newest state.
    fn check_patience(&self, around: &Around<'_>, now: Duration) -> Result<(), Broken> {
        let has = self.has.as_ref().map(|(state, _)| *state);
        let model = &around.keys[self.key];
        let patience = PROMPT + around.app.map_or(Duration::ZERO, |_| APP_PATIENCE);
        match model.is_news_since(has, around.keeps_waiting) {
            Some((state, since)) if now > self.clear_since.max(since) + patience => {
                let name = &model.name;
                let reason = format!("a stream of {name} has {has:?} and is not told of {state}");
                Err((Oracle::Newest, reason))
            }
            _ => Ok(()),
        }
    }
}
