//! The work of a host for requests of HTTP/2, which goes on when their streams have been reset.

use super::command::{Command, Operation, write_flags};
use crate::http::UnderWay;
use crate::reply::Reply;
use dwell_evloop::Token;
use std::collections::HashMap;

/// The places that are kept where the host works for no request.
const KEPT: usize = 256;

/// The requests for which the host works.
///
/// Shape: none where the host does not tell when it has done with one. The pieces of a connection
/// are bounded by what a client may have open; those of resets go on as long as the host does.
#[derive(Debug)]
pub(super) struct Works {
    is_counted: bool,
    pieces: HashMap<Token, UnderWay>,
}

impl Works {
    pub(super) fn new(is_counted: bool) -> Self {
        Self {
            is_counted,
            pieces: HashMap::new(),
        }
    }

    /// The host is handed a request.
    pub(super) fn begin(&mut self, request: Token, reply: &mut Reply<'_>) {
        if self.is_counted && reply.is_framed() {
            self.pieces.insert(request, reply.under_way());
        }
    }

    /// An order was given, and is not given again: some are the last for their request.
    pub(super) fn ordered(&mut self, command: &Command<'_>) {
        let is_done = match command.operation {
            Operation::Answer | Operation::Abort | Operation::Close => true,
            Operation::Write => command.flags & write_flags::FINISH != 0,
            _ => false,
        };
        if is_done {
            self.end(Token::from_bits(command.handle));
        }
    }

    /// The host has done with a request; false where that was known.
    pub(super) fn end(&mut self, request: Token) -> bool {
        let is_new = self.pieces.remove(&request).is_some();
        if self.pieces.is_empty() && self.pieces.capacity() > KEPT {
            // A burst leaves no memory behind, and single requests do not allocate it each time.
            self.pieces = HashMap::new();
        }
        is_new
    }
}
