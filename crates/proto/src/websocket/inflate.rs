//! Decompression of messages.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};

use super::error::PeerError;

/// Inflates messages that permessage-deflate compressed.
///
/// Shape: 48 KB from the first compressed message on, and an output buffer. One serves all
/// connections of a loop whose peers start every message afresh (`client_no_context_takeover`, on
/// a server); a connection whose peer does not needs
/// [its own](Self::with_context_takeover).
///
/// ```
/// use dwell_proto::websocket::Inflater;
///
/// let mut inflater = Inflater::new();
/// assert_eq!(inflater.inflate(b"\xf2\x48\xcd\xc9\xc9\x07\x00", 5)?, b"Hello");
/// assert!(inflater.inflate(b"\xf2\x48\xcd\xc9\xc9\x07\x00", 4).is_err());
/// # Ok::<(), dwell_proto::websocket::PeerError>(())
/// ```
#[derive(Default)]
pub struct Inflater {
    state: Option<Decompress>,
    output: Vec<u8>,
    context_takeover: bool,
}

impl Inflater {
    /// An inflater that starts every message afresh.
    pub fn new() -> Self {
        Self::default()
    }

    /// An inflater for one connection, whose peer may refer to earlier messages.
    ///
    /// Shape: forgets them at a block that is marked as final, which ends what DEFLATE can refer
    /// to.
    pub fn with_context_takeover() -> Self {
        Self {
            context_takeover: true,
            ..Self::default()
        }
    }

    /// Inflates the payload of one compressed message.
    ///
    /// Shape: the output stays valid until the next call.
    /// Units: `message_bytes_max` is in bytes after decompression.
    ///
    /// # Errors
    /// [`PeerError::MessageTooBig`] as soon as there is more output than that, for which the buffer
    /// never grows; [`PeerError::Deflate`] for what is not DEFLATE data. Close the connection.
    ///
    /// Source: RFC 7692 section 7.2.2.
    pub fn inflate(
        &mut self,
        payload: &[u8],
        message_bytes_max: usize,
    ) -> Result<&[u8], PeerError> {
        if self.output.capacity() > OUTPUT_BYTES_KEPT {
            self.output = Vec::new();
        }
        self.output.clear();
        let state = self
            .state
            .get_or_insert_with(|| Decompress::new_with_window_bits(false, WINDOW_BITS));
        if !self.context_takeover {
            state.reset(false);
        }
        inflate_part(state, payload, &mut self.output, message_bytes_max)?;
        let inflated = self.output.len();
        inflate_part(state, &FLUSH_TAIL, &mut self.output, message_bytes_max)?;
        if self.output.len() > inflated {
            // The message ended within a block, which took the tail for its content.
            return Err(PeerError::Deflate);
        }
        Ok(&self.output)
    }

    /// Lets go of the output buffer, which an inflater of a single connection would hold while
    /// nothing comes.
    pub fn release_output(&mut self) {
        self.output = Vec::new();
    }

    /// The bytes that the output buffer takes in memory.
    pub fn held_bytes(&self) -> usize {
        self.output.capacity()
    }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Inflater")
            .field("context_takeover", &self.context_takeover)
            .field("output_bytes", &self.output.len())
            .finish_non_exhaustive()
    }
}

fn inflate_part(
    state: &mut Decompress,
    mut input: &[u8],
    output: &mut Vec<u8>,
    message_bytes_max: usize,
) -> Result<(), PeerError> {
    loop {
        // One byte more than allowed shows that there is too much.
        let wanted = output.len().max(OUTPUT_BYTES_MIN);
        let room_max = message_bytes_max.saturating_add(1) - output.len();
        output.reserve_exact(wanted.min(room_max));
        let (in_before, out_before) = (state.total_in(), output.len());
        let status = state
            .decompress_vec(input, output, FlushDecompress::Sync)
            .map_err(|_| PeerError::Deflate)?;
        if output.len() > message_bytes_max {
            let (limit, length) = (message_bytes_max, output.len() as u64);
            return Err(PeerError::MessageTooBig { limit, length });
        }
        let used = usize::try_from(state.total_in() - in_before).unwrap_or(usize::MAX);
        input = input.get(used..).unwrap_or_default();
        let is_full = output.len() == output.capacity();
        match status {
            // A block marked as final ends a stream; what follows it is another.
            Status::StreamEnd => state.reset(false),
            _ if input.is_empty() && !is_full => return Ok(()),
            _ if used == 0 && output.len() == out_before => return Err(PeerError::Deflate),
            _ => {}
        }
        if input.is_empty() && !is_full {
            return Ok(());
        }
    }
}

/// The bytes that a sender takes off the end of each message.
///
/// Source: RFC 7692 section 7.2.1.
pub(super) const FLUSH_TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// The largest window there is: it inflates what was made with any.
const WINDOW_BITS: u8 = 15;
/// The least room that is made for output.
const OUTPUT_BYTES_MIN: usize = 1 << 12;
/// The room for output that is kept between messages.
const OUTPUT_BYTES_KEPT: usize = 1 << 18;
