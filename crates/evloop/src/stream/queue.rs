//! The output that a socket has not taken yet.

use super::file::FileSlice;
use super::socket::{PARTS_PER_WRITE, Socket};
use super::tls::Tls;
use crate::Token;
use crate::output::{LoopOutput, OutputAccount, Share};
use bytes::{Buf, Bytes, BytesMut};
use dwell_timers::Tick;
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
    /// The last write was not taken whole, so readiness follows when more can be written.
    refused: bool,
    /// Bytes that the socket has taken of it, those of files among them.
    taken: u64,
    /// The number taken when enough of them had been taken last.
    enough: u64,
    /// The account of the queue.
    account: Option<OutputAccount>,
}

#[derive(Debug)]
enum Segment {
    /// The second names all of the bytes, of which these are the rest.
    Shared(Bytes, Share),
    /// Copies of what was written in pieces, put together.
    Gathered(BytesMut),
    File(FileSlice),
    /// Records of TLS, which come before all others: those are sealed when these are out.
    Sealed(BytesMut),
}

/// Bytes of files that one call sends: so much keeps a loop from its other connections for about
/// a tenth of a millisecond.
pub(super) const FILE_BYTES_PER_FLUSH: u64 = 1024 * 1024;

/// Copies are gathered up to this size, so that many small ones cost no more than their bytes.
const GATHERED_BYTES_MAX: usize = 16 * 1024;

/// Shared bytes up to this size are copied: a reference takes as much room.
const COPIED_BYTES_MAX: usize = 128;

/// Shared bytes below this size count for each reader that refers to them: an entry for them would
/// take as much memory.
const SHARE_BYTES_MIN: usize = 4 * 1024;

