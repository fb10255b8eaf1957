//! Answers that are given later, and elsewhere.
//!
//! A [`Desk`] is the app of a loop whose requests are answered elsewhere: by futures, by other
//! threads, or by the runtime of another language. Its [`Ledger`] has an entry for each answer that
//! is owed, and gives out a handle, an [`Owed`]. The holder leaves [`Order`]s with it, reads the
//! body of the request, and waits for room. The loop carries orders out between its callbacks, or
//! in the callback of the exchange that they are for. A [`Face`] says what a request means and what
//! holds its handle: [`Server`](crate::Server) is one, the web servers of the Python package are
//! two more. [`DeskLoop`] is the driver of a face that has a loop of its own.

mod driver;
mod inflow;
mod ledger;
mod order;
mod owed;

pub use driver::{DeskLoop, Looped, NoSockets};
pub use inflow::Inflow;
pub use ledger::Ledger;
pub use order::{Attention, Entry, Fields, Line, Order, OwnedAnswer};
pub use owed::{BodyRead, End, INFORMATIONAL_MAX, Owed, Refusal};

use crate::Detached;
use crate::app::{App, BodyPlan, ExchangeId, HttpEvent, Outcome, Request};
use crate::http::Http;
use crate::reply::{Body, Reply, Response};
use dwell_evloop::{Context, Stream, Token};
use dwell_proto::http1::{RequestHead, Trailers};
use order::Work;
use std::fmt;
use std::time::Duration;

/// Checks per turn of the orders that have come meanwhile, before other connections are served.
const LOOKS_PER_TURN: usize = 16;
/// Exchanges to visit for which memory stays when a burst of them is over.
pub(crate) const ATTENTION_KEPT_MAX: usize = 16 * 1024;

/// The meaning of requests: what is made of each, and of its end.
pub trait Face: Sized {
    /// The part of the loop that holders use.
    type Line: Line;
    /// The state that the loop keeps beside an answer that is owed.
    type Entry: Entry<Self::Line>;

    /// Decides how the body of a request is taken.
    fn body(&mut self, head: &RequestHead<'_, '_>) -> BodyPlan;

    /// Takes a request: answers it, or opens an entry of the ledger for it and returns its token.
    ///
    /// # Errors
    /// The outcome of a request for which nothing is owed any more.
    fn request(
        &mut self,
        ledger: &mut Ledger<Self::Line, Self::Entry>,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Token, Outcome>;

    /// Takes note that so many more bytes of a body have come, or its end; returns true if it has
    /// answered.
    fn came(
        &mut self,
        ledger: &mut Ledger<Self::Line, Self::Entry>,
        token: Token,
        bytes: Option<usize>,
        reply: &mut Reply<'_>,
    ) -> bool {
        let _ = (ledger, token, bytes, reply);
        false
    }

    /// Takes the entry of an answer that is owed no more.
    fn over(
        &mut self,
        ledger: &mut Ledger<Self::Line, Self::Entry>,
        context: &Context,
        entry: Self::Entry,
        end: End,
    ) {
        let _ = (ledger, context, entry, end);
    }

    /// Refuses a takeover that the connection of `reply` cannot have, by an answer of its own;
    /// returns true if it has.
    fn refuses(&self, takeover: &<Self::Line as Line>::Takeover, reply: &mut Reply<'_>) -> bool {
        let _ = (takeover, reply);
        false
    }

    /// Takes a connection that has left HTTP; `answer` is still to be written if there is one.
    fn departed(
        &mut self,
        context: &mut Context,
        detached: Detached,
        answer: Option<<Self::Line as Line>::Answer>,
        takeover: <Self::Line as Line>::Takeover,
    ) {
        let _ = (context, detached, answer, takeover);
    }

    /// The time that an answer may take to begin, if it is bounded.
    fn answer_timeout(&self) -> Option<Duration> {
        None
    }

    /// Returns true if a client that has ended its sending side is given its answer all the same.
    fn half_close(&self) -> bool;

    /// Chooses whether a fresh connection is served here, as [`App::accepted`] does.
    fn accepted(&mut self, context: &mut Context, stream: Stream, open: usize) -> Option<Stream> {
        let _ = (context, open);
        Some(stream)
    }

    /// Takes note of something that was decided without the face.
    fn event(&mut self, event: DeskEvent) {
        let _ = event;
    }
}

/// A decision of the desk or the engine, without an order of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeskEvent {
    /// The engine's own.
    Http(HttpEvent),
    /// An answer took too long.
    AnswerTimeout,
    /// The loop has visited an exchange because it was woken for it.
    WokenUp,
}

