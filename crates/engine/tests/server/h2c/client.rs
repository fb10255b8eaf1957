//! A client that sends what it is told and notes what comes.

use crate::support::PATIENCE;
use dwell_engine::Running;
use dwell_proto::http2::{
    BlockLimits, ErrorCode, FieldSection, Frame, FrameDecoder, HpackDecoder, PREFACE,
    SectionLimits, encode, encode_field, settings,
};
use std::io::{Read, Write};
use std::net::TcpStream;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Got {
    Head {
        stream: u32,
        lines: Vec<(String, String)>,
        ends: bool,
    },
    Data {
        stream: u32,
        data: Vec<u8>,
        ends: bool,
    },
    Reset(u32, ErrorCode),
    GoAway(u32, ErrorCode),
    Window(u32, u32),
    Ping([u8; 8]),
    Pong,
    Settings,
    SettingsAck,
}

pub(crate) struct Peer<S = TcpStream> {
    socket: S,
    frames: FrameDecoder,
    fields: HpackDecoder,
    section: FieldSection,
    received: Vec<u8>,
}

/// A request without a body, or with the beginning of one.
pub(crate) fn request(stream: u32, method: &str, path: &str, ends: bool) -> Vec<u8> {
    let lines = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
    ];
    head(stream, &lines, ends)
}

pub(crate) fn head(stream: u32, lines: &[(&str, &str)], ends: bool) -> Vec<u8> {
    let (mut block, mut out) = (Vec::new(), Vec::new());
    for (name, value) in lines {
        encode_field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    encode::block(stream, &block, ends, 16_384, &mut out);
    out
}

pub(crate) fn data(stream: u32, bytes: &[u8], ends: bool) -> Vec<u8> {
    let mut out = Vec::new();
    encode::data_header(stream, bytes.len(), ends, &mut out);
    out.extend_from_slice(bytes);
    out
}

pub(crate) fn window(stream: u32, increment: u32) -> Vec<u8> {
    let mut out = Vec::new();
    encode::window_update(stream, increment, &mut out);
    out
}

/// The client has taken in the settings of the server.
pub(crate) fn acknowledgement() -> Vec<u8> {
    let mut out = Vec::new();
    encode::settings_ack(&mut out);
    out
}

/// The preface, with an initial window of streams.
pub(crate) fn preface(initial_window: u32) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    encode::settings(&[(settings::INITIAL_WINDOW_SIZE, initial_window)], &mut out);
    out
}

impl Peer {
    pub(crate) fn silent(running: &Running) -> Self {
        let socket = TcpStream::connect(running.addresses()[0]).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::over(socket)
    }

    /// One whose preface is sent.
    pub(crate) fn connect(running: &Running) -> Self {
        let mut peer = Self::silent(running);
        peer.begin();
        peer
    }
}

impl<S: Read + Write> Peer<S> {
    /// One on a connection that is there.
    pub(crate) fn over(socket: S) -> Self {
        Self {
            socket,
            frames: FrameDecoder::of_server(BlockLimits::default()),
            fields: HpackDecoder::new(4096),
            section: FieldSection::new(SectionLimits::default()),
            received: Vec::new(),
        }
    }

    /// Sends the preface.
    pub(crate) fn begin(&mut self) {
        self.send(preface(65_535));
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        // A server that has ended the connection need not take the rest.
        let _ = self.socket.write_all(bytes.as_ref());
        self
    }

    /// The next frame, or piece of one; nothing at the end of the connection.
    pub(crate) fn next(&mut self) -> Option<Got> {
        loop {
            let step = self.frames.decode(&self.received).unwrap();
            let got = step.frame.map(|frame| {
                let section = &mut self.section;
                match frame {
                    Frame::Block {
                        stream,
                        fragment,
                        ends_block,
                        ends_stream,
                        ..
                    } => {
                        self.fields.decode(fragment, ends_block, section).unwrap();
                        ends_block.then(|| {
                            let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
                            let lines = section.lines().map(|(n, v)| (text(n), text(v))).collect();
                            section.clear();
                            Got::Head {
                                stream,
                                lines,
                                ends: ends_stream,
                            }
                        })
                    }
                    Frame::Data {
                        stream,
                        data,
                        ends_stream,
                        ..
                    } => Some(Got::Data {
                        stream,
                        data: data.to_vec(),
                        ends: ends_stream,
                    }),
                    Frame::Reset { stream, code } => Some(Got::Reset(stream, code)),
                    Frame::GoAway { last_stream, code } => Some(Got::GoAway(last_stream, code)),
                    Frame::WindowUpdate { stream, increment } => {
                        Some(Got::Window(stream, increment))
                    }
                    Frame::Ping { data } => Some(Got::Ping(data)),
                    Frame::Pong { .. } => Some(Got::Pong),
                    Frame::SettingsEnd => Some(Got::Settings),
                    Frame::SettingsAck => Some(Got::SettingsAck),
                    _ => None,
                }
            });
            self.received.drain(..step.consumed);
            match got {
                Some(Some(got)) => return Some(got),
                Some(None) => {}
                None => {
                    let mut buffer = [0; 16 * 1024];
                    match self.socket.read(&mut buffer) {
                        Ok(0) => return None,
                        Ok(read) => self.received.extend_from_slice(&buffer[..read]),
                        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                            return None;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
    }

    /// The next frame that `wanted` is interested in.
    pub(crate) fn until(&mut self, wanted: impl Fn(&Got) -> bool) -> Got {
        loop {
            let got = self.next().expect("the connection is open");
            if wanted(&got) {
                return got;
            }
        }
    }

    /// The status and the body of the answer to a stream.
    pub(crate) fn answer(&mut self, number: u32) -> (String, Vec<u8>) {
        let (mut status, mut body) = (String::new(), Vec::new());
        loop {
            match self.next().expect("the connection is open") {
                Got::Head {
                    stream,
                    lines,
                    ends,
                } if stream == number => {
                    if let Some((_, value)) = lines.iter().find(|(name, _)| name == ":status") {
                        status.clone_from(value);
                    }
                    if ends {
                        return (status, body);
                    }
                }
                Got::Data { stream, data, ends } if stream == number => {
                    body.extend_from_slice(&data);
                    if ends {
                        return (status, body);
                    }
                }
                Got::Reset(stream, code) if stream == number => panic!("it was reset: {code}"),
                Got::GoAway(_, code) => panic!("the connection ends: {code}"),
                _ => {}
            }
        }
    }

    /// The code by which a stream was reset.
    pub(crate) fn reset(&mut self, number: u32) -> ErrorCode {
        match self.until(|got| matches!(got, Got::Reset(stream, _) if *stream == number)) {
            Got::Reset(_, code) => code,
            _ => unreachable!("nothing else is wanted"),
        }
    }

    /// The code by which the connection ends, and its end.
    pub(crate) fn go_away(&mut self) -> ErrorCode {
        let Got::GoAway(_, code) = self.until(|got| matches!(got, Got::GoAway(..))) else {
            unreachable!("nothing else is wanted")
        };
        while self.next().is_some() {}
        code
    }
}
