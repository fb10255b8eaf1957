//! One HTTP request: `receive` and `send`.

use super::awaitable::{Pause, Room, Wait, Waiting};
use super::driver::Arrival;
use super::message::{
    bytes_of, event, fields_of, flag, kind_of, left, links_of, start_of, too_long, unexpected,
    unknown,
};
use super::server::{AsgiServer, resolve_all};
use super::shared::{HttpState, INPUT_WINDOW, OUTPUT_WINDOW, Shared};
use crate::web::answer::{AnswerBody, AnswerHead, shared_bytes};
use crate::web::head::Head;
use bytes::Bytes;
use dwell_engine::{Body, ExchangeId};
use dwell_evloop::FileSlice;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use std::fs::File;
use std::sync::Arc;
use std::task::Poll;

/// A request that the app answers.
#[pyclass(frozen, module = "dwell._native")]
pub(super) struct HttpExchange {
    server: Py<AsgiServer>,
    exchange: ExchangeId,
    tag: u64,
    head: Arc<Head>,
    state: Arc<Shared<HttpState>>,
    answer: Shared<Answer>,
}

/// The progress of the app's response.
#[derive(Debug, Default)]
enum Answer {
    #[default]
    Nothing,
    /// The head, which is sent with the body or when the app waits, and whether trailers follow.
    Started(Box<AnswerHead>, bool),
    /// The head was sent because the app waits, and whether trailers follow.
    Begun(bool),
    /// The body is being sent, and whether trailers follow.
    Open(bool),
    /// The body is complete; these trailers are awaited.
    Trailers(Vec<(String, Vec<u8>)>),
    Complete,
}

/// Pieces for a client that has left, after which the loop gets its turn.
const DROPPED_MAX: u32 = 2;

/// Waits for the next event of a request.
struct Receive {
    exchange: ExchangeId,
    state: Arc<Shared<HttpState>>,
}

#[pymethods]
impl HttpExchange {
    /// The next event: a piece of the body, or `http.disconnect`.
    fn receive(&self, py: Python<'_>) -> Waiting {
        let receive = Receive {
            exchange: self.exchange,
            state: Arc::clone(&self.state),
        };
        Waiting::new(self.server.clone_ref(py), receive)
    }

    /// Sends a part of the answer; what it returns waits while the client takes nothing.
    fn send<'py>(
        slf: &Bound<'py, Self>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let kind = kind_of(message)?;
        match &*kind {
            "http.response.start" => {
                this.start(py, message)?;
                let server = this.server.bind(py);
                server.get().hold_head(server, slf)?;
                Ok(server.get().done(py))
            }
            "http.response.body" => this.body(py, message),
            "http.response.early_hint" => this.hint(py, message),
            "http.response.trailers" => this.trailers(py, message),
            "http.response.pathsend" => this.path(py, message),
            _ => Err(unknown(&kind)),
        }
    }

    /// The app has returned: an answer that is missing is 500, half of one is cut off. Whether it
    /// was whole.
    fn end(&self, py: Python<'_>) -> PyResult<bool> {
        let answer = std::mem::replace(&mut *self.answer.lock(), Answer::Complete);
        match answer {
            Answer::Complete => return Ok(true),
            Answer::Nothing | Answer::Started(..) => {
                let mut head = AnswerHead::new(500);
                head.add(b"Content-Type", b"text/plain; charset=utf-8")?;
                let text = Bytes::from_static(b"Internal Server Error\n");
                self.whole(py, &head, self.sized(text))?;
            }
            Answer::Begun(_) | Answer::Open(_) | Answer::Trailers(_) => {
                let server = self.server.bind(py);
                let (exchange, tag) = (self.exchange, self.tag);
                server.get().with(|context, driver| {
                    driver.http.abort(context, exchange);
                    driver
                        .app
                        .entries
                        .remove(dwell_evloop::Token::from_bits(tag));
                    driver.app.log.end(exchange, context.wall(), false);
                });
            }
        }
        Ok(self.state.lock().is_gone)
    }

    /// Method and target, for the log.
    fn describe(&self) -> String {
        let (method, target) = (self.head.method(), self.head.target());
        format!("{} {}", method.escape_ascii(), target.escape_ascii())
    }
}

impl HttpExchange {
    pub(super) fn new(
        server: Py<AsgiServer>,
        arrival: &Arrival,
        state: Arc<Shared<HttpState>>,
    ) -> Self {
        Self {
            server,
            exchange: arrival.exchange,
            tag: arrival.tag,
            head: Arc::clone(&arrival.head),
            state,
            answer: Shared::default(),
        }
    }

