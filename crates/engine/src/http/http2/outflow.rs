//! The answer of one stream on its way into frames.

use bytes::{Buf, Bytes, BytesMut};
use dwell_evloop::{FileSlice, LoopOutput, OutputAccount, Token};
use dwell_proto::http2::{FRAME_BYTES_MAX, encode};
use dwell_timers::Tick;
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;

/// Copies are gathered up to this size, so that many small ones cost no more than their bytes.
const GATHERED_BYTES_MAX: usize = 16 * 1024;

/// Shared bytes up to this size are copied: a reference takes as much room.
const COPIED_BYTES_MAX: usize = 128;

/// Shared bytes below this size count for each stream that refers to them.
const SHARE_BYTES_MIN: usize = 4 * 1024;

/// Field blocks, bytes and parts of files that wait for room in the windows.
///
/// Shape: field blocks are frames already, as no window bounds them; bytes become frames when they
/// are written, so nothing is framed for a window that is closed. The writer bounds it, by
/// [`bytes`](Self::bytes). While nothing waits it takes no memory beside its place in the stream.
#[derive(Debug, Default)]
pub(crate) struct Outflow(Option<Box<Queue>>);

/// The parts of an [`Outflow`] of which something waits.
#[derive(Debug, Default)]
struct Queue {
    /// Frames with the heads of the answer, interim ones before the final one.
    heads: Vec<u8>,
    segments: VecDeque<Segment>,
    /// Bytes in memory, of all segments.
    bytes: usize,
    end: End,
    /// Bytes of it that were taken so far.
    taken: u64,
    /// The number taken when enough of them had been taken last.
    enough: u64,
    /// The account of what waits for a client that does not take it.
    account: Option<OutputAccount>,
}

#[derive(Debug)]
enum Segment {
    /// The second names all of the bytes, of which these are the rest.
    Shared(Bytes, (usize, usize)),
    Copied(BytesMut),
    File(FileSlice),
}

/// The state of the end of the answer.
#[derive(Debug, Default)]
enum End {
    /// More may come.
    #[default]
    Open,
    /// Nothing but these frames of trailer fields comes, or nothing at all.
    Known(Vec<u8>),
    /// The last frame is out.
    Out,
}

/// A file has become shorter than what was promised of it.
#[derive(Debug)]
pub(super) struct Truncated;

impl Outflow {
    /// Adds the frames of a head.
    pub(crate) fn push_head(&mut self, stream: u32, block: &[u8], is_last: bool) {
        let queue = self.queue();
        encode::block(stream, block, is_last, FRAME_BYTES_MAX, &mut queue.heads);
        if is_last {
            queue.end = End::Out;
        }
    }

