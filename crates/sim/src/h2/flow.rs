//! One stream of a connection: a request, and the answer as the text of HTTP/1.1.

use super::fields::{Head, Kind};
use super::frames::{code, size};
use std::time::Duration;

/// The end of a stream before its answer is whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// The server has said that it did not begin with it.
    Refused,
    /// The server has reset it, with this code.
    Reset(u32),
    /// The server has reset it, as the client has held it up by its windows for so long that the
    /// server may do so where it ends.
    Stalled,
    /// The connection has ended.
    Ended,
    /// The client has ended the connection itself.
    Given,
    /// The server has ended its side of a WebSocket.
    Closed,
}

/// The answer, as far as it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// Its head is to come.
    Awaited,
    /// Its body comes, in chunks where the head does not say how long it is.
    Body {
        is_chunked: bool,
    },
    /// The bytes of a WebSocket come.
    Tunnel,
    Whole,
}

/// The body of a request, as its client has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sending {
    /// More of it may come.
    Fed,
    /// It is whole, and its end is to be sent.
    Whole,
    /// Its end was sent.
    Sent,
}

/// One stream.
pub(super) struct Flow {
    kind: Kind,
    answer: Answer,
    cut: Option<Cut>,
    /// Bytes of the body that are still to come, where the head says how long it is.
    left: Option<usize>,
    /// The part that the client has not read yet.
    text: Vec<u8>,
    /// The body of the request, as far as no window has taken it.
    pub(super) upload: Vec<u8>,
    pub(super) sending: Sending,
    /// Bytes that the server lets the client send.
    pub(super) send_window: i64,
    /// Bytes that the client lets the server send.
    pub(super) window: i64,
    /// Frames of the body so far.
    pub(super) frames: usize,
    /// The window that the client keeps open, and the moment at which something came last.
    pub(super) wanted: i64,
    pub(super) came_at: Duration,
    /// Bytes that had come on the connection when it began.
    pub(super) came_before: i64,
    /// The moment at which it began.
    begun_at: Duration,
    /// Nothing has come since a window was used up.
    is_held_up: bool,
}

/// The time for which windows may hold up an answer of a server that ends.
const LAST_STALL: Duration = Duration::from_secs(2);

impl Flow {
    pub(super) fn new(
        kind: Kind,
        upload: Vec<u8>,
        [send_window, window]: [i64; 2],
        now: Duration,
    ) -> Self {
        Self {
            kind,
            answer: Answer::Awaited,
            cut: None,
            left: None,
            text: Vec::new(),
            sending: match kind {
                Kind::Tunnel => Sending::Fed,
                _ if upload.is_empty() => Sending::Sent,
                _ => Sending::Whole,
            },
            upload,
            send_window,
            window,
            frames: 0,
            wanted: window,
            came_at: now,
            came_before: 0,
            begun_at: now,
            is_held_up: window <= 0,
        }
    }

    /// Returns true if the server may send nothing more on it.
    pub(super) fn is_over(&self) -> bool {
        self.answer == Answer::Whole || self.cut.is_some()
    }

    pub(super) fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// Returns true if what its client writes are bytes of a WebSocket.
    pub(super) fn is_tunnel(&self) -> bool {
        self.kind == Kind::Tunnel
    }

    /// Returns true if some of the body or the end of the request is to be sent.
    pub(super) fn is_uploading(&self) -> bool {
        match self.sending {
            Sending::Fed => !self.upload.is_empty(),
            Sending::Whole => true,
            Sending::Sent => false,
        }
    }

