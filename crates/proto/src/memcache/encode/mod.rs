//! Writing both sides: requests by a client, replies by a server.
//!
//! Every function appends to a `Vec<u8>` the caller owns and reuses.

pub mod reply;
pub mod request;

fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests;
