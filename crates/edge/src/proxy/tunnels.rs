//! Connections that have switched their protocol: bytes both ways, until both sides have ended.
//!
//! Neither side is read while the other does not accept what was read before, so a tunnel holds at
//! most one read in each direction. When one side ends its sending, the end is passed on, and the
//! other direction goes on.

use dwell_engine::Detached;
use dwell_evloop::{Context, Peer, Readiness, Slab, Stream, Token};
use dwell_timers::{TICK, Tick};
use std::time::Duration;

/// Both ends of a connection that has switched its protocol.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// The client's end, with the bytes it has sent already.
    pub(crate) client: Detached,
    /// The application's end, with the bytes it has sent already.
    pub(crate) upstream: Detached,
    /// The first bytes for the client: the head of the 101.
    pub(crate) opening: Vec<u8>,
}

/// The tunnels of one loop.
#[derive(Debug)]
pub(crate) struct Tunnels {
    ends: Slab<End>,
    idle_timeout: Duration,
}

/// One end of a tunnel.
#[derive(Debug)]
struct End {
    /// The socket. It is at its end when the end itself was read.
    peer: Peer,
    /// The other end.
    other: Token,
    /// The time of the last bytes from this end.
    active: Tick,
    /// It was sent the end of the other side.
    is_shut: bool,
}

/// Reads of one end per turn, so that a busy tunnel does not starve the others.
const READS_PER_TURN: usize = 4;

impl Tunnels {
    /// Makes an empty set; `kind` is the kind of its tokens.
    ///
    /// Shape: a tunnel is made of a client's connection, or of a stream that counts as one, which
    /// was admitted: those are its bound.
    pub(crate) fn new(kind: u8, idle_timeout: Duration) -> Self {
        Self {
            ends: Slab::new(kind, usize::MAX),
            idle_timeout,
        }
    }

    /// The number of open tunnels.
    pub(crate) fn len(&self) -> usize {
        self.ends.len() / 2
    }

    /// Begins a tunnel, or closes it if it fails.
    pub(crate) fn open(&mut self, context: &mut Context, tunnel: Tunnel) {
        let Tunnel {
            mut client,
            mut upstream,
            opening,
        } = tunnel;
        let is_written = client.stream.write(&opening).is_ok()
            && client.stream.write(&upstream.input).is_ok()
            && upstream.stream.write(&client.input).is_ok();
        if !is_written {
            return;
        }
        let now = context.tick();
        let none = Token::from_bits(0);
        let Ok(first) = self.ends.insert(End::new(client.stream, none, now)) else {
            return;
        };
        let Ok(second) = self.ends.insert(End::new(upstream.stream, first, now)) else {
            self.ends.remove(first);
            return;
        };
        let mut is_registered = true;
        for (token, other) in [(first, second), (second, first)] {
            if let Some(end) = self.ends.get_mut(token) {
                end.other = other;
                is_registered &= context.register(&mut end.peer.stream, token).is_ok();
            }
        }
        if is_registered {
            context.arm(first, self.idle_timeout);
        } else {
            self.close(context, first);
        }
    }

