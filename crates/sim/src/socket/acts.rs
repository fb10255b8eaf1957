//! Messages and frames that a WebSocket sends, and the replies to them.

use super::frames::{self, Told};
use super::{Act, BREACHES, Follow, Opening, Owed, Phase, Repeats, Reply, Socket, What, unasked};
use crate::around::Around;
use crate::failure::Oracle;
use crate::keys::Broken;
use crate::options::Fault;
use crate::pick::Pick;
use std::time::Duration;

/// Replies that are owed at one time.
const OWED_MAX: usize = 4;

impl Socket {
    /// Sends what it is to do, when it may.
    pub(super) fn send_acts(&mut self, around: &mut Around<'_>, is_paused: bool, now: Duration) {
        while self.phase == Phase::Open
            && self.owed.len() < OWED_MAX
            && self.line.output.is_empty()
            && let Some(act) = self.acts.front().copied()
        {
            if let Act::Publish { key, .. } = act
                && self.publishing.is_allowed
                && (is_paused || around.keys[key].is_unsure || self.waits_for_reply(key))
            {
                return;
            }
            self.acts.pop_front();
            let number = self.number;
            around
                .network
                .remark(|| format!("socket {number}: {act:?}"));
            self.send_act(act, around, now);
        }
    }

    /// Returns true if a value for this key may not be sent before the reply to another.
    fn waits_for_reply(&self, key: usize) -> bool {
        let is_its = |owed: &Owed| matches!(owed.reply, Reply::Sent(of, _) if of == key);
        self.publishing.is_limited && self.owed.iter().any(is_its)
    }

    fn send_act(&mut self, act: Act, around: &mut Around<'_>, now: Duration) {
        match act {
            Act::Subscribe { key, says } => self.subscribe(key, says, around, now),
            Act::Unsubscribe { key } => self.unsubscribe(key, now),
            Act::Publish { key, length } => self.publish(key, length, around, now),
            Act::Ping(bytes) => {
                let payload: Vec<u8> = (0..bytes).map(|_| self.random.draw() as u8).collect();
                frames::write(
                    &mut self.line.output,
                    frames::PING,
                    &payload,
                    &mut self.random,
                );
                self.pings.push_back((payload, now));
            }
            Act::Pong => frames::write(&mut self.line.output, frames::PONG, b"x", &mut self.random),
            Act::Close(code) => {
                let code_bytes = code.to_be_bytes();
                frames::write(
                    &mut self.line.output,
                    frames::CLOSE,
                    &code_bytes,
                    &mut self.random,
                );
                (self.phase, self.line.clear_since) = (Phase::Closing(code), now);
            }
            Act::Break(place) => {
                around.counts.strike(Fault::Breach.name());
                self.breach(place);
                (self.phase, self.line.clear_since) = (Phase::Broken(BREACHES[place].1), now);
            }
            // These are no messages.
            Act::Reset
            | Act::Leave
            | Act::HalfClose
            | Act::Silence
            | Act::SlowRead(_)
            | Act::SlowWrite(_) => {}
        }
    }

    fn subscribe(&mut self, key: usize, says: Pick, around: &mut Around<'_>, now: Duration) {
        let Some(label) = self.opening.label(key) else {
            return;
        };
        let last = self.keys.cursor_of(key, says).cloned();
        let since = match &last {
            Some((_, cursor)) => format!(",\"since\":{{\"{label}\":\"{cursor}\"}}"),
            None => String::new(),
        };
        let place = self
            .keys
            .follows
            .iter()
            .position(|one| one.label.as_ref() == Some(&label));
        let is_pending = |follow: &Follow| matches!(follow.repeats, Repeats::Until(_));
        let pending = place.map(|place| &self.keys.follows[place]);
        if pending.is_some_and(|it| !it.is_ending() && is_pending(it)) && around.refused.is_some() {
            // It may be refused what it has asked for, and only then would this ask for it.
            return;
        }
        let text = format!("{{\"subscribe\":[\"{label}\"]{since}}}");
        let name = self.next_barrier();
        match place.map(|place| &mut self.keys.follows[place]) {
            // It follows that already, unless it has given it up.
            Some(follow) if !follow.is_ending() => {}
            Some(follow) => {
                follow.ends_with = None;
                follow.repeats = Repeats::Until(name.clone());
                follow.since = now;
                // A frame that is on its way may have another.
                follow.has = last.map_or(What::Nothing, |(state, _)| What::State(state));
            }
            None => self.keys.follows.push(Follow {
                key,
                label: Some(label),
                has: last.map_or(What::Nothing, |(state, _)| What::State(state)),
                floor: around.keys[key].floor(),
                repeats: Repeats::Until(name.clone()),
                ends_with: None,
                since: now,
                is_refused: false,
            }),
        }
        self.say(&text, None, now);
        self.bar(name, now);
    }

