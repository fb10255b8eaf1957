//! The successor's side of an upgrade.

use super::talk::{Greeting, Place, SuccessorSide, SuccessorTalk};
use crate::event_loop::Message;
use crate::handoff::{
    Channel, Frame, FrameKind, HandedConnection, Handoff, InheritedListener, Role,
};
use crate::process::environment;
use dwell_evloop::{Acceptor, Fleet};
use dwell_store::Expiry;
use dwell_store_server::{Moment, StoreService, snapshot};
use std::env;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::parent_id;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

/// The process that serves until this one does.
#[derive(Debug)]
pub(in crate::process) struct Predecessor {
    channel: Channel,
    greeting: Greeting,
    owns_file: bool,
}

impl Predecessor {
    /// Finds the process that has started this one as its successor.
    ///
    /// Shape: every wait is bounded by `timeout` until this process serves.
    ///
    /// # Errors
    /// The exchange with the predecessor has failed.
    pub(in crate::process) fn from_environment(timeout: Duration) -> io::Result<Option<Self>> {
        let Some(parent) = env::var_os(environment::UPGRADE) else {
            return Ok(None);
        };
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        // The variable may be inherited from a process further up; only a successor has a channel.
        if socket.local_addr().is_err() {
            return Ok(None);
        }
        if parent.to_str().and_then(|text| text.parse().ok()) != Some(parent_id()) {
            let parent = parent.display();
            return Err(io::Error::other(format!("it is not the parent: {parent}")));
        }
        // No other descriptor may keep the channel open after it is closed.
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        let channel = Channel::new(socket, Instant::now() + timeout);
        Self::greeted(channel).map(Some)
    }

    pub(super) fn greeted(mut channel: Channel) -> io::Result<Self> {
        let mut greeting = Greeting::default();
        while !greeting.take(channel.receive()?)? {}
        let owns_file = greeting.owns_file();
        Ok(Self {
            channel,
            greeting,
            owns_file,
        })
    }

    /// Returns true if the predecessor has items.
    pub(in crate::process) fn has_store(&self) -> bool {
        self.greeting.has_store()
    }

    /// Returns true if the file of the store's unix socket is handed over with its listener.
    pub(in crate::process) fn owns_file(&self) -> bool {
        self.owns_file
    }

    /// Takes the listening sockets of the predecessor.
    pub(in crate::process) fn sockets(&mut self) -> Vec<InheritedListener> {
        self.greeting.sockets()
    }

    /// Takes over with the items, and with the keys of session tickets; returns when only this
    /// process serves. Connections that the predecessor hands over later are put in the queue of
    /// `handoff`.
    ///
    /// # Errors
    /// The predecessor has ended the upgrade and serves on, or a thread cannot be started.
    pub(in crate::process) fn succeed(
        mut self,
        service: Option<&StoreService>,
        acceptor: &Acceptor,
        fleet: &Arc<Fleet<Message>>,
        handoff: &Arc<Handoff>,
    ) -> io::Result<()> {
        // Steps that can fail are done while the predecessor serves.
        let follower = follower(Arc::clone(fleet), Arc::clone(handoff))?;
        let place = Place {
            service,
            acceptor,
            fleet,
            handoff,
        };
        let mut talk = SuccessorTalk::new(&self.greeting, place);
        // The channel waits for each frame.
        talk.go_on(place, &mut self.channel).unwrap_or(Ok(()))?;
        self.channel.set_deadline(None);
        // The thread waits for this.
        let _ = follower.send(self.channel);
        Ok(())
    }
}

impl SuccessorSide for Channel {
    fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.send_frame(&frame)
    }

    fn receive(&mut self) -> Option<io::Result<Frame>> {
        Some(Self::receive(self))
    }

    fn take_items(&mut self, service: &StoreService) -> io::Result<()> {
        take_items(self, service, Moment::now())
    }
}

/// Starts a thread that reads connections from a channel, once it is sent one.
fn follower(fleet: Arc<Fleet<Message>>, handoff: Arc<Handoff>) -> io::Result<SyncSender<Channel>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name("upgrade".to_owned());
    thread.spawn(move || {
        if let Ok(channel) = receiver.recv() {
            follow(channel, &fleet, &handoff).tell();
        }
    })?;
    Ok(sender)
}

/// The connections that the predecessor has sent, by what became of them here.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Followed {
    pub(super) taken: usize,
    /// Their frames came without what they need: the system leaves a descriptor out where this
    /// process may have no more of them, and the client's connection is closed by that.
    pub(super) lost: usize,
}

impl Followed {
    fn tell(self) {
        if self.lost > 0 {
            tracing::warn!(
                connections = self.lost,
                "connections that were handed over are lost, as there was no descriptor for them; \
                 raise the limit of open files (LimitNOFILE)"
            );
        }
        tracing::info!(
            connections = self.taken,
            "the process before this one has ended"
        );
    }
}

/// Puts the connections of a channel in the queue until the predecessor ends.
pub(super) fn follow(mut channel: Channel, fleet: &Fleet<Message>, handoff: &Handoff) -> Followed {
    let mut followed = Followed::default();
    // The stream ends when the predecessor ends; a fault ends it as well.
    while let Ok(frame) = channel.receive() {
        if let Some(connection) = connection(frame) {
            fleet.wake(handoff.queue.put(followed.taken, connection));
            followed.taken += 1;
        } else {
            followed.lost += 1;
        }
    }
    handoff.queue.close();
    followed
}

fn connection(mut frame: Frame) -> Option<HandedConnection> {
    if frame.kind == FrameKind::SecureConnection {
        return HandedConnection::secure(frame);
    }
    let is_trusted = frame.kind == FrameKind::TrustedConnection;
    if frame.kind != FrameKind::Connection && !is_trusted {
        return None;
    }
    Some(HandedConnection {
        role: Role::of(frame.mark)?,
        is_trusted,
        frozen: None,
        input: std::mem::take(&mut *frame.bytes),
        descriptor: frame.descriptor?,
    })
}

/// Takes the items of the predecessor.
pub(in crate::process) fn take_items(
    channel: &mut impl io::Read,
    service: &StoreService,
    now: Moment,
) -> io::Result<()> {
    // Two length fields bound the size of a record.
    let record_bytes_max = u64::from(u32::MAX) + u64::from(u8::MAX);
    let summary = snapshot::read(service.store(), channel, record_bytes_max, now)?;
    let summary = summary.ok_or_else(|| io::Error::other("the items are not complete"))?;
    if let Some(at) = summary.flush_at {
        service.flush_all(Expiry::at(at), now.steady);
    }
    let (items, restored) = (summary.items, summary.restored);
    tracing::info!(items, restored, "items taken over");
    summary.warn_of_left_out(service.store());
    Ok(())
}
