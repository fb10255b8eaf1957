//! From input to what each frame means.

use super::calm::{Calm, Excess, INCREMENT_MIN};
use super::serve::Serve;
use super::session::Unfinished;
use crate::app::App;
use crate::budget::Charge;
use dwell_proto::http2::{
    ErrorCode, FieldSection, Frame, HpackDecoder, PeerError, PeerSettings, SectionLimits, encode,
    settings,
};
use dwell_timers::Tick;

impl<A: App> Serve<'_, A> {
    /// Takes all frames that are here; returns how much of `input` is used.
    pub(super) fn take_input(&mut self, input: &[u8]) -> Result<usize, ErrorCode> {
        let mut used = 0;
        loop {
            let step = self.session.frames.decode(&input[used..]);
            let step = step.map_err(PeerError::code)?;
            used += step.consumed;
            match step.frame {
                Some(frame) => self.frame(frame)?,
                None => return Ok(used),
            }
            if self.session.put_off.is_some() {
                return Ok(used);
            }
        }
    }

    /// Acts on one frame, or a piece of one.
    ///
    /// # Errors
    /// The code by which the connection ends.
    fn frame(&mut self, frame: Frame<'_>) -> Result<(), ErrorCode> {
        match frame {
            Frame::Data {
                stream,
                is_first,
                window_bytes,
                padding_bytes,
                data,
                ends_stream,
            } => {
                if is_first {
                    self.session.receiving.receive(window_bytes)?;
                    self.session.used(padding_bytes as usize);
                    if data.is_empty() && !ends_stream && window_bytes == padding_bytes {
                        self.calm()?;
                    }
                }
                self.data(
                    stream,
                    is_first,
                    window_bytes,
                    padding_bytes,
                    data,
                    ends_stream,
                )
            }
            Frame::Block {
                stream,
                is_first,
                fragment,
                ends_block,
                ends_stream,
            } => self.block(stream, is_first, fragment, ends_block, ends_stream),
            Frame::Reset { stream, code } => {
                self.tables.figures.resets_received.count(code);
                self.reset_by_peer(stream)
            }
            Frame::GoAway { code, .. } => {
                self.tables.figures.go_aways_received.count(code);
                self.calm()
            }
            Frame::Setting { id, value } => self.setting(id, value),
            Frame::SettingsEnd => self.settings_end(),
            Frame::SettingsAck => {
                // Older clients do not say that they keep to it, as RFC 9113 section 4.3.1 has it,
                // and need not: without a table, a reference to it is an error by itself.
                self.session.fields = None;
                self.shrink_windows();
                self.calm()
            }
            Frame::Ping { data } => {
                encode::pong(data, &mut self.session.sending.control);
                self.calm()
            }
            Frame::Pong { data } if self.pong(data) => Ok(()),
            Frame::WindowUpdate { stream, increment } => self.window_update(stream, increment),
            Frame::Broken { stream, error } => self.broken(stream, error),
            // Priorities, and types that are not known.
            _ => self.calm(),
        }
    }

    /// Counts a frame that only costs work.
    pub(super) fn calm(&mut self) -> Result<(), ErrorCode> {
        self.count(Calm::frame)
    }

    /// Counts a frame in this way.
    pub(super) fn count(
        &mut self,
        count: impl FnOnce(&mut Calm, Tick) -> Result<(), Excess>,
    ) -> Result<(), ErrorCode> {
        #[cfg(feature = "sim")]
        if dwell_evloop::sim::Planted::NeverCalm.is_in() {
            return Ok(());
        }
        let counted = count(&mut self.session.calm, self.context.tick());
        counted.map_err(|_| ErrorCode::ENHANCE_YOUR_CALM)
    }

    fn block(
        &mut self,
        stream: u32,
        is_first: bool,
        fragment: &[u8],
        ends_block: bool,
        ends_stream: bool,
    ) -> Result<(), ErrorCode> {
        let limits = SectionLimits {
            section_bytes_max: self.limits.head.head_bytes_max,
            field_count_max: self.limits.head.field_count_max,
        };
        let (kept, charge, is_new) = if is_first {
            (self.tables.spare.take(), None, true)
        } else {
            let unfinished = self.session.section.take();
            unfinished.map_or((None, None, false), |block| {
                (Some(block.section), Some(block.charge), block.is_new)
            })
        };
        let mut section = kept.unwrap_or_else(|| Box::new(FieldSection::new(limits)));
        let mut without_table = HpackDecoder::new(0);
        let fields = self.session.fields.as_deref_mut();
        let fields = fields.unwrap_or(&mut without_table);
        let decoded = fields.decode(fragment, ends_block, &mut section);
        decoded.map_err(|_| ErrorCode::COMPRESSION_ERROR)?;
        if !ends_block {
            return self.keep_block(section, charge, is_new);
        }
        let result = self.section(stream, &section, ends_stream);
        section.clear();
        self.tables.spare = Some(section);
        result
    }

    /// Keeps a field block until the rest of it comes, as far as all connections have room.
    fn keep_block(
        &mut self,
        section: Box<FieldSection>,
        charge: Option<Charge>,
        is_new: bool,
    ) -> Result<(), ErrorCode> {
        let (budget, max) = (&self.accounts.gathered, self.limits.gathered_bytes_max);
        let bytes = section.capacity_bytes();
        let mut charge = charge
            .or_else(|| budget.charge(0, max))
            .ok_or(ErrorCode::ENHANCE_YOUR_CALM)?;
        if !charge.grow(bytes.saturating_sub(charge.bytes()), max) {
            return Err(ErrorCode::ENHANCE_YOUR_CALM);
        }
        self.session.section = Some(Box::new(Unfinished {
            section,
            charge,
            is_new,
        }));
        Ok(())
    }

    fn setting(&mut self, id: u16, value: u32) -> Result<(), ErrorCode> {
        let mut peer = PeerSettings::default();
        peer.apply(id, value).map_err(PeerError::code)?;
        if id == settings::INITIAL_WINDOW_SIZE {
            // Streams get it once for all settings of a frame.
            self.session.sending.stream_window_next = value;
        }
        Ok(())
    }

    fn settings_end(&mut self) -> Result<(), ErrorCode> {
        encode::settings_ack(&mut self.session.sending.control);
        let to = self.session.sending.stream_window_next;
        let from = std::mem::replace(&mut self.session.sending.stream_window, to);
        if from != to {
            for token in self.session.open.tokens() {
                if let Some(stream) = self.tables.streams.get_mut(token) {
                    stream.window.resize(from, to).map_err(PeerError::code)?;
                }
            }
            self.make_all_ready();
        }
        self.calm()
    }

    /// The client knows the initial window of this side: what it may send of the bodies that have
    /// begun before is so much less (RFC 9113 section 6.9.3).
    fn shrink_windows(&mut self) {
        let less = self.session.receiving.settle();
        if less == 0 {
            return;
        }
        for token in self.session.open.tokens().collect::<Vec<_>>() {
            let Some(stream) = self.tables.streams.get_mut(token) else {
                continue;
            };
            if let Some(carrier) = &stream.carrier {
                carrier.take_back(less as usize);
                stream.grant_input(&mut self.session.sending.control);
            } else if let Some(upload) = &mut stream.upload {
                upload.window -= i64::from(less);
                self.grant_window(token);
            }
        }
    }

    fn window_update(&mut self, stream: u32, increment: u32) -> Result<(), ErrorCode> {
        // A smaller increment only costs work, unless it is rare, and so does any other that gives
        // back more than was sent, on whatever stream.
        let counted = if increment < INCREMENT_MIN {
            Calm::frame
        } else {
            Calm::window
        };
        self.count(counted)?;
        if stream == 0 {
            let had_room = self.session.sending.window.room() > 0;
            let grown = self.session.sending.window.grow(0, increment);
            grown.map_err(PeerError::code)?;
            if !had_room {
                self.make_all_ready();
            }
            return Ok(());
        }
        self.check_begun(stream)?;
        let Some(token) = self.session.open.find(stream) else {
            // It was on its way when the stream ended.
            return Ok(());
        };
        let Some(entry) = self.tables.streams.get_mut(token) else {
            return Ok(());
        };
        #[cfg(feature = "sim")]
        if dwell_evloop::sim::Planted::WindowTwice.is_in() {
            let _ = entry.window.grow(stream, increment);
        }
        if let Err(error) = entry.window.grow(stream, increment) {
            return self.fail_stream(token, error.code());
        }
        self.make_ready(token);
        Ok(())
    }

    fn reset_by_peer(&mut self, stream: u32) -> Result<(), ErrorCode> {
        self.check_begun(stream)?;
        let Some(token) = self.session.open.find(stream) else {
            return self.calm();
        };
        self.count_reset()?;
        #[cfg(feature = "sim")]
        if dwell_evloop::sim::Planted::ForgetStream.is_in() {
            self.remove(token);
        }
        self.abandon(token);
        Ok(())
    }

    /// An error of the client that ends one stream.
    fn broken(&mut self, stream: u32, error: PeerError) -> Result<(), ErrorCode> {
        let code = error.code();
        if let Some(token) = self.session.open.find(stream) {
            return self.fail_stream(token, code);
        }
        match error {
            // The field block of the stream follows, and is then known as that of a stream that
            // was reset.
            PeerError::DependsOnItself { .. } if stream > self.session.open.last => {
                if stream.is_multiple_of(2) {
                    return Err(ErrorCode::PROTOCOL_ERROR);
                }
                self.session.open.last = stream;
            }
            PeerError::NoIncrement { .. } => self.check_begun(stream)?,
            _ => {}
        }
        self.send_reset(stream, code)
    }

    /// Only a stream that was begun can have such a frame (RFC 9113 section 5.1).
    pub(super) fn check_begun(&self, stream: u32) -> Result<(), ErrorCode> {
        if stream > self.session.open.last || stream.is_multiple_of(2) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        Ok(())
    }
}
