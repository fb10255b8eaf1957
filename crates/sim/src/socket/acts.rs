//! Messages and frames that a WebSocket sends.

use super::{Act, BREACHES, Follow, Opening, Owed, Phase, Repeats, Reply, Socket, What, frames};
use crate::around::Around;
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
                && self.publishes
                && (is_paused || around.keys[key].is_unsure)
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
        let value = model.next_value(length);
        let text = String::from_utf8_lossy(&value);
        let text = format!("{{\"publish\":{{{name}\"v\":\"{text}\"}}}}");
        let reply = if self.publishes {
            Reply::Published(key, model.issue(Some(value), 0, now))
        } else {
            Reply::Forbidden
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