/// The app of a loop whose requests are answered elsewhere.
pub struct Desk<F: Face> {
    /// The meaning of the requests.
    pub face: F,
    /// The answers that are owed.
    pub ledger: Ledger<F::Line, F::Entry>,
    attention: Vec<Token>,
}

impl<F: Face> Desk<F> {
    /// Makes one without requests.
    pub(crate) fn new(face: F, ledger: Ledger<F::Line, F::Entry>) -> Self {
        Self {
            face,
            ledger,
            attention: Vec::new(),
        }
    }

    /// Exchanges to visit for which there is memory.
    #[cfg(test)]
    pub(crate) fn attention_kept(&self) -> usize {
        self.attention.capacity()
    }

    /// Serves the exchanges for which the loop was woken.
    pub(crate) fn look_all(&mut self, context: &mut Context, http: &mut Http) {
        let mut attention = std::mem::take(&mut self.attention);
        for _ in 0..LOOKS_PER_TURN {
            self.ledger.line().attention().take(&mut attention);
            if attention.is_empty() {
                break;
            }
            for token in attention.drain(..) {
                self.look(context, http, token);
            }
            // It takes turns with the line's own.
            attention.shrink_to(ATTENTION_KEPT_MAX);
        }
        self.attention = attention;
    }

    /// Serves one exchange for which the loop was woken.
    fn look(&mut self, context: &mut Context, http: &mut Http, token: Token) {
        let Some(exchange) = self.ledger.exchange(token) else {
            return;
        };
        self.face.event(DeskEvent::WokenUp);
        if !self.ledger.look(token) {
            return;
        }
        let ledger = &mut self.ledger;
        let work = http.with_reply(context, exchange, |reply| match ledger.work(token, reply) {
            Work::Unread => {
                refuse_takeover(reply);
                Work::Done
            }
            work => {
                if matches!(work, Work::Open) && reply.is_sent() && !reply.is_open() {
                    return Work::Done;
                }
                work
            }
        });
        match work {
            Some(Work::Open) if http.is_held(exchange) => {}
            Some(Work::Done) => self.end(context, token, End::Complete),
            Some(Work::TakeOver(answer, takeover)) => {
                let detached = http.detach(context, exchange);
                self.end(context, token, End::Complete);
                if let Some(detached) = detached {
                    self.face
                        .departed(context, detached, Some(answer), takeover);
                }
            }
            Some(Work::Abort) => {
                http.abort(context, exchange);
                self.end(context, token, End::Gone);
            }
            Some(Work::Open | Work::Unread) | None => self.end(context, token, End::Gone),
        }
    }

    /// Within a callback of the engine: does what was ordered so far.
    fn settle(&mut self, context: &Context, token: Token, reply: &mut Reply<'_>) -> Outcome {
        let has_work = self.ledger.look(token);
        let work = if has_work {
            self.ledger.work(token, reply)
        } else {
            Work::Open
        };
        match work {
            Work::Open if reply.is_sent() && !reply.is_open() => {}
            Work::Open => return self.hold(token, reply),
            Work::Done => {}
            Work::Unread => refuse_takeover(reply),
            Work::Abort => {
                self.end(context, token, End::Gone);
                return Outcome::Close;
            }
            Work::TakeOver(_, takeover) if self.face.refuses(&takeover, reply) => {}
            Work::TakeOver(answer, takeover) => {
                answer.send(reply);
                return self.ledger.will_leave(token, takeover);
            }
        }
        self.end(context, token, End::Complete);
        Outcome::Answered
    }