    /// Adds a copy.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let queue = self.queue();
        queue.bytes += bytes.len();
        match queue.segments.back_mut() {
            Some(Segment::Copied(copied)) if copied.len() + bytes.len() <= GATHERED_BYTES_MAX => {
                copied.extend_from_slice(bytes);
            }
            _ => queue.segments.push_back(Segment::Copied(bytes.into())),
        }
    }

    /// Adds a reference, where that is less than a copy.
    pub(crate) fn push_shared(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_BYTES_MAX {
            return self.push(&bytes);
        }
        let queue = self.queue();
        queue.bytes += bytes.len();
        let whole = (bytes.as_ptr() as usize, bytes.len());
        queue.segments.push_back(Segment::Shared(bytes, whole));
    }

    /// Adds a part of a file, which takes no memory.
    pub(crate) fn push_file(&mut self, slice: FileSlice) {
        if slice.length > 0 {
            self.queue().segments.push_back(Segment::File(slice));
        }
    }

    /// Ends the answer, with the block of its trailer fields if it has any.
    pub(crate) fn finish(&mut self, stream: u32, trailers: &[u8]) {
        let queue = self.queue();
        if matches!(queue.end, End::Open) {
            let mut frames = Vec::new();
            if !trailers.is_empty() {
                encode::block(stream, trailers, true, FRAME_BYTES_MAX, &mut frames);
            }
            queue.end = End::Known(frames);
        }
    }

    /// Bytes of memory that wait, those of heads among them.
    pub(crate) fn bytes(&self) -> usize {
        let queue = self.0.as_deref();
        queue.map_or(0, |queue| queue.bytes + queue.heads.len())
    }

    /// Returns true if bytes of the body wait for room in the windows.
    pub(super) fn has_body(&self) -> bool {
        let queue = self.0.as_deref();
        queue.is_some_and(|queue| !queue.segments.is_empty())
    }

    /// Returns true if frames can be written, where the windows have so much room.
    pub(super) fn can_write(&self, room: usize) -> bool {
        let queue = self.0.as_deref();
        queue.is_some_and(|queue| queue.has_frames() || (room > 0 && self.has_body()))
    }

    /// Returns true if all of the answer is written.
    pub(super) fn is_out(&self) -> bool {
        let queue = self.0.as_deref();
        queue.is_some_and(|queue| matches!(queue.end, End::Out) && queue.heads.is_empty())
    }

    /// Writes the next frames, and at most `room` bytes of the body; returns how many bytes.
    pub(super) fn write(
        &mut self,
        stream: u32,
        room: usize,
        output: &mut Vec<u8>,
    ) -> Result<usize, Truncated> {
        let Some(queue) = self.0.as_deref_mut() else {
            return Ok(0);
        };
        let written = queue.write(stream, room, output)?;
        if queue.segments.is_empty() && matches!(queue.end, End::Open) {
            // An answer that is open for long takes no memory between its pieces.
            self.0 = None;
        }
        Ok(written)
    }

    /// Returns true if the client has taken at least so many bytes since this was last true.
    pub(super) fn has_taken(&mut self, bytes_min: u64) -> bool {
        self.0.as_deref_mut().is_some_and(|queue| {
            let is_enough = queue.taken - queue.enough >= bytes_min;
            if is_enough {
                queue.enough = queue.taken;
            }
            is_enough
        })
    }

    /// Notes in a ledger what waits now.
    pub(super) fn account(&mut self, output: &LoopOutput, token: Token, now: Tick) {
        let Some(queue) = self.0.as_deref_mut() else {
            return;
        };
        if queue.segments.is_empty() {
            queue.account = None;
            return;
        }
        let (mut shares, mut copied) = (Vec::new(), queue.heads.len());
        for segment in &queue.segments {
            match segment {
                Segment::Shared(_, whole) if whole.1 >= SHARE_BYTES_MIN => shares.push(*whole),
                Segment::Shared(bytes, _) => copied += bytes.len(),
                Segment::Copied(bytes) => copied += bytes.capacity(),
                Segment::File(_) => {}
            }
        }
        let open = || output.open_account(token, now);
        let account = queue.account.get_or_insert_with(open);
        account.update(copied, shares, queue.taken, now);
    }

    fn queue(&mut self) -> &mut Queue {
        self.0.get_or_insert_default()
    }
}

impl Queue {
    /// Returns true if there are frames that need no room.
    fn has_frames(&self) -> bool {
        !self.heads.is_empty() || (self.segments.is_empty() && matches!(self.end, End::Known(_)))
    }

    fn write(
        &mut self,
        stream: u32,
        room: usize,
        output: &mut Vec<u8>,
    ) -> Result<usize, Truncated> {
        output.append(&mut std::mem::take(&mut self.heads));
        let mut left = room;
        while left > 0 && !self.segments.is_empty() {
            left -= self.write_data(stream, left.min(FRAME_BYTES_MAX as usize), output)?;
        }
        if self.segments.is_empty()
            && let End::Known(trailers) = &mut self.end
        {
            if trailers.is_empty() {
                encode::data_header(stream, 0, true, output);
            } else {
                output.append(trailers);
            }
            self.end = End::Out;
        }
        self.taken += (room - left) as u64;
        Ok(room - left)
    }

