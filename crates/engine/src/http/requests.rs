//! From input bytes to requests handed to the app, in order.

use super::exchange::{CONTINUE, Stop};
use super::visit::{Fate, Visit};
use crate::app::{App, HttpEvent, Request};
use crate::connection::{Incoming, Note, Phase, Taking};
use crate::gathered::Gathered;
use crate::reply::Framing;
use dwell_proto::http1::{
    BodyFraming, FieldStorage, RequestHead, Trailers, Version, next_request, parse_request,
};
use dwell_proto::http2::PREFACE;

/// The first two bytes of a record with a handshake of TLS (RFC 8446 section 5.1). No request
/// begins so, and what follows them may have no end of a head for long.
const HANDSHAKE: u8 = 22;
const TLS_MAJOR: u8 = 3;
/// Input behind one held request that may always be kept.
const HELD_INPUT_BYTES_FREE: usize = 4 * 1024;
/// Output that is collected over pipelined requests before it is written.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Output after which a client that has sent more requests waits for the next turn: a few bytes of
/// requests can cause very much output.
const OUTPUT_BYTES_PER_VISIT: u64 = 512 * 1024;

/// The body of a request as it is handed over.
struct Brought<'a> {
    body: &'a [u8],
    follows: bool,
    trailers: Trailers<'a>,
}

