//! One connection of HTTP/2, apart from its socket.

use super::calm::Calm;
use super::waiting::Waiting;
use super::work::Work;
use crate::budget::Charge;
use dwell_evloop::Token;
use dwell_proto::http2::{
    BlockLimits, ErrorCode, FieldSection, FrameDecoder, HpackDecoder, SectionLimits, Window,
    encode, settings,
};
use dwell_timers::Tick;

/// Streams that a client may have open at a time.
pub(super) const STREAMS_MAX: usize = 128;
/// Bytes of a body that a client may send before they are wanted.
pub(super) const STREAM_WINDOW_BYTES: u32 = 16 * 1024;
/// Bytes of all bodies of a connection that may be on the way.
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// The windows of a connection and of its streams until either side says otherwise (RFC 9113
/// section 6.9.2).
const FIRST_WINDOW_BYTES: u32 = 65_535;
/// So many bytes of that window are given back at once.
const WINDOW_STEP_BYTES: u32 = 32 * 1024;
/// Streams that were reset last, of which frames may still be on the way.
const RESET_KEPT_MAX: usize = 128;
/// The table that a client may use until it has taken in the settings of this side.
const FIRST_TABLE_BYTES: u32 = 4096;
/// The PING behind the first GOAWAY, whose answer shows that the client has read it.
pub(super) const LEAVING: [u8; 8] = *b"leaving.";

/// The state of a connection beside its socket and its streams.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) frames: FrameDecoder,
    /// The table that the client may use until it has taken in the settings of this side; none from
    /// then on.
    pub(super) fields: Option<Box<HpackDecoder>>,
    /// The field block that is not complete.
    pub(super) section: Option<Box<Unfinished>>,
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
    pub(super) open: Open,
    pub(super) calm: Calm,
    /// The work of its requests that goes on elsewhere.
    pub(super) work: Work,
    /// The request that its app has put off to the next turn; nothing is read behind it.
    pub(super) put_off: Option<Box<PutOff>>,
    pub(super) waiting: Waiting,
}

/// A field block of which the end has not come.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) section: Box<FieldSection>,
    /// Its part in what all connections keep.
    pub(super) charge: Charge,
    /// It has begun since the connection was looked after last.
    pub(super) is_new: bool,
}

/// A request whose head has come, and that is not handed over yet.
#[derive(Debug)]
pub(super) struct PutOff {
    pub(super) token: Token,
    /// Its head, as it would stand in HTTP/1.1.
    pub(super) text: Vec<u8>,
    pub(super) ends_stream: bool,
}

/// The way out.
#[derive(Debug)]
pub(super) struct Sending {
    /// Frames that no window bounds.
    pub(super) control: Vec<u8>,
    /// Bytes of bodies that the client takes on all streams.
    pub(super) window: Window,
    /// The initial window of streams, as the streams that are open have it.
    pub(super) stream_window: u32,
    /// The same, as the settings that are coming have it.
    pub(super) stream_window_next: u32,
    /// Streams that have something to write, in the order of their turns.
    pub(super) ready: Vec<Token>,
    /// The stream that has used up the window of the connection, or a part of it, last.
    pub(super) served: u32,
    /// Bytes of answers that wait on all streams.
    pub(super) queued: usize,
}

/// The window of the connection for what the client sends.
#[derive(Debug)]
pub(super) struct Receiving {
    left: u32,
    /// The initial window of a stream, as the client knows it.
    stream_window: u32,
    /// Bytes that were used and not given back.
    used: u32,
}

/// The streams of a connection.
#[derive(Debug)]
pub(super) struct Open {
    /// By their numbers, in order.
    streams: Vec<(u32, Token)>,
    /// The newest that the client has begun.
    pub(super) last: u32,
    /// The streams that were reset last, the oldest first.
    reset: Vec<u32>,
    /// Requests so far.
    pub(super) requests: u32,
    /// The number of streams that was reported to the app last.
    told: u32,
    /// Bytes of its turn that the window has cut off of the one that was served last: it goes on
    /// where there is room.
    pub(super) turn_left: u16,
    /// Some streams are marked, as they have something to report in the next visit.
    pub(super) attends: bool,
    pub(super) going: Going,
}

/// The end of a connection in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Going {
    No,
    /// The client is told to begin nothing more, and may not have read it.
    Announced,
    /// Nothing that begins now is answered.
    Last,
}

impl Session {
    /// Begins a connection: its preface is the first thing to be sent.
    pub(super) fn new(section: SectionLimits, takes_connect: bool, now: Tick) -> Self {
        let mut control = Vec::new();
        let list = u32::try_from(section.section_bytes_max).unwrap_or(u32::MAX);
        encode::settings(
            &[
                (settings::HEADER_TABLE_SIZE, 0),
                (settings::MAX_CONCURRENT_STREAMS, STREAMS_MAX as u32),
                (settings::INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES),
                (settings::MAX_HEADER_LIST_SIZE, list),
                (settings::ENABLE_CONNECT_PROTOCOL, takes_connect.into()),
                (settings::NO_RFC7540_PRIORITIES, 1),
            ],
            &mut control,
        );
        encode::window_update(
            0,
            CONNECTION_WINDOW_BYTES - FIRST_WINDOW_BYTES,
            &mut control,
        );
        Self {
            frames: FrameDecoder::of_client(BlockLimits::default()),
            fields: Some(Box::new(HpackDecoder::new(FIRST_TABLE_BYTES))),
            section: None,
            sending: Sending {
                control,
                window: Window::new(FIRST_WINDOW_BYTES),
                stream_window: FIRST_WINDOW_BYTES,
                stream_window_next: FIRST_WINDOW_BYTES,
                ready: Vec::new(),
                served: 0,
                queued: 0,
            },
            receiving: Receiving {
                left: CONNECTION_WINDOW_BYTES,
                stream_window: FIRST_WINDOW_BYTES,
                used: 0,
            },
            open: Open {
                streams: Vec::new(),
                last: 0,
                reset: Vec::new(),
                requests: 0,
                told: 0,
                turn_left: 0,
                attends: false,
                going: Going::No,
            },
            calm: Calm::new(now),
            work: Work::default(),
            put_off: None,
            waiting: Waiting::new(now),
        }
    }

