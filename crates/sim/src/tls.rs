//! Clients under TLS: rustls makes the handshake and opens what the server sends, so it checks all
//! of that. What a client sends is sealed by rustls, or by hand in records that rustls never makes.

mod config;
mod intruder;
mod options;
mod sealer;
mod side;

pub(crate) use intruder::Intruder;
pub(crate) use options::intrusion_steps;
pub use options::{Habits, Intrusion, TlsFault, TlsOptions};
pub(crate) use side::{Side, Who};

use crate::failure::Oracle;
use crate::keys::Broken;
use crate::patience::PROMPT;
use config::Reached;
use dwell_evloop::Random;
use dwell_evloop::sim::SimStream;
use rustls::client::ClientConnection;
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion};
use sealer::{ALERT, DATA, Sealer};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// TLS on one connection of a client.
pub(crate) struct Tls {
    session: ClientConnection,
    habits: Habits,
    random: Random,
    /// Seals what is sent once the handshake is over, where rustls does not.
    sealer: Option<Sealer>,
    /// Bytes that have come and are no whole record.
    pub(crate) received: Vec<u8>,
    /// Records that the network has not taken.
    pending: Vec<u8>,
    /// Data for which the handshake was not over.
    early: Vec<u8>,
    /// The first fault that rustls has found in what came.
    fault: Option<rustls::Error>,
    /// Nothing more may be sent.
    is_closed: bool,
    /// The server has shown that the handshake is over on its side.
    is_confirmed: bool,
    began_at: Duration,
    /// The moment at which it has asked for an update of the server's keys, until that comes.
    asked_at: Option<Duration>,
    /// Updates that it has asked for since data came.
    updates: u32,
    /// Updates that it has asked for since it sent data.
    bare_updates: u32,
    reached: Reached,
}

/// Bytes of a message whose records have no padding.
const LONG: usize = 2_000;
/// Bytes of a record's header, and of a record with a key update.
const HEADER: usize = 5;
const UPDATE: usize = HEADER + 5 + 1 + 16;
/// rustls takes up to 32 updates in a row without data.
const UPDATES_MAX: u32 = 30;

impl Tls {
    fn new(
        config: Arc<ClientConfig>,
        habits: Habits,
        random: Random,
        (reached, began_at): (Reached, Duration),
    ) -> Self {
        let session = ClientConnection::new(config, config::name());
        let mut session = session.expect("the configuration is right");
        session.set_buffer_limit(None);
        let mut tls = Self {
            session,
            habits,
            random,
            sealer: None,
            received: Vec::new(),
            pending: Vec::new(),
            early: Vec::new(),
            fault: None,
            is_closed: false,
            is_confirmed: false,
            began_at,
            asked_at: None,
            updates: 0,
            bare_updates: 0,
            reached,
        };
        tls.collect();
        tls
    }

    pub(crate) fn is_shaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Returns true if the two have agreed on TLS 1.2.
    pub(crate) fn is_tls12(&self) -> bool {
        self.session.protocol_version() == Some(ProtocolVersion::TLSv1_2)
    }

