//! What it costs to fire, how late it is, and what it does to others meanwhile.

use crate::report;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

/// Counts, and keeps the time of the last wake.
struct Counter {
    start: Instant,
    wakes: AtomicU64,
    woken_ns: AtomicU64,
}

impl Counter {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            wakes: AtomicU64::new(0),
            woken_ns: AtomicU64::new(0),
        })
    }

    fn await_wakes(&self, count: u64) {
        while self.wakes.load(Ordering::SeqCst) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        Self::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
}

/// One of the timers whose punctuality is measured.
struct Witness(Arc<Counter>);

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        let passed = self.0.start.elapsed().as_nanos() as u64;
        self.0.woken_ns.store(passed, Ordering::SeqCst);
        self.0.wakes.fetch_add(1, Ordering::SeqCst);
    }
}

/// CPU time of the process so far, in nanoseconds.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written to a place of the right type.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The histogram of lateness: the upper ends of its ranges.
const LATE_MS: [(i64, &str); 7] = [
    (0, "late_below_0"),
    (5, "late_0_to_5"),
    (10, "late_5_to_10"),
    (15, "late_10_to_15"),
    (20, "late_15_to_20"),
    (30, "late_20_to_30"),
    (i64::MAX / 1_000_000, "late_above_30"),
];
const STORMS: u32 = 3;
/// Enough for a hundred thousand to be armed by the slowest, before the first fires.
const SECOND: Duration = Duration::from_secs(1);
const LENGTH: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_millis(3000);

macro_rules! fire {
    ($name:literal, $figure:literal, $timeout:path, $count:expr, $length:expr) => {{
        let (count, length): (u64, Duration) = ($count, $length);
        let counter = Counter::new();
        let waker = Waker::from(Arc::clone(&counter));
        let mut cx = Context::from_waker(&waker);
        let mut held: Vec<_> = (0..count)
            .map(|_| Box::pin($timeout(length, pending::<()>())))
            .collect();
        for timeout in &mut held {
            assert!(timeout.as_mut().poll(&mut cx).is_pending());
        }
        // Sleeping costs this thread next to nothing, so the CPU time is the timers'.
        let before = cpu_ns();
        std::thread::sleep(length + Duration::from_millis(100));
        let spent = cpu_ns() - before;
        counter.await_wakes(count);
        report($name, $figure, spent as f64 / count as f64);
        let elapsed = held
            .iter_mut()
            .all(|timeout| timeout.as_mut().poll(&mut cx).is_ready());
        assert!(elapsed, "woken and not elapsed");
    }};
}

macro_rules! storm {
    ($name:literal, $timeout:path) => {{
        let mut passed = Vec::with_capacity(4_000_000);
        (0..STORMS).for_each(|_| one_storm!($timeout, passed));
        passed.sort_unstable();
        let at = |share: f64| passed[((passed.len() - 1) as f64 * share) as usize];
        report($name, "storm_p50_ns", at(0.5));
        report($name, "storm_p9999_ns", at(0.9999));
        report($name, "storm_p99999_ns", at(0.99999));
    }};
}

/// How long arming takes, from the first wake of a hundred thousand to the last.
macro_rules! one_storm {
    ($timeout:path, $passed:expr) => {{
        const COUNT: u64 = 100_000;
        let counter = Counter::new();
        let waker = Waker::from(Arc::clone(&counter));
        let mut cx = Context::from_waker(&waker);
        let mut held: Vec<_> = (0..COUNT)
            .map(|_| Box::pin($timeout(SECOND, pending::<()>())))
            .collect();
        for timeout in &mut held {
            assert!(timeout.as_mut().poll(&mut cx).is_pending());
        }
        loop {
            let wakes = counter.wakes.load(Ordering::Relaxed);
            if wakes == COUNT {
                break;
            }
            let start = Instant::now();
            let mut timeout = pin!($timeout(Duration::from_secs(30), pending::<()>()));
            assert!(timeout.as_mut().poll(&mut cx).is_pending());
            if wakes > 0 {
                $passed.push(start.elapsed().as_nanos() as u64);
            }
        }
    }};
}

macro_rules! accuracy {
    ($name:literal, $timeout:path) => {{
        let mut state = 7_u64;
        let mut running = Vec::new();
        for _ in 0..2000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let length = Duration::from_nanos(1_000_000 + (state >> 20) % 399_000_000);
            let counter = Counter::new();
            let waker = Waker::from(Arc::new(Witness(Arc::clone(&counter))));
            let mut timeout: Pin<Box<_>> = Box::pin($timeout(length, pending::<()>()));
            let polled_ns = counter.start.elapsed().as_nanos() as u64;
            let polled = timeout.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            running.push((timeout, counter, polled_ns + length.as_nanos() as u64));
        }
        std::thread::sleep(Duration::from_millis(700));
        let mut late_ns = Vec::new();
        let mut lost = 0;
        for (_, counter, due_ns) in &running {
            match counter.wakes.load(Ordering::SeqCst) {
                0 => lost += 1,
                _ => late_ns.push(counter.woken_ns.load(Ordering::SeqCst) as i64 - *due_ns as i64),
            }
        }
        late_ns.sort_unstable();
        let at = |share: f64| late_ns[((late_ns.len() - 1) as f64 * share) as usize] as f64 / 1e6;
        report(
            $name,
            "early",
            late_ns.iter().filter(|late| **late < 0).count(),
        );
        report($name, "lost", lost);
        let mut least = i64::MIN;
        for (most_ms, figure) in LATE_MS {
            let most = most_ms * 1_000_000;
            let range = late_ns.iter().filter(|late| (least..most).contains(*late));
            report($name, figure, range.count());
            least = most;
        }
        report($name, "late_min_ms", at(0.0));
        report($name, "late_p50_ms", at(0.5));
        report($name, "late_p99_ms", at(0.99));
        report($name, "late_max_ms", at(1.0));
    }};
}

/// The runtime must be entered.
pub(crate) fn measure() {
    fire!("dwell", "fire_ns", dwell_timers::timeout, 100_000, LENGTH);
    fire!(
        "pingora",
        "fire_ns",
        pingora_timeout::timeout,
        100_000,
        LENGTH
    );
    fire!("tokio", "fire_ns", tokio::time::timeout, 100_000, LENGTH);
    fire!(
        "dwell",
        "fire_1m_ns",
        dwell_timers::timeout,
        1_000_000,
        LONG
    );
    fire!(
        "pingora",
        "fire_1m_ns",
        pingora_timeout::timeout,
        1_000_000,
        LONG
    );
    fire!("tokio", "fire_1m_ns", tokio::time::timeout, 1_000_000, LONG);
    storm!("dwell", dwell_timers::timeout);
    storm!("pingora", pingora_timeout::timeout);
    storm!("tokio", tokio::time::timeout);
    accuracy!("dwell", dwell_timers::timeout);
    accuracy!("pingora", pingora_timeout::timeout);
    accuracy!("tokio", tokio::time::timeout);
}