    /// The client sends these bytes of a WebSocket.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.sending == Sending::Fed && !self.is_over() {
            self.upload.extend_from_slice(bytes);
        }
    }

    /// The client sends nothing more of a WebSocket; false if it is none that lasts.
    pub(super) fn finish(&mut self) -> bool {
        let lasts =
            self.answer == Answer::Tunnel && self.sending == Sending::Fed && !self.is_over();
        if lasts {
            self.sending = Sending::Whole;
        }
        lasts
    }

    /// Returns true if the client has something to read, or an end to notice.
    pub(super) fn is_readable(&self) -> bool {
        !self.text.is_empty() || self.is_over()
    }

    /// The client reads at most so much; returns true if all is read.
    pub(super) fn read(&mut self, most: usize, into: &mut Vec<u8>) -> bool {
        let length = self.text.len().min(most);
        into.extend(self.text.drain(..length));
        self.text.is_empty()
    }

    /// The increment by which the window is to be opened now, if that is worth a frame.
    pub(super) fn increment(&mut self) -> Option<u32> {
        // What was read makes room; a head takes none of it.
        let unread = size(self.text.len());
        let missing = self.wanted - self.window - unread;
        let is_worth = missing > 0 && (missing * 2 >= self.wanted || self.window <= 0);
        if !is_worth || self.is_over() {
            return None;
        }
        self.window += missing;
        u32::try_from(missing).ok()
    }

    /// The stream ends, unless its answer is whole.
    pub(super) fn end(&mut self, cut: Cut) {
        if !self.is_over() {
            self.cut = Some(cut);
        }
        self.upload.clear();
        self.sending = Sending::Sent;
    }

    /// The window of its connection is used up.
    pub(super) fn hold_up(&mut self) {
        self.is_held_up = true;
    }

    /// The server has reset it.
    pub(super) fn reset(&mut self, code: u32, now: Duration) {
        let may_stall = self.is_held_up && now >= self.begun_at + LAST_STALL;
        self.end(match code {
            code::REFUSED_STREAM if self.answer == Answer::Awaited => Cut::Refused,
            code::CANCEL if may_stall => Cut::Stalled,
            code => Cut::Reset(code),
        });
    }

    /// The fields of its answer have come.
    ///
    /// # Errors
    /// The rule that they break.
    pub(super) fn head(&mut self, head: &Head, ends: bool, now: Duration) -> Result<(), String> {
        self.came_at = now;
        match self.answer {
            Answer::Awaited if (100..200).contains(&head.status) && !ends => return Ok(()),
            Answer::Awaited => {}
            Answer::Body { .. } | Answer::Tunnel | Answer::Whole => {
                return Err("a second head".to_owned());
            }
        }
        if self.is_tunnel() && head.status == 200 {
            self.text.extend_from_slice(head.switched()?.as_bytes());
            self.answer = Answer::Tunnel;
            return if ends { self.whole() } else { Ok(()) };
        }
        self.text.extend_from_slice(head.text.as_bytes());
        let has_none = self.kind == Kind::Head || matches!(head.status, 204 | 304);
        let is_chunked = head.length.is_none() && !has_none && !ends;
        if is_chunked {
            self.text
                .extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        if ends && !has_none && head.length.is_none() {
            self.text.extend_from_slice(b"Content-Length: 0\r\n");
        }
        self.text.extend_from_slice(b"\r\n");
        self.left = if has_none { Some(0) } else { head.length };
        self.answer = Answer::Body { is_chunked };
        if ends { self.whole() } else { Ok(()) }
    }

    /// A part of its answer has come.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub(super) fn data(&mut self, data: &[u8], ends: bool, now: Duration) -> Result<(), String> {
        let is_chunked = match self.answer {
            Answer::Body { is_chunked } => is_chunked,
            Answer::Tunnel => false,
            Answer::Awaited | Answer::Whole => return Err("a body without a head".to_owned()),
        };
        self.came_at = now;
        self.is_held_up = self.window <= 0;
        self.frames += 1;
        if let Some(left) = &mut self.left {
            let less = left.checked_sub(data.len());
            *left = less.ok_or("more of a body than its head says")?;
        }
        if !is_chunked {
            self.text.extend_from_slice(data);
        } else if !data.is_empty() {
            let line = format!("{:x}\r\n", data.len());
            self.text.extend_from_slice(line.as_bytes());
            self.text.extend_from_slice(data);
            self.text.extend_from_slice(b"\r\n");
        }
        if ends { self.whole() } else { Ok(()) }
    }

    fn whole(&mut self) -> Result<(), String> {
        if self.left.is_some_and(|left| left > 0) {
            return Err("less of a body than its head says".to_owned());
        }
        if (self.answer == Answer::Body { is_chunked: true }) {
            self.text.extend_from_slice(b"0\r\n\r\n");
        }
        if self.answer == Answer::Tunnel {
            self.cut = Some(Cut::Closed);
        }
        self.answer = Answer::Whole;
        Ok(())
    }
}