    /// Returns true if the server may have given up the handshake.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        !self.is_confirmed
    }

    /// Returns true if the network is to take something.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns true if the server has said that it sends no more.
    fn has_ended(&mut self) -> bool {
        self.session
            .process_new_packets()
            .is_ok_and(|state| state.peer_has_closed())
    }

    /// Takes data to be sent, and returns how much.
    pub(crate) fn write(&mut self, stream: &mut SimStream, bytes: &[u8]) -> usize {
        self.flush(stream);
        if self.is_closed {
            return bytes.len();
        }
        if !self.pending.is_empty() || !self.early.is_empty() {
            return 0;
        }
        if self.is_shaking() {
            self.early = bytes.to_vec();
        } else {
            self.seal(bytes, stream.elapsed());
            self.flush(stream);
        }
        bytes.len()
    }

    /// Gives the network what it takes.
    pub(crate) fn flush(&mut self, stream: &mut SimStream) {
        if !self.pending.is_empty() {
            let written = stream.write(&self.pending).unwrap_or(0);
            self.pending.drain(..written);
        }
    }

    /// Takes in what has come, and goes on with the handshake.
    pub(crate) fn take_received(&mut self, stream: &mut SimStream, into: &mut Vec<u8>) {
        let before = into.len();
        while self.fault.is_none()
            && let Some(length) = record_bytes(&self.received)
            && self.received.len() >= length
        {
            let record: Vec<u8> = self.received.drain(..length).collect();
            self.feed(&record, stream, into);
        }
        stream.note_opened(&into[before..]);
        self.flush(stream);
    }

    fn feed(&mut self, mut record: &[u8], stream: &mut SimStream, into: &mut Vec<u8>) {
        let was_shaking = self.is_shaking();
        self.is_confirmed |= !was_shaking;
        let (length, before) = (record.len(), into.len());
        while !record.is_empty() && self.fault.is_none() {
            // Reading from memory fails only where rustls takes no more.
            let taken = self.session.read_tls(&mut record);
            let processed = self.session.process_new_packets();
            self.fault = processed.err();
            if taken.is_err() {
                return;
            }
            // An end that was told is none that was cut off.
            let _ = self.session.reader().read_to_end(into);
        }
        if into.len() > before {
            self.updates = 0;
        }
        // A record with as many bytes of data is as long.
        let is_update = length == UPDATE && into.len() == before && self.fault.is_none();
        if is_update && !was_shaking && self.asked_at.take().is_some() {
            self.reach("key update of the server");
        }
        if self.sealer.is_none() {
            self.collect();
        }
        if was_shaking && !self.is_shaking() {
            self.agreed(stream);
        }
    }

    /// The handshake is over on this side.
    fn agreed(&mut self, stream: &mut SimStream) {
        let is_tls13 = self.session.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        self.reach(if is_tls13 { "TLS 1.3" } else { "TLS 1.2" });
        let is_resumed = self.session.handshake_kind() == Some(HandshakeKind::Resumed);
        // Only here the server has the last word.
        self.is_confirmed |= !is_tls13 && !is_resumed;
        if is_resumed {
            self.reach("resumed session");
        }
        if self.habits.flips_finished
            && let Some(last) = self.pending.last_mut()
        {
            *last ^= 1;
        }
        if self.habits.is_own && is_tls13 {
            let suite = self.session.negotiated_cipher_suite();
            let secret = config::take_secret();
            let sealer = suite.zip(secret);
            self.sealer = sealer.and_then(|(suite, secret)| Sealer::new(suite.suite(), secret));
            self.reach("records by hand");
        }
        // What is sent at once comes in one segment with the end of the handshake, or in another.
        if self.random.below(2) == 0 {
            self.flush(stream);
        }
        let early = std::mem::take(&mut self.early);
        if !early.is_empty() {
            self.seal(&early, stream.elapsed());
        }
    }

    /// Takes what rustls sends.
    fn collect(&mut self) {
        while self.session.wants_write() {
            // Writing to memory does not fail.
            if self.session.write_tls(&mut self.pending).is_err() {
                return;
            }
        }
    }

    fn seal(&mut self, bytes: &[u8], now: Duration) {
        let Some(mut sealer) = self.sealer.take() else {
            let is_tls13 = self.session.protocol_version() == Some(ProtocolVersion::TLSv1_3);
            // The server bounds those that no data follows.
            if !bytes.is_empty() {
                self.bare_updates = 0;
            }
            let may_ask = self.may_ask() && self.bare_updates < UPDATES_MAX;
            let asks = is_tls13 && may_ask && self.draws_extra();
            self.bare_updates += u32::from(asks);
            if asks && self.session.refresh_traffic_keys().is_ok() {
                self.reach("key update with a request");
                self.ask(now);
            }
            // Writing to memory does not fail.
            let _ = self.session.writer().write_all(bytes);
            return self.collect();
        };
        // So that a long message is in the network in time, whose windows are small.
        let record_bytes_max = self.habits.record_bytes_max.max(bytes.len() as u64 / 50);
        let is_long = bytes.len() > LONG;
        let padding_max = if is_long { 0 } else { self.habits.padding_max };
        let mut left = bytes;
        while !left.is_empty() {
            self.precede(&mut sealer, now);
            let most = record_bytes_max.clamp(1, left.len() as u64);
            let (record, rest) = left.split_at(1 + self.random.below(most) as usize);
            let padding = self.random.below(padding_max + 1) as usize;
            sealer.seal(DATA, record, padding, &mut self.pending);
            left = rest;
        }
        self.sealer = Some(sealer);
    }

    /// Returns true if it may ask for an update of the server's keys.
    fn may_ask(&self) -> bool {
        self.asked_at.is_none() && self.updates < UPDATES_MAX
    }

    fn ask(&mut self, now: Duration) {
        self.asked_at = Some(now);
        self.updates += 1;
    }

    fn draws_extra(&mut self) -> bool {
        let one_in = self.habits.extra_one_in;
        one_in > 0 && self.random.below(one_in) == 0
    }

    /// Sends a record without data, now and then.
    fn precede(&mut self, sealer: &mut Sealer, now: Duration) {
        if !self.draws_extra() {
            return;
        }
        match self.random.below(4) {
            0 => {
                self.reach("key update");
                sealer.update(false, &mut self.pending);
            }
            1 if self.may_ask() => {
                self.reach("key update with a request");
                sealer.update(true, &mut self.pending);
                self.ask(now);
            }
            2 => sealer.seal(DATA, b"", 3, &mut self.pending),
            // Words that a client may say before its end.
            _ => sealer.seal(ALERT, &[1, 90], 0, &mut self.pending),
        }
    }

    /// Sends records that are made by hand.
    fn send(&mut self, stream: &mut SimStream, make: impl FnOnce(&mut Sealer, &mut Vec<u8>)) {
        if let Some(sealer) = &mut self.sealer {
            make(sealer, &mut self.pending);
        }
        self.flush(stream);
    }

    /// Says that nothing more is sent.
    fn close_notify(&mut self, stream: &mut SimStream) {
        if self.is_shaking() || self.is_closed || self.fault.is_some() {
            return;
        }
        self.is_closed = true;
        if let Some(sealer) = &mut self.sealer {
            sealer.seal(ALERT, &[1, 0], 0, &mut self.pending);
        } else {
            self.session.send_close_notify();
            self.collect();
        }
        self.flush(stream);
    }

    /// Ends the sending side; true if its socket is not to end with it.
    pub(crate) fn finish(&mut self, stream: &mut SimStream) -> bool {
        match self.random.below(3) {
            0 => self.reach("end without close_notify"),
            choice => {
                self.close_notify(stream);
                // What the network has not taken follows later.
                return self.is_closed && (choice == 1 || self.has_pending());
            }
        }
        false
    }

    /// Tells the server of the end, perhaps.
    pub(crate) fn say_goodbye(&mut self, stream: &mut SimStream) {
        if self.random.below(2) == 0 {
            self.close_notify(stream);
        }
    }

    fn reach(&self, name: &'static str) {
        self.reached.borrow_mut().insert(name);
    }

    /// Checks that the server follows the protocol: to rustls, in time, and with its own keys.
    pub(crate) fn check(
        &self,
        now: Duration,
        clear_since: Duration,
        is_read: bool,
    ) -> Result<(), Broken> {
        if let Some(fault) = &self.fault {
            let reason = format!("rustls refuses what the server sends: {fault}");
            return Err((Oracle::Record, reason));
        }
        let is_late = |since: Duration| now > since.max(clear_since) + PROMPT;
        if self.is_shaking() && is_late(self.began_at) {
            let reason = "a handshake that the server does not go on with".to_owned();
            return Err((Oracle::Deadline, reason));
        }
        if is_read && self.asked_at.is_some_and(is_late) {
            let reason = "a key update that was asked for does not come".to_owned();
            return Err((Oracle::Record, reason));
        }
        Ok(())
    }
}

/// The size of the record at the front, once its header is whole.
fn record_bytes(input: &[u8]) -> Option<usize> {
    let header = input.get(..HEADER)?;
    Some(HEADER + usize::from(u16::from_be_bytes([header[3], header[4]])))
}
