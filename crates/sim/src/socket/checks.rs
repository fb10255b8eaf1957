//! The frames that a WebSocket may be sent, and when.

use super::frames::{self, Frame, Told};
use super::{Follow, Phase, Repeats, Reply, Socket, What};
use crate::client::{APP_PATIENCE, Around, PROMPT};
use crate::failure::Oracle;
use crate::keys::Broken;
use std::time::Duration;

/// The shortest life of a connection that the server ends by its age.
const LIFETIME: Duration = Duration::from_secs(90);
/// The longest time after which a connection is sent a ping on which nothing comes or goes.
const HEARTBEAT: Duration = Duration::from_secs(25);

fn unasked(reason: impl Into<String>) -> Broken {
    (Oracle::OneAnswer, reason.into())
}

impl Follow {
    /// Returns true if the frame that has come may tell what was told already.
    fn take_repeat(&mut self) -> bool {
        let may = self.repeats != Repeats::Never || self.is_ending();
        if self.repeats == Repeats::Once {
            self.repeats = Repeats::Never;
        }
        may
    }
}

impl Socket {
    pub(super) fn frame(
        &mut self,
        frame: &Frame,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        if self.phase == Phase::Closed {
            return Err(unasked("a frame behind the close frame"));
        }
        match frame.opcode {
            frames::TEXT => {
                let text = std::str::from_utf8(&frame.payload);
                let text = text.map_err(|_| unasked("a text that is not UTF-8"))?;
                let (number, start) = (self.number, text.get(..80).unwrap_or(text));
                around
                    .network
                    .remark(|| format!("socket {number} is told {start}"));
                let told = Told::parse(text);
                let told = told.ok_or_else(|| unasked(format!("the frame {start:?}")))?;
                self.told_frame(&told, around, now)
            }
            frames::PING => {
                around.counts.reach("ping");
                if self.phase == Phase::Open {
                    let (output, random) = (&mut self.output, &mut self.random);
                    frames::write(output, frames::PONG, &frame.payload, random);
                }
                Ok(())
            }
            frames::PONG => {
                around.counts.reach("pong");
                let sent = self
                    .pings
                    .iter()
                    .position(|(ping, _)| *ping == frame.payload);
                let place = sent.ok_or_else(|| unasked("a pong without its ping"))?;
                self.pings.drain(..=place);
                Ok(())
            }
            _ => self.close_frame(&frame.payload, around, now),
        }
    }

    fn close_frame(
        &mut self,
        payload: &[u8],
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let code = payload.first_chunk().copied().map(u16::from_be_bytes);
        let is_old = now >= self.opened_at + LIFETIME;
        let is_right = match self.phase {
            // What it has sent may not have come when the server closes.
            Phase::Closing(expected) | Phase::Broken(expected) if code == Some(expected) => true,
            Phase::Open | Phase::Closing(_) | Phase::Broken(_) => {
                code == Some(1001) && (around.ends || is_old)
            }
            _ => true,
        };
        if !is_right {
            let phase = self.phase;
            return Err(unasked(format!("{phase:?} is closed with {code:?}")));
        }
        around.counts.reach("close frame");
        if matches!(self.phase, Phase::Open | Phase::Broken(_)) {
            let (output, random) = (&mut self.output, &mut self.random);
            frames::write(output, frames::CLOSE, payload, random);
        }
        self.phase = Phase::Closed;
        self.clear_since = now;
        Ok(())
    }

