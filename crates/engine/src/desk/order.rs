//! Orders for an answer that is owed, and the face's own types in them.

use super::Owed;
use crate::reply::{Reply, WriteError};
use bytes::Bytes;
use dwell_evloop::{FileSlice, Token};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Fields of an answer that own what they are made of.
pub type Fields = Vec<(Cow<'static, str>, Bytes)>;

/// The head of an answer that owns what it is made of, and the body of one that is sent whole.
pub trait OwnedAnswer: Send + Sized {
    /// Sends it with its body.
    fn send(self, reply: &mut Reply<'_>);

    /// Sends the head of an answer whose body, of this length if one is given, follows in pieces.
    /// Returns true if the answer is complete with it.
    fn begin(self, length: Option<u64>, reply: &mut Reply<'_>) -> bool;

    /// Sends it as an informational answer.
    fn informational(self, reply: &mut Reply<'_>);
}

/// The part of a loop that the holders of its exchanges use, from any thread.
pub trait Line: Send + Sync + Sized + 'static {
    /// The answers that holders give.
    type Answer: OwnedAnswer;
    /// The programs that take connections over.
    type Takeover: Send;

    /// Bytes that may wait for a client before its writer has to.
    fn output_bytes_max(&self) -> usize;

    /// Bytes of a body that may come ahead of its reader.
    fn body_window_bytes(&self) -> u64;

    /// Returns true if the server is shutting down.
    fn is_draining(&self) -> bool {
        false
    }

    /// The exchanges that the loop is to visit.
    fn attention(&self) -> &Attention;

    /// Ends the loop's wait, as there is an exchange to visit; `is_last` if the holder of that
    /// one has nothing more to order.
    fn wake(&self, is_last: bool);
}

/// One thing to be done with an answer.
pub enum Order<L: Line> {
    /// An informational answer, before the answer itself.
    Informational(L::Answer),
    /// A whole answer.
    Send(L::Answer),
    /// The head of an answer, whose body of this length, if one is given, follows in pieces.
    Begin(L::Answer, Option<u64>),
    /// A piece of a body.
    Write(Bytes),
    /// A piece of a body that is in a file.
    WriteFile(FileSlice),
    /// The end of a body, with its trailer fields.
    Finish(Fields),
    /// Cuts the connection.
    Abort,
    /// The connection leaves HTTP after this answer.
    TakeOver(L::Answer, L::Takeover),
}

/// The progress of an answer after its orders.
pub(crate) enum Work<L: Line> {
    /// It is owed, or its end is.
    Open,
    /// It is complete.
    Done,
    /// The connection is to be cut.
    Abort,
    /// The client gets 400: the protocol changes only behind a body that was read.
    Unread,
    /// The connection leaves HTTP after this answer.
    TakeOver(L::Answer, L::Takeover),
}

/// The result of one order.
pub(super) enum Carried<L: Line> {
    On,
    Refused(Order<L>),
    Last(Work<L>),
}

/// The state that a loop keeps beside an answer that is owed.
pub trait Entry<L: Line> {
    /// Lets the program that answers go on, if that is a future on the loop.
    fn go_on(&mut self, owed: &Arc<Owed<L>>) {
        let _ = owed;
    }

    /// Takes note of the answer, whole or its head, that the engine is given now.
    fn begins(&mut self, answer: &L::Answer) {
        let _ = answer;
    }

    /// Counts bytes of the body that the engine has taken.
    fn wrote(&mut self, bytes: u64) {
        let _ = bytes;
    }
}

impl<L: Line> Order<L> {
    /// Returns its size in the queue, which is more than that of its bytes for a small piece.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Write(piece) => size_of::<Self>() + piece.len(),
            _ => 0,
        }
    }

    /// Returns true if nothing follows it.
    pub(super) fn is_last(&self) -> bool {
        matches!(self, Self::Send(_) | Self::Finish(_))
    }

    pub(super) fn carry_out(self, reply: &mut Reply<'_>, entry: &mut impl Entry<L>) -> Carried<L> {
        match self {
            Self::Informational(answer) => answer.informational(reply),
            Self::Send(answer) => {
                entry.begins(&answer);
                answer.send(reply);
                return Carried::Last(Work::Done);
            }
            Self::Begin(answer, length) => {
                entry.begins(&answer);
                if answer.begin(length, reply) {
                    return Carried::Last(Work::Done);
                }
            }
            // Of a piece beyond the announced length nothing is sent.
            Self::Write(piece) => match reply.write_shared(&piece) {
                Err(WriteError::Full { .. }) => return Carried::Refused(Self::Write(piece)),
                Ok(()) | Err(_) => entry.wrote(piece.len() as u64),
            },
            Self::WriteFile(slice) => {
                let length = slice.length;
                match reply.write_file(slice.clone()) {
                    Err(WriteError::Full { .. }) => {
                        return Carried::Refused(Self::WriteFile(slice));
                    }
                    Ok(()) | Err(_) => entry.wrote(length),
                }
            }
            Self::Finish(trailers) => {
                let trailers = trailers.iter().map(|(name, value)| (&**name, &**value));
                // It fails only where the answer is over already.
                let _ = reply.finish(&trailers.collect::<Vec<_>>());
                return Carried::Last(Work::Done);
            }
            Self::Abort => return Carried::Last(Work::Abort),
            Self::TakeOver(..) if reply.has_unread_body() => {
                return Carried::Last(Work::Unread);
            }
            Self::TakeOver(answer, takeover) => {
                return Carried::Last(Work::TakeOver(answer, takeover));
            }
        }
        Carried::On
    }
}

impl<L: Line> fmt::Debug for Order<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Informational(_) => "Informational",
            Self::Send(_) => "Send",
            Self::Begin(..) => "Begin",
            Self::Write(_) => "Write",
            Self::WriteFile(_) => "WriteFile",
            Self::Finish(_) => "Finish",
            Self::Abort => "Abort",
            Self::TakeOver(..) => "TakeOver",
        })
    }
}

/// The exchanges that a loop has to visit before its turn ends.
#[derive(Debug, Default)]
pub struct Attention {
    tokens: Mutex<Vec<Token>>,
    /// There are some; a turn without any takes no lock.
    is_any: AtomicBool,
}

impl Attention {
    /// Adds an exchange.
    pub fn push(&self, token: Token) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.push(token);
        // A loop that is about to wait writes that before it reads this.
        self.is_any.store(true, Ordering::SeqCst);
    }

    /// Returns true if there is an exchange to visit.
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::SeqCst)
    }

    /// Moves the exchanges that are to be visited into `into`, which must be empty.
    pub(crate) fn take(&self, into: &mut Vec<Token>) {
        if !self.is_any() {
            return;
        }
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_any.store(false, Ordering::Relaxed);
        std::mem::swap(&mut *tokens, into);
    }
}
