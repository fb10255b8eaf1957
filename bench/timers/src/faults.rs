//! What must be zero.

use crate::{memory, report};
use dwell_timers::{Tick, Wheel};
use std::future::{Future, pending};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Whether a timeout of 50 ms ends within six seconds.
fn fires(timeout: impl Future) -> bool {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut timeout = std::pin::pin!(timeout);
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_secs(6) {
        if timeout.as_mut().poll(&mut cx).is_ready() {
            return true;
        }
        std::thread::park_timeout(Duration::from_secs(6));
    }
    false
}

const LENGTH: Duration = Duration::from_millis(50);

/// Has a child that was forked wait for one timeout.
fn is_dead_in_child(wait: impl FnOnce() -> bool) -> u8 {
    // SAFETY: the child uses nothing of the parent's but its memory, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        let fired = wait();
        // SAFETY: ends the process without running what the parent has to run.
        unsafe { libc::_exit(i32::from(!fired)) };
    }
    let mut status = 0;
    // SAFETY: the child's status is written to a place of the right type.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    u8::from(!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0))
}

pub(crate) fn dead_after_fork() {
    assert!(fires(dwell_timers::timeout(LENGTH, pending::<()>())));
    let dead = is_dead_in_child(|| fires(dwell_timers::timeout(LENGTH, pending::<()>())));
    report("dwell", "dead_after_fork", dead);
    assert!(fires(pingora_timeout::timeout(LENGTH, pending::<()>())));
    // With the calls its documentation asks for.
    pingora_timeout::fast_timeout::pause_for_fork();
    let dead = is_dead_in_child(|| {
        pingora_timeout::fast_timeout::unpause();
        fires(pingora_timeout::timeout(LENGTH, pending::<()>()))
    });
    pingora_timeout::fast_timeout::unpause();
    report("pingora", "dead_after_fork", dead);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _entered = runtime.enter();
    assert!(fires(tokio::time::timeout(LENGTH, pending::<()>())));
    let dead = is_dead_in_child(|| fires(tokio::time::timeout(LENGTH, pending::<()>())));
    report("tokio", "dead_after_fork", dead);
}

/// Timers made and dropped by the hundred thousand must not need more memory each time.
///
/// Each round is for other ticks than those before: what a contender keeps for a tick until it
/// comes, however long that is, counts as leaked.
macro_rules! leaked {
    ($timeout:path) => {{
        let hold = |shift: u64| {
            let mut cx = Context::from_waker(Waker::noop());
            let held: Vec<_> = (0..HELD)
                .map(|number| {
                    let length = Duration::from_millis(1_000_000 + 20 * number + shift);
                    let mut timeout = Box::pin($timeout(length, pending::<()>()));
                    assert!(timeout.as_mut().poll(&mut cx).is_pending());
                    timeout
                })
                .collect();
            drop(held);
        };
        (0..3).for_each(|_| hold(0));
        memory::start();
        (1..=10).for_each(|round| hold(round * 3_000_000));
        // What is cleared away once a tick has its chance.
        std::thread::sleep(Duration::from_millis(60));
        let left = memory::live().max(0);
        memory::stop();
        left as f64 / (10 * HELD) as f64
    }};
}

const HELD: u64 = 100_000;

/// The runtime must be entered.
pub(crate) fn leaked_on_cancel() {
    let per_timer = leaked!(tokio::time::timeout);
    report("tokio", "leaked_bytes", per_timer);
    let per_timer = leaked!(pingora_timeout::timeout);
    report("pingora", "leaked_bytes", per_timer);
    let per_timer = leaked!(dwell_timers::timeout);
    report("dwell", "leaked_bytes", per_timer);
    let slots = dwell_timers::statistics().slots;
    let _ = leaked!(dwell_timers::timeout);
    let grown = dwell_timers::statistics().slots - slots;
    report("dwell", "leaked_on_cancel", grown);
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task")
        .expect("Linux lists the threads of a process")
        .count()
}

/// A wheel has no thread. To be called while there is no other.
pub(crate) fn threads_of_wheel() {
    let before = threads();
    let mut wheel = Wheel::new(Tick::new(0));
    for id in 0..1000 {
        wheel.arm(id, Tick::new(id + 1));
    }
    let fired = std::iter::from_fn(|| wheel.pop_due(Tick::new(2000))).count();
    assert_eq!(fired, 1000);
    report("wheel", "extra_threads", threads() - before);
}

/// Starts this program again for each contender, stops the processes and lets them go on, four
/// times. A contender has one thread at most for its clock; any more stay for ever.
pub(crate) fn extra_threads() {
    let program = std::env::current_exe().expect("the path of this program");
    let mut running: Vec<_> = ["dwell", "pingora", "tokio"]
        .into_iter()
        .map(|name| {
            let child = Command::new(&program)
                .args([STOPPED, name])
                .stdin(Stdio::piped())
                .spawn()
                .expect("the program starts");
            (name, child)
        })
        .collect();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(500));
        signal(&running, libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(2500));
        signal(&running, libc::SIGCONT);
    }
    std::thread::sleep(Duration::from_millis(500));
    for (_, child) in &mut running {
        drop(child.stdin.take());
        assert!(child.wait().expect("it is our child").success());
    }
}

fn signal(running: &[(&str, Child)], number: i32) {
    for (_, child) in running {
        // SAFETY: sends a signal to a child that was not waited for yet.
        let result = unsafe { libc::kill(child.id() as i32, number) };
        assert_eq!(result, 0);
    }
}

/// The first argument of a process that is going to be stopped.
pub(crate) const STOPPED: &str = "stopped";

/// What such a process does: arms and cancels until its standard input ends, then tells how many
/// threads it has beyond the one of its clock.
pub(crate) fn be_stopped(name: &str) {
    let is_over = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&is_over);
    let reader = std::thread::spawn(move || {
        // Ends when the other process closes its end.
        let _ = std::io::stdin().read(&mut [0]);
        theirs.store(true, Ordering::SeqCst);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    let mut cx = Context::from_waker(Waker::noop());
    while !is_over.load(Ordering::SeqCst) {
        let length = Duration::from_secs(1);
        let polled = match name {
            "dwell" => Box::pin(dwell_timers::timeout(length, pending::<()>()))
                .as_mut()
                .poll(&mut cx)
                .is_pending(),
            "pingora" => Box::pin(pingora_timeout::timeout(length, pending::<()>()))
                .as_mut()
                .poll(&mut cx)
                .is_pending(),
            _ => Box::pin(tokio::time::timeout(length, pending::<()>()))
                .as_mut()
                .poll(&mut cx)
                .is_pending(),
        };
        assert!(polled);
        std::thread::sleep(Duration::from_micros(100));
    }
    reader.join().expect("the reader does not panic");
    // This thread, and the one of the clock; the one that was joined may take a moment to go.
    std::thread::sleep(Duration::from_millis(20));
    let own = 1 + usize::from(name != "tokio");
    report(name, "extra_threads", threads() - own);
}
