//! An app that does as chance will have it, and holds the engine to its word.

use super::client::{Planned, pattern};
use super::random::Random;
use bytes::Bytes;
use dwell_engine::{
    App, Body, BodyPlan, Detached, ExchangeId, Outcome, Reply, Request, Response, WriteError,
};
use dwell_evloop::{Context, FileSlice, Stream, Token};
use dwell_proto::http1::{RequestHead, Trailers};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

/// Where the app stands with an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Within a callback.
    Called,
    /// With this tag.
    Held(u64),
    /// As [`Outcome::Detach`], with this tag.
    Leaving(u64),
    /// Answered, abandoned, detached, or ended by the app.
    Over,
}

/// One request and what became of it.
pub(super) struct Exchange {
    pub(super) id: ExchangeId,
    pub(super) client: usize,
    pub(super) number: usize,
    pub(super) state: State,
    /// The body of the answer as far as it was given.
    pub(super) answer: Vec<u8>,
    /// An answer byte for byte that is none.
    pub(super) is_broken: bool,
    /// It is answered byte for byte.
    is_verbatim: bool,
    /// What is left to write of an answer byte for byte.
    verbatim: Vec<u8>,
    /// What is left of the announced size.
    length: Option<usize>,
    /// What has come of a streamed body, and what may.
    body: usize,
    pub(super) granted: u64,
    follows: bool,
    expired: usize,
}

pub(super) struct Model {
    pub(super) random: Random,
    pub(super) exchanges: Vec<Exchange>,
    /// What each client asks for.
    pub(super) planned: Vec<Vec<Planned>>,
    /// Exchanges are brought to their end.
    pub(super) resolves: bool,
    /// Every hold has a timeout, and ends with the third.
    pub(super) is_timed: bool,
    /// Connections that were opened and are not closed.
    pub(super) open: Vec<Token>,
    file: Arc<File>,
}

const FILE_BYTES: usize = 100_000;

