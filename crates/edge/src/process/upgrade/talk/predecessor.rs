//! The predecessor's side of the talk.

use super::super::UpgradeError;
use super::{OWNS_FILE, Place, VERSION};
use crate::handoff::{Frame, FrameKind, HandoffSender, InheritedListener, ReadsClient, TakesTls};
use dwell_evloop::Lifecycle;
#[cfg(feature = "sim")]
use dwell_evloop::sim::Planted;
use dwell_store_server::StoreService;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use zeroize::Zeroizing;

/// The process that a service manager takes for the main one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::process) enum MainProcess {
    /// The predecessor.
    This,
    /// Its successor.
    Successor,
}

/// An event of the predecessor.
#[derive(Debug)]
pub(super) enum Event {
    /// The last act is done.
    Done,
    /// These are the keys of session tickets, if there are any.
    Frozen(Option<Zeroizing<Vec<u8>>>),
    /// A frame has come.
    Received(Frame),
    /// The successor sends nothing more, and had sent this frame before.
    Last(Option<Frame>),
    /// The successor has gone, or a deadline is over.
    Lost(io::Error),
    /// The last act has failed in this process.
    Failed(UpgradeError),
}

/// The next act of the predecessor.
#[derive(Debug)]
pub(super) enum Act {
    /// Send this frame.
    Send(Frame),
    /// Wait for a frame.
    Receive,
    /// Let the successor send nothing more, and take what it has sent.
    ReceiveLast,
    /// Pause all loops.
    Pause,
    /// Freeze the keys of session tickets.
    FreezeKeys,
    /// Write the items of the store.
    WriteItems,
    /// Tell the service manager which process is the main one.
    NameMain(MainProcess),
    /// Take no more writes in the store.
    RetireStore,
    /// Have the loops hand over, to a successor that reads this of clients.
    HandOver(ReadsClient),
    /// Let the loops go on.
    Resume,
    /// The successor serves.
    End,
    /// The upgrade has failed, and this process serves on.
    GiveUp(UpgradeError),
}

/// The frame that the predecessor waits for next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaits {
    Ready,
    Taken,
    Serving,
    /// The talk has ended.
    Nothing,
}

/// The predecessor's side of the talk.
#[derive(Debug)]
pub(in crate::process) struct PredecessorTalk {
    /// Acts before the next frame.
    acts: VecDeque<Act>,
    awaits: Awaits,
    /// The step of the last act, for messages.
    step: &'static str,
    has_store: bool,
    wants_store: bool,
    takes: TakesTls,
    /// The deadline that is over, while the last frame is taken.
    late: Option<io::Error>,
}

impl PredecessorTalk {
    /// Begins the talk with a successor that gets these listening sockets.
    pub(in crate::process) fn new(has_store: bool, sockets: Vec<InheritedListener>) -> Self {
        let hello = Frame::new(FrameKind::Hello, u8::from(has_store), &[VERSION]);
        let listeners = sockets.into_iter().map(|socket| {
            let owns_file = if socket.owns_file { OWNS_FILE } else { 0 };
            let mark = socket.role as u8 | owns_file;
            let frame = Frame::new(FrameKind::Listener, mark, &socket.address.to_bytes());
            frame.with(socket.descriptor)
        });
        let end = Frame::new(FrameKind::Listeners, 0, b"");
        let frames = [hello].into_iter().chain(listeners).chain([end]);
        Self {
            acts: frames.map(Act::Send).collect(),
            awaits: Awaits::Ready,
            step: "greeting it",
            has_store,
            wants_store: false,
            takes: TakesTls::Nothing,
            late: None,
        }
    }

    /// Goes on until a frame is awaited that has not come: `None`; or until the talk has ended.
    ///
    /// # Errors
    /// The upgrade has failed, and the process serves as before.
    pub(in crate::process) fn go_on(
        &mut self,
        place: Place<'_>,
        side: &mut impl PredecessorSide,
    ) -> Option<Result<(), UpgradeError>> {
        let mut event = Event::Done;
        loop {
            event = match self.next(event) {
                Act::Receive => match side.receive()? {
                    Ok(frame) => Event::Received(frame),
                    Err(error) => Event::Lost(error),
                },
                Act::End => return Some(Ok(())),
                Act::GiveUp(error) => return Some(Err(error)),
                act => self.carry_out(act, place, side),
            };
        }
    }

