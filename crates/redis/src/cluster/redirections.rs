//! Commands that servers have sent to others, and the next step of each.

use super::{Cluster, Redirect, Redirected, Repeat, slot_of};
use crate::Failure;
use crate::connection::{Flight, Operation};
use crate::pace::held_back;
use crate::waited::{HoldEvent, WaitedKeys};
use dwell_evloop::{Context, Token};
use dwell_proto::resp::command;
use std::sync::Arc;
use std::time::Instant;

/// The commands that wait for their next step, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Redirections {
    queue: Vec<Redirected>,
}

/// The next step of a command.
#[derive(Debug)]
pub(crate) enum Step {
    /// It is sent to another server.
    Send {
        to: usize,
        flight: Flight,
        wire: Arc<[u8]>,
        /// Behind `ASKING`.
        is_asking: bool,
    },
    /// Its key is read where it is now.
    Read {
        name: Arc<[u8]>,
        operation: Operation,
    },
    /// Its operation ends.
    End { tag: u64, failure: Failure },
}

/// The servers that may be asked in the place of the one that has replied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidates<'c> {
    pub(crate) cluster: Option<&'c Cluster>,
    /// The server that has replied.
    pub(crate) from: usize,
    /// It is one of the cluster no more.
    pub(crate) is_from_retired: bool,
    /// The server that it has named, if it has, and there is room for it.
    pub(crate) named: Option<usize>,
}

impl Candidates<'_> {
    /// The server to be asked in the place of the one that has replied.
    fn next(&self, slot: u16) -> Option<usize> {
        let owner = self.cluster.and_then(|it| it.owner(slot));
        self.named.or(owner.filter(|owner| *owner != self.from))
    }
}

impl Redirections {
    pub(crate) fn add(&mut self, redirected: Redirected) {
        self.queue.push(redirected);
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Takes all of them; the caller finds the [step](Redirected::step) of each.
    pub(crate) fn take(&mut self) -> Vec<Redirected> {
        std::mem::take(&mut self.queue)
    }
}

impl Redirected {
    /// The next step; `None` where the key is read later, or where no client waits for the reply.
    pub(crate) fn step(
        self,
        context: &mut Context,
        waited: &mut WaitedKeys,
        candidates: Candidates<'_>,
    ) -> Option<Step> {
        let read = match &self.flight {
            Flight::Read { name, by, .. } => Read {
                name: Arc::clone(name),
                operation: by.operation(),
                is_tracked: true,
            },
            Flight::Sweep {
                key,
                is_asking: false,
            } => Read {
                name: waited.name(*key)?.into(),
                operation: None,
                is_tracked: false,
            },
            // Where its slot is about to move, it is read again later.
            Flight::Sweep { .. } => return None,
            _ => return send_again(self, context.now(), candidates),
        };
        let operation = read.operation;
        let step = read.step(context, waited, self.redirect, candidates);
        match operation {
            // Those who wait for the key have more time than it has.
            Some(Operation { tag, deadline }) if deadline <= context.now() => Some(Step::End {
                tag,
                failure: Failure::Timeout,
            }),
            _ => step,
        }
    }
}

/// Sends an operation once more, as it was.
fn send_again(redirected: Redirected, now: Instant, candidates: Candidates<'_>) -> Option<Step> {
    let Redirected {
        mut flight,
        redirect,
        ..
    } = redirected;
    let (tag, is_asking) = (flight.tag()?, matches!(redirect, Redirect::Ask(_)));
    let repeat = flight.repeat()?;
    (repeat.redirects, repeat.is_asking) = (repeat.redirects + 1, is_asking);
    let wire = Arc::clone(&repeat.wire);
    let failure = match candidates.next(repeat.slot) {
        _ if repeat.deadline <= now => Failure::Timeout,
        Some(to) if repeat.redirects <= REDIRECTS_MAX => {
            return Some(Step::Send {
                to,
                flight,
                wire,
                is_asking,
            });
        }
        _ => Failure::NotReady,
    };
    Some(Step::End { tag, failure })
}

/// A read of a key that may be waited for.
struct Read {
    name: Arc<[u8]>,
    operation: Option<Operation>,
    /// The reply would have registered the key.
    is_tracked: bool,
}

impl Read {
    fn step(
        self,
        context: &mut Context,
        waited: &mut WaitedKeys,
        redirect: Redirect,
        candidates: Candidates<'_>,
    ) -> Option<Step> {
        // A record counts the redirections of those who do not wait, too.
        let key = waited.enter(&self.name, candidates.from)?;
        let is_here = waited.server(key) == Some(candidates.from);
        if !is_here {
            return self.read_again();
        }
        if matches!(redirect, Redirect::Ask(_)) {
            return self.ask_elsewhere(context, waited, key, candidates);
        }
        // Another one may have had it when the read was left, and this one again since.
        if redirect == Redirect::Owner && !candidates.is_from_retired {
            return self.read_again();
        }
        match candidates.next(slot_of(&self.name)) {
            Some(to) if waited.redirected(key) <= REDIRECTS_MAX => {
                waited.move_to(key, to);
                self.read_again()
            }
            _ => {
                waited.hold_back(key);
                context.arm(key, held_back(waited.put_off_beside(key)));
                self.end()
            }
        }
    }

