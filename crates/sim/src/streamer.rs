//! A client that follows an event stream of one key or several, and comes back when it ends.

mod followed;

use crate::around::Around;
use crate::connection::Connection;
use crate::failure::Oracle;
use crate::keys::Broken;
use crate::patience::{APP_PATIENCE, PROMPT};
use crate::tls::Who;
use dwell_evloop::sim::SimStream;
use followed::Followed;
use std::time::Duration;

/// One client that follows one key, or several that it names.
pub(crate) struct Streamer {
    number: usize,
    keys: Vec<Followed>,
    stream: Option<Connection>,
    /// Bytes that were not decoded yet.
    input: Vec<u8>,
    /// Text of events that are not whole yet; `None` before the head of the answer.
    text: Option<String>,
    slow_until: Duration,
    /// The moment from which it may be told of changes.
    clear_since: Duration,
    next_at: Duration,
    /// The moments at which it has begun or got a sign of life: then all of several keys are read.
    beats: Vec<Duration>,
}

/// The time after which it comes back.
const BACK: Duration = Duration::from_millis(500);
/// The time within which a calm network brings a sign of life, and all that is read for it.
pub(crate) const READ: Duration = Duration::from_millis(5);
/// The time between two small reads of a slow client, the bytes of one, and its window.
const PACE: Duration = Duration::from_millis(20);
const LITTLE: usize = 64;
const SMALL_WINDOW: usize = 512;
const WINDOW: usize = 64 * 1024;

impl Streamer {
    /// The stream of a number, which names so many of all keys.
    pub(crate) fn new(number: usize, count: usize, all: usize) -> Self {
        let key = |place| Followed::new((number + place) % all, count > 1);
        Self {
            number,
            keys: (0..count).map(key).collect(),
            stream: None,
            input: Vec::new(),
            text: None,
            slow_until: Duration::ZERO,
            clear_since: Duration::ZERO,
            next_at: Duration::ZERO,
            beats: Vec::new(),
        }
    }

    /// Reads of a key since then, a short while ago, that are for all of several keys: those of a
    /// beginning or a sign of life. A read may wait until others have come, and leave a moment
    /// later.
    ///
    /// # Errors
    /// If these are more than one for each change, a heartbeat and a beginning.
    pub(crate) fn reads_since(&self, key: usize, since: Duration) -> Result<usize, Broken> {
        if !self.names_keys() || self.keys.iter().all(|one| one.key != key) {
            return Ok(0);
        }
        let is_since = |at: &&Duration| **at + READ >= since;
        let beats = self.beats.iter().filter(is_since).count();
        if beats > self.keys.len() + 2 {
            let reason = format!("a stream gets {beats} signs of life since {since:?}");
            return Err((Oracle::Bounds, reason));
        }
        Ok(beats)
    }

    /// The keys that it follows, and the states of them that it was told last.
    pub(crate) fn told(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        self.keys.iter().map(Followed::told)
    }

    fn names_keys(&self) -> bool {
        self.keys.len() > 1
    }

    pub(crate) fn next_at(&self) -> Duration {
        self.next_at
    }

