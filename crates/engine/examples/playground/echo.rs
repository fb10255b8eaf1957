//! A WebSocket in the classic shape: a thread that reads, and answers what it has read.

use dwell_proto::websocket::{Event, Inflater, MessageDecoder, MessageLimits, Role, encode};
use std::io::{self, Read, Write};

/// Echoes messages until the peer closes; `input` has come already.
pub(crate) fn run(socket: &mut (impl Read + Write), mut input: Vec<u8>) -> io::Result<()> {
    let (limits, mut inflater) = (MessageLimits::default(), Inflater::new());
    let mut decoder = MessageDecoder::new(Role::Server, false);
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let mut used = 0;
        let mut output = Vec::new();
        loop {
            let step = decoder.decode(&mut input[used..], &limits, &mut inflater);
            let step = step.map_err(io::Error::other)?;
            used += step.consumed;
            match step.event {
                None => break,
                Some(Event::Message(message)) => {
                    encode::message(&mut output, message.kind, &message.payload, None);
                }
                Some(Event::Ping(payload)) => encode::pong(&mut output, payload, None),
                Some(Event::Pong(_)) => {}
                Some(Event::Close(close)) => {
                    encode::close(&mut output, close.code, "", None);
                    return socket.write_all(&output);
                }
            }
        }
        socket.write_all(&output)?;
        input.drain(..used);
        match socket.read(&mut buffer)? {
            0 => return Ok(()),
            read => input.extend_from_slice(&buffer[..read]),
        }
    }
}
