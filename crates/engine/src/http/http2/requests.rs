//! From field sections to requests handed to the app.

use super::head;
use super::serve::Serve;
use super::session::{Going, PutOff, STREAMS_MAX};
use super::stream::{Stream, Upload};
use crate::app::{App, Request};
use crate::connection::Taking;
use crate::gathered::Gathered;
use crate::limits::STREAM_OUTPUT_SHARE;
use crate::reply::Framing;
use dwell_evloop::Token;
use dwell_proto::http1::{
    BodyFraming, FieldStorage, RequestHead, Trailers, Version, parse_request,
};
use dwell_proto::http2::{ErrorCode, FieldSection, check_trailers, request_head};

/// The body of a request as it is handed over.
pub(super) struct Brought<'a> {
    pub(super) body: &'a [u8],
    pub(super) follows: bool,
    pub(super) trailers: Trailers<'a>,
}

/// The wish of a request.
enum Asked {
    Answer,
    /// The stream is to leave HTTP.
    Switch,
}

/// The fault of a section that is no request.
enum Fault {
    /// It is answered by this status.
    Status(u16),
    /// It ends its stream.
    Malformed,
}

impl<A: App> Serve<'_, A> {
    /// A field section is complete: a request begins, or trailer fields end one.
    pub(super) fn section(
        &mut self,
        number: u32,
        section: &FieldSection,
        ends_stream: bool,
    ) -> Result<(), ErrorCode> {
        if let Some(token) = self.session.open.find(number) {
            return self.trailers(token, section, ends_stream);
        }
        if self.session.open.was_reset(number) {
            // It had to be decoded all the same.
            return self.calm();
        }
        if number.is_multiple_of(2) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        if number <= self.session.open.last {
            return Err(ErrorCode::STREAM_CLOSED);
        }
        if self.session.open.going == Going::Last {
            // The client has been told that it is not answered, nor is what follows.
            self.session.open.last = number;
            self.session.open.note_reset(number);
            return self.count_reset();
        }
        self.session.open.last = number;
        self.request(number, section, ends_stream)
    }

    fn request(
        &mut self,
        number: u32,
        section: &FieldSection,
        ends_stream: bool,
    ) -> Result<(), ErrorCode> {
        if let Some(count) = self.refusal() {
            *count += 1;
            return self.send_reset(number, ErrorCode::REFUSED_STREAM);
        }
        let mut stream = Stream::new(self.token, number, self.session.sending.stream_window);
        stream.marks.is_ended = ends_stream;
        // Known before anything refuses the request, as no refusal of a HEAD has a body.
        stream.exchange.framing = Framing {
            is_head: section.is_head(),
            is_http10: false,
            keep_alive: true,
        };
        let Ok(token) = self.tables.streams.insert(stream) else {
            return self.send_reset(number, ErrorCode::REFUSED_STREAM);
        };
        self.session.open.add(number, token);
        self.session.calm.begun();
        let (context, socket) = (&mut *self.context, &self.connection.peer.stream);
        self.app.stream_opened(context, self.token, token, socket);
        self.tables.figures.streams += 1;
        self.tables.figures.streams_open = self.tables.streams.len();
        if !self.tell_open() {
            self.tables.figures.refused.app += 1;
            self.reject(token, 429);
            return Ok(());
        }
        let mut text = Vec::with_capacity(TEXT_BYTES);
        let target_bytes_max = self.limits.head.target_bytes_max;
        match read(section, ends_stream, target_bytes_max, &mut text) {
            Ok(Asked::Answer) => {}
            Ok(Asked::Switch) if !self.tables.takes_connect => {
                // It was not announced.
                self.reject(token, 501);
                return Ok(());
            }
            Ok(Asked::Switch) if !self.app.stream_may_leave(self.tables.is_full()) => {
                self.reject(token, 503);
                return Ok(());
            }
            Ok(Asked::Switch) => self.offer(token),
            Err(Fault::Malformed) => return self.fail_stream(token, ErrorCode::PROTOCOL_ERROR),
            Err(Fault::Status(status)) => {
                self.reject(token, status);
                return Ok(());
            }
        }
        self.begin(token, text, ends_stream)
    }

    /// The count of requests that are refused as the next one is to be, if it is.
    fn refusal(&mut self) -> Option<&mut u64> {
        let refused = &mut self.tables.figures.refused;
        let session = &*self.session;
        match () {
            () if session.open.len() >= STREAMS_MAX => Some(&mut refused.streams),
            // Work whose request was reset counts like a request, until it has ended.
            () if session.work.count() >= STREAMS_MAX => Some(&mut refused.work),
            () if session.sending.queued > STREAM_OUTPUT_SHARE * self.limits.output_bytes_max => {
                Some(&mut refused.output)
            }
            () => None,
        }
    }

    /// Hands over a request, or asks for its body, unless the app puts it off.
    pub(super) fn begin(
        &mut self,
        token: Token,
        text: Vec<u8>,
        ends_stream: bool,
    ) -> Result<(), ErrorCode> {
        let mut storage = FieldStorage::new();
        let mut head = match parse_request(&text, &mut storage, &self.limits.head) {
            Ok(head) => head,
            Err(error) => {
                self.reject(token, error.status());
                return Ok(());
            }
        };
        head.version = Version::Http2;
        if self.app.puts_off(self.context, &head) {
            self.session.put_off = Some(Box::new(PutOff {
                token,
                text,
                ends_stream,
            }));
            return Ok(());
        }
        self.begun = true;
        let stream = self.tables.streams.get(token);
        if ends_stream || stream.is_some_and(|stream| stream.carrier.is_some()) {
            return self.hand_over(token, &head, &text, &Brought::NOTHING);
        }
        self.begin_body(token, &head, &text)
    }

    /// A request whose body follows: asks the app how it is taken.
    fn begin_body(
        &mut self,
        token: Token,
        head: &RequestHead<'_, '_>,
        text: &[u8],
    ) -> Result<(), ErrorCode> {
        let Some(stream) = self.tables.streams.get(token) else {
            return Ok(());
        };
        let id = stream.exchange_id(token);
        let plan = self
            .app
            .body(self.context, id, head, &self.connection.peer.stream);
        let (bytes_max, first_bytes) = match plan.bounds() {
            Ok(bounds) => bounds,
            Err(status) => {
                self.reject(token, status);
                return Ok(());
            }
        };
        let length = announced(head);
        if length.is_some_and(|length| length > bytes_max) {
            self.reject(token, 413);
            return Ok(());
        }
        let streams = first_bytes == Some(0);
        let taking = if streams {
            Taking::Stream {
                credit: 0,
                received: 0,
                continue_owed: head.expect_continue,
                is_awaited: true,
            }
        } else {
            let wanted = first_bytes.unwrap_or(bytes_max);
            let wanted = length.map_or(wanted, |length| wanted.min(length));
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
            let (budget, max) = (&self.accounts.gathered, self.limits.gathered_bytes_max);
            let Some(gathered) = Gathered::begin(text, wanted, budget, max) else {
                self.reject(token, 503);
                return Ok(());
            };
            Taking::Collect {
                gathered,
                streams_on: first_bytes.is_some(),
            }
        };
        let (timeout, now) = (self.limits.body_timeout, self.context.now());
        let window = self.session.receiving.stream_window();
        let mut upload = Upload::new(taking, length, bytes_max, timeout, now, window);
        if !streams {
            upload.pace.wait(now);
            self.context.arm(token, timeout);
        }
        if let Some(stream) = self.tables.streams.get_mut(token) {
            stream.upload = Some(Box::new(upload));
        }
        if streams {
            return self.hand_over(token, head, text, &Brought::STREAM);
        }
        if head.expect_continue {
            self.send_continue(token);
        }
        self.grant_window(token);
        Ok(())
    }

    /// Trailer fields have come, which end the body of a request.
    fn trailers(
        &mut self,
        token: Token,
        section: &FieldSection,
        ends_stream: bool,
    ) -> Result<(), ErrorCode> {
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return Ok(());
        };
        if stream.marks.is_ended {
            return self.fail_stream(token, ErrorCode::STREAM_CLOSED);
        }
        // A stream that leaves HTTP has data alone, and no trailers (RFC 9113 section 8.5).
        let leaves = stream.carrier.is_some();
        if leaves || !ends_stream || check_trailers(section).is_err() {
            return self.fail_stream(token, ErrorCode::PROTOCOL_ERROR);
        }
        if let Some(upload) = stream.upload.as_deref_mut() {
            head::write_trailers(section, &mut upload.trailers);
            // They wait for the reader of the body before them, and no window bounds them.
            let (budget, max) = (&self.accounts.gathered, self.limits.gathered_bytes_max);
            if !upload.charge_for(upload.trailers.len(), budget, max) {
                return self.fail_held(token, 503);
            }
        }
        self.body(token, &[], true)
    }

    /// Serves a request that was gathered, as a whole or its beginning.
    pub(super) fn hand_over_gathered(
        &mut self,
        token: Token,
        gathered: &Gathered,
        follows: bool,
        trailers: Trailers<'_>,
    ) -> Result<(), ErrorCode> {
        let mut storage = FieldStorage::new();
        let head = gathered.head();
        let Ok(mut parsed) = parse_request(head, &mut storage, &self.limits.head) else {
            // It was parsed once when it came, so this does not happen.
            self.reject(token, 400);
            return Ok(());
        };
        parsed.version = Version::Http2;
        let brought = Brought {
            body: gathered.body(),
            follows,
            trailers,
        };
        self.hand_over(token, &parsed, head, &brought)
    }

    /// Hands a request to the app.
    fn hand_over(
        &mut self,
        token: Token,
        head: &RequestHead<'_, '_>,
        head_bytes: &[u8],
        brought: &Brought<'_>,
    ) -> Result<(), ErrorCode> {
        let Some(stream) = self.tables.streams.get(token) else {
            return Ok(());
        };
        let request = Request {
            exchange: stream.exchange_id(token),
            head,
            head_bytes,
            body: brought.body,
            body_follows: brought.follows,
            trailers: brought.trailers,
            is_secure: self.connection.peer.stream.is_secure(),
        };
        self.call(token, |context, app, reply| {
            app.request(context, &request, reply)
        })
    }
}

