//! The exchanges of one loop that are answered later.

use super::guard::guarded;
use super::kind;
use super::link::LoopLink;
use super::state::ServerState;
use super::statistics::{add, set};
use crate::Detached;
use crate::app::{ExchangeId, Outcome};
use crate::handler::{Channel, Takeover, Work};
use crate::reply::Reply;
use dwell_evloop::{Slab, Token};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The state that a loop keeps of the exchanges that are not answered at once.
pub(crate) struct Host {
    held: Slab<Held>,
    link: Arc<LoopLink>,
    server: Arc<ServerState>,
    /// Connections that have left HTTP in the present delivery.
    pub(super) departed: Vec<(Detached, Takeover)>,
    #[cfg(feature = "tower")]
    pub(crate) locals: crate::handler::tower::Locals,
}

/// An exchange that is answered later: the engine's tag for it names this entry.
struct Held {
    exchange: ExchangeId,
    channel: Arc<Channel>,
    next: Next,
}

/// The program that goes on with an exchange beside the holder of its channel.
enum Next {
    /// A future, until it has come to its end.
    Task(Option<Task>),
    /// The program that takes the connection over when it leaves HTTP.
    TakeOver(Box<Takeover>),
}

impl Host {
    pub(super) fn new(link: Arc<LoopLink>, server: Arc<ServerState>) -> Self {
        Self {
            held: Slab::new(kind::HELD, usize::MAX),
            link,
            server,
            departed: Vec::new(),
            #[cfg(feature = "tower")]
            locals: crate::handler::tower::Locals::default(),
        }
    }

    pub(crate) fn server(&self) -> &Arc<ServerState> {
        &self.server
    }

    pub(crate) fn link(&self) -> &Arc<LoopLink> {
        &self.link
    }

    /// Exchanges that are answered later.
    pub(super) fn in_flight(&self) -> usize {
        self.held.len()
    }

    /// Makes an entry for an exchange.
    pub(crate) fn open(&mut self, exchange: ExchangeId) -> (Token, Arc<Channel>) {
        let token = self.held.next_token();
        let channel = Arc::new(Channel::new(Arc::clone(&self.link), token));
        let held = Held {
            exchange,
            channel: Arc::clone(&channel),
            next: Next::Task(None),
        };
        // Only four thousand million exchanges fill the table; a channel that is over serves then.
        if self.held.insert(held).is_err() {
            channel.end();
            return (Token::new(kind::HELD, 0, u32::MAX), channel);
        }
        (token, channel)
    }

    /// Gives an exchange the future that answers it.
    pub(crate) fn spawn(&mut self, token: Token, task: Task) {
        if let Some(held) = self.held.get_mut(token) {
            held.next = Next::Task(Some(task));
        }
    }

    pub(super) fn channel(&self, token: Token) -> Option<&Arc<Channel>> {
        self.held.get(token).map(|held| &held.channel)
    }

    pub(super) fn exchange(&self, token: Token) -> Option<ExchangeId> {
        self.held.get(token).map(|held| held.exchange)
    }

    /// Lets the future of an exchange go on, and returns what it and others have ordered by.
    pub(super) fn look(&mut self, token: Token) -> Option<Arc<Channel>> {
        let held = self.held.get_mut(token)?;
        let channel = Arc::clone(&held.channel);
        channel.looked();
        let Some(mut task) = held.next.take_task() else {
            return Some(channel);
        };
        let waker = Waker::from(Arc::clone(&channel));
        let polled = guarded(|| task.as_mut().poll(&mut Context::from_waker(&waker)));
        match polled {
            Ok(poll) if poll.is_pending() => {
                if let Some(held) = self.held.get_mut(token) {
                    held.next = Next::Task(Some(task));
                }
            }
            Ok(_) => self.drop_task(task),
            Err(_) => {
                self.count_panic();
                self.drop_task(task);
            }
        }
        Some(channel)
    }

    /// Within a callback of the engine: does what was ordered so far.
    pub(super) fn settle(&mut self, token: Token, reply: &mut Reply<'_>) -> Outcome {
        let Some(channel) = self.look(token) else {
            return Outcome::Answered;
        };
        channel.want(reply);
        match channel.work(reply) {
            Work::Open if reply.is_sent() && !reply.is_open() => {}
            Work::Open => return self.hold(token, reply),
            Work::Done => {}
            Work::Abort => {
                self.end(token);
                return Outcome::Close;
            }
            Work::TakeOver(answer, takeover) => {
                answer.send(reply);
                channel.end();
                self.will_take_over(token, takeover);
                return Outcome::Detach {
                    tag: token.to_bits(),
                };
            }
        }
        self.end(token);
        Outcome::Answered
    }

    /// The exchange stays as it is: until its handler goes on, or its time is up.
    pub(super) fn hold(&self, token: Token, reply: &Reply<'_>) -> Outcome {
        let timeout = self.link.settings().answer_timeout;
        Outcome::Held {
            tag: token.to_bits(),
            timeout: (!reply.is_open()).then_some(timeout),
        }
    }

    /// Begins the shutdown: handlers that wait for a change may answer without one.
    pub(super) fn drain(&mut self) {
        self.link.drain();
        for token in self.held.tokens() {
            if let Some(held) = self.held.get(token) {
                held.channel.drain();
            }
        }
    }

    /// An exchange has come to its end, in whatever way.
    pub(super) fn end(&mut self, token: Token) {
        let Some(held) = self.held.remove(token) else {
            return;
        };
        held.channel.end();
        if let Next::Task(Some(task)) = held.next {
            self.drop_task(task);
        }
    }

    /// The connection of an exchange is about to leave HTTP; nothing else goes on with it.
    fn will_take_over(&mut self, token: Token, takeover: Takeover) {
        let Some(held) = self.held.get_mut(token) else {
            return;
        };
        let task = held.next.take_task();
        held.next = Next::TakeOver(Box::new(takeover));
        if let Some(task) = task {
            self.drop_task(task);
        }
    }

    /// Takes the program that takes over the connection of an exchange.
    pub(super) fn take_over(&mut self, token: Token) -> Option<Takeover> {
        let next = std::mem::replace(&mut self.held.get_mut(token)?.next, Next::Task(None));
        self.end(token);
        match next {
            Next::TakeOver(takeover) => Some(*takeover),
            Next::Task(_) => None,
        }
    }

    pub(super) fn count_panic(&self) {
        add(&self.link.figures.panics, 1);
    }

    pub(super) fn publish(&self) {
        set(&self.link.figures.in_flight, self.held.len());
    }

    fn drop_task(&self, task: Task) {
        if guarded(|| drop(task)).is_err() {
            self.count_panic();
        }
    }
}

impl Next {
    fn take_task(&mut self) -> Option<Task> {
        match self {
            Self::Task(task) => task.take(),
            Self::TakeOver(_) => None,
        }
    }
}

/// Ends the exchanges of a loop that ends, in whatever way, so that their holders wake up.
impl Drop for Host {
    fn drop(&mut self) {
        let held: Vec<_> = self.held.tokens().collect();
        for token in held {
            self.end(token);
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("in_flight", &self.held.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_that_waits_is_small() {
        // With the connection's own entry: what a held long-poll costs.
        let bytes = size_of::<Held>() + size_of::<Channel>();
        assert!(
            bytes <= 136,
            "{} + {}",
            size_of::<Held>(),
            size_of::<Channel>()
        );
    }
}
