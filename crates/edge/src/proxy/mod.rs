//! The proxy: passes requests that are not polls to the application, and its responses back.
//!
//! A [`ProxiedRequest`](request::ProxiedRequest) joins an exchange of the clients' server to one of
//! the upstream client. Neither side is read further than the other side reads: each direction has
//! a *window* of body bytes, which is granted again as bytes are read. So a client that does not
//! read stops the application through the kernel's buffers, and the other way round, and nothing
//! is buffered here.
//!
//! [`Proxy`] does no I/O towards the application: it leaves [`Actions`](actions::Actions), carried
//! out when the turn ends. A connection that has switched its protocol leaves both sides and
//! becomes one of the [`Tunnels`]. Nothing here imports the polls.

mod actions;
mod answering;
mod arriving;
mod carry_out;
mod request;
mod response;
mod tunnels;
mod upload;

pub(crate) use answering::Adopted;
pub(crate) use arriving::Proxy;
pub(crate) use carry_out::carry_out;
pub(crate) use tunnels::Tunnels;

#[cfg(test)]
mod tests;
