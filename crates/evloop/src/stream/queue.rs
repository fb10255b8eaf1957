//! What a socket has not taken yet.

use super::file::FileSlice;
use super::socket::{PARTS_PER_WRITE, Socket};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io;

/// Bytes and parts of files, in the order of their writing.
#[derive(Debug, Default)]
pub(super) struct Queue {
    segments: VecDeque<Segment>,
    /// Bytes in memory, of all segments.
    bytes: usize,
    /// Bytes in files, of all segments.
    file_bytes: u64,
    /// The last write was not taken whole, so readiness tells when more can be written.
    refused: bool,
}

#[derive(Debug)]
enum Segment {
    Bytes(Bytes),
    File(FileSlice),
}

/// Bytes of files that one call sends: so much keeps a loop from its other connections for about
/// a tenth of a millisecond.
pub(super) const FILE_BYTES_PER_FLUSH: u64 = 1024 * 1024;

impl Queue {
    pub(super) fn push_bytes(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.bytes += bytes.len();
            self.segments.push_back(Segment::Bytes(bytes));
        }
    }

    pub(super) fn push_file(&mut self, slice: FileSlice) {
        if slice.length > 0 {
            self.file_bytes += slice.length;
            self.segments.push_back(Segment::File(slice));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    pub(super) fn set_refused(&mut self) {
        self.refused = true;
    }

    /// Writes until nothing is left, the socket refuses, or the share of files is used up.
    pub(super) fn flush(&mut self, socket: &Socket) -> io::Result<()> {
        self.refused = false;
        let mut file_bytes_left = FILE_BYTES_PER_FLUSH;
        while let Some(front) = self.segments.front_mut() {
            if let Segment::File(slice) = front {
                if file_bytes_left == 0 {
                    return Ok(());
                }
                let sent = slice.send(socket, file_bytes_left)?;
                self.refused = sent == 0;
                file_bytes_left -= sent;
                self.file_bytes -= sent;
                slice.advance(sent);
                if slice.length == 0 {
                    self.segments.pop_front();
                }
            } else {
                self.flush_bytes(socket)?;
            }
            if self.refused {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One write of the bytes at the front, up to the first file.
    fn flush_bytes(&mut self, socket: &Socket) -> io::Result<()> {
        let mut parts: [&[u8]; PARTS_PER_WRITE] = [&[]; PARTS_PER_WRITE];
        let (mut count, mut offered, mut more) = (0, 0, false);
        for segment in &self.segments {
            match segment {
                Segment::Bytes(bytes) if count < PARTS_PER_WRITE => {
                    parts[count] = bytes;
                    count += 1;
                    offered += bytes.len();
                }
                Segment::Bytes(_) => break,
                Segment::File(_) => {
                    more = true;
                    break;
                }
            }
        }
        let written = socket.write_parts(&parts[..count], more)?;
        self.advance(written);
        self.refused = written < offered;
        Ok(())
    }

    /// Forgets the first `written` bytes, all of them in memory.
    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(Segment::Bytes(front)) = self.segments.front_mut() {
            if written < front.len() {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.segments.pop_front();
        }
    }
}
