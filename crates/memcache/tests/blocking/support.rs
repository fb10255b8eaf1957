//! What the tests share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dwell_memcache::{Client, ClientOptions, Protocol, ServerOptions, Timeouts};

/// The timeout of tests in which something times out.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(800);
/// What an operation may take that is given [`TIMEOUT`], on a busy machine.
///
/// One whose every call had all of the time would take at least twice as long; `make
/// bench-memcache` measures the exact figure.
pub(crate) const IN_TIME: Duration = Duration::from_millis(1500);
/// The timeout of tests in which nothing should.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Every way to watch over time.
pub(crate) const EVERY_WATCH: [Timeouts; 3] =
    [Timeouts::Kernel, Timeouts::Reaper, Timeouts::Strict];

/// Options under which nothing times out.
pub(crate) fn patient() -> ClientOptions {
    ClientOptions {
        timeout: Some(PATIENCE),
        connect_timeout: PATIENCE,
        ..ClientOptions::default()
    }
}

/// Options under which things time out soon, watched in this way.
pub(crate) fn watched(timeouts: Timeouts) -> ClientOptions {
    ClientOptions {
        timeout: Some(TIMEOUT),
        timeouts,
        ..ClientOptions::default()
    }
}

/// The same as [`patient`], speaking meta commands.
pub(crate) fn patient_meta() -> ClientOptions {
    ClientOptions {
        protocol: Protocol::Meta,
        ..patient()
    }
}

pub(crate) fn client(addresses: &[SocketAddr], options: ClientOptions) -> Client {
    let servers: Vec<ServerOptions> = addresses
        .iter()
        .map(|address| address.to_string().parse().unwrap())
        .collect();
    Client::new(&servers, options).unwrap()
}

/// What came of something, and how long it took of the time in which the machine ran.
///
/// A thread that wakes up again and again tells when it did not: by how much it is late.
pub(crate) fn timed<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    const STEP: Duration = Duration::from_millis(10);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let halts = scope.spawn(|| {
            let mut halted = Duration::ZERO;
            while !is_over.load(Ordering::SeqCst) {
                let slept = Instant::now();
                std::thread::sleep(STEP);
                halted += slept.elapsed().saturating_sub(2 * STEP);
            }
            halted
        });
        let started = Instant::now();
        let result = work();
        let took = started.elapsed();
        is_over.store(true, Ordering::SeqCst);
        // What had to take all of its time has taken it, whatever the machine did meanwhile.
        let ran = took.saturating_sub(halts.join().unwrap());
        (result, ran.max(took.min(TIMEOUT)))
    })
}
