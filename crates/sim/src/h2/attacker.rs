//! Connections of HTTP/2 that cost much and ask for little, and the end that the server owes them.

use super::attack::{Attack, End};
use super::frames::{Frame, flag, kind};
use crate::carrier::Carrier;
use crate::failure::Oracle;
use crate::keys::Broken;
use crate::patience::PROMPT;
use dwell_evloop::sim::SimStream;
use loona_hpack::Decoder;
use std::collections::BTreeMap;
use std::time::Duration;

/// One connection of these.
pub(super) struct Attacker {
    attack: Attack,
    carrier: Carrier,
    output: Vec<u8>,
    input: Vec<u8>,
    seen: Seen,
    /// The moment at which all was sent.
    sent_at: Option<Duration>,
    /// The last moment at which something hindered it.
    clear_since: Duration,
    is_over: bool,
}

/// The answers so far.
struct Seen {
    decoder: Decoder<'static>,
    /// Streams that were reset or refused.
    ended: usize,
    /// Bytes of the body of each stream.
    bodies: BTreeMap<u32, usize>,
    /// The server has said that it ends the connection.
    goes_away: bool,
}

/// The time after which one leaves that may last.
const LASTS: Duration = Duration::from_secs(3);

impl Attacker {
    pub(super) fn new(attack: Attack, carrier: Carrier) -> Self {
        Self {
            attack,
            clear_since: carrier.elapsed(),
            carrier,
            output: attack.bytes(),
            input: Vec::new(),
            seen: Seen {
                decoder: Decoder::new(),
                ended: 0,
                bodies: BTreeMap::new(),
                goes_away: false,
            },
            sent_at: None,
            is_over: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends what the network takes, and checks that its connection ends.
    pub(super) fn attend(&mut self, hindered_until: Duration) -> Result<(), Broken> {
        let now = self.carrier.elapsed();
        self.clear_since = self.clear_since.max(hindered_until);
        let written = self.carrier.write(&self.output).unwrap_or(0);
        self.output.drain(..written);
        let is_sent = self.output.is_empty() && !self.carrier.has_pending();
        if is_sent && !self.carrier.is_shaking() {
            self.sent_at.get_or_insert(now);
        }
        let is_open = !self.carrier.is_readable() || self.carrier.read_all(&mut self.input);
        let name = self.attack.name();
        let had_none = self.seen.bodies.is_empty();
        let taken = self.seen.take(&mut self.input, self.attack);
        taken.map_err(|reason| (Oracle::Frame, format!("{name}: {reason}")))?;
        if had_none && !self.seen.bodies.is_empty() {
            self.output.append(&mut self.attack.then());
        }
        if !is_open {
            self.is_over = true;
            return Ok(());
        }
        let Some(sent_at) = self.sent_at else {
            return Ok(());
        };
        let patience = match self.attack.end() {
            End::Connection(patience) => patience,
            // A process that ends owes no more.
            End::Streams(count) if self.seen.ended < count && !self.seen.goes_away => PROMPT,
            End::Streams(_) | End::None => {
                if now > sent_at + LASTS {
                    self.is_over = true;
                    self.carrier.leave(SimStream::close);
                }
                return Ok(());
            }
        };
        if now > sent_at.max(self.clear_since) + patience {
            return Err((Oracle::Bounds, format!("{name} goes on")));
        }
        Ok(())
    }
}

impl Seen {
    /// Takes the frames that have come.
    ///
    /// # Errors
    /// If one of them is none that the attack may get.
    fn take(&mut self, input: &mut Vec<u8>, attack: Attack) -> Result<(), String> {
        while let Some(frame) = Frame::take(input)? {
            match frame.kind {
                kind::HEADERS if frame.has(flag::END_HEADERS) => {
                    let fields = self.decoder.decode(&frame.payload);
                    let fields = fields.map_err(|error| format!("a field block: {error:?}"))?;
                    let status = fields.first().map(|(_, value)| &**value);
                    let is_refusal = status.is_some_and(|status| status >= b"400".as_slice());
                    let may_be_served = attack.may_be_served();
                    self.ended += usize::from(is_refusal && !may_be_served);
                    if matches!(attack.end(), End::Streams(_)) && !is_refusal && !may_be_served {
                        return Err(format!("stream {} is served", frame.stream));
                    }
                }
                // One without an error is behind an answer.
                kind::RST_STREAM if frame.number(4)? != 0 => self.ended += 1,
                kind::DATA => {
                    let bytes = self.bodies.entry(frame.stream).or_default();
                    *bytes += frame.payload.len();
                    if *bytes > attack.body_bytes_max() {
                        return Err(format!("{bytes} bytes on stream {}", frame.stream));
                    }
                }
                kind::GOAWAY => self.goes_away = true,
                _ => {}
            }
            let ends = matches!(frame.kind, kind::DATA | kind::HEADERS);
            if ends && attack.may_be_served() && frame.has(flag::END_STREAM) {
                self.ended += 1;
            }
        }
        Ok(())
    }
}
