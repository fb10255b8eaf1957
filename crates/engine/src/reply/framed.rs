//! Answers on a stream of HTTP/2: field blocks, and bodies that become frames when there is room.

use super::fields::Fields;
use super::{Body, Outgoing, Reply, is_bodiless};
use crate::http::{Outflow, Work};
use dwell_proto::http1::{encode, is_hop_by_hop};
use dwell_proto::http2::{ErrorCode, encode_field, encode_status};

/// Room for a field block of the usual size.
const BLOCK_BYTES: usize = 256;

/// The stream that an answer goes to.
#[derive(Debug)]
pub(crate) struct Framed<'a> {
    /// Its number.
    pub(crate) stream: u32,
    pub(crate) out: &'a mut Outflow,
    /// Its request is an extended CONNECT.
    pub(crate) connects: bool,
    /// The reason to end the stream without the rest of its answer, if there is one.
    pub(crate) reset: Option<ErrorCode>,
    /// The app is to be told when all that waits was taken.
    pub(crate) is_awaited: bool,
    /// The work for the connection that goes on elsewhere.
    pub(crate) work: &'a mut Work,
}

impl Framed<'_> {
    /// Adds an interim head, whose fields are the lines of `text`.
    pub(super) fn interim(&mut self, status: u16, text: &[u8]) {
        let mut block = Vec::with_capacity(text.len() + 4);
        encode_status(status, &mut block);
        encode_lines(text, &mut block);
        self.out.push_head(self.stream, &block, false);
    }

    /// Ends the answer with the trailer fields that are the lines of `text`.
    pub(super) fn finish(&mut self, text: &[u8]) {
        let mut block = Vec::new();
        encode_lines(text, &mut block);
        self.out.finish(self.stream, &block);
    }
}

impl Reply<'_> {
    /// Ends the open answer; one that is shorter than was announced ends by a reset.
    pub(super) fn finish_framed(&mut self, trailers: &[(&str, &[u8])]) {
        let outgoing = std::mem::replace(self.outgoing, Outgoing::None);
        let Some(framed) = &mut self.framed else {
            return;
        };
        match outgoing {
            Outgoing::Length(left) if left.bytes() > 0 => {
                framed.reset = Some(ErrorCode::INTERNAL_ERROR);
            }
            Outgoing::Framed | Outgoing::Length(_) => {
                for (name, value) in trailers {
                    encode::field(self.output, name, value);
                }
                framed.finish(self.output);
                self.output.clear();
            }
            _ => framed.finish(&[]),
        }
    }

    /// Answers an extended CONNECT: 101 is its success. Any other would be taken for that, and says
    /// that the app has not switched, as it need not in HTTP/1.1.
    ///
    /// Source: RFC 8441 section 5; RFC 9110 section 9.3.6.
    fn send_connected(&mut self, status: u16, fields: Fields<'_>) {
        let Some(framed) = &mut self.framed else {
            return;
        };
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let is_switched = status == 101;
        encode_status(if is_switched { 200 } else { 501 }, &mut block);
        if is_switched {
            fields.append(status, self.output);
            encode_switch(self.output, &mut block);
            self.output.clear();
        }
        encode_lines(self.start.date(), &mut block);
        *self.outgoing = if is_switched {
            Outgoing::Framed
        } else {
            Outgoing::None
        };
        framed.out.push_head(framed.stream, &block, !is_switched);
    }

    /// Sends the head of an answer, and its body if that is here.
    pub(super) fn send_framed(&mut self, status: u16, body: &Body<'_>, fields: Fields<'_>) {
        let Some(framed) = &mut self.framed else {
            return;
        };
        if framed.connects && (status == 101 || (200..300).contains(&status)) {
            return self.send_connected(status, fields);
        }
        if status < 200 {
            // There is no switching of protocols on a stream (RFC 9113 section 8.6).
            framed.reset = Some(ErrorCode::HTTP_1_1_REQUIRED);
            return;
        }
        let bodiless = self.framing.is_head || is_bodiless(status);
        if let Body::Stream(length) = *body {
            *self.outgoing = Outgoing::of_stream(length, bodiless);
        }
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let asked = fields.append_block(status, self.output, &mut block);
        encode_lines(self.start.date(), &mut block);
        let length = asked.length_of(body, self.framing.is_head);
        if let Some(length) = length.filter(|_| !is_bodiless(status)) {
            let mut digits = itoa::Buffer::new();
            encode_field(
                b"content-length",
                digits.format(length).as_bytes(),
                &mut block,
            );
        }
        let is_open = self.outgoing.is_open();
        let is_last = !is_open && (bodiless || body.is_empty());
        framed.out.push_head(framed.stream, &block, is_last);
        if is_open || is_last {
            return;
        }
        match body {
            Body::Empty | Body::Stream(_) => {}
            Body::Absent(_) => {
                // The client would take nothing for what was announced.
                framed.reset = Some(ErrorCode::INTERNAL_ERROR);
                return;
            }
            Body::Slice(bytes) => framed.out.push(bytes),
            Body::Shared(bytes) => framed.out.push_shared(bytes.clone()),
            Body::Parts(parts) => {
                for part in *parts {
                    framed.out.push_shared(part.clone());
                }
            }
            Body::File(slice) => framed.out.push_file(slice.clone()),
        }
        framed.finish(&[]);
    }
}

/// Adds the fields of a 101, which are the lines of `text`, to the block that answers an extended
/// CONNECT: all but those that switch a connection of HTTP/1.1.
pub(crate) fn encode_switch(text: &[u8], block: &mut Vec<u8>) {
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let name = std::str::from_utf8(name).unwrap_or_default();
        if !is_hop_by_hop(name) && !name.eq_ignore_ascii_case("sec-websocket-accept") {
            encode_lines(line, block);
        }
    }
}

/// Adds field lines to a block, as they stand in a head of HTTP/1.1: `Name: value`, each with its
/// line end.
pub(super) fn encode_lines(text: &[u8], block: &mut Vec<u8>) {
    let mut name = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        name.clear();
        name.extend(line[..colon].iter().map(u8::to_ascii_lowercase));
        // It belongs to a connection of HTTP/1.1 (RFC 9113 section 8.2.2).
        if name != b"upgrade" {
            encode_field(&name, line[colon + 1..].trim_ascii(), block);
        }
    }
}