    /// Carries out an act that is no wait and no end.
    fn carry_out(&self, act: Act, place: Place<'_>, side: &mut impl PredecessorSide) -> Event {
        let lost = |result: io::Result<()>| result.map_or_else(Event::Lost, |()| Event::Done);
        match act {
            Act::Send(frame) => return lost(side.send(frame)),
            Act::WriteItems => {
                let written = place.service.map_or(Ok(()), |it| side.write_items(it));
                return lost(written);
            }
            Act::Pause => return side.pause().map_or_else(Event::Failed, |()| Event::Done),
            Act::FreezeKeys => return Event::Frozen(place.acceptor.freeze_ticket_keys()),
            Act::NameMain(main) => side.name_main(main),
            Act::RetireStore => {
                if let Some(service) = place.service {
                    service.store().retire();
                }
            }
            Act::HandOver(reads) => {
                let sender = HandoffSender::new(self.wants_store);
                let sender = sender.with_tls(self.takes, reads, place.acceptor);
                place.handoff.begin(sender);
                place.fleet.advance(Lifecycle::HandOver);
                side.hands_over();
            }
            Act::Resume => side.resume(),
            Act::ReceiveLast => return Event::Last(side.receive_last()),
            Act::Receive | Act::End | Act::GiveUp(_) => {}
        }
        Event::Done
    }

    /// Takes an event, and returns the next act.
    pub(super) fn next(&mut self, event: Event) -> Act {
        match event {
            Event::Done => {}
            Event::Frozen(keys) => {
                if let Some(keys) = keys {
                    let frame = Frame::new(FrameKind::TicketKeys, 0, &keys);
                    self.acts.push_front(Act::Send(frame));
                }
            }
            Event::Received(frame) | Event::Last(Some(frame)) => self.received(frame),
            Event::Last(None) => {
                let error = self
                    .late
                    .take()
                    .unwrap_or_else(|| ErrorKind::TimedOut.into());
                self.give_up(UpgradeError::Talk(self.step, error));
            }
            Event::Lost(error) if self.may_serve_after(&error) => {
                self.late = Some(error);
                self.acts = [Act::ReceiveLast].into();
            }
            Event::Lost(error) => self.give_up(UpgradeError::Talk(self.step, error)),
            Event::Failed(error) => self.give_up(error),
        }
        let act = self.acts.pop_front().unwrap_or(Act::Receive);
        if let Some(step) = self.step_of(&act) {
            self.step = step;
        }
        act
    }

    fn received(&mut self, frame: Frame) {
        let expected = match self.awaits {
            Awaits::Ready => FrameKind::Ready,
            Awaits::Taken => FrameKind::Taken,
            Awaits::Serving | Awaits::Nothing => FrameKind::Serving,
        };
        let frame = match frame.expected(expected) {
            Ok(frame) => frame,
            Err(error) => return self.give_up(UpgradeError::Talk(self.step, error)),
        };
        match self.awaits {
            Awaits::Ready => self.ready(&frame),
            Awaits::Taken => {
                self.awaits = Awaits::Serving;
                #[cfg(feature = "sim")]
                self.plant_early();
                let serve = Frame::new(FrameKind::Serve, 0, b"");
                self.acts.extend([
                    // A service manager takes no word from the successor before this.
                    Act::NameMain(MainProcess::Successor),
                    Act::Send(serve),
                ]);
            }
            Awaits::Serving => {
                self.awaits = Awaits::Nothing;
                self.acts.extend([
                    Act::RetireStore,
                    Act::HandOver(ReadsClient::from_mark(frame.mark)),
                    Act::Resume,
                    Act::End,
                ]);
            }
            Awaits::Nothing => {}
        }
    }