    /// Handles readiness of a socket.
    pub(crate) fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        let Some(end) = self.ends.get_mut(token) else {
            return;
        };
        end.peer.observe(readiness);
        let other = end.other;
        if readiness.is_writable() && end.peer.stream.flush().is_err() {
            return self.fail(context, token);
        }
        // Bytes from this end go to the other. If this end accepts output again, bytes from the
        // other end come here.
        let lives = self.pump(context, token) && self.pump(context, other);
        if !lives {
            self.fail(context, token);
        } else if self.is_over(token) {
            self.close(context, token);
        }
    }

    /// Handles the deadline of a tunnel.
    pub(crate) fn expired(&mut self, context: &mut Context, token: Token) {
        let other = self.ends.get(token).map(|end| end.other);
        let ends = [Some(token), other].into_iter().flatten();
        let idle = ends
            .filter_map(|token| self.ends.get(token))
            .map(|end| context.tick().ticks_since(end.active));
        let Some(idle) = idle.min() else { return };
        match self.idle_timeout.checked_sub(TICK * idle) {
            Some(left) if !left.is_zero() => context.arm(token, left),
            _ => self.close(context, token),
        }
    }

    /// Closes all tunnels.
    pub(crate) fn close_all(&mut self, context: &mut Context) {
        let tokens: Vec<Token> = self.ends.tokens().collect();
        for token in tokens {
            self.close(context, token);
        }
    }

    /// Moves bytes from `from` to the other end, as far as that accepts them; false if the tunnel
    /// has failed.
    fn pump(&mut self, context: &mut Context, from: Token) -> bool {
        let Some(other) = self.ends.get(from).map(|end| end.other) else {
            return false;
        };
        let mut input = context.take_input();
        let mut lives = true;
        for turn in 0.. {
            let Some(is_flushed) = self.ends.get(other).map(|end| end.peer.stream.is_flushed())
            else {
                break;
            };
            let Some(end) = self.ends.get_mut(from) else {
                break;
            };
            if !end.peer.is_unread() || !is_flushed {
                break;
            }
            if turn == READS_PER_TURN {
                context.again(from, Readiness::READABLE);
                break;
            }
            let read = end.read(&mut input, context.tick());
            let written = match read {
                Ok(0) => continue,
                Ok(length) => self
                    .ends
                    .get_mut(other)
                    .map_or(Ok(()), |end| end.peer.stream.write(&input[..length])),
                Err(error) => Err(error),
            };
            if written.is_err() {
                lives = false;
                break;
            }
        }
        context.return_input(input);
        lives && self.pass_end_on(from, other)
    }

    /// Ends the sending to `to` once all bytes of `from` have been sent.
    fn pass_end_on(&mut self, from: Token, to: Token) -> bool {
        let is_finished = self.ends.get(from).is_some_and(|end| end.peer.is_at_end());
        let Some(end) = self.ends.get_mut(to) else {
            return false;
        };
        if !is_finished || end.is_shut || !end.peer.stream.is_flushed() {
            return true;
        }
        end.is_shut = true;
        end.peer.stream.shutdown_write().is_ok()
    }

    /// Returns true if both directions have ended.
    fn is_over(&self, token: Token) -> bool {
        let is_shut = |token| self.ends.get(token).is_none_or(|end: &End| end.is_shut);
        let other = self.ends.get(token).map(|end| end.other);
        is_shut(token) && other.is_none_or(is_shut)
    }

    /// Closes a tunnel that has failed, so that neither end takes it for complete.
    fn fail(&mut self, context: &mut Context, token: Token) {
        let other = self.ends.get(token).map(|end| end.other);
        for token in [Some(token), other].into_iter().flatten() {
            if let Some(end) = self.ends.get(token) {
                end.peer.stream.reset_on_drop();
            }
        }
        self.close(context, token);
    }

    fn close(&mut self, context: &mut Context, token: Token) {
        let other = self.ends.get(token).map(|end| end.other);
        for token in [Some(token), other].into_iter().flatten() {
            context.disarm(token);
            if let Some(mut end) = self.ends.remove(token) {
                // The socket is closed next, which deregisters it in any case.
                let _ = context.deregister(&mut end.peer.stream);
            }
        }
    }
}

impl End {
    fn new(stream: Stream, other: Token, now: Tick) -> Self {
        Self {
            peer: Peer::new(stream),
            other,
            active: now,
            is_shut: false,
        }
    }

    /// Reads once; 0 if there is nothing to read, or nothing more will come.
    fn read(&mut self, input: &mut [u8], now: Tick) -> std::io::Result<usize> {
        let read = self.peer.read_to_end(input)?;
        if read > 0 {
            self.active = now;
        }
        Ok(read)
    }
}
