//! Work for the requests of a connection that goes on elsewhere, whatever becomes of the requests.

use std::sync::Arc;

/// The pieces of work that go on for one connection.
///
/// Shape: no memory until there is one. A client that resets its requests can have no more of them
/// at a time than one that waits for the answers.
#[derive(Debug, Default)]
pub(crate) struct Work(Option<Arc<()>>);

/// A piece of work that goes on: it counts until this is dropped, on any thread.
///
/// ```
/// use dwell_engine::{Reply, UnderWay};
/// use std::thread::JoinHandle;
///
/// /// Works for a request beside the loop.
/// fn begin(reply: &mut Reply<'_>) -> JoinHandle<()> {
///     let under_way: UnderWay = reply.under_way();
///     reply.text(202, "it begins");
///     std::thread::spawn(move || drop(under_way))
/// }
/// #
/// # let answer = dwell_testkit::serve_once(|reply| begin(reply).join().expect("it ends"));
/// # assert!(answer.ends_with("it begins\n"), "{answer}");
/// ```
#[derive(Debug)]
pub struct UnderWay {
    _count: Option<Arc<()>>,
}

impl Work {
    /// Begins a piece.
    pub(crate) fn begin(&mut self) -> UnderWay {
        UnderWay {
            _count: Some(Arc::clone(self.0.get_or_insert_default())),
        }
    }

    /// The number of pieces that go on.
    pub(super) fn count(&self) -> usize {
        self.0.as_ref().map_or(0, |all| Arc::strong_count(all) - 1)
    }
}

impl UnderWay {
    /// A piece for a connection of HTTP/1.1, which has one request at a time.
    pub(crate) fn uncounted() -> Self {
        Self { _count: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_until_it_has_ended_wherever_that_is() {
        let mut work = Work::default();
        assert_eq!(work.count(), 0);
        let mut pieces = vec![work.begin(), work.begin(), UnderWay::uncounted()];
        assert_eq!(work.count(), 2);
        drop(pieces.remove(0));
        assert_eq!(work.count(), 1);
        std::thread::spawn(move || drop(pieces)).join().unwrap();
        assert_eq!(work.count(), 0);
    }
}
