//! The results of reads and of flushes.

/// The result of one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOutcome {
    /// This many bytes, and the socket may hold more.
    More(usize),
    /// This many bytes, which was all; the next readiness means more.
    Drained(usize),
    /// Nothing to read now.
    WouldBlock,
    /// The peer ended its side in order.
    Closed,
}

/// The state of a stream's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    /// Nothing is left.
    All,
    /// The socket refuses the rest for now; [`flush`](crate::Stream::flush) again when it is
    /// writable.
    Blocked,
    /// The socket would take more, but one call's share of a file is used up. No readiness follows:
    /// put the stream back with [`Context::again`](crate::Context::again) and
    /// [`Readiness::WRITABLE`](crate::Readiness::WRITABLE), and flush again in the next turn.
    More,
}