    /// Reads the key where its slot is about to move. Nothing announces its changes until it has
    /// moved, so that it is read again and again.
    fn ask_elsewhere(
        self,
        context: &mut Context,
        waited: &mut WaitedKeys,
        key: Token,
        candidates: Candidates<'_>,
    ) -> Option<Step> {
        if self.is_tracked {
            let event = HoldEvent::Refused { is_of_waits: true };
            #[cfg(feature = "sim")]
            let event = if dwell_evloop::sim::Planted::ParkOnAsk.is_in() {
                HoldEvent::Answered
            } else {
                event
            };
            waited.happens(key, event);
            if waited.is_put_off(key) {
                context.arm(key, held_back(waited.put_off_beside(key)));
            }
        }
        let Some(to) = candidates.named else {
            return self.end();
        };
        let mut wire = Vec::new();
        command(&mut wire, &[b"GET", &*self.name]);
        let (wire, is_asking): (Arc<[u8]>, _) = (wire.into(), true);
        let flight = match self.operation {
            Some(Operation { tag, deadline }) => Flight::Get {
                tag,
                again: Some((*self.name).into()),
                end: Some(deadline),
                repeat: Some(Box::new(Repeat {
                    wire: Arc::clone(&wire),
                    slot: slot_of(&self.name),
                    deadline,
                    redirects: 1,
                    is_asking,
                })),
            },
            None => Flight::Sweep { key, is_asking },
        };
        Some(Step::Send {
            to,
            flight,
            wire,
            is_asking,
        })
    }

    fn read_again(self) -> Option<Step> {
        Some(Step::Read {
            name: self.name,
            operation: self.operation?,
        })
    }

    fn end(self) -> Option<Step> {
        Some(Step::End {
            tag: self.operation?.tag,
            failure: Failure::NotReady,
        })
    }
}

/// Redirections that one operation follows.
const REDIRECTS_MAX: u8 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Announced;
    use crate::connection::Reader;
    use dwell_evloop::EventLoop;
    use std::time::Duration;

    const FROM: usize = 0;
    const TO: usize = 1;

    /// The steps of a read of one key that is waited for, which the server `FROM` has sent to `TO`
    /// by these replies, one after the other.
    fn steps(replies: &[Redirect], left: Duration) -> (Vec<Option<Step>>, WaitedKeys) {
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let context = event_loop.context();
        let mut waited = WaitedKeys::new(2, Announced::Keys, 0);
        waited.add_server();
        waited.wait(b"a", 7, FROM);
        let key = waited.find(b"a").unwrap();
        let deadline = context.now() + left;
        let steps = replies.iter().map(|redirect| {
            waited.happens(key, HoldEvent::Sent);
            let by = Reader::Operation(Operation { tag: 1, deadline });
            let from = waited.server(key).unwrap();
            let redirected = Redirected {
                flight: Flight::Read {
                    key,
                    name: b"a".as_slice().into(),
                    by,
                },
                from,
                redirect: *redirect,
            };
            let candidates = Candidates {
                cluster: None,
                from,
                is_from_retired: false,
                named: Some(if from == FROM { TO } else { FROM }),
            };
            redirected.step(context, &mut waited, candidates)
        });
        let steps = steps.collect();
        (steps, waited)
    }

    const MOVED: Redirect = Redirect::Moved(None);
    const IN_TIME: Duration = Duration::from_secs(60);

    #[test]
    fn a_read_follows_its_key_five_times_with_one_deadline() {
        let (steps, _) = steps(&[MOVED; 6], IN_TIME);
        let mut deadlines = Vec::new();
        for step in &steps[..5] {
            let Some(Step::Read { operation, .. }) = step else {
                panic!("{step:?}");
            };
            deadlines.push(operation.deadline);
        }
        deadlines.dedup();
        assert_eq!(deadlines.len(), 1);
        let failure = Failure::NotReady;
        let is_over =
            matches!(&steps[5], Some(Step::End { tag: 1, failure: it }) if *it == failure);
        assert!(is_over, "{:?}", steps[5]);
    }

    #[test]
    fn a_read_without_time_ends_and_its_key_has_moved_all_the_same() {
        let (steps, waited) = steps(&[MOVED], Duration::ZERO);
        let failure = Failure::Timeout;
        let is_over =
            matches!(&steps[0], Some(Step::End { tag: 1, failure: it }) if *it == failure);
        assert!(is_over, "{:?}", steps[0]);
        assert_eq!(waited.waited(TO), 1);
    }

    #[test]
    fn a_key_of_a_slot_that_moves_is_asked_for_once_and_stays() {
        let (steps, waited) = steps(&[Redirect::Ask(None)], IN_TIME);
        let Some(Step::Send {
            to: TO,
            flight: Flight::Get { tag: 1, .. },
            is_asking: true,
            ..
        }) = &steps[0]
        else {
            panic!("{:?}", steps[0]);
        };
        assert_eq!(waited.waited(FROM), 1);
    }
}
