//! Servers and peers for tests: real ones on free loopback ports, scripted ones, simulated ones.
//!
//! Everything here panics when it cannot do what a test asked for, saying what is missing: a test
//! that is skipped in silence is worse than one that fails. A dev-dependency only.
#![forbid(unsafe_code)]

mod beside;
#[cfg(feature = "serving")]
mod example;
mod memcached;
pub mod pem;
#[cfg(feature = "rig")]
mod rig;
mod scripted;
#[cfg(feature = "serving")]
mod serving;
#[cfg(feature = "sim")]
pub mod sim;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use beside::{ask, ask_and_finish, beside};
#[cfg(feature = "serving")]
pub use example::{
    Fine, describe, detached, handle_once, hello, hold_once, manage, manage_bytes, manage_once,
    manage_socket, manage_stream, manage_then, manage_ws, respond_once, serve_beginning,
    serve_once, serve_request, socket_once, stream_once, talk_once,
};
pub use memcached::Memcached;
#[cfg(feature = "rig")]
pub use rig::{Rig, loopback_listener};
pub use scripted::{Script, ScriptedServer};
#[cfg(feature = "serving")]
pub use serving::Serving;

/// Time that a test waits for a server or a peer before it fails.
///
/// Longer than a busy machine needs: reaching it means that something is broken.
pub const GUARD: Duration = Duration::from_secs(20);

/// Between two looks at something that cannot be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Below the ports that systems give to outgoing connections, which could take one at any time.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A loopback port that nobody listened on a moment ago; never the same twice in a process.
///
/// # Panics
/// If no port can be bound.
pub fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    // Processes that run at the same time begin far apart.
    let first = std::process::id().wrapping_mul(1031);
    for _ in 0..count {
        let offset = first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed)) % count;
        let port = PORTS.start + offset as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port on 127.0.0.1 in {PORTS:?}");
}

fn port_of(listener: &TcpListener) -> u16 {
    match listener.local_addr() {
        Ok(address) => address.port(),
        Err(error) => panic!("a bound listener has no address: {error}"),
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// A start for times that a test names: the same in all tests of a process.
pub fn start() -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START
}

/// Looks until `condition` holds or [`GUARD`] has passed; whether it held.
///
/// For conditions of other processes, which cannot notify a test.
pub fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() > GUARD {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
