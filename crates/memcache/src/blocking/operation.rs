//! Operations that their caller carries out, exchange by exchange.

use std::fmt;

use super::Client;
use super::budget::Budget;
use super::exchange::{Exchange, Replies};
use super::parallel::{Ended, Job};

/// An operation that its caller carries out.
///
/// Shape: [`into_parts`](Self::into_parts) gives its exchanges, none or one for each server that
/// has a part in it, which may be done at the same time, and what makes their result of them.
pub struct Operation<R> {
    exchanges: Vec<Exchange>,
    finish: Finish<R>,
}

/// Makes the result of exchanges that are over. An exchange that is not has timed out.
pub type Finish<R> = Box<dyn FnOnce(Vec<Exchange>) -> R + Send + Sync>;

impl<R: 'static> Operation<R> {
    pub(super) fn new(
        exchanges: Vec<Exchange>,
        finish: impl FnOnce(Vec<Exchange>) -> R + Send + Sync + 'static,
    ) -> Self {
        Self {
            exchanges,
            finish: Box::new(finish),
        }
    }

    /// Returns its exchanges, and what makes the result.
    pub fn into_parts(self) -> (Vec<Exchange>, Finish<R>) {
        (self.exchanges, self.finish)
    }
}

impl<R> fmt::Debug for Operation<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("exchanges", &self.exchanges)
            .finish_non_exhaustive()
    }
}

/// Makes an exchange of each job; `own` gives its receiver what it has borrowed.
pub(super) fn exchanges<T: super::connection::Take>(
    client: &Client,
    budget: Budget,
    jobs: Vec<Job<T>>,
    own: impl Fn(T) -> Replies,
) -> Vec<Exchange> {
    let exchange = |job: Job<T>| {
        let replies = own(job.take);
        let request = (job.server, job.wire, job.is_repeatable);
        Exchange::new(client, budget, request, None, replies)
    };
    jobs.into_iter().map(exchange).collect()
}

/// Returns the outcomes of exchanges whose receivers `pick` takes out.
pub(super) fn outcomes<T>(
    exchanges: Vec<Exchange>,
    pick: impl Fn(Replies) -> Option<T>,
) -> impl Iterator<Item = Ended<T>> {
    exchanges.into_iter().filter_map(move |exchange| {
        let (server, replies, result) = exchange.into_outcome();
        pick(replies).map(|take| (server, take, result))
    })
}
