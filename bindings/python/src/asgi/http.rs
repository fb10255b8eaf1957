//! One HTTP request: `receive` and `send`.

use super::awaitable::{Pause, Wait, Waiting};
use super::face::{Arrival, AsgiLine};
use super::message::{
    bytes_of, event, fields_of, flag, kind_of, left, links_of, start_of, too_long, unexpected,
    unknown,
};
use super::server::AsgiServer;
use super::shared::{Parked, Shared};
use crate::web::answer::{AnswerBody, AnswerHead, WebAnswer, shared_bytes};
use crate::web::head::Head;
use bytes::Bytes;
use dwell_engine::UnderWay;
use dwell_engine::desk::{BodyRead, End, Fields, Order, Owed, Refusal};
use dwell_evloop::FileSlice;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use std::borrow::Cow;
use std::fs::File;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

/// A request that the app answers.
#[pyclass(frozen, module = "dwell._native")]
pub(super) struct HttpExchange {
    server: Py<AsgiServer>,
    owed: Arc<Owed<AsgiLine>>,
    head: Arc<Head>,
    has_body: bool,
    answer: Shared<Answer>,
    told: Shared<Told>,
    /// Held until the app has returned.
    under_way: Shared<Option<UnderWay>>,
    /// Tasks that wait in `receive`, and those that wait in `send`.
    receivers: OnceLock<Arc<Parked>>,
    senders: OnceLock<Arc<Parked>>,
}

/// The messages that the app was sent, and those that it owes.
#[derive(Debug, Default)]
struct Told {
    /// True if the app has received the end of the body.
    input: bool,
    /// Set once the app has received the disconnect, or the end of its response.
    end: bool,
    /// The rest of the announced length of the answer, if one was announced.
    left: Option<u64>,
    /// Pieces of the answer that came after the client had left.
    dropped: u32,
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
    Trailers(Fields),
    Complete,
}

/// Pieces for a client that has left, after which the loop gets its turn.
const DROPPED_MAX: u32 = 2;

/// Waits for the next event of a request.
struct Receive(Py<HttpExchange>);

/// Waits until the client has taken what is queued for it.
struct Room(Py<HttpExchange>);

#[pymethods]
impl HttpExchange {
    /// The next event: a piece of the body, or `http.disconnect`.
    fn receive(slf: &Bound<'_, Self>) -> Waiting {
        let server = slf.get().server.clone_ref(slf.py());
        Waiting::new(server, Receive(slf.clone().unbind()))
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
            "http.response.body" => Self::body(slf, message),
            "http.response.early_hint" => this.hint(py, message),
            "http.response.trailers" => Self::trailers(slf, message),
            "http.response.pathsend" => this.path(py, message),
            _ => Err(unknown(&kind)),
        }
    }

    /// The app has returned: an answer that is missing is 500, half of one is cut off. Whether it
    /// was whole.
    fn end(&self, py: Python<'_>) -> PyResult<bool> {
        drop(self.under_way.lock().take());
        let answer = std::mem::replace(&mut *self.answer.lock(), Answer::Complete);
        match answer {
            Answer::Complete => Ok(true),
            Answer::Nothing | Answer::Started(..) => {
                let mut head = AnswerHead::new(500);
                head.add(b"Content-Type", b"text/plain; charset=utf-8")?;
                let text = Bytes::from_static(b"Internal Server Error\n");
                self.whole(py, head.into(), self.sized(text))?;
                Ok(self.is_gone())
            }
            Answer::Begun(_) | Answer::Open(_) | Answer::Trailers(_) => {
                let is_gone = self.is_gone();
                self.order(py, Order::Abort)?;
                Ok(is_gone)
            }
        }
    }

    /// Method and target, for the log.
    fn describe(&self) -> String {
        let (method, target) = (self.head.method(), self.head.target());
        format!("{} {}", method.escape_ascii(), target.escape_ascii())
    }
}

impl HttpExchange {
    pub(super) fn new(server: Py<AsgiServer>, arrival: &Arrival) -> Self {
        Self {
            server,
            owed: Arc::clone(&arrival.owed),
            head: Arc::clone(&arrival.head),
            has_body: arrival.has_body,
            answer: Shared::default(),
            told: Shared::default(),
            under_way: Shared::new(arrival.under_way.lock().take()),
            receivers: OnceLock::new(),
            senders: OnceLock::new(),
        }
    }