    /// Leaves, and comes back later with what it has.
    pub(crate) fn leave(&mut self, leave: impl FnOnce(&SimStream), now: Duration) -> bool {
        let Some(stream) = self.stream.take() else {
            return false;
        };
        stream.leave(leave);
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
            if now < self.next_at || around.ending.ends {
                return Ok(());
            }
            self.connect(around, now);
        }
        self.clear_since = self
            .clear_since
            .max(around.hindered_until)
            .max(
                self.stream
                    .as_ref()
                    .map_or(Duration::ZERO, Connection::clear_since),
            )
            .max(self.slow_until);
        let is_open = self.read(now);
        if let Some(stream) = &self.stream {
            stream.check(now, self.clear_since, self.text.is_some())?;
        }
        let goes_on = self.take_input(around, now)?;
        if !is_open || !goes_on {
            self.leave(SimStream::close, now);
            return Ok(());
        }
        self.check_patience(around, now)
    }

    fn connect(&mut self, around: &mut Around<'_>, now: Duration) {
        let mut stream = around.connect(Who::Stream(self.number));
        let cursors = self.keys.iter_mut().map(Followed::begin);
        let id: Vec<_> = cursors.collect();
        let id = if id.iter().any(|cursor| !cursor.is_empty()) {
            format!("Last-Event-ID: {}\r\n", id.join("."))
        } else {
            String::new()
        };
        let target = if self.names_keys() {
            let names = self.keys.iter().map(|one| format!("k={}", one.label()));
            format!("/poll/?{}", names.collect::<Vec<_>>().join("&"))
        } else {
            format!("/poll/{}", self.keys[0].label())
        };
        around
            .network
            .remark(|| format!("a stream of {target} begins, {id:?}"));
        let text =
            format!("GET {target} HTTP/1.1\r\nHost: edge\r\nAccept: text/event-stream\r\n{id}\r\n");
        // A window is larger than a request.
        let _ = stream.write(text.as_bytes());
        for one in &mut self.keys {
            one.floor = around.keys[one.key].floor();
        }
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
    fn refused(&self, head: &str, around: &mut Around<'_>) -> Result<bool, Broken> {
        let line = head.lines().next().unwrap_or_default();
        // For several keys the application is asked later.
        let is_of_app = around.app.is_some() && !self.names_keys();
        let is_busy = head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nRetry-After: ");
        if around.may_end() || is_of_app || is_busy && around.refuses_request() {
            return Ok(false);
        }
        let label = self.keys[0].label();
        let reason = format!("an event stream of {label} gets {line:?}");
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
        let key = self.keys.first().map_or(0, |one| one.key);
        around
            .network
            .remark(|| format!("stream of {key} is told {text:.70?}"));
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(": "));
            lines.find_map(|(known, value)| (known == name).then_some(value))
        };
        let (kind, data) = (field("event"), field("data"));
        let is_deletion = kind == Some("delete");
        if !is_deletion && data.is_none() {
            self.beats.push(now);
            return Ok(());
        }
        let label = if is_deletion { data } else { kind };
        let id: Vec<_> = field("id").unwrap_or_default().split('.').collect();
        let place = self.place_of(label)?;
        let one = &mut self.keys[place];
        let cursor = id.get(place).copied().unwrap_or_default();
        match data.filter(|_| !is_deletion) {
            None => one.gone(around, now)?,
            Some(data) => one.value(data, cursor, around, now)?,
        }
        let own: Vec<_> = self.keys.iter().map(Followed::cursor).collect();
        if id != own {
            let reason = format!("an event of {label:?} has the id {id:?}, and not {own:?}");
            return Err((Oracle::OneAnswer, reason));
        }
        Ok(())
    }

    /// The place of the key that an event is about.
    fn place_of(&self, label: Option<&str>) -> Result<usize, Broken> {
        let is_it = |one: &Followed| label == Some(one.label());
        let place = if self.names_keys() {
            self.keys.iter().position(is_it)
        } else {
            Some(0)
        };
        place.ok_or_else(|| {
            let reason = format!("an event of {label:?}, which it does not follow");
            (Oracle::OwnKey, reason)
        })
    }

    /// Checks that it was told of the newest states.
    fn check_patience(&self, around: &Around<'_>, now: Duration) -> Result<(), Broken> {
        let patience = PROMPT + around.app.map_or(Duration::ZERO, |_| APP_PATIENCE);
        // An application that fails says nothing of one key of several, and leaves a stream with
        // what memcached had before.
        let may_keep = self.names_keys() || around.fails_until.is_some();
        let may_lack = may_keep && around.app.is_some();
        for one in &self.keys {
            let model = &around.keys[one.key];
            let has = one.has_now(model);
            if let Some((state, since)) = model.is_news_since(has, around.keeps_waiting || may_lack)
                && now > self.clear_since.max(since) + patience
            {
                let name = &model.name;
                let reason = format!("a stream of {name} has {has:?} and is not told of {state}");
                return Err((Oracle::Newest, reason));
            }
        }
        Ok(())
    }
}
