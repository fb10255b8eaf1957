//! The place of one client on a connection of HTTP/2.

use super::fields::Request;
use super::flow::{Cut, Flow};
use super::frames::size;
use super::session::Session;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// The requests of one client, each on a stream of the connection that it shares.
pub(crate) struct Requests {
    session: Rc<RefCell<Session>>,
    /// The part of the next request that was written.
    output: Vec<u8>,
    streams: VecDeque<u32>,
    window: usize,
    cut: Option<Cut>,
    /// It opens a WebSocket.
    is_tunnel: bool,
}

impl Requests {
    pub(super) fn new(session: Rc<RefCell<Session>>, is_tunnel: bool) -> Self {
        Self {
            session,
            output: Vec::new(),
            streams: VecDeque::new(),
            window: WINDOW,
            cut: None,
            is_tunnel,
        }
    }

    /// Takes all of these bytes, or none while the server has not said that it takes WebSockets;
    /// what is whole of them is sent.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        if self.is_tunnel && !self.session.borrow().takes_tunnels() {
            return 0;
        }
        if let Some(number) = self.streams.front().filter(|_| self.is_tunnel) {
            if let Some(flow) = self.session.borrow_mut().flow(*number) {
                flow.feed(bytes);
            }
            return bytes.len();
        }
        self.output.extend_from_slice(bytes);
        let scheme = self.session.borrow().scheme();
        while let Some(request) = Request::take(&mut self.output, scheme) {
            let begun = self.session.borrow_mut().begin(request, size(self.window));
            match begun {
                Ok(number) => self.streams.push_back(number),
                // It crosses the end of the connection.
                Err(_) => self.cut = Some(Cut::Refused),
            }
        }
        bytes.len()
    }

    pub(crate) fn is_readable(&self) -> bool {
        let mut session = self.session.borrow_mut();
        let flow = self
            .streams
            .front()
            .and_then(|number| session.flow(*number));
        let is_idle = self.streams.is_empty();
        flow.is_some_and(|flow| flow.is_readable())
            || self.cut.is_some()
            || is_idle && session.is_ending()
    }

    /// Reads at most so much of what has come; returns false where no more comes.
    pub(crate) fn read(&mut self, into: &mut Vec<u8>, most: usize) -> bool {
        let mut session = self.session.borrow_mut();
        while let Some(number) = self.streams.front().copied() {
            let Some(flow) = session.flow(number) else {
                break;
            };
            if !flow.read(most, into) || !flow.is_over() {
                return true;
            }
            self.cut = self.cut.or(flow.cut());
            session.forget(number);
            self.streams.pop_front();
            if self.cut.is_some() {
                return false;
            }
        }
        if self.cut.is_none() && session.is_ending() {
            // What was written of a request was not sent.
            self.cut = Some(Cut::Refused);
        }
        self.cut.is_none()
    }

    /// Sends nothing more on a WebSocket; false if there is none.
    pub(crate) fn finish(&mut self) -> bool {
        let mut session = self.session.borrow_mut();
        let number = self.streams.front().filter(|_| self.is_tunnel);
        let flow = number.and_then(|number| session.flow(*number));
        flow.is_some_and(Flow::finish)
    }

    /// Has so much of a window open for each answer.
    pub(crate) fn set_window(&self, bytes: usize) {
        let mut session = self.session.borrow_mut();
        for number in &self.streams {
            session.want(*number, size(bytes));
        }
    }

    /// Returns true if the server has not begun with its request, which may be sent again.
    pub(crate) fn is_refused(&self) -> bool {
        self.cut == Some(Cut::Refused)
    }

    /// Returns true if the client has held up an answer for so long that a process which ends may
    /// give it up.
    pub(crate) fn has_stalled(&self) -> bool {
        self.cut == Some(Cut::Stalled)
    }

    /// Returns true if the connection was ended on this side.
    pub(crate) fn is_own_end(&self) -> bool {
        self.cut == Some(Cut::Given) || self.session.borrow().is_own_end()
    }

    /// Returns true if the server has ended the connection, and another client has told so.
    pub(crate) fn is_end_told(&self) -> bool {
        self.cut == Some(Cut::Ended) && !self.session.borrow_mut().tells_end()
    }

    /// Returns true if the server may have given up the handshake of the connection.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.session.borrow().is_unconfirmed()
    }

    /// The last moment at which something has hindered answers.
    pub(crate) fn clear_since(&self) -> Duration {
        let session = self.session.borrow();
        session.clear_since(self.streams.front().copied())
    }
}

/// A client that leaves resets its streams.
impl Drop for Requests {
    fn drop(&mut self) {
        let mut session = self.session.borrow_mut();
        for number in &self.streams {
            session.forget(*number);
        }
    }
}

/// The window of one that is not slow.
const WINDOW: usize = 64 * 1024;