    fn told_frame(
        &mut self,
        told: &Told<'_>,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        match *told {
            Told::Published { label, cursor } => {
                let Some(Reply::Published(key, state)) = self.owed.pop_front().map(|it| it.reply)
                else {
                    return Err(unasked("a value that it did not publish is stored"));
                };
                if label != self.label_in_reply(key).as_deref() {
                    return Err((Oracle::OwnKey, format!("{label:?} is stored instead")));
                }
                around.counts.reach("publish");
                let model = &mut around.keys[key];
                model.acknowledge(state, now);
                model.note_cursor(cursor, state)
            }
            Told::Refused { why, label } => {
                let reply = self.owed.pop_front().map(|it| it.reply);
                match reply {
                    Some(Reply::Barrier(name)) if why == "not subscribed" => {
                        if label != Some(&*name) {
                            return Err((Oracle::OwnKey, format!("{label:?} instead of {name}")));
                        }
                        self.passes(&name);
                        Ok(())
                    }
                    Some(Reply::Forbidden) if why == "publishing is not allowed here" => {
                        around.counts.reach("refused publish");
                        Ok(())
                    }
                    Some(Reply::Published(key, _)) if around.ends => {
                        around.keys[key].lose(now);
                        Ok(())
                    }
                    reply => Err(unasked(format!("{why:?} of {label:?} for {reply:?}"))),
                }
            }
            Told::Gone { label } => self.gone(label, around, now),
            Told::Value {
                label,
                value,
                cursor,
            } => self.value(label, (value, cursor), around, now),
        }
    }

    /// All that was sent before a barrier was carried out.
    fn passes(&mut self, name: &str) {
        self.follows
            .retain(|it| it.ends_with.as_deref() != Some(name));
        for follow in &mut self.follows {
            if matches!(&follow.repeats, Repeats::Until(barrier) if barrier == name) {
                follow.repeats = Repeats::Once;
            }
        }
    }

    /// The name of a key in the reply to a value for it.
    fn label_in_reply(&self, key: usize) -> Option<String> {
        self.opening.label(key).filter(|label| !label.is_empty())
    }

    fn place_of(&self, label: Option<&str>) -> Result<usize, Broken> {
        let mut follows = self.follows.iter();
        let place = follows.position(|follow| follow.label.as_deref() == label);
        place.ok_or_else(|| (Oracle::OwnKey, format!("it does not follow {label:?}")))
    }

    /// It is told that a key has no value.
    fn gone(
        &mut self,
        label: Option<&str>,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        around.counts.reach("deletion frame");
        let place = self.place_of(label)?;
        let follow = &mut self.follows[place];
        let key = follow.key;
        let last = self.seen[key];
        self.seen[key] = around.keys[key].saw_nothing(follow.floor, last, now)?;
        let before = std::mem::replace(&mut follow.has, What::Nothing);
        let may_repeat = follow.take_repeat();
        self.last[key] = None;
        if before == What::Nothing && !may_repeat {
            return Err(unasked(format!("{label:?} is gone again")));
        }
        Ok(())
    }

    /// It is told the value of a key.
    fn value(
        &mut self,
        label: Option<&str>,
        (value, cursor): (&str, &str),
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let place = self.place_of(label)?;
        let follow = &mut self.follows[place];
        let key = follow.key;
        let (model, last) = (&mut around.keys[key], self.seen[key]);
        if around.app.is_some() && value.starts_with(&format!("{}@", model.name)) {
            around.counts.reach("frame of the application");
            self.seen[key] = model.saw_nothing(follow.floor, last, now)?;
            follow.has = What::OfApp;
            follow.take_repeat();
            self.last[key] = None;
            return Ok(());
        }
        around.counts.reach("value frame");
        let state = model.place_of(value.as_bytes())?;
        model.note_cursor(cursor, state)?;
        model.saw_value(state, follow.floor, last, now)?;
        let before = std::mem::replace(&mut follow.has, What::State(state));
        let may_repeat = follow.take_repeat();
        self.seen[key] = state;
        self.last[key] = Some((state, cursor.to_owned()));
        if before == What::State(state) && !may_repeat {
            return Err((Oracle::Order, format!("{label:?} is state {state} again")));
        }
        Ok(())
    }

    /// Checks that nothing is late.
    pub(super) fn check_patience(&self, around: &Around<'_>, now: Duration) -> Result<(), Broken> {
        let late = |what: String| Err((Oracle::Deadline, self.named(&what)));
        let is_late = |since: Duration| now > since.max(self.clear_since) + PROMPT;
        if !self.output.is_empty() {
            return Ok(());
        }
        match self.phase {
            Phase::Opening if is_late(self.opened_at) => {
                return late("no answer to the handshake".to_owned());
            }
            Phase::Closing(_) | Phase::Broken(_) | Phase::Finished | Phase::Closed
                if is_late(Duration::ZERO) =>
            {
                return late(format!("no end of a connection that is {:?}", self.phase));
            }
            Phase::Open => {}
            _ => return Ok(()),
        }
        if let Some(owed) = self.owed.front()
            && is_late(owed.sent_at.unwrap_or(now))
        {
            return late(format!("no reply: {:?}", owed.reply));
        }
        if let Some((_, at)) = self.pings.front()
            && is_late(*at)
        {
            return late("no pong".to_owned());
        }
        if is_late(self.heard_at.max(self.clear_since) + HEARTBEAT) {
            return late("no ping".to_owned());
        }
        self.check_news(around, now)
    }

    /// Checks that it was told of the newest state of each key.
    fn check_news(&self, around: &Around<'_>, now: Duration) -> Result<(), Broken> {
        let patience = PROMPT + around.app.map_or(Duration::ZERO, |_| APP_PATIENCE);
        for follow in self.follows.iter().filter(|it| !it.is_ending()) {
            let has = match follow.has {
                What::State(state) => Some(state),
                What::Nothing | What::OfApp => None,
            };
            let model = &around.keys[follow.key];
            // An application that fails says nothing of a key that is gone.
            let keeps_waiting = around.keeps_waiting || around.app.is_some();
            if let Some((state, since)) = model.is_news_since(has, keeps_waiting)
                && now > self.clear_since.max(since).max(follow.since) + patience
            {
                let (name, label) = (&model.name, &follow.label);
                let reason = format!("{name} as {label:?} has {has:?}, and is not told of {state}");
                return Err((Oracle::Newest, self.named(&reason)));
            }
        }
        Ok(())
    }
}
