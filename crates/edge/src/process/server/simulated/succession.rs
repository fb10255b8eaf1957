//! The upgrade of a simulated process: the talk of `process/upgrade` between two processes in one
//! thread, whose frames come when a test lets them come.

use super::{Simulated, Turned};
use crate::config::Config;
use crate::handoff::{Frame, FrameKind, InheritedListener};
use crate::process::RunError;
use crate::process::inherited::Inherited;
use crate::process::listeners::Bound;
use crate::process::server::{EdgeServer, RunOptions};
use crate::process::upgrade::talk::{
    Greeting, MainProcess, Place, PredecessorSide, PredecessorTalk, SuccessorSide, SuccessorTalk,
};
use crate::process::upgrade::{UpgradeError, take_items, write_items};
use dwell_evloop::{Driver, Lifecycle};
use dwell_store_server::{Moment, StoreService};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};

/// An upgrade in progress.
pub(super) struct Upgrade {
    predecessor: PredecessorTalk,
    successor: Successor,
    way: Way,
}

/// A successor, as far as it has come.
enum Successor {
    /// It gets what it needs to start, with this configuration.
    Greeted(Greeting, Option<Box<Config>>),
    /// It has started.
    Talks(SuccessorTalk),
    Serves,
}

/// The way between the two processes.
#[derive(Default)]
struct Way {
    /// Frames of either one, which have not come.
    frames: VecDeque<Frame>,
    /// Items behind the frame that announces them.
    items: Vec<u8>,
    /// The frame that comes now, or what comes instead.
    arrived: Option<io::Result<Frame>>,
    /// One of the processes has gone.
    is_cut: bool,
}

/// The events of an upgrade.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UpgradeNews {
    /// Frames are awaited.
    GoesOn,
    /// The process before hands over, as this one serves.
    HandsOver,
    /// The process that served does so as before.
    GivenUp,
    /// No process is left.
    AllGone,
}

/// A frame that is in progress between the two processes of an upgrade, in the order of the talk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum UpgradeFrame {
    /// The first one to the successor.
    Hello,
    /// A listening socket.
    Listener,
    /// The last one that it needs to start.
    Listeners,
    /// From the successor: it could serve.
    Ready,
    /// Keys of session tickets.
    TicketKeys,
    /// The items.
    Store,
    /// From the successor: it has them.
    Taken,
    /// It is to serve.
    Serve,
    /// From the successor: it serves.
    Serving,
}

impl UpgradeFrame {
    fn of(kind: FrameKind) -> Option<Self> {
        Some(match kind {
            FrameKind::Hello => Self::Hello,
            FrameKind::Listener => Self::Listener,
            FrameKind::Listeners => Self::Listeners,
            FrameKind::Ready => Self::Ready,
            FrameKind::TicketKeys => Self::TicketKeys,
            FrameKind::Store => Self::Store,
            FrameKind::Taken => Self::Taken,
            FrameKind::Serve => Self::Serve,
            FrameKind::Serving => Self::Serving,
            FrameKind::Connection | FrameKind::TrustedConnection | FrameKind::SecureConnection => {
                return None;
            }
        })
    }
}

fn is_of_successor(frame: &Frame) -> bool {
    let kinds = [FrameKind::Ready, FrameKind::Taken, FrameKind::Serving];
    kinds.contains(&frame.kind)
}

impl Simulated {
    /// Begins the talk with a successor that has this configuration.
    ///
    /// Returns false, and does nothing, where SIGUSR2 would be refused.
    pub fn begin_upgrade(&mut self, config: Config) -> bool {
        let is_ending = self.server.fleet.lifecycle() != Lifecycle::Serve;
        if is_ending || self.before.is_some() || self.upgrade.is_some() {
            return false;
        }
        let sockets = come_to_rest(&mut self.loops);
        self.upgrade = Some(Box::new(Upgrade {
            predecessor: PredecessorTalk::new(self.server.service.is_some(), sockets),
            successor: Successor::Greeted(Greeting::default(), Some(Box::new(config))),
            way: Way::default(),
        }));
        self.predecessor_goes_on();
        true
    }

    /// Returns true from the begin of an upgrade until the process before hands over, or until it
    /// is given up.
    pub fn is_upgrading(&self) -> bool {
        self.upgrade.is_some()
    }

    /// Returns true while the loops of the process before have not ended.
    pub fn has_predecessor(&self) -> bool {
        self.before.is_some()
    }

    /// Returns true while the loops of a process are paused for its successor.
    pub fn is_paused(&self) -> bool {
        self.is_paused || self.before.as_ref().is_some_and(|before| before.is_paused)
    }

    /// The frame that comes next.
    pub fn next_frame(&self) -> Option<UpgradeFrame> {
        let next = self.upgrade.as_ref()?.way.frames.front()?;
        UpgradeFrame::of(next.kind)
    }