    fn unsubscribe(&mut self, key: usize, now: Duration) {
        let name = self.next_barrier();
        let label = self.opening.label(key);
        let Some(label) = label else {
            return;
        };
        let is_it = |one: &&mut Follow| one.label.as_ref() == Some(&label) && !one.is_ending();
        let Some(follow) = self.keys.follows.iter_mut().find(is_it) else {
            return;
        };
        follow.ends_with = Some(name.clone());
        self.say(&format!("{{\"unsubscribe\":[\"{label}\"]}}"), None, now);
        self.bar(name, now);
    }

    fn next_barrier(&mut self) -> String {
        self.barriers += 1;
        format!("none-{}", self.barriers)
    }

    /// Sends a message whose reply tells that all before it was carried out.
    fn bar(&mut self, name: String, now: Duration) {
        let text = format!("{{\"unsubscribe\":[\"{name}\"]}}");
        self.say(&text, Some(Reply::Barrier(name)), now);
    }

    fn publish(&mut self, key: usize, length: usize, around: &mut Around<'_>, now: Duration) {
        let Some(label) = self.opening.label(key) else {
            return;
        };
        let name = match &self.opening {
            Opening::Path(_) => String::new(),
            Opening::Named { .. } => format!("\"k\":\"{label}\","),
        };
        let model = &mut around.keys[key];
        let value = if self.publishing.is_remote {
            model.next_published(self.publishing.connections, length)
        } else {
            model.next_value(length)
        };
        let text = String::from_utf8_lossy(&value);
        let text = format!("{{\"publish\":{{{name}\"v\":\"{text}\"}}}}");
        let reply = if !self.publishing.is_allowed {
            Reply::Forbidden
        } else if self.publishing.is_remote {
            Reply::Sent(key, value)
        } else {
            Reply::Published(key, model.issue(Some(value), 0, now))
        };
        self.say(&text, Some(reply), now);
    }

    /// Sends a message, perhaps in parts.
    fn say(&mut self, text: &str, reply: Option<Reply>, now: Duration) {
        let (output, random) = (&mut self.line.output, &mut self.random);
        if random.below(4) == 0 {
            let ping = frames::write_in_parts(output, text.as_bytes(), random);
            self.pings.extend(ping.map(|ping| (ping, now)));
        } else {
            frames::write(output, frames::TEXT, text.as_bytes(), random);
        }
        self.owed.extend(reply.map(|reply| Owed {
            reply,
            sent_at: None,
        }));
    }

    fn breach(&mut self, place: usize) {
        let (output, random) = (&mut self.line.output, &mut self.random);
        match BREACHES[place].1 {
            1003 => frames::write(output, frames::BINARY, b"{}", random),
            1008 => frames::write(output, frames::TEXT, b"{\"subscribe\":7}", random),
            // The head of a frame of 16 MiB, and a little of it.
            1009 => output.extend_from_slice(&[0x81, 0xff, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5]),
            1007 => frames::write(output, frames::TEXT, b"{\"subscribe\":[\"\xff\"]}", random),
            _ if place == 3 => output.extend_from_slice(b"\x81\x02{}"),
            _ => frames::write(output, 3, b"", random),
        }
    }
}