    fn is_gone(&self) -> bool {
        self.owed.ended() == Some(End::Gone)
    }

    /// Leaves an order, and has it carried out.
    fn order(&self, py: Python<'_>, order: Order<AsgiLine>) -> PyResult<()> {
        self.owed.order(order);
        let server = self.server.bind(py);
        server.get().settle(server)
    }

    /// Keeps the future of a task that waits for one thing, and returns what wakes it.
    fn park(&self, parked: &OnceLock<Arc<Parked>>, future: &Bound<'_, PyAny>) -> Waker {
        let parked = parked.get_or_init(|| Parked::new(self.owed.line()));
        parked.park(future);
        Waker::from(Arc::clone(parked))
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
        self.order(py, Order::Informational(WebAnswer::of(head.into())))?;
        Ok(self.server.get().done(py))
    }

    /// Sends a head that no body has followed so far: its client should not wait for one.
    ///
    /// Shape: the server calls it once the app has given way to the loop, and settles then.
    pub(super) fn flush_head(&self) {
        let mut answer = self.answer.lock();
        if let Answer::Started(_, trailers) = *answer
            && let Answer::Started(head, _) =
                std::mem::replace(&mut *answer, Answer::Begun(trailers))
        {
            drop(answer);
            self.begin(head);
        }
    }

    fn body<'py>(
        slf: &Bound<'py, Self>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let data = bytes_of(message, intern!(py, "body"))?;
        let more = flag(message, intern!(py, "more_body"))?;
        let answer = std::mem::take(&mut *this.answer.lock());
        match answer {
            Answer::Started(head, false) if !more => {
                let length = data.as_ref().map_or(0, |data| data.len() as u64);
                if let Some(limit) = this.announced(&head).filter(|limit| length > *limit) {
                    *this.answer.lock() = Answer::Started(head, false);
                    return Err(too_long(limit, length));
                }
                *this.answer.lock() = Answer::Complete;
                let body = this.sized(data.map(shared_bytes).unwrap_or_default());
                this.whole(py, head, body)
            }
            Answer::Started(head, trailers) => {
                this.begin(head);
                Self::piece(slf, data, more, trailers)
            }
            Answer::Begun(trailers) | Answer::Open(trailers) => {
                Self::piece(slf, data, more, trailers)
            }
            other => {
                *this.answer.lock() = other;
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
        head: Box<AnswerHead>,
        body: AnswerBody,
    ) -> PyResult<Bound<'py, PyAny>> {
        let body = match body {
            AnswerBody::Absent(length) => AnswerBody::Absent(head.content_length.or(length)),
            body => body,
        };
        self.order(py, Order::Send(WebAnswer { head, body }))?;
        Ok(self.server.get().done(py))
    }

