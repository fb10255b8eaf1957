//! What concerns the whole process, so that nothing else may run in it: signals and descriptors.
//! It has a `main` of its own, as signals come to the first thread.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dwell_engine::manager::{Event, Manager};
use rustix::process::{Signal, getpid, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

fn main() {
    a_signal_ends_a_poll();
    run_ends_for_a_signal_and_gives_it_back();
    managers_leave_no_descriptor();
}

/// When the signal is sent that ends a poll of [`LONG`].
const SENT_AT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(20);

fn a_signal_ends_a_poll() {
    let handled = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&handled)).unwrap();
    let mut manager = Manager::new(|_, _| {}).unwrap();
    let (end, ended) = channel::<()>();
    let begun = Instant::now();
    let sender = std::thread::spawn(move || {
        // Once at that time; again only if a busy machine had not begun to wait by then.
        let mut wait = SENT_AT;
        while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            kill_process(getpid(), Signal::USR1).unwrap();
            wait = Duration::from_millis(200);
        }
    });
    manager.poll(LONG).unwrap();
    let waited = begun.elapsed();
    drop(end);
    sender.join().unwrap();
    assert!(handled.load(Ordering::Relaxed));
    assert!(waited >= SENT_AT, "{waited:?}: it ended before the signal");
    assert!(waited < LONG / 2, "{waited:?}: it went on");
    // And it is as good as before.
    manager.wakeup().unwrap();
    manager.poll(None).unwrap();
}

fn run_ends_for_a_signal_and_gives_it_back() {
    let handled = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&handled)).unwrap();
    for _ in 0..3 {
        let mut manager = Manager::new(|_, _| {}).unwrap();
        let (ready, is_ready) = channel();
        let tell = move |_: &mut dwell_engine::manager::Scope<'_>| ready.send(()).unwrap();
        manager.timer(Duration::ZERO, false, tell).unwrap();
        let sender = std::thread::spawn(move || {
            is_ready.recv().unwrap();
            kill_process(getpid(), Signal::TERM).unwrap();
        });
        manager.run().unwrap();
        sender.join().unwrap();
        assert!(manager.is_closed());
    }
    handled.store(false, Ordering::Relaxed);
    kill_process(getpid(), Signal::TERM).unwrap();
    let begun = Instant::now();
    while !handled.load(Ordering::Relaxed) {
        assert!(begun.elapsed() < LONG, "the process has its signal again");
        std::thread::yield_now();
    }
}

/// How a manager comes to its end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Dropped,
    Closed,
    Aborted,
    /// With work waiting in its inbox that holds a way into it.
    WithWork,
}

fn managers_leave_no_descriptor() {
    // What is made once and stays is made by the first.
    for ending in [
        Ending::Closed,
        Ending::Dropped,
        Ending::Aborted,
        Ending::WithWork,
    ] {
        serve_and_end(ending);
        let before = descriptors();
        for _ in 0..20 {
            serve_and_end(ending);
        }
        assert_eq!(descriptors(), before, "{ending:?}");
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn serve_and_end(ending: Ending) {
    let mut manager = Manager::new(|conn, event| match event {
        Event::HttpMessage(_) => conn.reply(200, &[], b"hello").unwrap(),
        Event::Wakeup(_) => conn.abort(),
        _ => {}
    })
    .unwrap();
    let listener = manager.listen("http://127.0.0.1:0").unwrap();
    let address = manager.conn(listener).unwrap().local_address().unwrap();
    let mut clients: Vec<_> = (0..5)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let connected = manager.connect(&format!("tcp://{address}")).unwrap();
    for client in &mut clients {
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            .unwrap();
    }
    let asked = Instant::now();
    while manager.connection_count() < 8 {
        assert!(asked.elapsed() < LONG);
        manager.poll(LONG).unwrap();
    }
    manager.poll(Duration::ZERO).unwrap();
    clients[0].read_exact(&mut [0; 12]).unwrap();
    manager.wakeup_with(connected, "").unwrap();
    match ending {
        Ending::Dropped => {}
        Ending::Closed => manager.close(),
        Ending::Aborted => manager.abort(),
        Ending::WithWork => {
            let (waker, inner) = (manager.waker(), manager.waker());
            let work = move |_: &mut dwell_engine::manager::Conn<'_>| inner.wakeup().unwrap();
            waker.run(listener, work).unwrap();
        }
    }
}
