//! The error of every handle whose client has left.

use std::fmt;

/// The response is not needed any more: another responder has given it, the client has left, its
/// timeout is over, or the server shuts down.
///
/// ```
/// use dwell_engine::handler::Gone;
///
/// assert_eq!(Gone.to_string(), "nobody waits for this answer any more");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody waits for this answer any more")
    }
}

impl std::error::Error for Gone {}