    fn start(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let head = start_of(message)?;
        let trailers = flag(message, intern!(py, "trailers"))?;
        let mut answer = self.answer.lock();
        if !matches!(*answer, Answer::Nothing) {
            return Err(unexpected("http.response.start"));
        }
        *answer = Answer::Started(Box::new(head), trailers);
        Ok(())
    }

    /// Sends a 103 (Early Hints), which comes before the answer.
    fn hint<'py>(
        &self,
        py: Python<'py>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !matches!(*self.answer.lock(), Answer::Nothing) {
            return Err(unexpected("http.response.early_hint"));
        }
        let mut head = AnswerHead::new(103);
        for link in links_of(message)? {
            head.add(b"Link", &link)?;
        }
        let server = self.server.bind(py);
        server.get().with(|context, driver| {
            driver.http.with_reply(context, self.exchange, |reply| {
                reply.informational(head.status, &head.fields());
            })
        });
        server.get().settle(server)?;
        Ok(server.get().done(py))
    }

    /// Sends a head that no body has followed so far: its client should not wait for one.
    ///
    /// Shape: the server calls it once the app has given way to the loop.
    pub(super) fn flush_head(&self, py: Python<'_>) {
        let mut answer = self.answer.lock();
        if let Answer::Started(_, trailers) = *answer
            && let Answer::Started(head, _) =
                std::mem::replace(&mut *answer, Answer::Begun(trailers))
        {
            drop(answer);
            self.begin(py, &head);
        }
    }

    fn body<'py>(
        &self,
        py: Python<'py>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let data = bytes_of(message, intern!(py, "body"))?;
        let more = flag(message, intern!(py, "more_body"))?;
        let answer = std::mem::take(&mut *self.answer.lock());
        match answer {
            Answer::Started(head, false) if !more => {
                let length = data.as_ref().map_or(0, |data| data.len() as u64);
                if let Some(limit) = self.announced(&head).filter(|limit| length > *limit) {
                    *self.answer.lock() = Answer::Started(head, false);
                    return Err(too_long(limit, length));
                }
                *self.answer.lock() = Answer::Complete;
                let body = self.sized(data.map(shared_bytes).unwrap_or_default());
                self.whole(py, &head, body)
            }
            Answer::Started(head, trailers) => {
                self.begin(py, &head);
                self.piece(py, data, more, trailers)
            }
            Answer::Begun(trailers) | Answer::Open(trailers) => {
                self.piece(py, data, more, trailers)
            }
            other => {
                *self.answer.lock() = other;
                Err(unexpected("http.response.body"))
            }
        }
    }

    /// The body of a whole answer, which HEAD has not.
    fn sized(&self, data: Bytes) -> AnswerBody {
        if self.is_head() {
            let length = (!data.is_empty()).then_some(data.len() as u64);
            return AnswerBody::Absent(length);
        }
        AnswerBody::Bytes(data)
    }

    fn is_head(&self) -> bool {
        self.head.method() == b"HEAD"
    }

    /// Sends an answer with its whole body.
    fn whole<'py>(
        &self,
        py: Python<'py>,
        head: &AnswerHead,
        body: AnswerBody,
    ) -> PyResult<Bound<'py, PyAny>> {
        let body = match body {
            AnswerBody::Absent(length) => AnswerBody::Absent(head.content_length.or(length)),
            body => body,
        };
        let (exchange, tag) = (self.exchange, self.tag);
        let server = self.server.bind(py);
        let sent = server.get().with(|context, driver| {
            driver.app.log.status(exchange, head.status);
            driver.app.log.bytes(exchange, body.length());
            let sent = driver.http.with_reply(context, exchange, |reply| {
                head.send_whole(reply, &body);
            });
            if sent.is_some() {
                driver.finish(context, exchange, tag);
            }
            sent
        });
        if sent.is_none() {
            return self.after_leaving(py, false);
        }
        self.finished(py)?;
        server.get().settle(server)?;
        Ok(server.get().done(py))
    }

    /// Begins an answer whose body follows in pieces.
    fn begin(&self, py: Python<'_>, head: &AnswerHead) {
        let exchange = self.exchange;
        self.state.lock().owed = self.announced(head);
        self.server.bind(py).get().with(|context, driver| {
            driver.app.log.status(exchange, head.status);
            driver.http.with_reply(context, exchange, |reply| {
                head.send(reply, Body::Stream(head.content_length));
            })
        });
    }

    /// The result of `send` when the client has left: it does nothing.
    ///
    /// Shape: the first piece returns at once, because a generator is best ended where it waits on
    /// its own. Later ones let the loop run, so that a task waiting in `receive` learns of the end.
    ///
    /// # Errors
    /// `ConnectionResetError` for a stream that goes on although it could have learned of it.
    fn after_leaving<'py>(&self, py: Python<'py>, more: bool) -> PyResult<Bound<'py, PyAny>> {
        let dropped = {
            let mut state = self.state.lock();
            if more && state.dropped >= DROPPED_MAX && !state.end_told {
                return Err(left());
            }
            state.dropped = state.dropped.wrapping_add(u32::from(more));
            state.dropped
        };
        if !more || dropped % DROPPED_MAX != 0 {
            return Ok(self.server.get().done(py));
        }
        Waiting::new(self.server.clone_ref(py), Pause::default()).into_bound(py)
    }

    /// Sends a piece of the body, and the end of the answer behind the last one.
    fn piece<'py>(
        &self,
        py: Python<'py>,
        data: Option<PyBackedBytes>,
        more: bool,
        trailers: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        *self.answer.lock() = Answer::Open(trailers);
        let is_gone = {
            let mut state = self.state.lock();
            let length = data.as_ref().map_or(0, |data| data.len() as u64);
            if let Some(owed) = &mut state.owed {
                *owed = owed
                    .checked_sub(length)
                    .ok_or_else(|| too_long(*owed, length))?;
            }
            if let Some(data) = data
                && !state.is_gone
            {
                state.output.push(shared_bytes(data));
            }
            if !more && !trailers {
                state.output.finish(Vec::new());
            }
            state.is_gone
        };
        if !more {
            *self.answer.lock() = if trailers {
                Answer::Trailers(Vec::new())
            } else {
                Answer::Complete
            };
        }
        if is_gone {
            return self.after_leaving(py, more);
        }
        self.pump(py, more)
    }

    /// Gives the engine what there is; waits where that is too much.
    fn pump<'py>(&self, py: Python<'py>, more: bool) -> PyResult<Bound<'py, PyAny>> {
        let server = self.server.bind(py);
        let (exchange, tag) = (self.exchange, self.tag);
        let outcome = server.get().with(|context, driver| {
            let log = &mut driver.app.log;
            let mut state = self.state.lock();
            let outcome = driver.http.with_reply(context, exchange, |reply| {
                let count = |bytes| log.bytes(exchange, bytes as u64);
                let is_over = state.output.pump(reply, count);
                state.is_blocked = !is_over && reply.queued_bytes() > OUTPUT_WINDOW;
                is_over
            });
            drop(state);
            if outcome == Some(true) {
                driver.finish(context, exchange, tag);
            }
            outcome
        });
        let Some(is_over) = outcome else {
            // The connection has failed since the last turn of the loop, which is what tells of it:
            // an app that only sends must let the loop have one.
            self.state.lock().output.clear();
            return self.after_leaving(py, more);
        };
        if is_over {
            self.finished(py)?;
        }
        server.get().settle(server)?;
        if !self.state.lock().is_blocked {
            if more && server.get().is_due() {
                // A client that has left takes everything: only a turn of the loop tells of it.
                return Waiting::new(server.clone().unbind(), Pause::default()).into_bound(py);
            }
            return Ok(server.get().done(py));
        }
        let room = Room(Arc::clone(&self.state));
        Waiting::new(server.clone().unbind(), room).into_bound(py)
    }

    /// Ends a complete response, and wakes the tasks that wait for the client to leave.
    fn finished(&self, py: Python<'_>) -> PyResult<()> {
        let woken = {
            let mut state = self.state.lock();
            state.output.finish(Vec::new());
            state.waiters.take()
        };
        resolve_all(py, woken)
    }

    fn trailers<'py>(
        &self,
        py: Python<'py>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut head = AnswerHead::default();
        fields_of(message, &mut head)?;
        let more = flag(message, intern!(py, "more_trailers"))?;
        let mut answer = self.answer.lock();
        let Answer::Trailers(trailers) = &mut *answer else {
            return Err(unexpected("http.response.trailers"));
        };
        let fields = head.fields();
        trailers.extend(
            fields
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_vec())),
        );
        if more {
            return Ok(self.server.get().done(py));
        }
        let trailers = std::mem::take(trailers);
        *answer = Answer::Complete;
        drop(answer);
        self.state.lock().output.finish(trailers);
        self.pump(py, false)
    }

    /// Sends a file as the body.
    fn path<'py>(
        &self,
        py: Python<'py>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let path: std::path::PathBuf = message
            .get_item(intern!(py, "path"))?
            .ok_or_else(|| PyValueError::new_err("message without a path"))?
            .extract()?;
        let file = File::open(&path)?;
        let length = file.metadata()?.len();
        let mut answer = self.answer.lock();
        let before = std::mem::replace(&mut *answer, Answer::Complete);
        let head = match before {
            Answer::Started(head, false) => head,
            Answer::Begun(false) => {
                drop(answer);
                return self.file_piece(py, file, length);
            }
            other => {
                *answer = other;
                return Err(unexpected("http.response.pathsend"));
            }
        };
        drop(answer);
        let length = head.content_length.map_or(length, |most| most.min(length));
        let body = if self.is_head() {
            AnswerBody::Absent(Some(length))
        } else {
            AnswerBody::File(FileSlice {
                file: file.into(),
                offset: 0,
                length,
            })
        };
        self.whole(py, &head, body)
    }
}

