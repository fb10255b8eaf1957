//! A piece that goes into many streaming answers.

use bytes::Bytes;
use dwell_proto::http1::encode;

/// A piece of streaming answers that goes to many, framed as a chunk once for all of them.
///
/// Shape: its bytes are shared; a copy of it is a reference.
///
/// ```
/// use dwell_engine::SharedPiece;
///
/// let piece = SharedPiece::new(b"news");
/// assert_eq!(piece.data(), &b"news"[..]);
/// ```
#[derive(Clone, Debug)]
pub struct SharedPiece {
    chunk: Bytes,
    data: Bytes,
}

impl SharedPiece {
    /// Frames `data`.
    pub fn new(data: &[u8]) -> Self {
        let mut chunk = Vec::with_capacity(data.len() + FRAMING_BYTES);
        encode::chunk_size(&mut chunk, data.len());
        let start = chunk.len();
        chunk.extend_from_slice(data);
        chunk.extend_from_slice(b"\r\n");
        let chunk = Bytes::from(chunk);
        Self {
            data: chunk.slice(start..start + data.len()),
            chunk,
        }
    }

    /// Returns the data without its framing.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Returns the piece framed as a chunk.
    pub(super) fn chunk(&self) -> &Bytes {
        &self.chunk
    }
}

/// Room for the size of a chunk and the line ends around it.
const FRAMING_BYTES: usize = 20;