    /// Keeps the exchange as it is: until its holder goes on, or its time is up.
    fn hold(&self, token: Token, reply: &Reply<'_>) -> Outcome {
        let timeout = self.face.answer_timeout();
        Outcome::Held {
            tag: token.to_bits(),
            timeout: timeout.filter(|_| !reply.is_open()),
        }
    }

    /// Ends an exchange, in whatever way.
    pub(crate) fn end(&mut self, context: &Context, token: Token, end: End) {
        if let Some(entry) = self.ledger.end(token, end) {
            self.face.over(&mut self.ledger, context, entry, end);
        }
    }

    /// Goes on behind a part of a body.
    fn came(
        &mut self,
        context: &Context,
        token: Token,
        bytes: Option<usize>,
        reply: &mut Reply<'_>,
    ) -> bool {
        let has_answered = self.face.came(&mut self.ledger, token, bytes, reply);
        if has_answered {
            self.end(context, token, End::Complete);
        }
        has_answered
    }
}

/// Answers a request whose connection was to leave HTTP in the middle of its body.
///
/// Source: RFC 9110 section 7.8.
fn refuse_takeover(reply: &mut Reply<'_>) {
    reply.close_after();
    reply.send(&Response {
        status: 400,
        fields: &TEXT,
        body: Body::Slice(b"the protocol changes only behind a body that was read\n"),
    });
}

const TEXT: [(&str, &[u8]); 1] = [("Content-Type", b"text/plain; charset=utf-8")];

impl<F: Face + fmt::Debug> fmt::Debug for Desk<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("face", &self.face)
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

impl<F: Face> App for Desk<F> {
    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        head: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        self.face.body(head)
    }

    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let Self { face, ledger, .. } = self;
        match face.request(ledger, context, request, reply) {
            Ok(token) => self.settle(context, token, reply),
            Err(outcome) => outcome,
        }
    }

    fn body_data(
        &mut self,
        context: &mut Context,
        _: ExchangeId,
        tag: u64,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let token = Token::from_bits(tag);
        if let Some(owed) = self.ledger.owed(token) {
            owed.arrive(data);
            // Its reader has something to take first, and asks when it waits again.
            reply.await_body(false);
            if self.came(context, token, Some(data.len()), reply) {
                return Outcome::Answered;
            }
        }
        self.hold(token, reply)
    }

    fn body_end(
        &mut self,
        context: &mut Context,
        _: ExchangeId,
        tag: u64,
        trailers: Trailers<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let token = Token::from_bits(tag);
        if let Some(owed) = self.ledger.owed(token) {
            owed.complete(trailers);
            if self.came(context, token, None, reply) {
                return Outcome::Answered;
            }
        }
        self.settle(context, token, reply)
    }

    fn drained(
        &mut self,
        context: &mut Context,
        _: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        self.settle(context, Token::from_bits(tag), reply)
    }

    fn expired(
        &mut self,
        context: &mut Context,
        _: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let token = Token::from_bits(tag);
        if reply.is_open() {
            return self.hold(token, reply);
        }
        self.face.event(DeskEvent::AnswerTimeout);
        reply.send(&Response {
            status: 503,
            fields: &TEXT,
            body: Body::Slice(b"no answer in time\n"),
        });
        self.end(context, token, End::Gone);
        Outcome::Answered
    }

    fn peer_closed(&mut self, _: ExchangeId, _: u64) -> bool {
        !self.face.half_close()
    }

    fn abandoned(&mut self, context: &mut Context, _: ExchangeId, tag: u64) {
        self.end(context, Token::from_bits(tag), End::Gone);
    }

    fn detached(&mut self, context: &mut Context, _: ExchangeId, tag: u64, detached: Detached) {
        let token = Token::from_bits(tag);
        let takeover = self.ledger.takeover(token);
        self.end(context, token, End::Complete);
        if let Some(takeover) = takeover {
            self.face.departed(context, detached, None, takeover);
        }
    }

    fn accepted(&mut self, context: &mut Context, stream: Stream, open: usize) -> Option<Stream> {
        self.face.accepted(context, stream, open)
    }

    fn event(&mut self, event: HttpEvent) {
        self.face.event(DeskEvent::Http(event));
    }
}