impl HttpExchange {
    /// The length that the app has announced for its body, unless none is sent.
    fn announced(&self, head: &AnswerHead) -> Option<u64> {
        let has_body = !self.is_head() && !head.is_bodiless();
        head.content_length.filter(|_| has_body)
    }

    /// Sends a file behind a head that was sent already.
    fn file_piece<'py>(
        &self,
        py: Python<'py>,
        file: File,
        length: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let length = {
            let mut state = self.state.lock();
            state.output.finish(Vec::new());
            state.owed.map_or(length, |owed| owed.min(length))
        };
        let slice = FileSlice {
            file: file.into(),
            offset: 0,
            length,
        };
        let (exchange, tag) = (self.exchange, self.tag);
        let server = self.server.bind(py);
        let sent = server.get().with(|context, driver| {
            driver.app.log.bytes(exchange, length);
            let sent = driver.http.with_reply(context, exchange, |reply| {
                // Both fail only where the answer is over already.
                let _ = reply.write_file(slice);
                let _ = reply.finish(&[]);
            });
            driver.finish(context, exchange, tag);
            sent
        });
        if sent.is_none() {
            return self.after_leaving(py, false);
        }
        self.finished(py)?;
        server.get().settle(server)?;
        Ok(server.get().done(py))
    }
}

