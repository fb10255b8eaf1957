//! The successor's side of the talk.

use super::{OWNS_FILE, Place, VERSION};
use crate::handoff::{
    Frame, FrameKind, InheritedListener, ListenAddress, ReadsClient, Role, TakesTls,
};
use dwell_store_server::StoreService;
use std::collections::VecDeque;
use std::io;
use zeroize::Zeroizing;

/// The first part of the talk: a process gets what it needs to start.
#[derive(Debug, Default)]
pub(in crate::process) struct Greeting {
    /// The predecessor has a store; unset before its `Hello`.
    has_store: Option<bool>,
    sockets: Vec<InheritedListener>,
}

impl Greeting {
    /// Takes a frame; returns true if it is the last one.
    ///
    /// # Errors
    /// The frame is not the one that follows, or another version is spoken.
    pub(in crate::process) fn take(&mut self, frame: Frame) -> io::Result<bool> {
        if self.has_store.is_none() {
            let hello = frame.expected(FrameKind::Hello)?;
            if *hello.bytes != [VERSION] {
                let message = format!("it speaks version {:?}, not {VERSION}", *hello.bytes);
                return Err(io::Error::other(message));
            }
            self.has_store = Some(hello.mark == 1);
            return Ok(false);
        }
        match (frame.kind, handed(frame)) {
            (FrameKind::Listener, Some(socket)) => self.sockets.push(socket),
            (FrameKind::Listeners, _) => return Ok(true),
            _ => return Err(io::Error::other("a listening socket was expected")),
        }
        Ok(false)
    }

    /// Returns true if the predecessor has a store.
    pub(in crate::process) fn has_store(&self) -> bool {
        self.has_store == Some(true)
    }

    /// Takes the listening sockets of the predecessor.
    pub(in crate::process) fn sockets(&mut self) -> Vec<InheritedListener> {
        std::mem::take(&mut self.sockets)
    }

    /// Returns true if one of the sockets, which were not taken yet, goes with its file.
    pub(in crate::process) fn owns_file(&self) -> bool {
        self.sockets.iter().any(|handed| handed.owns_file)
    }
}

fn handed(frame: Frame) -> Option<InheritedListener> {
    Some(InheritedListener {
        role: Role::of(frame.mark & !OWNS_FILE)?,
        address: ListenAddress::from_bytes(&frame.bytes),
        owns_file: frame.mark & OWNS_FILE != 0,
        descriptor: frame.descriptor?,
    })
}

/// An event of the successor.
#[derive(Debug)]
pub(super) enum Event {
    /// The last act is done.
    Done,
    /// A frame has come.
    Received(Frame),
    /// The predecessor has gone, a deadline is over, or the last act has failed.
    Failed(io::Error),
}

/// The next act of the successor.
#[derive(Debug)]
pub(super) enum Act {
    /// Send this frame.
    Send(Frame),
    /// Wait for a frame.
    Receive,
    /// Take over keys of session tickets.
    ThawKeys(Zeroizing<Vec<u8>>),
    /// Take the items of the store.
    TakeItems,
    /// Take connections of the predecessor from now on.
    OpenQueue,
    /// Serve.
    End,
    /// The predecessor serves on, and this process ends.
    GiveUp(io::Error),
}

/// The frame that the successor waits for next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaits {
    /// Keys of session tickets, or what follows them.
    Keys,
    Store,
    Serve,
    /// The talk has ended.
    Nothing,
}

/// The second part of the talk, of a process that has started.
#[derive(Debug)]
pub(in crate::process) struct SuccessorTalk {
    /// Acts before the next frame.
    acts: VecDeque<Act>,
    awaits: Awaits,
    wants_store: bool,
    reads: ReadsClient,
}

impl SuccessorTalk {
    /// Goes on with the talk in a process that could serve now.
    pub(in crate::process) fn new(greeting: &Greeting, place: Place<'_>) -> Self {
        let wants_store = greeting.has_store() && place.service.is_some();
        let takes = TakesTls::of(place.acceptor);
        Self::begin(wants_store, takes, ReadsClient::of(place.acceptor))
    }

