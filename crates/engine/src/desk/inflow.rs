//! The body of a request on its way from a loop to its reader.

use crate::growth::extend;
use bytes::Bytes;
use std::task::Poll;

/// The body of a request that its reader takes as it comes, and the credit of the client.
///
/// Shape: nothing may come before the first read. From then on the client may send a window of
/// bytes ahead of the reader, and is granted more when half of it was read. Each wish has to reach
/// [`Reply::grant`](crate::Reply::grant), and [`is_awaited`](Self::is_awaited) with it
/// [`Reply::await_body`](crate::Reply::await_body).
///
/// ```
/// use dwell_engine::desk::Inflow;
/// use std::task::Poll;
///
/// let mut body = Inflow::default();
/// assert_eq!(body.read(1024), Poll::Pending);
/// assert_eq!((body.has_wish(), body.take_wish()), (true, Some(1024)));
/// assert!(body.is_awaited() && !body.is_here());
/// body.arrive(b"hello ");
/// body.arrive(b"there");
/// assert!(body.is_here() && !body.is_awaited());
/// assert_eq!(body.read(1024), Poll::Ready(Some("hello there".into())));
/// body.complete();
/// assert!(body.is_complete());
/// assert_eq!(body.read(1024), Poll::Ready(None));
///
/// // What a client may send before there is a reader counts as granted.
/// let mut gathered = Inflow::default();
/// gathered.granted(4);
/// gathered.arrive(b"head");
/// assert_eq!(gathered.read(4), Poll::Ready(Some("head".into())));
/// assert_eq!(gathered.take_wish(), Some(4));
/// ```
#[derive(Debug, Default)]
pub struct Inflow {
    arrived: Vec<u8>,
    /// Bytes that were granted, or are to be, and not read yet.
    outstanding: u64,
    /// Bytes to grant that the loop has not taken note of; 0 if it only has to learn that the body
    /// is awaited.
    wish: Option<u64>,
    is_awaited: bool,
    is_complete: bool,
}

impl Inflow {
    /// Adds bytes that came.
    pub fn arrive(&mut self, data: &[u8]) {
        extend(&mut self.arrived, data);
        self.is_awaited = false;
    }

    /// Ends the body: it is complete.
    pub fn complete(&mut self) {
        self.is_complete = true;
        self.is_awaited = false;
    }

    /// Counts bytes that were granted without a wish of the reader.
    pub fn granted(&mut self, bytes: u64) {
        self.outstanding += bytes;
    }

    /// Takes all that has come; nothing at the end. `window` bytes may come ahead of the reader.
    pub fn read(&mut self, window: u64) -> Poll<Option<Bytes>> {
        let data = match self.arrived.is_empty() {
            true if self.is_complete => return Poll::Ready(None),
            true => None,
            false => Some(std::mem::take(&mut self.arrived).into()),
        };
        let length = data.as_ref().map_or(0, Bytes::len) as u64;
        self.outstanding = self.outstanding.saturating_sub(length);
        if !self.is_complete && self.outstanding <= window / 2 {
            *self.wish.get_or_insert(0) += window - self.outstanding;
            self.outstanding = window;
        }
        if data.is_some() {
            return Poll::Ready(data);
        }
        if !std::mem::replace(&mut self.is_awaited, true) {
            self.wish.get_or_insert(0);
        }
        Poll::Pending
    }

    /// Returns true if a read finds something, be it the end.
    pub fn is_here(&self) -> bool {
        self.is_complete || !self.arrived.is_empty()
    }

    /// Returns true while the reader has all that came, and waits for more.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Returns true if all of it has come.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns true if the loop has to take note of a wish.
    pub fn has_wish(&self) -> bool {
        self.wish.is_some()
    }

    /// Takes the bytes to grant; 0 if the loop only has to learn that the body is awaited.
    pub fn take_wish(&mut self) -> Option<u64> {
        self.wish.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 8;

    #[test]
    fn the_client_is_never_ahead_by_more_than_the_window() {
        let mut body = Inflow::default();
        let (mut granted, mut sent, mut read) = (0, 0, 0);
        for step in 0..1000_u64 {
            match body.read(WINDOW) {
                Poll::Ready(data) => read += data.map_or(0, |data| data.len() as u64),
                Poll::Pending => assert_eq!(read, sent, "all that came was read"),
            }
            granted += body.take_wish().unwrap_or_default();
            assert!(granted - read <= WINDOW, "{granted} granted, {read} read");
            assert!(
                granted - read > WINDOW / 2,
                "{granted} granted, {read} read"
            );
            let length = (granted - sent).min(step % 5);
            body.arrive(&vec![0; length as usize]);
            sent += length;
        }
        assert!(read > 500);
    }

    #[test]
    fn one_wish_stands_for_all_that_was_not_taken_note_of() {
        let mut body = Inflow::default();
        assert_eq!(body.read(WINDOW), Poll::Pending);
        assert_eq!(body.take_wish(), Some(WINDOW));
        assert_eq!(body.read(WINDOW), Poll::Pending);
        assert!(!body.has_wish(), "it waits already");
        for _ in 0..2 {
            body.arrive(&[0; 4]);
            assert!(body.read(WINDOW).is_ready());
        }
        assert_eq!(body.take_wish(), Some(WINDOW));
    }

    #[test]
    fn a_wait_is_made_known_even_where_nothing_is_to_be_granted() {
        let mut body = Inflow::default();
        body.granted(WINDOW);
        body.arrive(b"ab");
        assert_eq!(body.read(WINDOW), Poll::Ready(Some("ab".into())));
        assert!(!body.has_wish() && !body.is_awaited());
        assert_eq!(body.read(WINDOW), Poll::Pending);
        assert_eq!((body.take_wish(), body.is_awaited()), (Some(0), true));
    }

    #[test]
    fn nothing_is_granted_behind_the_end() {
        let mut body = Inflow::default();
        body.arrive(b"whole");
        body.complete();
        assert_eq!(body.read(WINDOW), Poll::Ready(Some("whole".into())));
        assert_eq!(body.read(WINDOW), Poll::Ready(None));
        assert!(!body.has_wish() && !body.is_awaited());
    }
}
