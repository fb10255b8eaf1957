//! The operations that a server owes and their outcomes, across its connections.

use dwell_evloop::{Breaker, Context};

use super::batch::{Batch, Form, Progress};
use super::{Completion, Failure, Outcome, Statistics};

/// The receiver of completions.
pub(crate) trait Sink: FnMut(&mut Context, Completion<'_>) {}

impl<F: FnMut(&mut Context, Completion<'_>)> Sink for F {}

/// The counts of one server that outlive its connections.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The server's index.
    pub(crate) server: usize,
    pub(crate) breaker: Breaker,
    pub(crate) statistics: Statistics,
    /// Operations without an answer.
    pub(crate) operations: usize,
    /// Bytes of the requests of those operations.
    pub(crate) request_bytes: usize,
    /// True if the server has refused the meta commands as unknown.
    pub(crate) is_meta_unsupported: bool,
    /// Requests that have been answered, for their memory.
    spare: Vec<Batch>,
}

/// A ledger together with the sink for the completions that are entered.
pub(crate) struct Reporter<'r, F> {
    pub(crate) ledger: &'r mut Ledger,
    pub(crate) context: &'r mut Context,
    pub(crate) sink: &'r mut F,
}

impl Ledger {
    pub(crate) fn new(server: usize, breaker: Breaker) -> Self {
        Self {
            server,
            breaker,
            statistics: Statistics::default(),
            operations: 0,
            request_bytes: 0,
            is_meta_unsupported: false,
            spare: Vec::new(),
        }
    }

    /// Enters an operation whose request has `length` bytes.
    pub(crate) const fn taken(&mut self, length: usize) {
        self.request_bytes += length;
        self.operations += 1;
        self.statistics.operations += 1;
    }

    /// An empty request.
    pub(crate) fn batch(&mut self, form: Form) -> Batch {
        match self.spare.pop() {
            Some(mut batch) => {
                batch.reuse(form);
                batch
            }
            None => Batch::new(form),
        }
    }

    /// Takes back a request that is over.
    fn recycle(&mut self, batch: Batch) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(batch);
        }
    }
}

impl<F: Sink> Reporter<'_, F> {
    /// Ends one operation.
    pub(crate) fn outcome(&mut self, tag: u64, outcome: Outcome<'_>) {
        let ledger = &mut *self.ledger;
        ledger.operations -= 1;
        let statistics = &mut ledger.statistics;
        *match outcome {
            Outcome::Hit { .. } | Outcome::Version { .. } | Outcome::Answer(_) => {
                &mut statistics.hits
            }
            Outcome::Miss => &mut statistics.misses,
            Outcome::Failed(Failure::Timeout) => &mut statistics.timeouts,
            Outcome::Failed(Failure::Unavailable) => &mut statistics.short_circuited,
            Outcome::Failed(_) => &mut statistics.errors,
        } += 1;
        if matches!(outcome, Outcome::Failed(Failure::Unsupported)) {
            ledger.is_meta_unsupported = true;
        }
        let (server, epoch) = (ledger.server, ledger.statistics.connects);
        (self.sink)(
            self.context,
            Completion {
                tag,
                server,
                epoch,
                outcome,
            },
        );
    }

    /// Takes back a request whose last reply has come.
    pub(crate) fn answered(&mut self, batch: Batch, progress: Progress) {
        let breaker = &mut self.ledger.breaker;
        match (batch.form(), progress) {
            (Form::Probe, _) => breaker.probe_answered(),
            (_, Progress::Done) => breaker.operation_answered(),
            _ => {}
        }
        self.over(batch);
    }

    /// Ends every operation of a request that is left.
    pub(crate) fn fail(&mut self, mut batch: Batch, failure: Failure) {
        batch.settle_rest(Outcome::Failed(failure), &mut |tag, outcome| {
            self.outcome(tag, outcome);
        });
        self.over(batch);
    }

    fn over(&mut self, batch: Batch) {
        if batch.form() != Form::Probe {
            self.ledger.request_bytes -= batch.wire().len();
        }
        self.ledger.recycle(batch);
    }
}

/// Answered requests kept for their memory.
const SPARE_MAX: usize = 16;