    /// Returns true if a field block has begun since the last call, and not ended.
    pub(super) fn takes_new_block(&mut self) -> bool {
        let block = self.section.as_mut();
        block.is_some_and(|block| std::mem::take(&mut block.is_new))
    }

    /// The tokens of its streams.
    pub(super) fn streams(&self) -> impl Iterator<Item = Token> + '_ {
        self.open.tokens()
    }

    /// So many bytes of bodies were used: gives them back, many at a time.
    pub(super) fn used(&mut self, bytes: usize) {
        let receiving = &mut self.receiving;
        // No more were received than the window has.
        receiving.used += bytes as u32;
        if receiving.used >= WINDOW_STEP_BYTES {
            encode::window_update(0, receiving.used, &mut self.sending.control);
            receiving.left += receiving.used;
            receiving.used = 0;
        }
    }

    /// Tells the client to begin nothing more; false where it was told before.
    pub(super) fn leave(&mut self) -> bool {
        let begins = self.open.going == Going::No;
        if begins {
            self.open.going = Going::Announced;
            self.go_away(u32::MAX >> 1, ErrorCode::NO_ERROR);
            encode::ping(LEAVING, &mut self.sending.control);
        }
        begins
    }

    /// The client has had the time to read it; false where that was not waited for.
    pub(super) fn left(&mut self) -> bool {
        let ends = self.open.going == Going::Announced;
        if ends {
            self.open.going = Going::Last;
            let last = self.open.last;
            #[cfg(feature = "sim")]
            let last = if dwell_evloop::sim::Planted::ForgetLast.is_in() {
                last.saturating_sub(2)
            } else {
                last
            };
            self.go_away(last, ErrorCode::NO_ERROR);
        }
        ends
    }

    /// Sends the number of the last stream that is answered, and the reason.
    pub(super) fn go_away(&mut self, last: u32, code: ErrorCode) {
        encode::go_away(last, code, &mut self.sending.control);
    }
}

impl Sending {
    /// Notes that a stream has another number of bytes waiting.
    pub(super) fn requeue(&mut self, before: usize, now: usize) {
        self.queued = self.queued + now - before;
    }
}

impl Receiving {
    /// Takes so many bytes from the window.
    pub(super) fn receive(&mut self, bytes: u32) -> Result<(), ErrorCode> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or(ErrorCode::FLOW_CONTROL_ERROR)?;
        Ok(())
    }

    /// The initial window of a stream that begins now.
    pub(super) fn stream_window(&self) -> u32 {
        self.stream_window
    }

    /// The client has taken in the settings of this side; returns by how much less the windows of
    /// streams are with that.
    pub(super) fn settle(&mut self) -> u32 {
        std::mem::replace(&mut self.stream_window, STREAM_WINDOW_BYTES) - STREAM_WINDOW_BYTES
    }
}

impl Open {
    /// Returns the token of a stream that is open.
    pub(super) fn find(&self, stream: u32) -> Option<Token> {
        let place = self
            .streams
            .binary_search_by_key(&stream, |(number, _)| *number);
        Some(self.streams[place.ok()?].1)
    }

    /// Adds the newest stream.
    pub(super) fn add(&mut self, stream: u32, token: Token) {
        self.streams.push((stream, token));
        self.requests = self.requests.saturating_add(1);
    }

    pub(super) fn remove(&mut self, stream: u32) {
        let place = self
            .streams
            .binary_search_by_key(&stream, |(number, _)| *number);
        if let Ok(place) = place {
            self.streams.remove(place);
        }
        if self.streams.is_empty() {
            self.streams = Vec::new();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// The number of streams, of which the app is told by that.
    pub(super) fn tell(&mut self) -> usize {
        self.told = self.streams.len() as u32;
        self.streams.len()
    }

    /// Returns true if there are fewer streams than was reported to the app.
    pub(super) fn are_fewer(&self) -> bool {
        (self.streams.len() as u32) < self.told
    }

    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        self.streams.iter().map(|(_, token)| *token)
    }

    /// The tokens of its streams, those that come behind a number first.
    pub(super) fn tokens_behind(&self, number: u32) -> impl Iterator<Item = Token> + '_ {
        let place = self.streams.partition_point(|(other, _)| *other <= number);
        let (before, behind) = self.streams.split_at(place);
        behind.iter().chain(before).map(|(_, token)| *token)
    }

    /// Notes that a stream was reset: what the client has sent before it knows of it is ignored.
    pub(super) fn note_reset(&mut self, stream: u32) {
        if self.reset.len() == RESET_KEPT_MAX {
            self.reset.remove(0);
        }
        self.reset.push(stream);
    }

    pub(super) fn was_reset(&self, stream: u32) -> bool {
        self.reset.contains(&stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_of_an_idle_connection_is_small() {
        assert!(size_of::<Session>() <= 248, "{}", size_of::<Session>());
    }
}
