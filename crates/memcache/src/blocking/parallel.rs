//! Exchanges with several servers at once, in one thread.

use rustix::event::{PollFd, PollFlags};

use super::budget::Budget;
use super::cluster::{Cluster, Failed, Outgoing, Settled};
use super::connection::{Connection, Progress, Take};
use super::fault::Fault;
use super::socket::wait_for;

/// One exchange of several.
#[derive(Debug)]
pub(crate) struct Job<T> {
    pub(crate) server: usize,
    pub(crate) wire: Vec<u8>,
    pub(crate) is_repeatable: bool,
    pub(crate) take: T,
    state: State,
}

/// The server of an exchange, the receiver of its replies, and its end.
pub(crate) type Ended<T> = (usize, T, Result<(), Failed>);

#[derive(Debug)]
enum State {
    /// Nothing has been done yet.
    Waiting,
    /// The request is on its way, or its replies are.
    Open(Box<Connection>),
    Ended(Result<(), Failed>),
}

impl<T: Take> Job<T> {
    pub(crate) const fn new(server: usize, wire: Vec<u8>, is_repeatable: bool, take: T) -> Self {
        Self {
            server,
            wire,
            is_repeatable,
            take,
            state: State::Waiting,
        }
    }

    /// Returns its outcome.
    pub(crate) fn into_outcome(self) -> Ended<T> {
        let result = match self.state {
            State::Ended(result) => result,
            State::Waiting | State::Open(_) => Err(Failed {
                fault: Fault::Timeout,
                written: false,
            }),
        };
        (self.server, self.take, result)
    }

    /// Begins on a connection and sends what it takes.
    fn open(&mut self, cluster: &Cluster, mut connection: Connection, budget: &mut Budget) {
        let begun = connection
            .begin(budget)
            .and_then(|()| connection.send(&self.wire));
        match begun {
            Ok(_) => self.state = State::Open(Box::new(connection)),
            Err(fault) => self.settle(cluster, connection, Err(fault), budget),
        }
    }

    /// Connects within the budget, leaving as much for each of `others` and for the answers.
    fn connect(&mut self, cluster: &Cluster, budget: &mut Budget, others: usize) {
        let mut share = budget.share(others as u32 + 2);
        budget.has_begun();
        match cluster.connect(self.server, &mut share) {
            Ok(connection) => self.open(cluster, connection, budget),
            Err(failed) => self.state = State::Ended(Err(failed)),
        }
    }

    fn settle(
        &mut self,
        cluster: &Cluster,
        connection: Connection,
        result: Result<(), Fault>,
        budget: &mut Budget,
    ) {
        match cluster.settle(self.server, connection, result, self.is_repeatable) {
            Settled::Answered => self.state = State::Ended(Ok(())),
            Settled::Failed(failed) => self.state = State::Ended(Err(failed)),
            // The new connection has not been used, so this goes no deeper.
            Settled::WasEnded => self.connect(cluster, budget, 0),
        }
    }

    /// Returns the readiness that it waits for.
    fn interest(&self) -> Option<(&Connection, PollFlags)> {
        let State::Open(connection) = &self.state else {
            return None;
        };
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, !connection.is_sent(&self.wire));
        Some((connection, events))
    }

    /// Sends and receives what can be at once.
    fn go_on(&mut self, cluster: &Cluster, budget: &mut Budget) {
        let state = std::mem::replace(&mut self.state, State::Waiting);
        let State::Open(mut connection) = state else {
            self.state = state;
            return;
        };
        match step(&mut connection, &self.wire, &mut self.take) {
            Ok(Progress::More) => self.state = State::Open(connection),
            Ok(Progress::Done) => self.settle(cluster, *connection, Ok(()), budget),
            Err(fault) => self.settle(cluster, *connection, Err(fault), budget),
        }
    }

    /// Takes what has come by now, and gives the rest up.
    fn give_up(&mut self, cluster: &Cluster, budget: &mut Budget) {
        self.go_on(cluster, budget);
        let state = std::mem::replace(&mut self.state, State::Waiting);
        match state {
            State::Open(connection) => {
                self.settle(cluster, *connection, Err(Fault::Timeout), budget);
            }
            state => self.state = state,
        }
    }
}

/// Does all of them, within one budget.
///
/// A client that writes to all servers before reading waits for ever when both sides' buffers are
/// full, and one that serves them one after the other waits for the sum. So each is written to and
/// read from as it is ready. A server that does not answer takes no time from the others.
pub(crate) fn run<T: Take>(cluster: &Cluster, jobs: &mut [Job<T>], budget: &mut Budget) {
    if let [job] = jobs {
        let outgoing = Outgoing {
            wire: &job.wire,
            is_repeatable: job.is_repeatable,
        };
        let result = cluster.exchange(job.server, outgoing, budget, &mut job.take);
        job.state = State::Ended(result);
        return;
    }
    // Those that have a connection are used before any waits for one.
    for job in &mut *jobs {
        let server = &cluster.servers[job.server];
        if let Some(connection) =
            server.pooled(&cluster.options, budget.started(), job.is_repeatable)
        {
            job.open(cluster, connection, budget);
        }
    }
    let is_waiting = |job: &Job<T>| matches!(job.state, State::Waiting);
    let mut others = jobs.iter().filter(|job| is_waiting(job)).count();
    for job in &mut *jobs {
        if is_waiting(job) {
            others -= 1;
            job.connect(cluster, budget, others);
        }
    }
    loop {
        let Ok(ready) = wait(jobs, budget) else {
            for job in jobs {
                job.give_up(cluster, budget);
            }
            return;
        };
        let Some(ready) = ready else {
            return;
        };
        for index in ready {
            jobs[index].go_on(cluster, budget);
        }
    }
}

/// The jobs that can go on; `None` when all have ended.
fn wait<T: Take>(jobs: &[Job<T>], budget: &Budget) -> Result<Option<Vec<usize>>, Fault> {
    let mut places = Vec::new();
    let mut descriptors = Vec::new();
    for (place, job) in jobs.iter().enumerate() {
        if let Some((connection, events)) = job.interest() {
            places.push(place);
            descriptors.push(PollFd::new(connection.socket(), events));
        }
    }
    if places.is_empty() {
        return Ok(None);
    }
    wait_for(&mut descriptors, budget.rest()?)?;
    let ready = places
        .into_iter()
        .zip(&descriptors)
        .filter(|(_, descriptor)| !descriptor.revents().is_empty())
        .map(|(place, _)| place);
    Ok(Some(ready.collect()))
}

/// One round of a job: sends what the socket takes, and reads once.
fn step(connection: &mut Connection, wire: &[u8], take: &mut impl Take) -> Result<Progress, Fault> {
    if !connection.is_sent(wire) {
        connection.send(wire)?;
    }
    if !connection.receive_now()? {
        return Ok(Progress::More);
    }
    connection.take_replies(take)
}