impl Wait for Receive {
    fn poll(&self, py: Python<'_>, server: &Bound<'_, AsgiServer>) -> PyResult<Option<Py<PyAny>>> {
        let (news, want) = {
            let mut state = self.state.lock();
            if state.output.is_finished() && state.output.is_empty() {
                // What the client has sent is of no use to an answer that is complete.
                state.end_told = true;
                drop(state);
                return event(py, intern!(py, "http.disconnect"), |_| Ok(()));
            }
            let is_gone = state.is_gone;
            let read = state.input.read(INPUT_WINDOW);
            let waits = state.input.is_awaited();
            let wish = state.input.take_wish().filter(|_| !is_gone);
            let want = wish.map(|grant| (grant, waits));
            let is_complete = state.input.is_complete();
            let data = match read {
                Poll::Ready(Some(data)) => Some(data),
                Poll::Ready(None) if !state.input_told => Some(Bytes::new()),
                _ => None,
            };
            if let Some(data) = data {
                state.input_told = is_complete;
                (Some(Some((data, !is_complete))), want)
            } else if state.is_gone {
                state.end_told = true;
                (Some(None), want)
            } else {
                (None, want)
            }
        };
        if let Some((grant, waits)) = want {
            let exchange = self.exchange;
            let this = server.get();
            this.with(|context, driver| {
                driver.http.with_reply(context, exchange, |reply| {
                    reply.grant(grant);
                    reply.await_body(waits);
                })
            });
            // What has come already is handed over in the next turn.
            this.settle(server)?;
        }
        match news {
            None => Ok(None),
            Some(None) => event(py, intern!(py, "http.disconnect"), |_| Ok(())),
            Some(Some((data, more))) => event(py, intern!(py, "http.request"), |event| {
                event.set_item(intern!(py, "body"), PyBytes::new(py, &data))?;
                event.set_item(intern!(py, "more_body"), more)
            }),
        }
    }

    fn park(&self, future: &Bound<'_, PyAny>) {
        self.state
            .park(future, |state| &mut state.waiters.receivers);
    }
}
