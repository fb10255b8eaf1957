//! A WSGI server as the face of a desk: its loop has a thread of its own and never holds the
//! interpreter.

use super::meeting::{Job, JobBody, Meeting};
use super::uploads::{Share, Uploads};
use crate::web::access_log::{AccessLog, Record};
use crate::web::answer::{OVERLOADED, WebAnswer};
use crate::web::head::Head;
use crate::web::options::Options;
use crate::web::tls::Secure;
use dwell_engine::desk::{self, DeskLoop, End, Face, Looped, NoSockets};
use dwell_engine::{BodyPlan, Outcome, Reply, Request};
use dwell_evloop::{Context, EventLoop, Token};
use dwell_proto::http1::{BodyFraming, RequestHead};
use std::io;
use std::sync::Arc;
use std::time::Instant;

type Ledger = desk::Ledger<Meeting, Entry>;

/// Requests on their way to the workers.
#[derive(Debug)]
pub(super) struct WsgiFace {
    meeting: Arc<Meeting>,
    options: Arc<Options>,
    log: AccessLog,
    /// Jobs of this turn.
    jobs: Vec<Job>,
    /// Room in the queue when the turn began.
    room: usize,
    uploads: Uploads,
    looked: Instant,
    sockets: NoSockets,
}

/// The state beside a request.
#[derive(Debug)]
pub(super) struct Entry {
    record: Option<Box<Record>>,
    share: Share,
    /// Until a worker has it, if its body follows.
    job: Option<Box<Job>>,
    /// It waits for fewer bodies to be on their way.
    is_waiting: bool,
}

/// Serves until the server is stopped, or was drained and the last client is gone.
pub(super) fn run(
    mut driver: DeskLoop<WsgiFace>,
    event_loop: &mut EventLoop<()>,
) -> io::Result<()> {
    let meeting = Arc::clone(&driver.face().meeting);
    let mut is_draining = false;
    let result = loop {
        let wait = meeting.before_wait(is_draining);
        let turned = event_loop.turn(&mut driver, wait);
        if turned.is_err() || meeting.is_stopped() {
            break turned;
        }
        if !is_draining && meeting.is_draining() {
            is_draining = true;
            driver.drain(event_loop.context(), "");
        }
        if is_draining && driver.connections() == 0 {
            break turned;
        }
    };
    driver.close_all(event_loop.context());
    driver.face().log.flush();
    meeting.close();
    result
}

impl WsgiFace {
    pub(super) fn new(meeting: Arc<Meeting>, options: Arc<Options>) -> Self {
        Self {
            room: meeting.room(),
            meeting,
            log: AccessLog::new(options.access_log.clone()),
            uploads: Uploads::new(options.gathered_body_bytes, options.gathered_bytes),
            options,
            jobs: Vec::new(),
            looked: Instant::now(),
            sockets: NoSockets,
        }
    }

    /// Gives workers the requests that have waited for fewer bodies to be on their way.
    fn advance(&mut self, ledger: &mut Ledger) {
        if self.uploads.waiting() == 0 {
            return;
        }
        while let Some(token) = self.uploads.next(self.meeting.workers()) {
            // One that is gone, or complete, waits no more.
            if let Some(entry) = ledger.entry(token)
                && let Some(job) = entry.job.take()
            {
                self.uploads.run(&mut entry.share);
                self.jobs.push(*job);
            }
        }
    }

    /// Gathers more of a body, or gives its request to a worker; then turns the engine's wait for
    /// the body on or off.
    fn gather(&mut self, ledger: &mut Ledger, token: Token, reply: &mut Reply<'_>) {
        self.gather_more(ledger, token, reply);
        if let Some(entry) = ledger.entry(token) {
            let is_gathering = entry.is_gathering();
            let is_awaited = ledger.owed(token).is_some_and(|owed| owed.is_awaited());
            reply.await_body(is_gathering || is_awaited);
        }
    }

    fn gather_more(&mut self, ledger: &mut Ledger, token: Token, reply: &mut Reply<'_>) {
        let Some(entry) = ledger.entry(token).filter(|entry| entry.is_gathering()) else {
            return;
        };
        if let Some(more) = self.uploads.more(&mut entry.share) {
            if let Some(owed) = ledger.owed(token) {
                owed.granted(more);
            }
            reply.grant(more);
            return;
        }
        let workers = self.meeting.workers();
        if self.uploads.begin(token, &mut entry.share, workers) {
            self.jobs.extend(entry.job.take().map(|job| *job));
            return;
        }
        entry.is_waiting = true;
        if self.uploads.waiting() > 2 * ledger.len() {
            self.uploads
                .retain(|token| ledger.entry(*token).is_some_and(|entry| entry.waits()));
        }
    }
}

