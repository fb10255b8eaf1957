//! Clients that share connections of HTTP/2, as the tabs of a browser do: each request of a client
//! is a stream. What a client writes and reads is HTTP/1.1, so that the same clients, with the same
//! checks, speak both; the session below checks the frames.

mod attack;
mod attacker;
mod browsers;
mod fields;
mod flow;
mod frames;
mod options;
mod requests;
mod session;
mod smuggling;

pub use attack::{Attack, Made};
pub(crate) use browsers::{Browsers, Dial};
pub use options::{BrowserAct, BrowserFault, H2Options};
pub(crate) use options::{PUBLISHERS, h2_steps};
pub(crate) use requests::Requests;
pub(crate) use smuggling::ID as SMUGGLED;