    /// Writes one DATA frame of at most `length_max` bytes; returns its size.
    fn write_data(
        &mut self,
        stream: u32,
        length_max: usize,
        output: &mut Vec<u8>,
    ) -> Result<usize, Truncated> {
        let Some(front) = self.segments.front_mut() else {
            return Ok(0);
        };
        let (length, is_used_up) = match front {
            Segment::Shared(bytes, _) => (bytes.len().min(length_max), bytes.len() <= length_max),
            Segment::Copied(bytes) => (bytes.len().min(length_max), bytes.len() <= length_max),
            Segment::File(slice) => {
                let length = slice.length.min(length_max as u64);
                (length as usize, length == slice.length)
            }
        };
        let has_trailers = matches!(&self.end, End::Known(trailers) if !trailers.is_empty());
        let ends = is_used_up
            && self.segments.len() == 1
            && matches!(self.end, End::Known(_))
            && !has_trailers;
        encode::data_header(stream, length, ends, output);
        let Some(front) = self.segments.front_mut() else {
            return Ok(0);
        };
        match front {
            Segment::Shared(bytes, _) => {
                output.extend_from_slice(&bytes[..length]);
                bytes.advance(length);
                self.bytes -= length;
            }
            Segment::Copied(bytes) => {
                output.extend_from_slice(&bytes[..length]);
                bytes.advance(length);
                self.bytes -= length;
            }
            Segment::File(slice) => {
                let start = output.len();
                output.resize(start + length, 0);
                let read = slice.file.read_exact_at(&mut output[start..], slice.offset);
                read.map_err(|_| Truncated)?;
                slice.offset += length as u64;
                slice.length -= length as u64;
            }
        }
        if is_used_up {
            self.segments.pop_front();
        }
        if ends {
            self.end = End::Out;
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::http2::encode_status;

    fn head(out: &mut Outflow) {
        let mut block = Vec::new();
        encode_status(200, &mut block);
        out.push_head(1, &block, false);
    }

    #[test]
    fn a_body_is_framed_as_far_as_there_is_room() {
        let mut out = Outflow::default();
        head(&mut out);
        out.push(b"hello");
        out.push_shared(Bytes::from_static(b" there"));
        out.finish(1, &[]);
        let mut output = Vec::new();
        assert_eq!(out.write(1, 3, &mut output).unwrap(), 3);
        assert_eq!(
            output,
            b"\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x03\0\0\0\0\0\x01hel"
        );
        assert!(!out.can_write(0) && out.can_write(1) && !out.is_out());
        output.clear();
        assert_eq!(out.write(1, 100, &mut output).unwrap(), 8);
        let expected = b"\0\0\x08\0\x01\0\0\0\x01lo there";
        assert_eq!(output, expected);
        assert!(out.is_out() && out.bytes() == 0);
    }

    #[test]
    fn an_end_that_comes_late_is_a_frame_of_its_own() {
        let mut out = Outflow::default();
        head(&mut out);
        out.push(b"a");
        let mut output = Vec::new();
        out.write(1, 100, &mut output).unwrap();
        assert!(!out.can_write(100));
        output.clear();
        out.finish(1, &[]);
        assert!(out.can_write(0));
        out.write(1, 0, &mut output).unwrap();
        assert_eq!(output, b"\0\0\0\0\x01\0\0\0\x01");
        assert!(out.is_out());
    }

    #[test]
    fn trailers_come_behind_the_body_and_end_it() {
        let mut out = Outflow::default();
        head(&mut out);
        out.push(b"a");
        out.finish(1, b"\x88");
        let mut output = Vec::new();
        out.write(1, 0, &mut output).unwrap();
        output.clear();
        assert!(!out.can_write(0), "they wait for the body");
        out.write(1, 1, &mut output).unwrap();
        assert_eq!(
            output,
            b"\0\0\x01\0\0\0\0\0\x01a\0\0\x01\x01\x05\0\0\0\x01\x88"
        );
        assert!(out.is_out());
    }

    #[test]
    fn a_file_that_has_become_shorter_is_noticed() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"12345").unwrap();
        let mut out = Outflow::default();
        let slice = FileSlice {
            file: file.into(),
            offset: 1,
            length: 5,
        };
        out.push_file(slice);
        out.finish(1, &[]);
        let mut output = Vec::new();
        assert_eq!(out.write(1, 4, &mut output).unwrap(), 4);
        assert!(output.ends_with(b"2345"));
        assert!(out.write(1, 4, &mut output).is_err());
    }
}
