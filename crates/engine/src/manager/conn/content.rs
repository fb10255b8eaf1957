//! Answers of a known kind: event streams and files.

use super::Conn;
use super::fields::check_fields;
use crate::files::{DirectoryOptions, FileAnswer, FileOptions, serve_dir, serve_file};
use crate::manager::error::ConnError;
use crate::manager::message::HttpMessage;
use crate::sse::{self, SharedEvent};
use dwell_proto::http1::RequestHead;
use dwell_proto::sse::comment;
use std::path::Path;

impl Conn<'_> {
    /// Begins an event stream; [`sse_event`](Self::sse_event) writes to it. It lasts until
    /// [`finish`](Self::finish), or until the client leaves.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    /// use dwell_engine::sse;
    ///
    /// fn news(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::HttpMessage(_) => conn.sse(),
    ///         // Another thread wakes the connection up with an event.
    ///         Event::Wakeup(news) => {
    ///             let text = String::from_utf8_lossy(news);
    ///             conn.sse_event(&sse::Event::new(&text))
    ///         }
    ///         _ => Ok(()),
    ///     }
    /// }
    /// ```
    ///
    /// Source: WHATWG HTML, server-sent events.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn sse(&mut self) -> Result<(), ConnError> {
        self.answer_place()?;
        self.now_or_later(&(), |conn, ()| {
            conn.first_reply(|reply| sse::begin(reply, &[]))
        })
    }

    /// Sends an event; for one that goes to many there is [`sse_shared`](Self::sse_shared).
    ///
    /// # Errors
    /// [`ConnError::Event`] for what the format cannot carry; otherwise as
    /// [`chunk`](Self::chunk).
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    /// use dwell_engine::sse;
    ///
    /// fn hello(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     if let Event::HttpMessage(message) = event {
    ///         let seen = message.header("Last-Event-ID").unwrap_or(b"0");
    ///         let seen = String::from_utf8_lossy(seen).into_owned();
    ///         conn.sse()?;
    ///         conn.sse_event(&sse::Event { id: Some("7"), ..sse::Event::new(&seen) })?;
    ///         conn.finish(&[])?;
    ///     }
    ///     Ok(())
    /// }
    /// #
    /// # let request = "GET / HTTP/1.0\r\nLast-Event-ID: 6\r\n\r\n";
    /// # let answer = dwell_testkit::manage_once(request, hello);
    /// # assert!(answer.ends_with("id: 7\ndata: 6\n\n"), "{answer}");
    /// ```
    pub fn sse_event(&mut self, event: &sse::Event<'_>) -> Result<(), ConnError> {
        let mut bytes = Vec::with_capacity(event.data.len() + 64);
        event.encode(&mut bytes).map_err(ConnError::Event)?;
        self.chunk(&bytes)
    }

    /// Sends an event that goes to many, encoded once for all of them.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    /// use dwell_engine::sse::{Event, SharedEvent, SseError};
    ///
    /// /// Sends to all open event streams; encodes once.
    /// fn publish(manager: &mut Manager, news: &str) -> Result<(), SseError> {
    ///     let event = SharedEvent::new(&Event::new(news))?;
    ///     for id in manager.connections() {
    ///         if let Some(mut conn) = manager.conn(id) {
    ///             let _ = conn.sse_shared(&event);
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_stream(
    /// #     |conn| conn.sse(),
    /// #     |manager| publish(manager, "hello"),
    /// # );
    /// # assert!(answer.ends_with("\r\n\r\ndata: hello\n\n"), "{answer}");
    /// ```
    pub fn sse_shared(&mut self, event: &SharedEvent) -> Result<(), ConnError> {
        self.http_place()?;
        self.now_or_later(event, |conn, event| {
            conn.with_reply(|reply| event.send(reply))?
                .map_err(Into::into)
        })
    }

    /// Sends a comment, which clients pass over: a heartbeat.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub fn sse_comment(&mut self, text: &str) -> Result<(), ConnError> {
        let mut bytes = Vec::new();
        comment(&mut bytes, text);
        self.chunk(&bytes)
    }

    /// Answers the request `message` with a file of the program's choice, including validators,
    /// ranges and conditions. Blocks as described in [`files`](crate::files).
    ///
    /// # Errors
    /// [`ConnError::Protocol`] where `message` is no request; otherwise as
    /// [`reply`](Self::reply). A file that is not there is answered, with 404.
    ///
    /// ```
    /// use dwell_engine::files::FileOptions;
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    /// use std::path::Path;
    ///
    /// fn icon(conn: &mut Conn<'_>, event: Event<'_>, site: &Path) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::HttpMessage(message) if message.path() == "/favicon.ico" => {
    ///             conn.serve_file(&message, site.join("icon.ico"), &FileOptions::default())
    ///         }
    ///         Event::HttpMessage(_) => conn.reply(404, &[], b""),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// #
    /// # let folder = tempfile::tempdir()?;
    /// # std::fs::write(folder.path().join("icon.ico"), "a picture")?;
    /// # let site = folder.path().to_owned();
    /// # let request = "GET /favicon.ico HTTP/1.0\r\n\r\n";
    /// # let answer = dwell_testkit::manage_once(request, move |conn, event| {
    /// #     icon(conn, event, &site)
    /// # });
    /// # assert!(answer.ends_with("\r\n\r\na picture"), "{answer}");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn serve_file(
        &mut self,
        message: &HttpMessage<'_>,
        path: impl AsRef<Path>,
        options: &FileOptions,
    ) -> Result<(), ConnError> {
        let wall = self.scope.context.wall();
        let head = message.request_head().ok_or(ConnError::Protocol)?;
        self.send_file(serve_file(head, path, options, wall))
    }

    /// Answers the request `message` with the file that its path names beneath `root`, and nothing
    /// outside of it. Blocks as described in [`files`](crate::files).
    ///
    /// ```
    /// use dwell_engine::files::DirectoryOptions;
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    /// use std::path::Path;
    ///
    /// fn site(conn: &mut Conn<'_>, event: Event<'_>, root: &Path) -> Result<(), ConnError> {
    ///     if let Event::HttpMessage(message) = event {
    ///         conn.serve_dir(&message, root, &DirectoryOptions::default())?;
    ///     }
    ///     Ok(())
    /// }
    /// #
    /// # let folder = tempfile::tempdir()?;
    /// # std::fs::write(folder.path().join("a.txt"), "a text")?;
    /// # let root = folder.path().to_owned();
    /// # let request = "GET /a.txt HTTP/1.0\r\n\r\n";
    /// # let answer = dwell_testkit::manage_once(request, move |conn, event| {
    /// #     site(conn, event, &root)
    /// # });
    /// # assert!(answer.ends_with("\r\n\r\na text"), "{answer}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`serve_file`](Self::serve_file).
    pub fn serve_dir(
        &mut self,
        message: &HttpMessage<'_>,
        root: impl AsRef<Path>,
        options: &DirectoryOptions,
    ) -> Result<(), ConnError> {
        let wall = self.scope.context.wall();
        let head: &RequestHead<'_, '_> = message.request_head().ok_or(ConnError::Protocol)?;
        self.send_file(serve_dir(head, root, options, wall))
    }

    /// Sends the answer that [`files`](crate::files) has decided, perhaps changed.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    /// use dwell_engine::files::{FileOptions, serve_file};
    /// use std::time::SystemTime;
    ///
    /// /// A page of one's own where the file is not there.
    /// fn report(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     let Event::HttpMessage(message) = event else { return Ok(()) };
    ///     let Some(head) = message.request_head() else { return Ok(()) };
    ///     let options = FileOptions::default();
    ///     let answer = serve_file(head, "/srv/report.csv", &options, SystemTime::now());
    ///     if answer.status == 404 {
    ///         return conn.reply(404, &[], b"the report is not made yet");
    ///     }
    ///     conn.send_file(answer)
    /// }
    /// #
    /// # let request = "GET / HTTP/1.0\r\n\r\n";
    /// # let answer = dwell_testkit::manage_once(request, report);
    /// # assert!(answer.ends_with("the report is not made yet"), "{answer}");
    /// ```
    pub fn send_file(&mut self, answer: FileAnswer) -> Result<(), ConnError> {
        self.send_file_with(answer, &[])
    }

    /// As [`send_file`](Self::send_file), with further fields.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    ///
    /// ```
    /// use dwell_engine::files::{FileOptions, serve_file};
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    /// use std::path::Path;
    /// use std::time::SystemTime;
    ///
    /// /// A file to keep, not to look at.
    /// fn download(conn: &mut Conn<'_>, event: Event<'_>, file: &Path) -> Result<(), ConnError> {
    ///     let Event::HttpMessage(message) = event else { return Ok(()) };
    ///     let Some(head) = message.request_head() else { return Ok(()) };
    ///     let answer = serve_file(head, file, &FileOptions::default(), SystemTime::now());
    ///     conn.send_file_with(answer, &[("Content-Disposition", b"attachment")])
    /// }
    /// #
    /// # let folder = tempfile::tempdir()?;
    /// # let file = folder.path().join("all.csv");
    /// # std::fs::write(&file, "1,2")?;
    /// # let request = "GET / HTTP/1.0\r\n\r\n";
    /// # let answer = dwell_testkit::manage_once(request, move |conn, event| {
    /// #     download(conn, event, &file)
    /// # });
    /// # assert!(answer.contains("\r\nContent-Disposition: attachment\r\n"), "{answer}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_file_with(
        &mut self,
        answer: FileAnswer,
        fields: &[(&str, &[u8])],
    ) -> Result<(), ConnError> {
        check_fields(fields)?;
        self.answer_place()?;
        self.now_or_later_with(fields, |conn, fields| {
            conn.first_reply(|reply| answer.send(reply, fields))
        })
    }
}