impl Model {
    pub(super) fn new(seed: u64) -> Self {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &pattern(0, 0, FILE_BYTES)).unwrap();
        Self {
            random: Random::new(seed),
            exchanges: Vec::new(),
            planned: Vec::new(),
            resolves: false,
            is_timed: false,
            open: Vec::new(),
            file: Arc::new(file),
        }
    }

    /// The exchanges of one client, in the order they came.
    pub(super) fn of_client(&self, client: usize) -> Vec<&Exchange> {
        let all = self.exchanges.iter();
        all.filter(|exchange| exchange.client == client).collect()
    }

    pub(super) fn held(&self) -> Vec<usize> {
        (0..self.exchanges.len())
            .filter(|index| matches!(self.exchanges[*index].state, State::Held(_)))
            .collect()
    }

    /// A new tag for an exchange.
    pub(super) fn tag(&mut self, index: usize) -> u64 {
        (self.random.below(1 << 30) as u64) << 32 | index as u64
    }

    /// The exchange of a callback, which must be held with this tag.
    fn called(&mut self, id: ExchangeId, tag: u64) -> usize {
        let index = tag as u32 as usize;
        let exchange = &mut self.exchanges[index];
        assert_eq!(exchange.state, State::Held(tag), "called in its hold");
        assert_eq!(exchange.id, id);
        exchange.state = State::Called;
        index
    }

    /// Does something with the place of an answer.
    pub(super) fn play(&mut self, index: usize, reply: &mut Reply<'_>) {
        if self.exchanges[index].follows && (self.resolves || self.random.once_in(2)) {
            let bytes = if self.resolves {
                1 << 40
            } else {
                self.random.of(&[1, 9, 400, 1 << 30])
            };
            self.exchanges[index].granted += bytes;
            reply.grant(bytes);
        }
        if !reply.is_sent() {
            self.begin(index, reply);
        }
        while reply.is_open() && (self.resolves || self.random.once_in(2)) {
            if self.go_on(index, reply).is_err() {
                break;
            }
        }
    }

    fn begin(&mut self, index: usize, reply: &mut Reply<'_>) {
        let choice = self.random.below(if self.resolves { 2 } else { 12 });
        let exchange = &mut self.exchanges[index];
        let (client, number) = (exchange.client, exchange.number);
        (exchange.length, exchange.is_broken) = (None, false);
        exchange.answer.clear();
        exchange.verbatim.clear();
        let length = self.random.of(&[0, 5, 3000, 20_000, 300_000]);
        let bytes = pattern(client, number, length);
        let body = match choice {
            0 => Body::Slice(&bytes),
            1 => Body::Shared(Bytes::from(bytes.clone())),
            2 => {
                self.exchanges[index].answer = pattern(0, 0, FILE_BYTES);
                // One that has become shorter fails the connection.
                let is_short = self.random.once_in(6);
                self.exchanges[index].is_broken = is_short;
                let file = Arc::clone(&self.file);
                let length = FILE_BYTES as u64 + u64::from(is_short);
                Body::File(FileSlice {
                    file,
                    offset: 0,
                    length,
                })
            }
            3 | 4 => Body::Stream(None),
            5 => {
                self.exchanges[index].length = Some(length);
                Body::Stream(Some(length as u64))
            }
            6 => return self.begin_verbatim(index, bytes, reply),
            7 => return reply.informational(103, &[("Link", b"</a>")]),
            8 => {
                reply.close_after();
                Body::Empty
            }
            _ => return,
        };
        if choice < 2 {
            self.exchanges[index].answer.clone_from(&bytes);
        }
        let status = if self.random.once_in(8) { 304 } else { 200 };
        let number = number.to_string();
        let fields = [("X-Number", number.as_bytes())];
        reply.send(&Response {
            status,
            fields: &fields,
            body,
        });
    }

    fn begin_verbatim(&mut self, index: usize, body: Vec<u8>, reply: &mut Reply<'_>) {
        let exchange = &mut self.exchanges[index];
        let length = body.len();
        let mut head = format!(
            "HTTP/1.1 200 OK\r\nX-Number: {}\r\nContent-Length: {length}\r\n\r\n",
            exchange.number
        );
        if self.random.once_in(4) {
            exchange.is_broken = true;
            head = head.replace("HTTP/1.1 200", "HTTP/1.1 two hundred");
        }
        let is_head = self.planned[exchange.client][exchange.number].method == "HEAD";
        let sent = if is_head { &[][..] } else { &body };
        exchange.verbatim = [head.as_bytes(), sent].concat();
        exchange.is_verbatim = true;
        exchange.answer = body;
        reply.verbatim();
    }

    /// Writes a piece of an open answer, or ends it.
    fn go_on(&mut self, index: usize, reply: &mut Reply<'_>) -> Result<(), WriteError> {
        let exchange = &mut self.exchanges[index];
        if exchange.is_verbatim {
            return self.go_on_verbatim(index, reply);
        }
        let wanted = self.random.of(&[1, 100, 5000, 70_000]);
        let length = exchange.length.map_or(wanted, |left| left.min(wanted));
        let is_enough = self.resolves && exchange.length.is_none();
        if length == 0 || is_enough || (!self.resolves && self.random.once_in(8)) {
            return reply.finish(&[("X-Sum", b"1")]);
        }
        let from = exchange.answer.len();
        let bytes = pattern(exchange.client, exchange.number, from + length).split_off(from);
        if self.random.once_in(2) {
            reply.write(&bytes)?;
        } else {
            reply.write_shared(&Bytes::from(bytes.clone()))?;
        }
        exchange.answer.extend_from_slice(&bytes);
        if let Some(left) = &mut exchange.length {
            *left -= length;
        }
        Ok(())
    }

    /// Plays in a callback, and says what is to become of the exchange.
    fn respond(&mut self, index: usize, reply: &mut Reply<'_>) -> Outcome {
        self.play(index, reply);
        let is_done = reply.is_sent() && !reply.is_open();
        let choice = self.random.below(40);
        let (state, outcome) = match choice {
            0 => (State::Over, Outcome::Close),
            1 | 2 => {
                if reply.is_open() && self.exchanges[index].is_verbatim {
                    // It is cut short, which the engine does not see.
                    reply.close_after();
                }
                (State::Over, Outcome::Answered)
            }
            3 => {
                let tag = self.tag(index);
                (State::Leaving(tag), Outcome::Detach { tag })
            }
            5.. if is_done => (State::Over, Outcome::Answered),
            _ => {
                let tag = self.tag(index);
                let timeout = self.timeout();
                (State::Held(tag), Outcome::Held { tag, timeout })
            }
        };
        let exchange = &mut self.exchanges[index];
        if matches!(outcome, Outcome::Detach { .. }) {
            exchange.is_broken = true;
        }
        exchange.state = state;
        outcome
    }

    fn go_on_verbatim(&mut self, index: usize, reply: &mut Reply<'_>) -> Result<(), WriteError> {
        let exchange = &mut self.exchanges[index];
        if exchange.verbatim.is_empty() {
            if exchange.is_broken {
                reply.close_after();
            }
            return reply.finish(&[]);
        }
        let length = self.random.of(&[1, 50, 100_000]);
        let length = length.min(exchange.verbatim.len());
        reply.write(&exchange.verbatim[..length])?;
        exchange.verbatim.drain(..length);
        Ok(())
    }

    pub(super) fn timeout(&mut self) -> Option<Duration> {
        let is_set = self.is_timed || self.random.once_in(8);
        is_set.then(|| Duration::from_millis(self.random.below(20) as u64))
    }

    fn end(&mut self, id: ExchangeId, state: State) {
        let (State::Held(tag) | State::Leaving(tag)) = state else {
            unreachable!("only what waits ends");
        };
        let exchange = &mut self.exchanges[tag as u32 as usize];
        assert_eq!((exchange.state, exchange.id), (state, id), "it ends once");
        exchange.state = State::Over;
    }
}

