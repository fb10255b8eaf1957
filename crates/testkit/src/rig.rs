//! Event loops that a test turns step by step.

use crate::{GUARD, LOOK_AGAIN};
use dwell_evloop::{Driver, EventLoop, ListenOptions, Listener, bind_group};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// A loop with its driver on which nothing happens but in a turn of the test.
pub trait Rig {
    /// The driver of the loop.
    type Driver: Driver;

    /// The longest wait of a turn; shorter than the default where clients are told of nothing by
    /// the loop, or time is simulated.
    const WAIT: Duration = GUARD;

    /// The loop and its driver.
    fn parts(
        &mut self,
    ) -> (
        &mut EventLoop<<Self::Driver as Driver>::Message>,
        &mut Self::Driver,
    );

    /// Describes the state, for a test that waits in vain.
    fn describe(&mut self) -> String {
        String::new()
    }

    /// One turn that waits for at most `timeout`.
    ///
    /// # Panics
    /// If the loop fails.
    #[track_caller]
    fn turn_for(&mut self, timeout: Duration) {
        let (event_loop, driver) = self.parts();
        if let Err(error) = event_loop.turn(driver, Some(timeout)) {
            panic!("the loop fails: {error}");
        }
    }

    /// Turns until `condition` holds, which nothing but a turn brings about.
    ///
    /// # Panics
    /// If it does not within [`GUARD`], by the clock of the loop.
    #[track_caller]
    fn turn_until(&mut self, what: &str, mut condition: impl FnMut(&mut Self::Driver) -> bool) {
        let mut end = None;
        while !condition(self.parts().1) {
            self.turn_for(Self::WAIT);
            let now = self.parts().0.context().now();
            let is_late = now >= *end.get_or_insert(now + GUARD);
            assert!(!is_late, "waited in vain: {what}: {}", self.describe());
        }
    }

    /// Turns until `step` gives something; for what the clients' side sees.
    ///
    /// # Panics
    /// If it does not within [`GUARD`], by the clock of the loop.
    #[track_caller]
    fn turn_for_client<T>(&mut self, what: &str, mut step: impl FnMut() -> Option<T>) -> T {
        let mut end = None;
        loop {
            if let Some(found) = step() {
                return found;
            }
            // Short, because the loop does not hear of what only the client has to do.
            self.turn_for(Self::WAIT.min(LOOK_AGAIN));
            let now = self.parts().0.context().now();
            let is_late = now >= *end.get_or_insert(now + GUARD);
            assert!(!is_late, "waited in vain: {what}: {}", self.describe());
        }
    }

    /// Reads from `peer`, turning meanwhile, until `is_enough` or the end of the stream.
    ///
    /// # Panics
    /// If that does not come, or the connection fails.
    #[track_caller]
    fn receive_until(
        &mut self,
        peer: &mut TcpStream,
        is_enough: impl Fn(&[u8]) -> bool,
    ) -> Vec<u8> {
        let (mut received, mut buffer) = (Vec::new(), vec![0; 1 << 18]);
        while_unblocked(peer, |peer| {
            self.turn_for_client("the peer receives it", || {
                while !is_enough(&received) {
                    match peer.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(read) => received.extend_from_slice(&buffer[..read]),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                        Err(error) => panic!("{error} after {} bytes", received.len()),
                    }
                }
                Some(())
            });
        });
        received
    }

    /// Writes to `peer`, turning whenever its socket is full.
    ///
    /// # Panics
    /// If nothing is read of it, or the connection fails.
    #[track_caller]
    fn send_all(&mut self, peer: &mut TcpStream, mut bytes: &[u8]) {
        while_unblocked(peer, |peer| {
            self.turn_for_client("the peer can send", || {
                while !bytes.is_empty() {
                    match peer.write(bytes) {
                        Ok(written) => bytes = &bytes[written..],
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                        Err(error) => panic!("{error} with {} bytes left", bytes.len()),
                    }
                }
                Some(())
            });
        });
    }
}

/// A listener on a loopback port of its own.
///
/// # Panics
/// If no port can be bound.
#[must_use]
pub fn loopback_listener() -> (Listener, SocketAddr) {
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let bound = bind_group(any, 1, ListenOptions::default());
    let listener = bound.ok().and_then(|mut group| group.pop());
    let address = listener.as_ref().and_then(Listener::address);
    match (listener, address) {
        (Some(listener), Some(address)) => (listener, address),
        _ => panic!("no free port on 127.0.0.1"),
    }
}

fn while_unblocked(peer: &mut TcpStream, act: impl FnOnce(&mut TcpStream)) {
    let describe = "a socket takes its mode";
    peer.set_nonblocking(true).expect(describe);
    act(peer);
    peer.set_nonblocking(false).expect(describe);
}
