//! One connection of a simulated Redis: the commands that come, and what leaves.

use super::quirks::Chance;
use dwell_evloop::sim::SimStream;
use std::io::Write as _;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: SimStream,
    input: Vec<u8>,
    /// Replies and pushes that have not been taken yet.
    output: Vec<u8>,
    /// Pushes for what it changes itself, which follow its reply.
    behind: Vec<u8>,
    /// Nothing leaves before.
    held_until: Duration,
    pub(super) is_authenticated: bool,
    pub(super) is_tracking: bool,
    /// Its next command may be for a slot that is about to come (`ASKING`).
    pub(super) is_asking: bool,
}

impl Connection {
    pub(super) fn new(stream: &SimStream, is_authenticated: bool) -> Self {
        Self {
            stream: stream.beside(stream.id()),
            input: Vec::new(),
            output: Vec::new(),
            behind: Vec::new(),
            held_until: Duration::ZERO,
            is_authenticated,
            is_tracking: false,
            is_asking: false,
        }
    }

    /// Reads all that has come; returns false at the end of the connection.
    pub(super) fn read(&mut self) -> bool {
        self.stream.read_all(&mut self.input)
    }

    /// Takes the next command that has come whole: its words.
    pub(super) fn take_command(&mut self) -> Option<Vec<Vec<u8>>> {
        let (words, used) = words(&self.input)?;
        self.input.drain(..used);
        Some(words)
    }

    /// Adds a reply, and the pushes that were put off until behind it.
    pub(super) fn reply(&mut self, reply: &[u8]) {
        self.output.extend_from_slice(reply);
        self.output.append(&mut self.behind);
    }

    /// Adds a push, which stands between two replies.
    pub(super) fn push(&mut self, push: &[u8]) {
        self.output.extend_from_slice(push);
    }

    /// Adds a push behind the reply of the command in progress.
    pub(super) fn push_behind(&mut self, push: &[u8]) {
        self.behind.extend_from_slice(push);
    }

    /// Writes what there is, as far as it is taken.
    pub(super) fn flush(&mut self, chance: &mut Chance) {
        let now = self.stream.elapsed();
        if now < self.held_until || self.output.is_empty() {
            return;
        }
        let (length, rest_after) = chance.tear(self.output.len());
        let taken = self.stream.write(&self.output[..length]).unwrap_or(0);
        self.output.drain(..taken);
        if let Some(time) = rest_after {
            self.hold_until(now + time);
        }
    }

    /// Nothing leaves before this time.
    pub(super) fn hold_until(&mut self, time: Duration) {
        let now = self.stream.elapsed();
        self.held_until = self.held_until.max(time);
        self.stream.serve_after(time.saturating_sub(now));
    }
}

/// The words of a command, and its length.
fn words(input: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (count, mut used) = number(input, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, header) = number(input.get(used..)?, b'$')?;
        used += header;
        words.push(input.get(used..used + length)?.to_vec());
        used += length + 2;
    }
    (used <= input.len()).then_some((words, used))
}

/// The number of a header line of this type, and the length of the line.
fn number(input: &[u8], of_type: u8) -> Option<(usize, usize)> {
    let end = input.windows(2).position(|two| two == b"\r\n")?;
    let digits = input[..end].strip_prefix(&[of_type])?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, end + 2))
}