impl Entry {
    /// True while it waits for fewer bodies to be on their way.
    fn waits(&self) -> bool {
        self.is_waiting && self.job.is_some()
    }

    /// True while its body is gathered before a worker is to have it.
    fn is_gathering(&self) -> bool {
        self.job.is_some() && !self.is_waiting
    }
}

impl desk::Entry<Meeting> for Entry {
    fn begins(&mut self, answer: &WebAnswer) {
        answer.note(self.record.as_deref_mut());
    }

    fn wrote(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            record.bytes += bytes;
        }
    }
}

impl Face for WsgiFace {
    type Line = Meeting;
    type Entry = Entry;

    fn body(&mut self, head: &RequestHead<'_, '_>) -> BodyPlan {
        self.options.body_plan(head)
    }

    fn request(
        &mut self,
        ledger: &mut Ledger,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Token, Outcome> {
        let waits = if request.body_follows {
            self.uploads.waiting()
        } else {
            0
        };
        if self.jobs.len() + waits >= self.room {
            reply.send(&OVERLOADED);
            return Err(Outcome::Answered);
        }
        let peer = reply.peer_address();
        let origin =
            self.options
                .trusted
                .origin(peer, request.is_secure, request.head.fields.iter());
        let entry = Entry {
            record: self.log.begin(request, context.now(), &origin),
            share: Share::default(),
            job: None,
            is_waiting: false,
        };
        self.options.wear.count();
        let (token, owed) = ledger.open(request.exchange, entry);
        let mut job = Job {
            owed,
            head: Head::of(request),
            origin,
            secure: Secure::of(reply),
            body: JobBody::Streamed,
            _under_way: reply.under_way(),
        };
        if !request.body_follows {
            job.body = JobBody::Whole(request.body.to_vec());
            self.jobs.push(job);
            return Ok(token);
        }
        job.owed.expect_body();
        let is_sized = matches!(request.head.framing, BodyFraming::Length(_));
        if let Some(entry) = ledger.entry(token) {
            entry.job = Some(Box::new(job));
            if !is_sized || request.head.expect_continue {
                // The client may send nothing before the app has said something.
                entry.share = Share::direct();
            }
        }
        self.gather(ledger, token, reply);
        Ok(token)
    }

    fn came(
        &mut self,
        ledger: &mut Ledger,
        token: Token,
        bytes: Option<usize>,
        reply: &mut Reply<'_>,
    ) -> bool {
        let Some(entry) = ledger.entry(token) else {
            return false;
        };
        if let Some(bytes) = bytes {
            entry.share.add(bytes);
            self.gather(ledger, token, reply);
            return false;
        }
        self.uploads.complete(&mut entry.share);
        if entry.job.is_some() && self.jobs.len() >= self.room {
            if let Some(record) = &mut entry.record {
                record.status = OVERLOADED.status;
            }
            reply.send(&OVERLOADED);
            return true;
        }
        self.jobs.extend(entry.job.take().map(|job| *job));
        self.advance(ledger);
        false
    }

    fn over(&mut self, ledger: &mut Ledger, context: &Context, entry: Entry, end: End) {
        self.uploads.end(entry.share);
        self.advance(ledger);
        self.log
            .end(entry.record, None, context.wall(), end == End::Complete);
    }

    fn half_close(&self) -> bool {
        // Half a connection can still take an answer.
        true
    }
}

impl Looped for WsgiFace {
    type Sockets = NoSockets;

    fn sockets(&mut self) -> &mut NoSockets {
        &mut self.sockets
    }

    fn turn_ends(&mut self) {
        self.meeting.after_wait();
        self.meeting.offer(&mut self.jobs);
    }

    fn turn_ended(&mut self, context: &Context) {
        // Those of requests that have waited for others to end.
        self.meeting.offer(&mut self.jobs);
        if context.now().duration_since(self.looked).as_millis() > 0 {
            self.looked = context.now();
            self.meeting.look();
        }
        self.room = self.meeting.room();
        self.log.flush();
    }
}
