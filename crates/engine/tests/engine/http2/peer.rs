//! A client of HTTP/2 on a simulated network, which sends what it is told and notes what comes.

use crate::support::{Fixture, Script, Server};
use dwell_engine::{Http, Limits};
use dwell_evloop::EventLoop;
use dwell_evloop::sim::{SimNet, SimStream};
use dwell_proto::http2::{
    BlockLimits, ErrorCode, FieldSection, Frame, FrameDecoder, HpackDecoder, PREFACE,
    SectionLimits, encode, encode_field, settings,
};
use dwell_testkit::{Rig, Serving, loopback_listener};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// The kind of the tokens of streams.
const STREAM_KIND: u8 = 3;
/// A window that is never used up.
pub(super) const WIDE: u32 = 1 << 30;

/// All that has come of one stream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Answer {
    /// Of the last head that is not one of trailer fields.
    pub(super) status: String,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) has_ended: bool,
    pub(super) reset: Option<ErrorCode>,
}

pub(super) struct Peer {
    pub(super) socket: SimStream,
    frames: FrameDecoder,
    fields: HpackDecoder,
    received: Vec<u8>,
    pub(super) answers: BTreeMap<u32, Answer>,
    pub(super) go_away: Option<ErrorCode>,
    pub(super) settings: Vec<(u16, u32)>,
    /// Bytes that it may send behind the first window of each stream.
    pub(super) granted: BTreeMap<u32, u32>,
}

/// A server that speaks HTTP/2, too.
pub(super) fn fixture(limits: Limits) -> Fixture {
    let mut event_loop = EventLoop::new().unwrap();
    let mut server = Serving::new(limits, Script::default());
    server.http = Http::new(Server::KINDS, limits).speak_h2c(STREAM_KIND);
    let (listener, address) = loopback_listener();
    server.listen(&mut event_loop, listener);
    Fixture {
        event_loop,
        server,
        address,
        turns: 0,
    }
}

/// Turns until so much simulated time has passed.
pub(super) fn pass(network: &SimNet, fixture: &mut Fixture, time: Duration) {
    let end = network.elapsed() + time;
    while network.elapsed() < end {
        fixture.turn_for(end.saturating_sub(network.elapsed()));
    }
}

pub(super) fn request(stream: u32, method: &str, path: &str, ends: bool) -> Vec<u8> {
    let lines = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
    ];
    head(stream, &lines, ends)
}

pub(super) fn head(stream: u32, lines: &[(&str, &str)], ends: bool) -> Vec<u8> {
    let (mut block, mut out) = (Vec::new(), Vec::new());
    for (name, value) in lines {
        encode_field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    encode::block(stream, &block, ends, 16_384, &mut out);
    out
}

pub(super) fn data(stream: u32, bytes: &[u8], ends: bool) -> Vec<u8> {
    let mut out = Vec::new();
    encode::data_header(stream, bytes.len(), ends, &mut out);
    out.extend_from_slice(bytes);
    out
}

pub(super) fn reset(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    encode::reset(stream, ErrorCode::CANCEL, &mut out);
    out
}

pub(super) fn window(stream: u32, increment: u32) -> Vec<u8> {
    let mut out = Vec::new();
    encode::window_update(stream, increment, &mut out);
    out
}

impl Peer {
    /// One whose preface is sent, with an initial window of streams and one of the connection.
    pub(super) fn connect(network: &SimNet, fixture: &Fixture, stream: u32, all: u32) -> Self {
        Self::opened(network, fixture.address, stream, all)
    }

    pub(super) fn opened(network: &SimNet, address: SocketAddr, stream: u32, all: u32) -> Self {
        let mut opening = PREFACE.to_vec();
        encode::settings(&[(settings::INITIAL_WINDOW_SIZE, stream)], &mut opening);
        if all > 65_535 {
            opening.extend(window(0, all - 65_535));
        }
        let mut peer = Self::at(network, address);
        peer.send(opening);
        peer
    }

    pub(super) fn silent(network: &SimNet, fixture: &Fixture) -> Self {
        Self::at(network, fixture.address)
    }

    fn at(network: &SimNet, address: SocketAddr) -> Self {
        Self {
            socket: network.connect(address),
            frames: FrameDecoder::of_server(BlockLimits::default()),
            fields: HpackDecoder::new(4096),
            received: Vec::new(),
            answers: BTreeMap::new(),
            go_away: None,
            settings: Vec::new(),
            granted: BTreeMap::new(),
        }
    }

    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        // A server that has ended the connection need not take it.
        let _ = self.socket.write_all(bytes.as_ref());
        self
    }

    /// Takes in all that has come; false at the end of the connection.
    pub(super) fn receive(&mut self) -> bool {
        let is_open = self.socket.read_all(&mut self.received);
        self.take_frames();
        is_open
    }

    /// As [`receive`](Self::receive), but at most so many bytes.
    pub(super) fn receive_little(&mut self, most: usize) -> bool {
        let is_open = self.socket.read_little(&mut self.received, most);
        self.take_frames();
        is_open
    }

    fn take_frames(&mut self) {
        let mut used = 0;
        let mut section = FieldSection::new(SectionLimits::default());
        loop {
            let step = self.frames.decode(&self.received[used..]).unwrap();
            used += step.consumed;
            match step.frame {
                None => break,
                Some(Frame::Block {
                    stream,
                    fragment,
                    ends_block,
                    ends_stream,
                    ..
                }) => {
                    let decoded = self.fields.decode(fragment, ends_block, &mut section);
                    decoded.unwrap();
                    if ends_block {
                        let answer = self.answers.entry(stream).or_default();
                        let status = section.lines().find(|(name, _)| name == b":status");
                        if let Some((_, status)) = status {
                            answer.status = String::from_utf8(status.to_vec()).unwrap();
                        }
                        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                        let fields = section
                            .lines()
                            .map(|(name, value)| (text(name), text(value)));
                        answer.fields.extend(fields);
                        answer.has_ended |= ends_stream;
                        section.clear();
                    }
                }
                Some(Frame::Data {
                    stream,
                    data,
                    ends_stream,
                    ..
                }) => {
                    let answer = self.answers.entry(stream).or_default();
                    answer.body.extend_from_slice(data);
                    answer.has_ended |= ends_stream;
                }
                Some(Frame::Reset { stream, code }) => {
                    self.answers.entry(stream).or_default().reset = Some(code);
                }
                Some(Frame::GoAway { code, .. }) => self.go_away = Some(code),
                Some(Frame::Setting { id, value }) => self.settings.push((id, value)),
                Some(Frame::WindowUpdate { stream, increment }) => {
                    *self.granted.entry(stream).or_default() += increment;
                }
                Some(_) => {}
            }
        }
        self.received.drain(..used);
    }

    /// Returns true if the answer to a stream has come to its end.
    pub(super) fn has_all_of(&self, stream: u32) -> bool {
        self.answers
            .get(&stream)
            .is_some_and(|answer| answer.has_ended)
    }

    /// The answer to a stream when it has ended, one way or the other.
    pub(super) fn answer(&mut self, fixture: &mut Fixture, stream: u32) -> Answer {
        fixture.turn_for_client("a stream ends", || {
            let is_open = self.receive();
            let answer = self.answers.get(&stream);
            let ended = answer.filter(|answer| answer.has_ended || answer.reset.is_some());
            assert!(is_open || ended.is_some(), "it ended: {:?}", self.go_away);
            ended.cloned()
        })
    }
}