impl<A: App> Visit<'_, A> {
    /// Serves the requests in `input`, which begins with the connection's kept tail.
    pub(super) fn serve(&mut self, input: &[u8]) -> Fate {
        let mut output = self.context.take_output();
        let (used, mut stop) = self.run(input, &mut output);
        if let Stop::Reject(status) = stop {
            self.reject(status, &mut output);
            stop = Stop::Last;
        }
        let connection = &mut *self.connection;
        let left = input.len() - used;
        let mut charge = None;
        if stop == Stop::Held && left > HELD_INPUT_BYTES_FREE && connection.incoming.is_none() {
            charge = self
                .accounts
                .held_input
                .charge(left, self.limits.held_input_bytes_max);
            if charge.is_none() {
                connection.be_last();
            }
        }
        if connection.finished {
            connection.peer.drop_tail();
            if left > 0 {
                connection.peer.set_unread();
            }
        } else {
            let scanned = self.scanned;
            connection.peer.keep(input, used, Note { scanned, charge });
        }
        self.end(stop, output)
    }

    /// Serves request after request; returns how much of `input` is used and why it stopped.
    fn run(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Stop) {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            let (taken, stop) = if self.connection.incoming.is_some() {
                self.take_body(rest, output)
            } else if rest.is_empty() || self.leaves() {
                return (used, Stop::Partial);
            } else if let Some(stop) = self.preface_at(rest) {
                return (used, stop);
            } else if matches!(rest, [HANDSHAKE]) && self.is_first_and_plain() {
                // The next byte tells whether it is TLS.
                return (used, Stop::Partial);
            } else if matches!(rest, [HANDSHAKE, TLS_MAJOR, ..]) && self.is_first_and_plain() {
                self.app.event(HttpEvent::TlsOnPlain);
                return (used, Stop::Failed);
            } else {
                self.head(rest, output)
            };
            used += taken;
            if let Some(stop) = stop {
                return (used, stop);
            }
            if output.len() >= OUTPUT_BYTES_MAX {
                if !self.write_out(output) {
                    return (used, Stop::Failed);
                }
                output.clear();
            }
            let is_sated = self.written + output.len() as u64 >= OUTPUT_BYTES_PER_VISIT;
            if is_sated && self.connection.exchange.phase == Phase::Idle && used < input.len() {
                return (used, Stop::Sated);
            }
            // The body of a held request is taken whatever its answer waits for.
            if !self.connection.exchange.is_held() && !self.connection.peer.stream.is_flushed() {
                return (used, Stop::Full);
            }
        }
    }

    /// Looks for the preface of HTTP/2, whose beginning may be that of another request.
    fn preface_at(&self, rest: &[u8]) -> Option<Stop> {
        if !self.ways.by_preface || !self.is_first_and_plain() {
            return None;
        }
        if rest.starts_with(PREFACE) {
            return Some(Stop::Switch);
        }
        PREFACE.starts_with(rest).then_some(Stop::Partial)
    }

    /// Returns true if nothing was asked yet on this connection, which is one without TLS.
    fn is_first_and_plain(&self) -> bool {
        self.connection.exchange.sequence == 0 && !self.connection.peer.stream.is_secure()
    }

    /// Reads one head at the front of `input`; serves the request if its body is here too.
    fn head(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Option<Stop>) {
        let mut storage = FieldStorage::new();
        let limits = &self.limits.head;
        let head = match next_request(input, &mut self.scanned, &mut storage, limits) {
            Ok(Some(head)) => head,
            Ok(None) => return (0, Some(Stop::Partial)),
            Err(error) => {
                self.connection.exchange.framing = Framing::default();
                return (0, Some(Stop::Reject(error.status())));
            }
        };
        self.scanned = 0;
        if self.app.puts_off(self.context, &head) {
            return (0, Some(Stop::Sated));
        }
        let (head_bytes, rest) = input.split_at(head.length);
        let connection = &mut *self.connection;
        connection.exchange.framing = framing_of(&head);
        connection.exchange.sequence = connection.exchange.sequence.wrapping_add(1);
        if matches!(head.framing, BodyFraming::None | BodyFraming::Length(0)) {
            let stop = self.hand_over(&head, head_bytes, &Brought::NOTHING, output);
            return (head.length, stop);
        }
        let exchange = connection.exchange_id(self.token);
        let stream = &connection.peer.stream;
        let plan = self.app.body(self.context, exchange, &head, stream);
        let (bytes_max, first_bytes) = match plan.bounds() {
            Ok(bounds) => bounds,
            Err(status) => return (head.length, Some(Stop::Reject(status))),
        };
        let streams = first_bytes == Some(0);
        if let BodyFraming::Length(length) = head.framing {
            if length > bytes_max {
                return (head.length, Some(Stop::Reject(413)));
            }
            if let Some(body) = rest.get(..length as usize).filter(|_| !streams) {
                let brought = Brought::whole(body, Trailers::NONE);
                let stop = self.hand_over(&head, head_bytes, &brought, output);
                return (head.length + body.len(), stop);
            }
        }
        let waits = head.expect_continue && rest.is_empty();
        let (timeout, now) = (self.limits.body_timeout, self.context.now());
        if streams {
            let taking = Taking::Stream {
                credit: 0,
                received: 0,
                continue_owed: waits,
                is_awaited: true,
            };
            let incoming = Incoming::new(head.framing, bytes_max, taking, timeout, now);
            self.connection.incoming = Some(Box::new(incoming));
            let stop = self.hand_over(&head, head_bytes, &Brought::STREAM, output);
            return (head.length, stop);
        }
        let Some(taking) = self.gathering(&head, head_bytes, bytes_max, first_bytes) else {
            return (head.length, Some(Stop::Reject(503)));
        };
        if waits {
            output.extend_from_slice(CONTINUE);
        }
        let mut incoming = Incoming::new(head.framing, bytes_max, taking, timeout, now);
        incoming.pace.wait(now);
        self.connection.incoming = Some(Box::new(incoming));
        (head.length, None)
    }

    /// A body that is gathered, or its first bytes alone; `None` where there is no room.
    fn gathering(
        &self,
        head: &RequestHead<'_, '_>,
        head_bytes: &[u8],
        bytes_max: u64,
        first_bytes: Option<u64>,
    ) -> Option<Taking> {
        let wanted = first_bytes.unwrap_or(bytes_max);
        let wanted = match head.framing {
            BodyFraming::Length(length) => wanted.min(length),
            _ => wanted,
        };
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let gathered_bytes_max = self.limits.gathered_bytes_max;
        Some(Taking::Collect {
            gathered: Gathered::begin(
                head_bytes,
                wanted,
                &self.accounts.gathered,
                gathered_bytes_max,
            )?,
            streams_on: first_bytes.is_some(),
        })
    }

    /// Serves a request with the gathered beginning of its body; the rest follows.
    pub(super) fn gathered_enough(
        &mut self,
        gathered: &Gathered,
        output: &mut Vec<u8>,
    ) -> Option<Stop> {
        let brought = Brought {
            body: gathered.body(),
            follows: true,
            trailers: Trailers::NONE,
        };
        self.hand_over_parsed(gathered.head(), &brought, output)
    }

    /// A collected body is complete: serves the request.
    pub(super) fn collected(
        &mut self,
        gathered: &Gathered,
        trailers: Trailers<'_>,
        output: &mut Vec<u8>,
    ) -> Option<Stop> {
        let brought = Brought::whole(gathered.body(), trailers);
        self.hand_over_parsed(gathered.head(), &brought, output)
    }

    fn hand_over_parsed(
        &mut self,
        head: &[u8],
        brought: &Brought<'_>,
        output: &mut Vec<u8>,
    ) -> Option<Stop> {
        let mut storage = FieldStorage::new();
        match parse_request(head, &mut storage, &self.limits.head) {
            Ok(parsed) => self.hand_over(&parsed, head, brought, output),
            // It was parsed once when it came, so this does not happen.
            Err(error) => Some(Stop::Reject(error.status())),
        }
    }

    /// Hands a request to the app; returns why serving stops, if it does.
    fn hand_over(
        &mut self,
        head: &RequestHead<'_, '_>,
        head_bytes: &[u8],
        brought: &Brought<'_>,
        output: &mut Vec<u8>,
    ) -> Option<Stop> {
        let ends = self.ends();
        let connection = &mut *self.connection;
        if ends || connection.exchange.sequence >= self.limits.requests_per_connection_max {
            connection.exchange.framing.keep_alive = false;
        }
        let request = Request {
            exchange: connection.exchange_id(self.token),
            head,
            head_bytes,
            body: brought.body,
            body_follows: brought.follows,
            trailers: brought.trailers,
            is_secure: connection.peer.stream.is_secure(),
        };
        let (outcome, delivery) = self.with_reply(output, |context, app, reply| {
            app.request(context, &request, reply)
        });
        self.conclude(outcome, delivery, output)
    }
}

impl<'a> Brought<'a> {
    const NOTHING: Brought<'static> = Brought::whole(&[], Trailers::NONE);
    const STREAM: Brought<'static> = Brought {
        body: &[],
        follows: true,
        trailers: Trailers::NONE,
    };

    const fn whole(body: &'a [u8], trailers: Trailers<'a>) -> Self {
        Self {
            body,
            follows: false,
            trailers,
        }
    }
}

fn framing_of(head: &RequestHead<'_, '_>) -> Framing {
    Framing {
        is_head: head.method == "HEAD",
        is_http10: head.version == Version::Http10,
        keep_alive: head.keep_alive,
    }
}
