//! From input bytes to requests handed to the app, in order.

use super::{Http, arm_hold, framing_of};
use crate::app::{App, Event, Outcome, Request};
use crate::connection::{Connection, Incoming, Phase};
use crate::limits::Limits;
use crate::reply::{Framing, Reply};
use dwell_evloop::{Context, Token};
use dwell_proto::http1::{
    BodyDecoder, BodyFraming, FieldStorage, RequestHead, head_end, oversized_head, parse_request,
};

/// Output that is collected over pipelined requests before it is written.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// What a client that waits for it is sent before its body (RFC 9110 section 10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Why serving one piece of input stopped.
enum Stop {
    /// All that is complete was answered; the rest waits for more input.
    Partial,
    /// A request is held, or its answer does not fit the socket.
    Busy,
    /// The last answer of this connection is written.
    Last,
    /// The request cannot be served; the status to answer.
    Reject(u16),
    /// The connection is of no more use.
    Close,
}

/// One connection with its input, taken apart so that app, output and input can be used at once.
struct Serving<'s, A> {
    context: &'s mut Context,
    app: &'s mut A,
    connection: &'s mut Connection,
    token: Token,
    limits: &'s Limits,
    date: &'s [u8],
    draining: bool,
    output: Vec<u8>,
}

impl Http {
    /// Serves the requests in `input`, which begins with the connection's kept tail.
    pub(super) fn serve<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        input: &[u8],
        app: &mut A,
    ) {
        let date = self.date.at(context.unix_seconds(), context.wall());
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let output = context.take_output();
        let mut serving = Serving {
            context,
            app,
            connection,
            token,
            limits: &self.limits,
            date,
            draining: self.draining,
            output,
        };
        let (used, stop) = serving.run(input);
        let output = std::mem::take(&mut serving.output);
        let mut scanned = serving.connection.scanned;
        if !matches!(stop, Stop::Partial) {
            scanned = 0;
        }
        connection.scanned = scanned;
        connection.keep(&input[used..]);
        let written = output.is_empty() || connection.stream.write(&output).is_ok();
        let answered = !output.is_empty();
        context.return_output(output);
        if !written {
            return self.close(context, token, app);
        }
        match stop {
            Stop::Partial => self.wait_for_more(context, token, answered, app),
            Stop::Busy => {
                if self
                    .connections
                    .get(token)
                    .is_some_and(|c| c.phase != Phase::Held)
                {
                    self.settle(context, token);
                }
            }
            Stop::Last => {
                if let Some(connection) = self.connections.get_mut(token) {
                    connection.framing.keep_alive = false;
                }
                self.settle(context, token);
            }
            Stop::Reject(status) => self.reject(context, token, status, app),
            Stop::Close => self.close(context, token, app),
        }
    }

    /// Answers with `status` on the engine's own account and closes.
    pub(super) fn reject<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        status: u16,
        app: &mut A,
    ) {
        app.event(Event::Rejected(status));
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        connection.framing = Framing::default();
        // Whatever the peer still sends is discarded while it reads the answer.
        connection.unread = true;
        self.respond(context, token, |reply| {
            reply.text(status, dwell_proto::http1::encode::reason(status));
        });
    }

    /// The input ends within a request, or between two.
    fn wait_for_more<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        answered: bool,
        app: &mut A,
    ) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        if connection.stream.queued_bytes() > 0 {
            return self.settle(context, token);
        }
        if connection.peer_closed && !connection.unread {
            // The peer has ended its side within a request, or after its last answer.
            return self.close(context, token, app);
        }
        let phase = match (&connection.incoming, connection.tail.is_empty()) {
            (Some(_), _) => Phase::Body,
            (None, false) => Phase::Head,
            (None, true) => Phase::Idle,
        };
        // A deadline runs from the beginning of what it bounds: more bytes do not move it.
        if phase != connection.phase || answered {
            connection.phase = phase;
            let timeout = match phase {
                Phase::Body => self.limits.body_timeout,
                Phase::Head => self.limits.header_timeout,
                _ => self.limits.idle_timeout,
            };
            context.arm(token, timeout);
        }
    }
}