    /// Has the next frame come.
    pub fn deliver(&mut self) -> UpgradeNews {
        let Some(upgrade) = &mut self.upgrade else {
            return UpgradeNews::GivenUp;
        };
        let Some(frame) = upgrade.way.frames.pop_front() else {
            return UpgradeNews::GoesOn;
        };
        let to_predecessor = is_of_successor(&frame);
        upgrade.way.arrived = Some(Ok(frame));
        if to_predecessor {
            return self.predecessor_goes_on();
        }
        match self.successor_goes_on() {
            None | Some(Ok(())) => UpgradeNews::GoesOn,
            // It ends.
            Some(Err(_)) => self.lose_successor(),
        }
    }

    /// The time is over in which the predecessor waits for a frame.
    pub fn time_out_upgrade(&mut self) -> UpgradeNews {
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.way.arrived = Some(Err(ErrorKind::TimedOut.into()));
        }
        self.predecessor_goes_on()
    }

    /// The successor ends, before it serves. The frames that it has sent come first.
    pub fn lose_successor(&mut self) -> UpgradeNews {
        self.next = None;
        self.cut(true);
        self.predecessor_goes_on_to_the_end()
    }

    /// The predecessor ends. The frames that it has sent come first.
    pub fn lose_predecessor(&mut self) -> UpgradeNews {
        self.cut(false);
        if self.before.take().is_some() {
            self.upgrade = None;
            self.server.handoff.queue.close();
            return UpgradeNews::HandsOver;
        }
        while let Some(upgrade) = &mut self.upgrade {
            let frame = upgrade.way.frames.pop_front();
            upgrade.way.arrived = Some(frame.ok_or_else(|| ErrorKind::UnexpectedEof.into()));
            match self.successor_goes_on() {
                None => {}
                Some(Ok(())) => {
                    // The other one has gone.
                    (self.before, self.upgrade) = (None, None);
                    return UpgradeNews::HandsOver;
                }
                Some(Err(_)) => (self.next, self.upgrade) = (None, None),
            }
        }
        self.loops.clear();
        UpgradeNews::AllGone
    }

    /// Ends one of the processes, and forgets what was sent to it.
    fn cut(&mut self, is_successor: bool) {
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.way.is_cut = true;
            let frames = &mut upgrade.way.frames;
            frames.retain(|frame| is_of_successor(frame) == is_successor);
        }
    }

    fn predecessor_goes_on_to_the_end(&mut self) -> UpgradeNews {
        let mut news = UpgradeNews::GivenUp;
        while let Some(upgrade) = &mut self.upgrade {
            let frame = upgrade.way.frames.pop_front();
            upgrade.way.arrived = Some(frame.ok_or_else(|| ErrorKind::UnexpectedEof.into()));
            news = self.predecessor_goes_on();
        }
        news
    }

    /// The predecessor does what it can before the next frame.
    fn predecessor_goes_on(&mut self) -> UpgradeNews {
        let Some(mut upgrade) = self.upgrade.take() else {
            return UpgradeNews::GivenUp;
        };
        let Self {
            server,
            loops,
            is_paused,
            ..
        } = match &mut self.before {
            Some(before) => &mut **before,
            None => &mut *self,
        };
        let mut side = OldSide {
            loops,
            is_paused,
            server,
            way: &mut upgrade.way,
        };
        match upgrade.predecessor.go_on(place_of(server), &mut side) {
            None => {
                self.upgrade = Some(upgrade);
                UpgradeNews::GoesOn
            }
            Some(Ok(())) => {
                self.take_given();
                UpgradeNews::HandsOver
            }
            Some(Err(_)) => {
                self.next = None;
                UpgradeNews::GivenUp
            }
        }
    }

    /// The successor does what it can before the next frame; returns the end of its talk.
    fn successor_goes_on(&mut self) -> Option<io::Result<()>> {
        let mut upgrade = self.upgrade.take()?;
        let (next, done) = upgrade.successor_goes_on(self.next.take());
        if matches!(done, Some(Ok(())))
            && let Some(next) = next
        {
            let before = std::mem::replace(self, *next);
            self.before = Some(Box::new(before));
        } else {
            self.next = next;
        }
        self.upgrade = Some(upgrade);
        done
    }

    /// Ends the process before, if all its loops have ended.
    pub(super) fn end_before(&mut self) {
        let has_ended = |before: &mut Box<Self>| before.loops.iter().all(Option::is_none);
        if self.before.take_if(has_ended).is_some() {
            self.server.handoff.queue.close();
        }
    }

    /// Takes the connections that the process before has given.
    pub(super) fn take_given(&mut self) {
        let Some(before) = &self.before else {
            return;
        };
        let Some(sender) = before.server.handoff.sender() else {
            return;
        };
        let (fleet, queue) = (&self.server.fleet, &self.server.handoff.queue);
        while let Some(connection) = sender.take(|| before.server.fleet.wake_all()) {
            fleet.wake(queue.put(self.taken, connection));
            self.taken += 1;
        }
    }
}

