//! Streams that leave HTTP: DATA frames are the bytes of another protocol from then on.
//!
//! The stream is [carried](dwell_evloop::Carrier) by the connection. Its input is put in, and the
//! client may send more on the stream as its owner reads. The window of the connection is given
//! back at once: an owner that does not read holds up its own stream alone. Unread bytes are
//! charged to what all connections keep. The owner may write what the windows of the client have
//! room for, and no more than the share of a turn, so nothing waits here for a window that is
//! closed. The end of a side is `END_STREAM`, and an abort is a reset by `CANCEL` (RFC 8441 section
//! 5).

use super::session::STREAM_WINDOW_BYTES;
use super::stream::{Stream, Way};
use super::writing::TURN_BYTES;
use crate::reply::encode_switch;
use dwell_evloop::{CarriedEnd, Carrier};
use dwell_proto::http2::{ErrorCode, encode, encode_status};

/// The most bytes of the head that the owner of a stream writes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The outcome of looking for the head in what an owner has written.
enum Head {
    /// It switches the stream, and has this length in bytes.
    Switches(usize),
    /// It refuses, by this status.
    Refuses(u16),
    None,
}

impl Stream {
    /// Lets the owner of the stream write as much as the client takes, whose connection has so much
    /// room.
    pub(super) fn give_room(&self, connection: usize) {
        let Some(carrier) = &self.carrier else {
            return;
        };
        match self.marks.way {
            Way::In => return,
            Way::AwaitsHead => return carrier.set_room(HEAD_BYTES_MAX),
            Way::Out | Way::Left => {}
        }
        let room = self.window.room().min(connection).min(TURN_BYTES);
        carrier.set_room(room.saturating_sub(self.out.bytes()));
    }

    /// Lets the client send more, if the owner of the stream has read enough.
    pub(super) fn grant_input(&self, control: &mut Vec<u8>) {
        let grant = |carrier: &Carrier| carrier.grant_up_to(STREAM_WINDOW_BYTES as usize);
        let increment = self.carrier.as_ref().map_or(0, grant);
        if increment > 0 {
            encode::window_update(self.number(), increment as u32, control);
        }
    }

    /// Takes over what the owner of the stream has written, and its end.
    ///
    /// # Errors
    /// The reason to reset the stream.
    pub(super) fn take_output(
        &mut self,
        output: &[u8],
        end: Option<CarriedEnd>,
    ) -> Result<(), ErrorCode> {
        let mut body = output;
        if self.marks.way == Way::AwaitsHead && (!output.is_empty() || end.is_some()) {
            match self.answer_by(output) {
                Head::Switches(length) => body = &output[length..],
                Head::Refuses(_) => body = &[],
                Head::None => return Err(ErrorCode::INTERNAL_ERROR),
            }
        }
        self.out.push(body);
        let Some(end) = end else {
            return Ok(());
        };
        match end {
            CarriedEnd::Reset => return Err(ErrorCode::CANCEL),
            CarriedEnd::Gone => self.marks.way = Way::Left,
            CarriedEnd::Finished => {}
        }
        let number = self.number();
        self.out.finish(number, &[]);
        Ok(())
    }

    /// Sends the head that its owner has written, as it would stand in HTTP/1.1.
    fn answer_by(&mut self, output: &[u8]) -> Head {
        let head = find_head(output);
        let (status, length) = match head {
            Head::Switches(length) => (200, length),
            Head::Refuses(status) => (status, 0),
            Head::None => return Head::None,
        };
        let mut block = Vec::new();
        encode_status(status, &mut block);
        encode_switch(&output[..length], &mut block);
        let number = self.number();
        self.out.push_head(number, &block, length == 0);
        self.marks.way = Way::Out;
        head
    }
}

fn find_head(output: &[u8]) -> Head {
    const END: &[u8] = b"\r\n\r\n";
    let start = output
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(<[u8]>::first_chunk);
    let end = output.windows(END.len()).position(|at| at == END);
    let (Some(&digits @ [_, _, _]), Some(end)) = (start, end) else {
        return Head::None;
    };
    match std::str::from_utf8(&digits).map(str::parse) {
        Ok(Ok(101)) => Head::Switches(end + END.len()),
        Ok(Ok(status @ 300..=599)) => Head::Refuses(status),
        _ => Head::None,
    }
}