impl Brought<'_> {
    const NOTHING: Brought<'static> = Brought {
        body: &[],
        follows: false,
        trailers: Trailers::NONE,
    };
    const STREAM: Brought<'static> = Brought {
        body: &[],
        follows: true,
        trailers: Trailers::NONE,
    };
}

/// The size of a body that follows, if its sender has said.
fn announced(head: &RequestHead<'_, '_>) -> Option<u64> {
    match head.framing {
        BodyFraming::Length(length) => Some(length),
        BodyFraming::None => Some(0),
        BodyFraming::Chunked | BodyFraming::UntilClose => None,
    }
}

/// Room for a head of the usual size.
const TEXT_BYTES: usize = 512;

/// Checks a section and writes it as a head of HTTP/1.1.
fn read(
    section: &FieldSection,
    ends_stream: bool,
    target_bytes_max: usize,
    text: &mut Vec<u8>,
) -> Result<Asked, Fault> {
    let mut storage = FieldStorage::new();
    let head = request_head(section, &mut storage, target_bytes_max);
    let head = head.map_err(|error| error.status().map_or(Fault::Malformed, Fault::Status))?;
    if let Some(protocol) = head.protocol {
        if !protocol.eq_ignore_ascii_case("websocket") {
            return Err(Fault::Status(501));
        }
        // Its data is no content, of which a length could be told (RFC 9110 section 9.3.6).
        if head.content_length.is_some() {
            return Err(Fault::Malformed);
        }
        head::write(&head, false, text);
        return Ok(Asked::Switch);
    }
    if ends_stream && head.content_length.is_some_and(|length| length > 0) {
        return Err(Fault::Malformed);
    }
    head::write(&head, !ends_stream, text);
    Ok(Asked::Answer)
}