impl App for Model {
    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        _: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        let bytes_max = 1 << 20;
        match self.random.below(12) {
            0 => BodyPlan::Refuse(403),
            1..=3 => BodyPlan::Collect { bytes_max },
            4..=6 => BodyPlan::Gather {
                first_bytes: self.random.of(&[1, 9, 400, 20_000]),
                bytes_max,
            },
            _ => BodyPlan::Stream { bytes_max },
        }
    }

    fn request(
        &mut self,
        _: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let mut words = request.head.path[1..].split('/');
        let mut number = || words.next().unwrap().parse::<usize>().unwrap();
        let (client, number) = (number(), number());
        let before = self.of_client(client);
        assert_eq!(before.len(), number, "requests come once and in order");
        assert!(
            before.iter().all(|earlier| earlier.state == State::Over),
            "one at a time"
        );
        let planned = &self.planned[client][number];
        assert!(planned.body.starts_with(request.body), "the body differs");
        assert!(request.body_follows || request.body == planned.body);
        let come = request.body.len();
        self.exchanges.push(Exchange {
            id: request.exchange,
            client,
            number,
            state: State::Called,
            answer: Vec::new(),
            is_broken: false,
            is_verbatim: false,
            verbatim: Vec::new(),
            length: None,
            body: come,
            granted: come as u64,
            follows: request.body_follows,
            expired: 0,
        });
        self.respond(self.exchanges.len() - 1, reply)
    }

    fn body_data(
        &mut self,
        _: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let index = self.called(exchange, tag);
        let exchange = &mut self.exchanges[index];
        let expected = &self.planned[exchange.client][exchange.number].body[exchange.body..];
        assert!(expected.starts_with(data), "the body differs");
        exchange.body += data.len();
        assert!(
            exchange.body as u64 <= exchange.granted,
            "more than was granted"
        );
        self.respond(index, reply)
    }

    fn body_end(
        &mut self,
        _: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        _: Trailers<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let index = self.called(exchange, tag);
        let exchange = &mut self.exchanges[index];
        let length = self.planned[exchange.client][exchange.number].body.len();
        assert_eq!(exchange.body, length, "the end of the body");
        assert!(std::mem::take(&mut exchange.follows), "it ends once");
        self.respond(index, reply)
    }

    fn drained(
        &mut self,
        _: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let index = self.called(exchange, tag);
        assert!(reply.is_open() && reply.queued_bytes() == 0);
        self.respond(index, reply)
    }

    fn expired(
        &mut self,
        _: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let index = self.called(exchange, tag);
        self.exchanges[index].expired += 1;
        let resolves = self.resolves;
        self.resolves |= self.is_timed && self.exchanges[index].expired > 2;
        let outcome = self.respond(index, reply);
        self.resolves = resolves;
        outcome
    }

    fn peer_closed(&mut self, exchange: ExchangeId, tag: u64) -> bool {
        let index = self.called(exchange, tag);
        self.exchanges[index].state = State::Held(tag);
        self.resolves || self.random.once_in(2)
    }

    fn abandoned(&mut self, _: &mut Context, exchange: ExchangeId, tag: u64) {
        let is_leaving = self.exchanges[tag as u32 as usize].state == State::Leaving(tag);
        let state = if is_leaving {
            State::Leaving(tag)
        } else {
            State::Held(tag)
        };
        self.end(exchange, state);
    }

    fn detached(&mut self, _: &mut Context, exchange: ExchangeId, tag: u64, _: Detached) {
        self.end(exchange, State::Leaving(tag));
        self.gone(exchange.connection());
    }

    fn opened(&mut self, _: &mut Context, connection: Token, _: &Stream, _: Option<Token>) {
        self.open.push(connection);
    }

    fn closed(&mut self, _: &mut Context, connection: Token) {
        self.gone(connection);
    }
}

impl Model {
    /// A connection has left, which happens once.
    pub(super) fn gone(&mut self, connection: Token) {
        let place = self.open.iter().position(|open| *open == connection);
        self.open
            .swap_remove(place.expect("a connection ends once"));
    }
}
