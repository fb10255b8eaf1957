//! Pages of the program around this library, which are served before any route.

use std::borrow::Cow;
use std::fmt::Debug;
use std::net::SocketAddr;

/// Makes the pages of each loop.
pub trait MakePages: Debug + Send + Sync {
    /// Makes the pages of one loop; they may name the address of the store.
    fn make(&self, store: SocketAddr) -> Box<dyn Pages>;
}

/// Pages under paths of their own.
pub trait Pages: Debug + Send {
    /// Returns true if a page has this path. The body of its requests is gathered.
    fn has(&self, path: &str) -> bool;

    /// Answers a request for one of the pages; `None` for every other request.
    fn respond<'a>(&'a self, request: &PageRequest<'a>) -> Option<Page<'a>>;
}

/// A request that may be for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, without a query.
    pub path: &'a str,
    /// All of the body.
    pub body: &'a [u8],
    /// True if a browser sends it for a page of another origin, which must change nothing.
    pub is_of_another_site: bool,
    /// True if its `Host` is a name other than `localhost`: a page elsewhere may have given its own
    /// name the address of this machine (DNS rebinding).
    pub is_for_a_name: bool,
}

/// Bytes of the body of a request for a page; beyond it: 413.
pub(crate) const PAGE_BODY_BYTES_MAX: u64 = 64 * 1024;

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