    /// The successor could serve.
    fn ready(&mut self, ready: &Frame) {
        self.awaits = Awaits::Taken;
        self.wants_store = ready.mark == 1;
        self.takes = TakesTls::from_bytes(&ready.bytes);
        let gives_store = self.has_store && self.wants_store;
        self.acts.push_back(Act::Pause);
        if self.takes.takes_ticket_keys() {
            self.acts.push_back(Act::FreezeKeys);
        }
        let store = Frame::new(FrameKind::Store, u8::from(gives_store), b"");
        self.acts.push_back(Act::Send(store));
        if gives_store {
            self.acts.push_back(Act::WriteItems);
        }
        #[cfg(feature = "sim")]
        if Planted::EarlySnapshot.is_in() {
            self.acts.pop_front();
        }
    }

    /// Has the bugs that come as soon as the successor has the items.
    #[cfg(feature = "sim")]
    fn plant_early(&mut self) {
        let bugs = [
            (Planted::EarlySnapshot, Act::Pause),
            (Planted::EarlyRetire, Act::RetireStore),
            (Planted::EarlyResume, Act::Resume),
        ];
        let acts = bugs.into_iter().filter(|(bug, _)| bug.is_in());
        self.acts.extend(acts.map(|(_, act)| act));
    }

    /// Returns true if the successor may send at this moment that it serves.
    ///
    /// Both processes would serve if that frame were neither taken nor refused.
    fn may_serve_after(&self, error: &io::Error) -> bool {
        self.awaits == Awaits::Serving && error.kind() == ErrorKind::TimedOut
    }

    /// Undoes what was done, and ends the talk.
    fn give_up(&mut self, error: UpgradeError) {
        self.acts.clear();
        if self.awaits == Awaits::Serving {
            self.acts.push_back(Act::NameMain(MainProcess::This));
        }
        if self.awaits != Awaits::Ready {
            self.acts.push_back(Act::Resume);
        }
        self.acts.push_back(Act::GiveUp(error));
        self.awaits = Awaits::Nothing;
    }

    /// The step that an act belongs to, if it talks to the successor.
    fn step_of(&self, act: &Act) -> Option<&'static str> {
        let kind = match act {
            Act::Send(frame) => frame.kind,
            Act::WriteItems => FrameKind::Store,
            Act::Receive if self.awaits == Awaits::Ready => FrameKind::Ready,
            Act::Receive if self.awaits == Awaits::Taken => FrameKind::Taken,
            Act::Receive | Act::ReceiveLast => FrameKind::Serving,
            _ => return None,
        };
        Some(match kind {
            FrameKind::Hello | FrameKind::Listener | FrameKind::Listeners => "greeting it",
            FrameKind::Ready => "waiting until it could serve",
            FrameKind::TicketKeys => "giving it the keys",
            FrameKind::Store | FrameKind::Taken => "giving it the items",
            _ => "telling it to serve",
        })
    }
}

/// The way in which a predecessor carries out acts of the talk.
pub(in crate::process) trait PredecessorSide {
    /// Sends a frame.
    ///
    /// # Errors
    /// The successor has gone, or does not read in time.
    fn send(&mut self, frame: Frame) -> io::Result<()>;

    /// Receives a frame; `None` if it has to be waited for elsewhere.
    ///
    /// # Errors
    /// The successor has gone, or has not sent one in time.
    fn receive(&mut self) -> Option<io::Result<Frame>>;

    /// Has every later frame of the successor fail at the successor, and returns the frame that it
    /// had sent before; does not wait.
    fn receive_last(&mut self) -> Option<Frame>;

    /// Writes the items of a store.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn write_items(&mut self, service: &StoreService) -> io::Result<()>;

    /// Pauses all loops.
    ///
    /// # Errors
    /// A loop does not end its turn, or the process is ending; nothing is paused then.
    fn pause(&mut self) -> Result<(), UpgradeError>;

    /// Lets the loops go on, if they are paused.
    fn resume(&mut self);

    /// Tells the service manager which process is the main one.
    fn name_main(&mut self, main: MainProcess);

    /// Notes that the loops hand over as soon as they go on.
    fn hands_over(&mut self);
}
