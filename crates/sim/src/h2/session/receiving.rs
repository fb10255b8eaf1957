//! Frames of the server, and the rules that they keep to.

use super::super::fields::Head;
use super::super::flow::{Cut, Flow};
use super::super::frames::{self, Frame, code, flag, kind, setting, size};
use super::{NARROW_FRAMES, Session, WIDE};
use std::time::Duration;

impl Session {
    /// Takes all whole frames that have come.
    ///
    /// # Errors
    /// The rule that one breaks.
    pub(super) fn take_frames(&mut self, now: Duration) -> Result<(), String> {
        while let Some(frame) = Frame::take(&mut self.input)? {
            self.frame(&frame, now)
                .map_err(|reason| format!("stream {}: {reason}", frame.stream))?;
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame, now: Duration) -> Result<(), String> {
        if self.fields.block.is_some() && frame.kind != kind::CONTINUATION {
            return Err(format!("{frame:?} within a field block"));
        }
        match frame.kind {
            kind::DATA => self.data(frame, now),
            kind::HEADERS if frame.has(flag::PADDED | flag::PRIORITY) => {
                Err("a head with padding or a priority".to_owned())
            }
            kind::HEADERS => {
                let ends = frame.has(flag::END_STREAM);
                self.fields.block = Some((frame.stream, Vec::new(), ends));
                self.fragment(frame, now)
            }
            kind::CONTINUATION => self.fragment(frame, now),
            kind::RST_STREAM => self.reset(frame, now),
            kind::SETTINGS => self.settings(frame),
            kind::PING => self.pinged(frame),
            kind::GOAWAY => self.told_to_go(frame),
            kind::WINDOW_UPDATE => self.window_update(frame),
            _ => Err(format!("{frame:?} is not for a client")),
        }
    }

    /// The stream of a frame; `None` if this side has reset it.
    fn flow_of(&mut self, number: u32) -> Result<Option<&mut Flow>, String> {
        if self.flows.forgotten.contains(&number) {
            return Ok(None);
        }
        let flow = self.flows.open.get_mut(&number);
        flow.map(Some).ok_or_else(|| "it is not open".to_owned())
    }

    fn data(&mut self, frame: &Frame, now: Duration) -> Result<(), String> {
        let length = size(frame.payload.len());
        self.windows.receive -= length;
        if self.windows.receive < 0 {
            return Err(format!("{length} bytes, beyond the connection's window"));
        }
        let narrow = self.habits.window;
        self.flows.note(length, now);
        let Some(flow) = self.flow_of(frame.stream)? else {
            return Ok(());
        };
        flow.window -= length;
        if flow.window < 0 && length > 0 {
            return Err(format!("{length} bytes, beyond its window"));
        }
        flow.data(&frame.payload, frame.has(flag::END_STREAM), now)?;
        if flow.frames == NARROW_FRAMES && flow.wanted == narrow {
            flow.wanted = WIDE;
        }
        if self.windows.receive == 0 {
            self.flows.open.values_mut().for_each(Flow::hold_up);
        }
        Ok(())
    }

    fn fragment(&mut self, frame: &Frame, now: Duration) -> Result<(), String> {
        let Some((number, mut block, ends)) = self.fields.block.take() else {
            return Err("a field block that goes on without a beginning".to_owned());
        };
        if number != frame.stream {
            return Err("a field block goes on with another stream".to_owned());
        }
        block.extend_from_slice(&frame.payload);
        if !frame.has(flag::END_HEADERS) {
            self.fields.block = Some((number, block, ends));
            return Ok(());
        }
        let fields = self.fields.decoder.decode(&block);
        let fields = fields.map_err(|error| format!("a field block: {error:?}"))?;
        let head = Head::read(&fields)?;
        match self.flow_of(number)? {
            Some(flow) => {
                flow.head(&head, ends, now)?;
                self.reached.push("answer on a stream");
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn reset(&mut self, frame: &Frame, now: Duration) -> Result<(), String> {
        let code = frame.number(4)?;
        if frame.stream >= self.flows.next {
            return Err("a reset of what has not begun".to_owned());
        }
        // It may come behind the answer, or cross a reset of this side.
        if let Some(flow) = self.flows.open.get_mut(&frame.stream)
            && !flow.is_over()
        {
            self.reached.push("reset of the server");
            flow.reset(code, now);
        }
        Ok(())
    }

    fn settings(&mut self, frame: &Frame) -> Result<(), String> {
        if frame.has(flag::ACK) {
            let (_, initial) = self.owed.settings.pop_front().ok_or("an ACK too many")?;
            let less = initial - self.windows.initial;
            if less < 0 && self.owed.settings.is_empty() {
                self.resize(less);
            }
            return Ok(());
        }
        for (id, value) in frames::settings(&frame.payload) {
            let value = i64::from(value);
            match id {
                setting::HEADER_TABLE_SIZE if value == 0 => self.fields.writer.settle(),
                setting::MAX_CONCURRENT_STREAMS => {
                    self.windows.streams_max = usize::try_from(value).unwrap_or(0);
                }
                setting::ENABLE_CONNECT_PROTOCOL => self.takes_tunnels = value == 1,
                setting::INITIAL_WINDOW_SIZE => {
                    let more = value - self.windows.send_initial;
                    self.windows.send_initial = value;
                    for flow in self.flows.open.values_mut() {
                        flow.send_window += more;
                    }
                }
                _ => {}
            }
        }
        frames::write(kind::SETTINGS, flag::ACK, 0, &[], &mut self.output);
        Ok(())
    }

    fn pinged(&mut self, frame: &Frame) -> Result<(), String> {
        if !frame.has(flag::ACK) {
            let output = &mut self.output;
            frames::write(kind::PING, flag::ACK, 0, &frame.payload, output);
            return Ok(());
        }
        match self.owed.pongs.pop_front() {
            Some((_, data)) if data[..] == frame.payload => Ok(()),
            owed => Err(format!("{frame:?} where {owed:?} is owed")),
        }
    }

    fn told_to_go(&mut self, frame: &Frame) -> Result<(), String> {
        let last = frame.number(8)?;
        if self.end.last.is_some_and(|before| last > before) {
            return Err(format!("GOAWAY with {last} behind {:?}", self.end.last));
        }
        let code = u32::from_be_bytes([
            frame.payload[4],
            frame.payload[5],
            frame.payload[6],
            frame.payload[7],
        ]);
        if code != code::NO_ERROR {
            return Err(format!("GOAWAY with the code {code}"));
        }
        self.reached.push("GOAWAY of the server");
        self.end.last = Some(last);
        for flow in self.flows.open.range_mut(last + 1..).map(|(_, flow)| flow) {
            flow.end(Cut::Refused);
        }
        Ok(())
    }

    fn window_update(&mut self, frame: &Frame) -> Result<(), String> {
        let increment = i64::from(frame.number(4)?);
        if frame.stream == 0 {
            self.windows.send += increment;
        } else if let Some(flow) = self.flows.open.get_mut(&frame.stream) {
            flow.send_window += increment;
        } else if frame.stream >= self.flows.next {
            return Err("a window of what has not begun".to_owned());
        }
        Ok(())
    }
}
