//! The state of a loop beside the answers that it owes.

use super::guard::guarded;
use super::kind;
use super::link::LoopLink;
use super::state::ServerState;
use super::statistics::add;
use crate::Detached;
use crate::desk::{self, Attention, Entry, Line, Owed};
use crate::handler::{Answer, Takeover};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

/// The answers that a loop of a server owes.
pub(crate) type Ledger = desk::Ledger<LoopLink, Next>;
/// The handle of one of them.
pub(crate) type Channel = Owed<LoopLink>;
/// An order for one of them.
pub(crate) type Order = desk::Order<LoopLink>;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The part of a loop that its handlers may use.
pub(crate) struct Host {
    pub(crate) link: Arc<LoopLink>,
    pub(crate) server: Arc<ServerState>,
    /// Connections that have left HTTP in the present delivery.
    pub(super) departed: Vec<(Detached, Takeover)>,
    #[cfg(feature = "tower")]
    pub(crate) locals: crate::handler::Locals,
}

/// The future that goes on with an exchange beside the holder of its handle, until it has come to
/// its end.
#[derive(Default)]
pub(crate) struct Next(Option<Task>);

impl Host {
    pub(super) fn new(link: Arc<LoopLink>, server: Arc<ServerState>) -> Self {
        Self {
            link,
            server,
            departed: Vec::new(),
            #[cfg(feature = "tower")]
            locals: crate::handler::Locals::default(),
        }
    }

    pub(super) fn ledger(&self) -> Ledger {
        Ledger::new(kind::HELD, Arc::clone(&self.link))
    }
}

impl Next {
    pub(crate) fn of(future: impl Future<Output = ()> + 'static) -> Self {
        Self(Some(Box::pin(future)))
    }

    /// Drops what a handler has made.
    pub(super) fn discard(&mut self, link: &LoopLink) {
        if let Some(task) = self.0.take()
            && guarded(|| drop(task)).is_err()
        {
            link.count_panic();
        }
    }
}

impl Entry<LoopLink> for Next {
    fn go_on(&mut self, owed: &Arc<Channel>) {
        let Some(task) = &mut self.0 else {
            return;
        };
        let waker = Waker::from(Arc::clone(owed));
        let polled = guarded(|| task.as_mut().poll(&mut Context::from_waker(&waker)));
        if polled.is_err() {
            owed.line().count_panic();
        }
        if !polled.is_ok_and(|poll| poll.is_pending()) {
            self.discard(owed.line());
        }
    }
}

impl Line for LoopLink {
    type Answer = Answer;
    type Takeover = Takeover;

    fn output_bytes_max(&self) -> usize {
        self.settings().limits.output_bytes_max
    }

    fn body_window_bytes(&self) -> u64 {
        self.settings().body_window_bytes
    }

    fn is_draining(&self) -> bool {
        LoopLink::is_draining(self)
    }

    fn attention(&self) -> &Attention {
        LoopLink::attention(self)
    }

    /// Shape: the loop itself looks before its turn ends.
    fn wake(&self, _: bool) {
        if !self.is_here() {
            self.sender().wake();
        }
    }
}

impl LoopLink {
    pub(super) fn count_panic(&self) {
        add(&self.figures.panics, 1);
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Next").field(&self.0.is_some()).finish()
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}