    pub(super) fn begin(wants_store: bool, takes: TakesTls, reads: ReadsClient) -> Self {
        let first = Frame::new(FrameKind::Ready, u8::from(wants_store), &takes.to_bytes());
        Self {
            acts: [Act::Send(first)].into(),
            awaits: Awaits::Keys,
            wants_store,
            reads,
        }
    }

    /// Goes on until a frame is awaited that has not come: `None`; or until the process serves.
    ///
    /// # Errors
    /// The predecessor has ended the upgrade, or this process cannot take over.
    pub(in crate::process) fn go_on(
        &mut self,
        place: Place<'_>,
        side: &mut impl SuccessorSide,
    ) -> Option<io::Result<()>> {
        let mut event = Event::Done;
        loop {
            let result = match self.next(event) {
                Act::Receive => {
                    event = side.receive()?.map_or_else(Event::Failed, Event::Received);
                    continue;
                }
                Act::Send(frame) => side.send(frame),
                Act::ThawKeys(keys) => {
                    let thawed = place.acceptor.thaw_ticket_keys(&keys);
                    thawed.map_err(io::Error::other)
                }
                Act::TakeItems => place.service.map_or(Ok(()), |it| side.take_items(it)),
                Act::OpenQueue => {
                    place.handoff.queue.open();
                    Ok(())
                }
                Act::End => return Some(Ok(())),
                Act::GiveUp(error) => return Some(Err(error)),
            };
            event = result.map_or_else(Event::Failed, |()| Event::Done);
        }
    }

    /// Takes an event, and returns the next act.
    pub(super) fn next(&mut self, event: Event) -> Act {
        match event {
            Event::Done => {}
            Event::Received(frame) => {
                if let Err(error) = self.received(frame) {
                    self.give_up(error);
                }
            }
            Event::Failed(error) => self.give_up(error),
        }
        self.acts.pop_front().unwrap_or(Act::Receive)
    }

    fn received(&mut self, mut frame: Frame) -> io::Result<()> {
        match self.awaits {
            Awaits::Keys if frame.kind == FrameKind::TicketKeys => {
                self.awaits = Awaits::Store;
                let keys = std::mem::take(&mut frame.bytes);
                self.acts.push_back(Act::ThawKeys(keys));
            }
            Awaits::Keys | Awaits::Store => {
                let store = frame.expected(FrameKind::Store)?;
                self.awaits = Awaits::Serve;
                if store.mark == 1 && self.wants_store {
                    self.acts.push_back(Act::TakeItems);
                }
                let taken = Frame::new(FrameKind::Taken, 0, b"");
                self.acts.push_back(Act::Send(taken));
            }
            Awaits::Serve | Awaits::Nothing => {
                frame.expected(FrameKind::Serve)?;
                self.awaits = Awaits::Nothing;
                let serving = Frame::new(FrameKind::Serving, self.reads.to_mark(), b"");
                let acts = [Act::Send(serving), Act::OpenQueue, Act::End];
                self.acts.extend(acts);
            }
        }
        Ok(())
    }

    /// Ends the talk.
    fn give_up(&mut self, error: io::Error) {
        self.acts = [Act::GiveUp(error)].into();
        self.awaits = Awaits::Nothing;
    }
}

/// The way in which a successor carries out acts of the talk.
pub(in crate::process) trait SuccessorSide {
    /// Sends a frame.
    ///
    /// # Errors
    /// The predecessor has gone.
    fn send(&mut self, frame: Frame) -> io::Result<()>;

    /// Receives a frame; `None` if it has to be waited for elsewhere.
    ///
    /// # Errors
    /// The predecessor has gone, or has not sent one in time.
    fn receive(&mut self) -> Option<io::Result<Frame>>;

    /// Takes the items of the predecessor into a store.
    ///
    /// # Errors
    /// They are not complete, or cannot be read.
    fn take_items(&mut self, service: &StoreService) -> io::Result<()>;
}