impl Queue {
    /// Queues a copy.
    pub(super) fn push_copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len();
        match self.segments.back_mut() {
            Some(Segment::Gathered(gathered))
                if gathered.len() + bytes.len() <= GATHERED_BYTES_MAX =>
            {
                gathered.extend_from_slice(bytes);
            }
            _ => self.segments.push_back(Segment::Gathered(bytes.into())),
        }
    }

    /// Queues a reference, where that is less than a copy.
    pub(super) fn push_shared(&mut self, bytes: Bytes, whole: Share) {
        if bytes.len() <= COPIED_BYTES_MAX {
            self.push_copy(&bytes);
        } else {
            self.bytes += bytes.len();
            self.segments.push_back(Segment::Shared(bytes, whole));
        }
    }

    /// Returns true if the socket has taken at least so many bytes since this was last true.
    pub(super) fn has_taken(&mut self, bytes_min: u64) -> bool {
        let is_enough = self.taken - self.enough >= bytes_min.max(1);
        if is_enough {
            self.enough = self.taken;
        }
        is_enough
    }

    /// Bytes that the socket has taken of it so far; of TLS, those of records.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Notes in a ledger what it holds now.
    pub(super) fn account(&mut self, output: &LoopOutput, token: Token, now: Tick) {
        let mut shares = Vec::new();
        let mut copied = 0;
        for segment in &self.segments {
            match segment {
                Segment::Shared(_, whole) if whole.1 >= SHARE_BYTES_MIN => shares.push(*whole),
                Segment::Shared(bytes, _) => copied += bytes.len(),
                Segment::Gathered(bytes) | Segment::Sealed(bytes) => copied += bytes.capacity(),
                Segment::File(_) => {}
            }
        }
        let account = self
            .account
            .get_or_insert_with(|| output.open_account(token, now));
        account.name(output.reader(token));
        account.update(copied, shares, self.taken, now);
    }

    pub(super) fn push_file(&mut self, slice: FileSlice) {
        if slice.length > 0 {
            self.file_bytes += slice.length;
            self.segments.push_back(Segment::File(slice));
        }
    }

    /// Queues records that the socket has refused, before all that is not sealed yet.
    pub(super) fn push_sealed(&mut self, records: BytesMut) {
        let is_sealed = |segment: &&Segment| matches!(segment, Segment::Sealed(_));
        let place = self.segments.iter().take_while(is_sealed).count();
        self.bytes += records.len();
        self.segments.insert(place, Segment::Sealed(records));
        self.refused = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// As [`bytes`](Self::bytes), without those that TLS has sealed, which are in front.
    pub(super) fn unsealed_bytes(&self) -> usize {
        let sealed = self.segments.iter().map_while(|segment| match segment {
            Segment::Sealed(bytes) => Some(bytes.remaining()),
            _ => None,
        });
        self.bytes - sealed.sum::<usize>()
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Returns the number of its pieces.
    #[cfg(test)]
    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    pub(super) fn set_refused(&mut self) {
        self.refused = true;
    }

    /// Writes until nothing is left, the socket refuses, or the share of files is used up.
    pub(super) fn flush(&mut self, socket: &Socket, tls: Option<&mut Tls>) -> io::Result<()> {
        self.refused = false;
        match tls {
            Some(tls) => self.flush_sealed(socket, tls),
            None => self.flush_plain(socket),
        }
    }

    fn flush_plain(&mut self, socket: &Socket) -> io::Result<()> {
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
                self.taken += sent;
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
        let is_sealed = matches!(self.segments.front(), Some(Segment::Sealed(_)));
        for segment in &self.segments {
            let bytes: &[u8] = match segment {
                Segment::Shared(bytes, _) => bytes,
                Segment::Gathered(bytes) | Segment::Sealed(bytes) => bytes,
                Segment::File(_) => {
                    more = true;
                    break;
                }
            };
            if is_sealed != matches!(segment, Segment::Sealed(_)) {
                break;
            }
            if count == PARTS_PER_WRITE {
                break;
            }
            parts[count] = bytes;
            count += 1;
            offered += bytes.len();
        }
        let written = socket.write_parts(&parts[..count], more)?;
        self.forget(written);
        self.taken += written as u64;
        self.refused = written < offered;
        Ok(())
    }

    /// Forgets the first `written` bytes, all of them in memory.
    fn forget(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(front) = self.segments.front_mut() {
            let front: &mut dyn Buf = match front {
                Segment::Shared(bytes, _) => bytes,
                Segment::Gathered(bytes) | Segment::Sealed(bytes) => bytes,
                Segment::File(_) => return,
            };
            if written < front.remaining() {
                front.advance(written);
                return;
            }
            written -= front.remaining();
            self.segments.pop_front();
        }
    }

    /// Seals and writes until nothing is left, the socket refuses, or the share of files is used
    /// up.
    fn flush_sealed(&mut self, socket: &Socket, tls: &mut Tls) -> io::Result<()> {
        let mut file_bytes_left = FILE_BYTES_PER_FLUSH;
        loop {
            match self.segments.front() {
                None if !tls.owes() => return Ok(()),
                Some(Segment::Sealed(_)) => self.flush_bytes(socket)?,
                Some(Segment::File(_)) if file_bytes_left == 0 => return Ok(()),
                Some(Segment::File(slice)) => {
                    let piece = slice.piece()?;
                    self.seal_file(socket, tls, &piece)?;
                    file_bytes_left = file_bytes_left.saturating_sub(piece.len() as u64);
                }
                _ => self.seal_bytes(socket, tls)?,
            }
            if self.refused {
                return Ok(());
            }
        }
    }

    /// Seals the bytes at the front, up to the first file, or only what is owed.
    fn seal_bytes(&mut self, socket: &Socket, tls: &mut Tls) -> io::Result<()> {
        let mut parts: [&[u8]; PARTS_PER_WRITE] = [&[]; PARTS_PER_WRITE];
        let mut count = 0;
        for (part, segment) in parts.iter_mut().zip(&self.segments) {
            *part = match segment {
                Segment::Shared(bytes, _) => bytes,
                Segment::Gathered(bytes) => bytes,
                Segment::Sealed(_) | Segment::File(_) => break,
            };
            count += 1;
        }
        let mut sending = Sending::default();
        let sealed = tls.seal(&parts[..count], false, |records| {
            sending.send(socket, records)
        })?;
        self.forget(sealed);
        self.sent(sending);
        Ok(())
    }

    /// Seals a piece of the file at the front.
    fn seal_file(&mut self, socket: &Socket, tls: &mut Tls, piece: &[u8]) -> io::Result<()> {
        let mut sending = Sending::default();
        let sealed = tls.seal(&[piece], false, |records| sending.send(socket, records))? as u64;
        self.file_bytes -= sealed;
        if let Some(Segment::File(slice)) = self.segments.front_mut() {
            slice.advance(sealed);
            if slice.length == 0 {
                self.segments.pop_front();
            }
        }
        self.sent(sending);
        Ok(())
    }

    fn sent(&mut self, sending: Sending) {
        self.taken += sending.written as u64;
        if let Some(records) = sending.refused {
            self.push_sealed(records);
        }
    }
}

/// Records on their way into the socket.
#[derive(Default)]
struct Sending {
    written: usize,
    refused: Option<BytesMut>,
}

impl Sending {
    fn send(&mut self, socket: &Socket, records: &[u8]) -> io::Result<()> {
        self.written = socket.write_parts(&[records], false)?;
        let refused = &records[self.written..];
        self.refused = (!refused.is_empty()).then(|| refused.into());
        Ok(())
    }
}
