//! Pages of the program around this library, which are served before any route.

use std::borrow::Cow;
use std::fmt::Debug;
use std::net::SocketAddr;

/// Makes the pages of one loop; they may name the address of the store.
pub type MakePages = fn(store: SocketAddr) -> Box<dyn Pages>;

/// Pages under paths of their own.
pub trait Pages: Debug + Send {
    /// Answers a request for one of the pages; `None` for every other request.
    ///
    /// Shape: `path` has no query; `body` is all of it.
    fn respond<'a>(&'a self, method: &str, path: &str, body: &'a [u8]) -> Option<Page<'a>>;
}

/// The answer to one request for a page. No cache keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// The status.
    pub status: u16,
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub body: Cow<'a, [u8]>,
    /// A key of the embedded store and the value that it is set to before the answer is sent.
    pub set: Option<(&'a str, &'a [u8])>,
}
