//! The exchange on a connection: the body that comes, the way out of HTTP, a client's requests.

use super::fields::check_fields;
use super::{Access, Conn, expect_kind, kind};
use crate::components::Protocol;
use crate::manager::error::ConnError;
use crate::manager::state::Origin;
use crate::reply::Reply;
use dwell_evloop::Token;
use dwell_proto::http1::{Version, encode, is_token};

impl Conn<'_> {
    /// Hands the body over in pieces, by [`HttpBody`](crate::manager::Event::HttpBody), instead of
    /// whole. Call it in [`HttpHeaders`](crate::manager::Event::HttpHeaders) of a request with a
    /// body. While reading is [paused](Self::pause) the client is held back.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// fn upload(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::HttpHeaders(message) if message.method() == "PUT" => {
    ///             conn.set_user_data(0_usize);
    ///             conn.stream_body(1 << 30);
    ///             Ok(())
    ///         }
    ///         Event::HttpBody { data, is_last } => {
    ///             let total = conn.user_data::<usize>().map_or(0, |total| {
    ///                 *total += data.len();
    ///                 *total
    ///             });
    ///             if is_last {
    ///                 conn.reply(200, &[], format!("{total} bytes").as_bytes())?;
    ///             }
    ///             Ok(())
    ///         }
    ///         _ => Ok(()),
    ///     }
    /// }
    /// #
    /// # let request = "PUT / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello";
    /// # let answer = dwell_testkit::manage_once(request, upload);
    /// # assert!(answer.ends_with("\r\n\r\n5 bytes"), "{answer}");
    /// ```
    pub fn stream_body(&mut self, bytes_max: u64) {
        self.scope.state.streamed_bytes_max = Some(bytes_max);
    }

    /// Takes the connection out of HTTP, without a response or after a 101 that was sent. Later
    /// input comes as [`Read`](crate::manager::Event::Read), and [`send`](Self::send) sends bytes.
    ///
    /// Shape: in the handler of a request it happens when the handler has returned. The rest of a
    /// streamed body comes first, as it came.
    ///
    /// # Errors
    /// [`ConnError::NoRequest`] where no request waits for an answer; [`ConnError::Protocol`] on a
    /// stream of HTTP/2.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// /// Speaks lines instead of HTTP from the 101 on.
    /// fn lines(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::HttpMessage(message) if message.header("Upgrade") == Some(b"lines") => {
    ///             conn.reply(101, &[("Connection", b"upgrade"), ("Upgrade", b"lines")], b"")?;
    ///             conn.hijack()
    ///         }
    ///         Event::HttpMessage(_) => conn.reply(426, &[("Upgrade", b"lines")], b""),
    ///         Event::Read { data, .. } if !data.is_empty() => conn.send(data),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// #
    /// # let request = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: lines\r\n\r\nhello";
    /// # let answer = dwell_testkit::manage("http", lines, |address| {
    /// #     dwell_testkit::ask_and_finish(address, request)
    /// # });
    /// # assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    /// # assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    /// ```
    pub fn hijack(&mut self) -> Result<(), ConnError> {
        expect_kind(Some(self.open_place()?), kind::HTTP)?;
        self.note_answer();
        self.now_or_later(&(), |conn, ()| conn.leave_http())
    }

    fn leave_http(&mut self) -> Result<(), ConnError> {
        let place = expect_kind(Some(self.open_place()?), kind::HTTP)?;
        let (state, context) = (&mut *self.scope.state, &mut *self.scope.context);
        if let Access::Reply(_) = &self.access {
            if let Some(record) = state.records.get_mut(self.token) {
                record.leaves = Some(Protocol::Raw);
            }
            return Ok(());
        }
        let components = self.scope.components.as_deref_mut();
        let http = &mut components.ok_or(ConnError::NoRequest)?.http;
        let exchange = http.exchange_on(place).ok_or(ConnError::NoRequest)?;
        let detached = http.detach(context, exchange).ok_or(ConnError::Closed)?;
        state.leave(self.token, Protocol::Raw, detached);
        Ok(())
    }

    /// On an outbound HTTP connection: sends a request, with `Host` and `Content-Length` unless
    /// given.
    ///
    /// Shape: its answer is told by [`HttpMessage`](crate::manager::Event::HttpMessage), in the
    /// order of the requests.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// fn fetch(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::Connect => conn.request("GET", "/status", &[], b"")?,
    ///         Event::HttpMessage(message) => {
    ///             println!("{:?}: {}", message.status(), message.text());
    ///             conn.close();
    ///         }
    ///         _ => {}
    ///     }
    ///     Ok(())
    /// }
    /// #
    /// # use dwell_engine::manager::Manager;
    /// # let mut manager = Manager::new(|conn, event| {
    /// #     if let Event::HttpMessage(message) = event {
    /// #         assert_eq!(message.path(), "/status");
    /// #         conn.reply(200, &[], b"fine").expect("it is the first answer");
    /// #     }
    /// # })?;
    /// # let listener = manager.listen("http://127.0.0.1:0")?;
    /// # let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
    /// # let url = format!("http://{}", address.expect("it listens"));
    /// # let client = manager.connect_with(&url, |conn, event| {
    /// #     fetch(conn, event).expect("it is taken");
    /// # })?;
    /// # while manager.conn(client).is_some() {
    /// #     manager.poll(None)?;
    /// # }
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConnError::RequestLine`] and those of fields for what cannot be sent; otherwise as
    /// [`send`](Self::send).
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &[u8])],
        body: &[u8],
    ) -> Result<(), ConnError> {
        let is_clean = target.bytes().all(|byte| byte > b' ' && byte != 0x7f);
        if !is_token(method.as_bytes()) || target.is_empty() || !is_clean {
            return Err(ConnError::RequestLine);
        }
        check_fields(fields)?;
        self.open_place()?;
        let client = self.extra().and_then(|extra| extra.client.as_mut());
        let client = client.ok_or(ConnError::Protocol)?;
        let given = |name: &str| {
            fields
                .iter()
                .any(|(field, _)| field.eq_ignore_ascii_case(name))
        };
        let mut output = Vec::with_capacity(256 + body.len());
        encode::request_line(&mut output, method, target, Version::Http11);
        if !given("Host") {
            encode::field(&mut output, "Host", client.authority().as_bytes());
        }
        for (name, value) in fields {
            encode::field(&mut output, name, value);
        }
        let has_body = !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH");
        if has_body && !given("Content-Length") && !given("Transfer-Encoding") {
            encode::field_u64(&mut output, "Content-Length", body.len() as u64);
        }
        encode::end_of_head(&mut output);
        output.extend_from_slice(body);
        client.expect(method);
        let sent = self.send_bytes(&output);
        if sent.is_err()
            && let Some(client) = self.extra().and_then(|extra| extra.client.as_mut())
        {
            client.expect_not();
        }
        sent
    }

    /// Notes that the act which follows answers the request, if it is deferred.
    pub(super) fn note_answer(&mut self) {
        if self.is_deferred()
            && let Some(record) = self.scope.state.records.get_mut(self.token)
        {
            record.answers_early = true;
        }
    }

    /// Its name in the HTTP component, for an act that answers the request.
    pub(super) fn answer_place(&mut self) -> Result<Token, ConnError> {
        let place = self.http_place()?;
        self.note_answer();
        Ok(place)
    }

    /// Lets so many more bytes of a streamed body come.
    pub(super) fn grant(&mut self, bytes: u64) {
        if self.is_deferred() {
            return self.later(move |conn| conn.grant(bytes));
        }
        if let Access::Reply(access) = &mut self.access {
            return access.with(&mut |reply| reply.grant(bytes));
        }
        let components = self.scope.components.as_deref_mut();
        if let Some(components) = components
            && let Some(place) = self
                .scope
                .state
                .records
                .get(self.token)
                .map(|record| record.place)
            && let Some(exchange) = components.http.exchange_on(place)
        {
            components.http.grant(self.scope.context, exchange, bytes);
        }
    }

    /// Returns true if a response is owed that can be written now.
    pub(super) fn owes_answer(&mut self) -> bool {
        self.with_reply(|reply| !reply.is_sent() || reply.is_open())
            .unwrap_or(false)
    }

    /// Lets `make` write the answer, if none was begun.
    pub(super) fn first_reply(
        &mut self,
        make: impl FnOnce(&mut Reply<'_>),
    ) -> Result<(), ConnError> {
        self.with_reply(|reply| {
            if reply.is_sent() {
                return Err(ConnError::Answered);
            }
            make(reply);
            Ok(())
        })?
    }

    /// Lets `make` write to the place of the answer, which has to be within reach.
    pub(super) fn with_reply<T>(
        &mut self,
        make: impl FnOnce(&mut Reply<'_>) -> T,
    ) -> Result<T, ConnError> {
        let place = expect_http(self.place())?;
        if let Access::Reply(access) = &mut self.access {
            let (mut make, mut result) = (Some(make), None);
            access.with(&mut |reply| result = make.take().map(|make| make(reply)));
            return result.ok_or(ConnError::NoRequest);
        }
        let components = self.scope.components.as_deref_mut();
        let http = &mut components.ok_or(ConnError::NoRequest)?.http;
        let exchange = http.exchange_on(place).ok_or(ConnError::NoRequest)?;
        let result = http.with_reply(self.scope.context, exchange, make);
        if !http.contains(place) {
            // It failed, or that was its last answer; the component calls no app for it.
            self.scope.state.end_later(self.id);
        }
        result.ok_or(ConnError::NoRequest)
    }

    /// Its name in the HTTP component, which has to have it.
    pub(super) fn http_place(&self) -> Result<Token, ConnError> {
        expect_http(Some(self.open_place()?))
    }

    /// Its name in the component that has its socket, unless it is closing.
    pub(super) fn open_place(&self) -> Result<Token, ConnError> {
        let record = self.record().ok_or(ConnError::Closed)?;
        if record.origin == Origin::Listener {
            return Err(ConnError::Protocol);
        }
        if record.closing {
            return Err(ConnError::Closed);
        }
        Ok(record.place)
    }
}

/// Refuses what is neither a connection of HTTP/1.1 nor a stream of HTTP/2.
fn expect_http(place: Option<Token>) -> Result<Token, ConnError> {
    match place {
        Some(place) if place.kind() == kind::HTTP2_STREAM => Ok(place),
        place => expect_kind(place, kind::HTTP),
    }
}
