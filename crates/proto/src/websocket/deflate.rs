//! Compression of messages.

use std::fmt;

use flate2::{Compress, Compression, FlushCompress, Status};

use super::extension::{DeflateOptions, WINDOW_BITS_MAX};
use super::inflate::FLUSH_TAIL;

/// Compresses messages for permessage-deflate.
///
/// Shape: about 250 to 380 KB, depending on the window. One of each window serves all connections
/// of a loop that agreed to start every message afresh; [`Deflaters`] keeps them. A connection
/// that did not needs [its own](Self::with_context_takeover).
///
/// ```
/// use dwell_proto::websocket::{DeflateOptions, Deflater, Inflater};
///
/// let options = DeflateOptions { message_bytes_min: 0, ..DeflateOptions::default() };
/// let mut deflater = Deflater::new(&options, 15).expect("a window that DEFLATE can use");
/// let text = b"wait, wait, wait, wait, wait";
/// let payload = deflater.deflate(text).expect("it becomes shorter").to_vec();
/// assert!(payload.len() < text.len());
/// assert_eq!(Inflater::new().inflate(&payload, 100)?, text);
/// # Ok::<(), dwell_proto::websocket::PeerError>(())
/// ```
pub struct Deflater {
    state: Compress,
    output: Vec<u8>,
    context_takeover: bool,
    message_bytes_min: usize,
}

impl Deflater {
    /// A compressor that starts every message afresh.
    ///
    /// Shape: `None` for a window of 2 to the power of 8 bytes, which may be agreed on but is not
    /// made here: messages are then sent as they are.
    /// Units: `window_bits` is 8 to 15.
    pub fn new(options: &DeflateOptions, window_bits: u8) -> Option<Self> {
        let usable = (WINDOW_BITS_MIN..=WINDOW_BITS_MAX).contains(&window_bits);
        usable.then(|| Self {
            state: Compress::new_with_window_bits(
                Compression::new(options.level.min(9)),
                false,
                window_bits,
            ),
            output: Vec::new(),
            context_takeover: false,
            message_bytes_min: options.message_bytes_min,
        })
    }

    /// A compressor for one connection, whose messages refer to earlier ones.
    ///
    /// Shape: every message that it compresses must be sent, in that order.
    ///
    /// ```
    /// use dwell_proto::websocket::{DeflateOptions, Deflater, Inflater};
    ///
    /// let options = DeflateOptions { message_bytes_min: 0, ..DeflateOptions::default() };
    /// let mut deflater = Deflater::with_context_takeover(&options, 15).expect("a usable window");
    /// let mut inflater = Inflater::with_context_takeover();
    /// let mut lengths = Vec::new();
    /// for _ in 0..2 {
    ///     let payload = deflater.deflate(b"said, said, said, said").expect("it is shorter");
    ///     lengths.push(payload.len());
    ///     assert_eq!(inflater.inflate(payload, 100)?, b"said, said, said, said");
    /// }
    /// assert!(lengths[1] < lengths[0]);
    /// // While nothing is sent or comes, neither holds a buffer.
    /// deflater.release_output();
    /// inflater.release_output();
    /// assert_eq!(inflater.held_bytes(), 0);
    /// # Ok::<(), dwell_proto::websocket::PeerError>(())
    /// ```
    pub fn with_context_takeover(options: &DeflateOptions, window_bits: u8) -> Option<Self> {
        Self::new(options, window_bits).map(|deflater| Self {
            context_takeover: true,
            ..deflater
        })
    }

    /// Compresses the payload of one message; `None` if it should be sent as it is, because it is
    /// short or would not become shorter.
    ///
    /// Shape: the output stays valid until the next call.
    ///
    /// Source: RFC 7692 section 7.2.1.
    pub fn deflate(&mut self, payload: &[u8]) -> Option<&[u8]> {
        if payload.is_empty() || payload.len() < self.message_bytes_min {
            return None;
        }
        if self.output.capacity() > OUTPUT_BYTES_KEPT {
            self.output = Vec::new();
        }
        self.output.clear();
        if !self.context_takeover {
            self.state.reset();
        }
        let done = self.run(payload).is_some() && self.output.ends_with(&FLUSH_TAIL);
        let output_len = self.output.len().saturating_sub(FLUSH_TAIL.len());
        if !done || output_len >= payload.len() {
            // Sent as it is, the message is not in the peer's window, and so may not be in ours.
            self.state.reset();
            return None;
        }
        Some(&self.output[..output_len])
    }

    /// Lets go of the output buffer, which a compressor of a single connection would hold while
    /// nothing is sent.
    pub fn release_output(&mut self) {
        self.output = Vec::new();
    }

    /// Compresses all of the payload into the output, up to a flush.
    fn run(&mut self, mut payload: &[u8]) -> Option<()> {
        loop {
            self.output.reserve(payload.len() / 2 + OUTPUT_BYTES_MIN);
            let before = self.state.total_in();
            let status = self
                .state
                .compress_vec(payload, &mut self.output, FlushCompress::Sync)
                .ok()?;
            let used = usize::try_from(self.state.total_in() - before).ok()?;
            payload = payload.get(used..)?;
            let is_full = self.output.len() == self.output.capacity();
            if payload.is_empty() && !is_full {
                return Some(());
            }
            if status == Status::StreamEnd || (used == 0 && !is_full) {
                return None;
            }
        }
    }
}

impl fmt::Debug for Deflater {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Deflater")
            .field("context_takeover", &self.context_takeover)
            .field("message_bytes_min", &self.message_bytes_min)
            .finish_non_exhaustive()
    }
}

/// The compressors of one loop: one for each window that its connections agreed on, made when it
/// is first needed.
///
/// ```
/// use dwell_proto::websocket::{DeflateOptions, Deflaters};
///
/// let mut deflaters = Deflaters::new(DeflateOptions::default());
/// assert!(deflaters.with_window(15).is_some());
/// assert!(deflaters.with_window(8).is_none(), "agreed on, but never used");
/// ```
#[derive(Debug)]
pub struct Deflaters {
    options: DeflateOptions,
    by_window: [Option<Box<Deflater>>; WINDOWS],
}

impl Deflaters {
    /// No compressor yet.
    pub fn new(options: DeflateOptions) -> Self {
        Self {
            options,
            by_window: Default::default(),
        }
    }

    /// The compressor for a window, which starts every message afresh; `None` if that window is not
    /// supported, and messages are sent as they are.
    ///
    /// Units: `window_bits` is 8 to 15.
    pub fn with_window(&mut self, window_bits: u8) -> Option<&mut Deflater> {
        let slot = &mut self.by_window[window_index(window_bits)?];
        if slot.is_none() {
            *slot = Deflater::new(&self.options, window_bits).map(Box::new);
        }
        slot.as_deref_mut()
    }
}

/// The place of a window among those that can be used.
pub(super) fn window_index(window_bits: u8) -> Option<usize> {
    let index = usize::from(window_bits.checked_sub(WINDOW_BITS_MIN)?);
    (index < WINDOWS).then_some(index)
}

/// The number of windows to compress with.
pub(super) const WINDOWS: usize = (WINDOW_BITS_MAX - WINDOW_BITS_MIN + 1) as usize;

/// The smallest window that the compressor can use.
const WINDOW_BITS_MIN: u8 = 9;
/// The room for output that is made beyond half of the input.
const OUTPUT_BYTES_MIN: usize = 64;
/// The room for output that is kept between messages.
const OUTPUT_BYTES_KEPT: usize = 1 << 18;

#[cfg(test)]
mod tests;
