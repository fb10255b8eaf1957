//! From input bytes to requests handed to the app, in order.

use super::visit::{Fate, Visit, arm_hold};
use crate::app::{App, Event, Outcome, Request};
use crate::connection::Incoming;
use crate::reply::{Framing, Reply};
use dwell_proto::http1::{
    BodyDecoder, BodyFraming, FieldStorage, RequestHead, Version, encode, next_request,
    parse_request,
};

/// Output that is collected over pipelined requests before it is written.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// What a client that waits for it is sent before its body (RFC 9110 section 10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Why serving one piece of input stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// All that is complete was answered; the rest waits for more input.
    Partial,
    /// The socket does not take the answers.
    Full,
    /// The app holds a request.
    Held,
    /// The last answer of this connection is given.
    Last,
    /// The request cannot be served; the status to answer.
    Reject(u16),
    /// The socket has failed.
    Failed,
}

impl<A: App> Visit<'_, A> {
    /// Serves the requests in `input`, which begins with the connection's kept tail.
    pub(super) fn serve(&mut self, input: &[u8]) -> Fate {
        let mut output = self.context.take_output();
        let before = self.connection.sequence;
        let (used, stop) = self.run(input, &mut output);
        if let Stop::Reject(status) = stop {
            self.reject(status, &mut output);
        }
        let connection = &mut *self.connection;
        if connection.finished {
            connection.tail = Vec::new();
            connection.unread |= used < input.len();
        } else {
            connection.keep(input, used);
        }
        let written = output.is_empty() || connection.stream.write(&output).is_ok();
        self.context.return_output(output);
        match stop {
            _ if !written => Fate::Close,
            Stop::Failed => Fate::Close,
            Stop::Held => self.tell_closed(),
            Stop::Partial | Stop::Full | Stop::Last | Stop::Reject(_) => {
                self.rest(self.connection.sequence != before)
            }
        }
    }

    /// Writes an answer of the engine's own, the last one of the connection.
    pub(super) fn reject(&mut self, status: u16, output: &mut Vec<u8>) {
        self.app.event(Event::Rejected(status));
        let connection = &mut *self.connection;
        connection.incoming = None;
        connection.tail = Vec::new();
        connection.finished = true;
        // Whatever the peer still sends is discarded while it reads the answer.
        connection.unread = true;
        let framing = Framing {
            keep_alive: false,
            ..connection.framing
        };
        let mut reply = Reply {
            output,
            stream: &mut connection.stream,
            start: self.start,
            framing,
            sent: false,
            failed: false,
        };
        reply.text(status, encode::reason(status));
    }

    /// Serves request after request; returns how much of `input` is used and why it stopped.
    fn run(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Stop) {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            let (taken, stop) = if self.connection.incoming.is_some() {
                self.body(rest, output)
            } else if rest.is_empty() {
                return (used, Stop::Partial);
            } else {
                self.head(rest, output)
            };
            used += taken;
            if let Some(stop) = stop {
                return (used, stop);
            }
            if output.len() >= OUTPUT_BYTES_MAX {
                if self.connection.stream.write(output).is_err() {
                    return (used, Stop::Failed);
                }
                output.clear();
            }
            if self.connection.stream.queued_bytes() > 0 {
                return (used, Stop::Full);
            }
        }
    }

    /// Looks for one head at the front of `input`; serves the request if its body is here too.
    fn head(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Option<Stop>) {
        let mut scanned = self.connection.scanned as usize;
        let mut storage = FieldStorage::new();
        let limits = &self.limits.head;
        let head = match next_request(input, &mut scanned, &mut storage, limits) {
            Ok(Some(head)) => head,
            Ok(None) => {
                self.connection.scanned = scanned as u32;
                return (0, Some(Stop::Partial));
            }
            Err(error) => {
                self.connection.framing = Framing::default();
                return (0, Some(Stop::Reject(error.status())));
            }
        };
        self.connection.scanned = 0;
        self.connection.framing = framing_of(&head);
        let (head_bytes, rest) = input.split_at(head.length);
        let body_bytes_max = match head.framing {
            BodyFraming::None | BodyFraming::Length(0) => {
                return (head.length, self.hand_over(&head, head_bytes, &[], output));
            }
            _ => self.app.body_bytes_max(&head),
        };
        if let BodyFraming::Length(length) = head.framing {
            if length > body_bytes_max {
                return (head.length, Some(Stop::Reject(413)));
            }
            if let Some(body) = rest.get(..length as usize) {
                let stop = self.hand_over(&head, head_bytes, body, output);
                return (head.length + body.len(), stop);
            }
        }
        if head.expect_continue && rest.is_empty() {
            output.extend_from_slice(CONTINUE);
        }
        self.connection.incoming = Some(Box::new(Incoming {
            head: head_bytes.to_vec(),
            body: Vec::new(),
            decoder: BodyDecoder::new(head.framing, body_bytes_max),
        }));
        (head.length, None)
    }

    /// Takes body bytes from the front of `input`; serves the request when they are complete.
    fn body(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Option<Stop>) {
        let Some(mut incoming) = self.connection.incoming.take() else {
            return (0, None);
        };
        let mut used = 0;
        loop {
            match incoming.decoder.decode(&input[used..]) {
                Err(error) => return (used, Some(Stop::Reject(error.status()))),
                Ok(step) => {
                    incoming.body.extend_from_slice(step.data);
                    used += step.consumed;
                    if step.done {
                        break;
                    }
                    if step.consumed == 0 {
                        self.connection.incoming = Some(incoming);
                        return (used, Some(Stop::Partial));
                    }
                }
            }
        }
        let mut storage = FieldStorage::new();
        let stop = match parse_request(&incoming.head, &mut storage, &self.limits.head) {
            Ok(head) => self.hand_over(&head, &incoming.head, &incoming.body, output),
            // It was parsed once when it came, so this does not happen.
            Err(error) => Some(Stop::Reject(error.status())),
        };
        (used, stop)
    }

    /// Hands a complete request to the app; returns why serving stops, if it does.
    fn hand_over(
        &mut self,
        head: &RequestHead<'_, '_>,
        head_bytes: &[u8],
        body: &[u8],
        output: &mut Vec<u8>,
    ) -> Option<Stop> {
        let connection = &mut *self.connection;
        connection.sequence = connection.sequence.wrapping_add(1);
        if self.draining || connection.sequence >= self.limits.requests_per_connection_max {
            connection.framing.keep_alive = false;
        }
        let exchange = connection.exchange(self.token);
        let request = Request {
            exchange,
            head,
            head_bytes,
            body,
        };
        let mut reply = Reply {
            output,
            stream: &mut connection.stream,
            start: self.start,
            framing: connection.framing,
            sent: false,
            failed: false,
        };
        let outcome = self.app.request(self.context, &request, &mut reply);
        let (sent, failed) = (reply.sent, reply.failed);
        connection.framing = reply.framing;
        match outcome {
            // An app that says it answered but did not: the client must not wait for nothing.
            Outcome::Answered if !sent => return Some(Stop::Reject(500)),
            Outcome::Answered => {}
            Outcome::Held { tag, timeout } if !sent => {
                connection.hold(tag);
                arm_hold(self.context, self.token, timeout);
                return Some(Stop::Held);
            }
            // Answered and held at once: it is answered, and the hold is over as it begins.
            Outcome::Held { tag, .. } => self.app.abandoned(self.context, exchange, tag),
            Outcome::Close => connection.framing.keep_alive = false,
        }
        if failed {
            return Some(Stop::Failed);
        }
        if connection.framing.keep_alive {
            return None;
        }
        connection.finished = true;
        Some(Stop::Last)
    }
}

fn framing_of(head: &RequestHead<'_, '_>) -> Framing {
    Framing {
        is_head: head.method == "HEAD",
        is_http10: head.version == Version::Http10,
        keep_alive: head.keep_alive,
    }
}