impl Upgrade {
    /// The successor takes the frame that has come, and does what it can before the next one.
    fn successor_goes_on(
        &mut self,
        mut next: Option<Box<Simulated>>,
    ) -> (Option<Box<Simulated>>, Option<io::Result<()>>) {
        if let Successor::Greeted(greeting, config) = &mut self.successor {
            match greeting.take_arrived(&mut self.way) {
                Ok(false) => return (None, None),
                Ok(true) => {}
                Err(error) => return (None, Some(Err(error))),
            }
            let Some(config) = config.take() else {
                return (None, None);
            };
            let started = match start(*config, greeting) {
                Ok(started) => started,
                Err(error) => return (None, Some(Err(io::Error::other(error.to_string())))),
            };
            let talk = SuccessorTalk::new(greeting, place_of(&started.server));
            self.successor = Successor::Talks(talk);
            next = Some(Box::new(started));
        }
        let (Successor::Talks(talk), Some(process)) = (&mut self.successor, &next) else {
            return (next, None);
        };
        let done = talk.go_on(place_of(&process.server), &mut self.way);
        if matches!(done, Some(Ok(()))) {
            self.successor = Successor::Serves;
        }
        (next, done)
    }
}

impl Greeting {
    fn take_arrived(&mut self, way: &mut Way) -> io::Result<bool> {
        way.arrived
            .take()
            .map_or(Ok(false), |frame| self.take(frame?))
    }
}

/// Starts a successor with the sockets that it has got.
fn start(config: Config, greeting: &mut Greeting) -> Result<Simulated, RunError> {
    let sockets = greeting.sockets();
    let bind = |config: &Config, loops, demo| {
        let bound = Bound::bind(config, loops, demo, Inherited::handed(sockets))?;
        Ok((None, bound))
    };
    EdgeServer::start_on(config, RunOptions::default(), bind).map(Simulated::of)
}

fn place_of(server: &EdgeServer) -> Place<'_> {
    Place {
        service: server.service.as_deref(),
        acceptor: server.certificates.acceptor(),
        fleet: &server.fleet,
        handoff: &server.handoff,
    }
}

/// Has every loop come to rest, and returns their listening sockets.
fn come_to_rest(loops: &mut [Option<Turned>]) -> Vec<InheritedListener> {
    let mut sockets = Vec::new();
    for turned in loops.iter_mut().flatten() {
        turned.edge.settle(turned.event_loop.context());
        sockets.extend(turned.edge.servers.sockets());
    }
    sockets
}

impl Way {
    fn send(&mut self, frame: Frame) -> io::Result<()> {
        if self.is_cut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.frames.push_back(frame);
        Ok(())
    }
}

impl SuccessorSide for Way {
    fn send(&mut self, frame: Frame) -> io::Result<()> {
        Self::send(self, frame)
    }

    fn receive(&mut self) -> Option<io::Result<Frame>> {
        self.arrived.take()
    }

    fn take_items(&mut self, service: &StoreService) -> io::Result<()> {
        let items = std::mem::take(&mut self.items);
        take_items(&mut &items[..], service, Moment::now())
    }
}

/// The side of the process that has served so far.
struct OldSide<'s> {
    loops: &'s mut Vec<Option<Turned>>,
    is_paused: &'s mut bool,
    server: &'s EdgeServer,
    way: &'s mut Way,
}

impl PredecessorSide for OldSide<'_> {
    fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.way.send(frame)
    }

    fn receive(&mut self) -> Option<io::Result<Frame>> {
        self.way.arrived.take()
    }

    fn receive_last(&mut self) -> Option<Frame> {
        self.way.is_cut = true;
        self.way.frames.pop_front().filter(is_of_successor)
    }

    fn write_items(&mut self, service: &StoreService) -> io::Result<()> {
        write_items(service, &mut self.way.items)
    }

    fn pause(&mut self) -> Result<(), UpgradeError> {
        if self.server.fleet.lifecycle() != Lifecycle::Serve {
            return Err(UpgradeError::Ending);
        }
        drop(come_to_rest(self.loops));
        *self.is_paused = true;
        Ok(())
    }

    /// The loops go on where they have waited, at the ends of their turns.
    fn resume(&mut self) {
        if std::mem::take(self.is_paused) {
            for turned in self.loops.iter_mut().flatten() {
                turned.edge.turn_end(turned.event_loop.context());
            }
        }
    }

    fn name_main(&mut self, _: MainProcess) {}

    fn hands_over(&mut self) {}
}