impl Socket {
    pub(super) fn told_frame(
        &mut self,
        told: &Told<'_>,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        match *told {
            Told::Published { label, cursor } => self.published(label, cursor, around, now),
            Told::Refused { why, label } if around.refuses_message(why) => {
                // Not a reply: those to the messages behind it come as well.
                let is_followed = self.keys.refuse(label);
                let reason = || unasked(format!("{why:?} of {label:?}"));
                is_followed.then_some(()).ok_or_else(reason)
            }
            Told::Refused { why, label }
                if why == NOT_SUBSCRIBED && self.keys.was_refused(label) =>
            {
                Ok(())
            }
            Told::Refused { why, label } => self.refused(why, label, around, now),
            Told::Gone { label } => self.keys.gone(label, around, now),
            Told::Value {
                label,
                value,
                cursor,
            } => self.keys.value(label, (value, cursor), around, now),
        }
    }

    /// A value that it has published is stored.
    fn published(
        &mut self,
        label: Option<&str>,
        cursor: &str,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let reply = self.take_owed(label).map(|it| it.reply);
        let (key, state) = match reply {
            Some(Reply::Published(key, state)) => (key, state),
            // It was stored before this was told.
            Some(Reply::Sent(key, value)) => (key, around.keys[key].is_published(&value)?),
            _ => return Err(unasked("a value that it did not publish is stored")),
        };
        if label != self.label_in_reply(key).as_deref() {
            return Err((Oracle::OwnKey, format!("{label:?} is stored instead")));
        }
        around.counts.reach(if self.publishing.is_remote {
            "publish in memcached"
        } else {
            "publish"
        });
        let model = &mut around.keys[key];
        model.acknowledge(state, now);
        model.note_cursor(cursor, state)
    }

    /// A message was refused.
    fn refused(
        &mut self,
        why: &str,
        label: Option<&str>,
        around: &mut Around<'_>,
        now: Duration,
    ) -> Result<(), Broken> {
        let is_over = why.starts_with(OVER_RATE) && around.refused.is_some();
        match self.take_owed(label) {
            Some(Owed {
                reply: Reply::Barrier(name),
                ..
            }) if why == NOT_SUBSCRIBED => {
                if label != Some(&*name) {
                    return Err((Oracle::OwnKey, format!("{label:?} instead of {name}")));
                }
                self.keys.passes(&name);
                Ok(())
            }
            Some(Owed {
                reply: Reply::Forbidden,
                ..
            }) if why == "publishing is not allowed here" => {
                around.counts.reach("refused publish");
                Ok(())
            }
            Some(Owed {
                reply: Reply::Published(key, state),
                ..
            }) if is_over => {
                around.counts.reach("publish over the rate");
                around.keys[key].refuse(state);
                Ok(())
            }
            Some(Owed {
                reply: Reply::Published(key, _),
                ..
            }) if around.may_end() => {
                around.keys[key].lose(now);
                Ok(())
            }
            Some(Owed {
                reply: Reply::Sent(key, value),
                sent_at,
            }) => {
                let is_stored = around.keys[key].place_of(&value).is_ok();
                let may_fail = (around.fails_until)
                    .is_some_and(|until| sent_at.is_none_or(|sent_at| sent_at <= until));
                let (is_excused, name) = match why {
                    _ if is_over => (!is_stored, "publish over the rate"),
                    NO_ROOM => (!is_stored && !around.is_calm, "publish without memory"),
                    UNANSWERED => (may_fail, "publish without an answer"),
                    UNASKED => (may_fail && !is_stored, "publish without memcached"),
                    _ => (false, "publish refused"),
                };
                around.counts.reach(name);
                let reason = || {
                    let what = format!("{why:?} of a value for {label:?}, stored: {is_stored}");
                    (Oracle::Map, what)
                };
                is_excused.then_some(()).ok_or_else(reason)
            }
            owed => {
                let reply = owed.map(|it| it.reply);
                Err(unasked(format!("{why:?} of {label:?} for {reply:?}")))
            }
        }
    }

    /// Takes the reply that is owed next. Those to values for memcached come when it has answered,
    /// so that others overtake them, but not those for the same key.
    fn take_owed(&mut self, label: Option<&str>) -> Option<Owed> {
        let is_it = |owed: &Owed| match &owed.reply {
            Reply::Sent(key, _) => self.label_in_reply(*key).as_deref() == label,
            _ => true,
        };
        let place = self.owed.iter().position(is_it)?;
        self.owed.remove(place)
    }

    /// The name of a key in the reply to a value for it.
    fn label_in_reply(&self, key: usize) -> Option<String> {
        self.opening.label(key).filter(|label| !label.is_empty())
    }
}

/// The reason why a key is not given up.
const NOT_SUBSCRIBED: &str = "not subscribed";
/// Reasons why memcached has not stored a value: it had no memory, it may have stored it, and it
/// was not asked.
const NO_ROOM: &str = "memcached refuses the value";
const UNANSWERED: &str = "memcached has not answered; it may have done it all the same";
const UNASKED: &str = "memcached cannot be reached";
/// The beginning of the reason why a value is beyond the rate of its route.
const OVER_RATE: &str = "more than ";
