//! A ring of `io_uring` for sends that are over when the call is.
#![expect(
    unsafe_code,
    reason = "the kernel reads memory whose lifetime the type of an order cannot show"
)]

use io_uring::{IoUring, cqueue, opcode, types};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A ring, of the thread that has made it.
pub(super) struct Ring {
    ring: IoUring,
}

/// The flags of every send: neither waits it, nor does a peer that has gone raise a signal.
const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

impl Ring {
    /// Makes a ring for so many sends at once.
    pub(super) fn new(sends: usize) -> io::Result<Self> {
        let entries = u32::try_from(sends).unwrap_or(u32::MAX);
        let mut builder = IoUring::builder();
        // A child of a fork has no part in it. Deferred work (Linux 6.1) interrupts no thread.
        builder
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun();
        let ring = builder.build(entries)?;
        Ok(Self { ring })
    }

    /// Sends to each socket, and fills in what the kernel returns: bytes that were taken, or an
    /// error as a negative number. At most as many as the ring has room for.
    ///
    /// # Errors
    /// The kernel's error when it does not take orders any more. The ring is then of no more
    /// use; what it has not taken keeps the outcome that it had.
    pub(super) fn send(
        &mut self,
        sends: &mut [(BorrowedFd<'_>, &[u8], &mut i32)],
    ) -> io::Result<()> {
        let mut queue = self.ring.submission();
        let mut pushed = 0;
        for (index, (socket, bytes, _)) in sends.iter().enumerate() {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let socket = types::Fd(socket.as_raw_fd());
            let order = opcode::Send::new(socket, bytes.as_ptr(), length)
                .flags(FLAGS)
                .build()
                .user_data(index as u64);
            // SAFETY: the bytes are borrowed, and so is the socket, until this function returns,
            // which it does not before the kernel has given the outcome of every order that it has
            // taken: `collect` counts them. Orders that it has not taken are never given to it, as
            // the ring is closed then: nobody but this function lets it take any.
            pushed += usize::from(unsafe { queue.push(&order) }.is_ok());
        }
        drop(queue);
        self.collect(sends, pushed)
    }

    /// Has the kernel take all orders, and waits for their outcomes. No order waits for its socket,
    /// so they are all there when the first call returns.
    fn collect(
        &mut self,
        sends: &mut [(BorrowedFd<'_>, &[u8], &mut i32)],
        pushed: usize,
    ) -> io::Result<()> {
        let mut taken = 0;
        let mut ended = 0;
        let mut refused = None;
        while ended < if refused.is_some() { taken } else { pushed } {
            let left = self.ring.submission().len();
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // No room for outcomes, or for memory: there is, once some were looked at.
                Err(error) if refused.is_none() => refused = Some(error),
                // The kernel owes outcomes and gives none: bytes and sockets cannot be given back.
                Err(_) => std::process::abort(),
            }
            taken += left - self.ring.submission().len();
            for outcome in self.ring.completion() {
                ended += 1;
                note(sends, &outcome);
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

fn note(sends: &mut [(BorrowedFd<'_>, &[u8], &mut i32)], outcome: &cqueue::Entry) {
    let index = usize::try_from(outcome.user_data()).unwrap_or(usize::MAX);
    if let Some((_, _, result)) = sends.get_mut(index) {
        **result = outcome.result();
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}