impl<A: App> Serving<'_, A> {
    /// Serves request after request; returns how much of `input` is used and why it stopped.
    fn run(&mut self, input: &[u8]) -> (usize, Stop) {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            let (taken, stop) = if self.connection.incoming.is_some() {
                self.body(rest)
            } else {
                self.head(rest)
            };
            used += taken;
            if let Some(stop) = stop {
                return (used, stop);
            }
            if self.output.len() >= OUTPUT_BYTES_MAX {
                if self.connection.stream.write(&self.output).is_err() {
                    return (used, Stop::Close);
                }
                self.output.clear();
            }
            if self.connection.stream.queued_bytes() > 0 {
                return (used, Stop::Busy);
            }
        }
    }

    /// Looks for one head at the front of `input`; serves the request if its body is here too.
    fn head(&mut self, input: &[u8]) -> (usize, Option<Stop>) {
        let mut scanned = (self.connection.scanned as usize).min(input.len());
        let Some(end) = head_end(input, &mut scanned) else {
            if input.len() > self.limits.head.head_bytes_max {
                let error = oversized_head(input, &self.limits.head);
                return (0, Some(Stop::Reject(error.status())));
            }
            self.connection.scanned = scanned as u32;
            return (0, Some(Stop::Partial));
        };
        self.connection.scanned = 0;
        let mut storage = FieldStorage::new();
        let head = match parse_request(&input[..end], &mut storage, &self.limits.head) {
            Ok(head) => head,
            Err(error) => return (0, Some(Stop::Reject(error.status()))),
        };
        let body_bytes_max = match head.framing {
            BodyFraming::None | BodyFraming::Length(0) => {
                let stop = self.hand_over(&head, &input[..end], &[]);
                return (end, stop);
            }
            _ => self.app.body_bytes_max(&head),
        };
        if let BodyFraming::Length(length) = head.framing {
            if length > body_bytes_max {
                return (end, Some(Stop::Reject(413)));
            }
            if let Some(body) = input[end..].get(..length as usize) {
                let stop = self.hand_over(&head, &input[..end], body);
                return (end + body.len(), stop);
            }
        }
        if head.expect_continue && input.len() == end {
            self.output.extend_from_slice(CONTINUE);
        }
        self.connection.incoming = Some(Box::new(Incoming {
            head: input[..end].to_vec(),
            body: Vec::new(),
            decoder: BodyDecoder::new(head.framing, body_bytes_max),
        }));
        (end, None)
    }

    /// Takes body bytes from the front of `input`; serves the request when they are complete.
    fn body(&mut self, input: &[u8]) -> (usize, Option<Stop>) {
        let Some(mut incoming) = self.connection.incoming.take() else {
            return (0, None);
        };
        let mut used = 0;
        let done = loop {
            match incoming.decoder.decode(&input[used..]) {
                Err(error) => return (used, Some(Stop::Reject(error.status()))),
                Ok(step) => {
                    incoming.body.extend_from_slice(step.data);
                    used += step.consumed;
                    if step.done || step.consumed == 0 {
                        break step.done;
                    }
                }
            }
        };
        if !done {
            self.connection.incoming = Some(incoming);
            return (used, Some(Stop::Partial));
        }
        let mut storage = FieldStorage::new();
        match parse_request(&incoming.head, &mut storage, &self.limits.head) {
            Ok(head) => (used, self.hand_over(&head, &incoming.head, &incoming.body)),
            // It was parsed once when it came, so this does not happen.
            Err(error) => (used, Some(Stop::Reject(error.status()))),
        }
    }

    /// Hands a complete request to the app; returns why serving stops, if it does.
    fn hand_over(
        &mut self,
        head: &RequestHead<'_, '_>,
        head_bytes: &[u8],
        body: &[u8],
    ) -> Option<Stop> {
        let connection = &mut *self.connection;
        connection.sequence = connection.sequence.wrapping_add(1);
        let mut framing = framing_of(head);
        if self.draining || connection.sequence >= self.limits.requests_per_connection_max {
            framing.keep_alive = false;
        }
        let request = Request {
            exchange: connection.exchange(self.token),
            head,
            head_bytes,
            body,
        };
        let mut reply = Reply {
            output: &mut self.output,
            stream: &mut connection.stream,
            date: self.date,
            framing,
            sent: false,
            failed: None,
        };
        let outcome = self.app.request(self.context, &request, &mut reply);
        let (sent, failed) = (reply.sent, reply.failed.is_some());
        connection.framing = reply.framing;
        match outcome {
            _ if failed => Some(Stop::Close),
            _ if sent && !connection.framing.keep_alive => Some(Stop::Last),
            _ if sent => None,
            Outcome::Held { tag, timeout } => {
                connection.phase = Phase::Held;
                connection.tag = tag;
                arm_hold(self.context, self.token, timeout);
                Some(Stop::Busy)
            }
            // An app that says it answered but did not: the client must not wait for nothing.
            Outcome::Answered => Some(Stop::Reject(500)),
            Outcome::Close => Some(Stop::Close),
        }
    }
}