    /// Begins an answer whose body follows in pieces.
    fn begin(&self, head: Box<AnswerHead>) {
        self.told.lock().left = self.announced(&head);
        self.owed.order(WebAnswer::begin(head));
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
            let mut told = self.told.lock();
            if more && told.dropped >= DROPPED_MAX && !told.end {
                return Err(left());
            }
            told.dropped = told.dropped.wrapping_add(u32::from(more));
            told.dropped
        };
        if !more || dropped % DROPPED_MAX != 0 {
            return Ok(self.server.get().done(py));
        }
        Waiting::new(self.server.clone_ref(py), Pause::default()).into_bound(py)
    }

    /// Sends a piece of the body, and the end of the answer behind the last one.
    fn piece<'py>(
        slf: &Bound<'py, Self>,
        data: Option<PyBackedBytes>,
        more: bool,
        trailers: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        *this.answer.lock() = Answer::Open(trailers);
        if let Some(left) = &mut this.told.lock().left {
            let length = data.as_ref().map_or(0, |data| data.len() as u64);
            *left = left
                .checked_sub(length)
                .ok_or_else(|| too_long(*left, length))?;
        }
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            this.owed.order(Order::Write(shared_bytes(data)));
        }
        if !more {
            *this.answer.lock() = if trailers {
                Answer::Trailers(Fields::new())
            } else {
                this.owed.order(Order::Finish(Fields::new()));
                Answer::Complete
            };
        }
        Self::go_on(slf, more)
    }

    /// Has the engine take what there is; what it returns waits where that is too much.
    fn go_on<'py>(slf: &Bound<'py, Self>, more: bool) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let server = this.server.bind(py);
        server.get().settle(server)?;
        if this.is_gone() {
            return this.after_leaving(py, more);
        }
        if this.owed.is_refused() == Some(Refusal::Full) {
            let room = Room(slf.clone().unbind());
            return Waiting::new(server.clone().unbind(), room).into_bound(py);
        }
        if more && server.get().is_due() {
            // A client that has left takes everything: only a turn of the loop tells of it.
            return Waiting::new(server.clone().unbind(), Pause::default()).into_bound(py);
        }
        Ok(server.get().done(py))
    }

    fn trailers<'py>(
        slf: &Bound<'py, Self>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let mut head = AnswerHead::default();
        fields_of(message, &mut head)?;
        let more = flag(message, intern!(py, "more_trailers"))?;
        let mut answer = this.answer.lock();
        let Answer::Trailers(trailers) = &mut *answer else {
            return Err(unexpected("http.response.trailers"));
        };
        let fields = head.fields();
        trailers.extend(fields.iter().map(|(name, value)| {
            let (name, value) = ((*name).to_owned(), Bytes::copy_from_slice(value));
            (Cow::Owned(name), value)
        }));
        if more {
            return Ok(this.server.get().done(py));
        }
        let trailers = std::mem::take(trailers);
        *answer = Answer::Complete;
        drop(answer);
        this.owed.order(Order::Finish(trailers));
        Self::go_on(slf, false)
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
        self.whole(py, head, body)
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
        let left = self.told.lock().left;
        self.owed.order(Order::WriteFile(FileSlice {
            file: file.into(),
            offset: 0,
            length: left.map_or(length, |left| left.min(length)),
        }));
        self.order(py, Order::Finish(Fields::new()))?;
        Ok(self.server.get().done(py))
    }

    /// The part of the body that came since the last `receive`.
    fn read(&self, waker: Option<&Waker>) -> BodyRead {
        if self.has_body {
            self.owed.read_body(waker)
        } else {
            BodyRead::End
        }
    }
}

impl Wait for Receive {
    fn poll(&self, py: Python<'_>, server: &Bound<'_, AsgiServer>) -> PyResult<Option<Py<PyAny>>> {
        let this = self.0.get();
        // What the client has sent is of no use to an answer that is complete.
        let is_complete = this.owed.ended() == Some(End::Complete);
        let read = if is_complete {
            BodyRead::Gone
        } else {
            this.read(None)
        };
        if this.has_body {
            // A read may grant; what has come already is handed over in the next turn.
            server.get().settle(server)?;
        }
        let mut told = this.told.lock();
        let (data, is_last) = match read {
            BodyRead::Data(data, is_last) => (data, is_last),
            BodyRead::End if !told.input => (Bytes::new(), true),
            _ if this.owed.ended().is_some() => {
                told.end = true;
                drop(told);
                return event(py, intern!(py, "http.disconnect"), |_| Ok(()));
            }
            _ => return Ok(None),
        };
        told.input = is_last;
        drop(told);
        event(py, intern!(py, "http.request"), |event| {
            event.set_item(intern!(py, "body"), PyBytes::new(py, &data))?;
            event.set_item(intern!(py, "more_body"), !is_last)
        })
    }

    fn park(&self, future: &Bound<'_, PyAny>) {
        let this = self.0.get();
        let waker = this.park(&this.receivers, future);
        if !this.told.lock().input {
            this.read(Some(&waker));
        }
        if this.owed.poll_over(&waker).is_ready() {
            waker.wake();
        }
    }
}

impl Wait for Room {
    fn poll(&self, py: Python<'_>, _: &Bound<'_, AsgiServer>) -> PyResult<Option<Py<PyAny>>> {
        let is_full = self.0.get().owed.is_refused() == Some(Refusal::Full);
        Ok((!is_full).then(|| py.None()))
    }

    fn park(&self, future: &Bound<'_, PyAny>) {
        let this = self.0.get();
        let waker = this.park(&this.senders, future);
        if this.owed.poll_writable(&waker) != Some(Refusal::Full) {
            waker.wake();
        }
    }
}
