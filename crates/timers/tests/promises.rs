//! What the documentation promises, on a clock moved by hand.

use dwell_timers::{
    Deadline, Elapsed, ManualClock, Sleep, TICK, Timeout, interval, sleep, sleep_until, timeout,
    timeout_at,
};
use proptest::prelude::*;
use std::cell::Cell;
use std::future::{Pending, pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Counts its wakes.
#[derive(Default)]
struct Counter(AtomicU32);

impl Counter {
    fn new() -> (Arc<Self>, Waker) {
        let counter = Arc::new(Self::default());
        (Arc::clone(&counter), Waker::from(counter))
    }

    fn wakes(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

type Never = Timeout<Pending<()>>;

fn never(duration: Duration) -> Pin<Box<Never>> {
    Box::pin(timeout(duration, pending()))
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

#[test]
fn fires_once_not_before_its_time_and_at_most_two_ticks_after() {
    let clock = ManualClock::install();
    for nanoseconds in [
        1,
        999_999,
        10_000_000,
        10_000_001,
        123_456_789,
        60_000_000_000,
    ] {
        let length = Duration::from_nanos(nanoseconds);
        let (counter, waker) = Counter::new();
        let mut future = never(length);
        assert!(poll(&mut future, &waker).is_pending());
        clock.advance(length.saturating_sub(Duration::from_nanos(1)));
        assert_eq!(counter.wakes(), 0);
        assert!(poll(&mut future, &waker).is_pending());
        clock.advance(2 * TICK);
        assert_eq!(counter.wakes(), 1);
        assert_eq!(poll(&mut future, &waker), Poll::Ready(Err(Elapsed)));
        clock.advance(Duration::from_secs(10));
        assert_eq!(counter.wakes(), 1);
    }
}

/// When it was woken, on the clock of the test.
struct Witness {
    now_ms: Arc<AtomicU32>,
    woken_ms: AtomicU32,
}

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        self.woken_ms
            .store(self.now_ms.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

/// The histogram of lateness on a machine that is never busy: the clock moves by milliseconds.
#[test]
fn lateness_lies_between_nothing_and_two_ticks() {
    const COUNT: u32 = if cfg!(miri) { 10 } else { 2000 };
    let clock = ManualClock::install();
    let now_ms = Arc::new(AtomicU32::new(0));
    let running: Vec<_> = (0..COUNT)
        .map(|number| {
            // Armed at all places of a tick, for 1 to 200 ms.
            let armed_ms = now_ms.fetch_add(1, Ordering::SeqCst) + 1;
            clock.advance(ms(1));
            let length = 1 + (number * 37 + number / 10) % 200;
            let witness = Arc::new(Witness {
                now_ms: Arc::clone(&now_ms),
                woken_ms: AtomicU32::new(0),
            });
            let mut future = never(ms(u64::from(length)));
            assert!(poll(&mut future, &Waker::from(Arc::clone(&witness))).is_pending());
            (future, witness, armed_ms + length)
        })
        .collect();
    for _ in 0..250 {
        now_ms.fetch_add(1, Ordering::SeqCst);
        clock.advance(ms(1));
    }
    let mut histogram = [0; 21];
    for (_, witness, due_ms) in &running {
        let woken_ms = witness.woken_ms.load(Ordering::SeqCst);
        assert!(woken_ms != 0, "lost");
        // Without an early one nothing underflows, without a late one the place exists.
        let late_ms = woken_ms.checked_sub(*due_ms).expect("not early");
        histogram[late_ms as usize] += 1;
    }
    println!("late by 0, 1, 2 .. 20 ms: {histogram:?}");
}

#[test]
fn time_is_counted_from_the_first_poll_that_is_pending() {
    let clock = ManualClock::install();
    let mut future = never(ms(100));
    clock.advance(ms(1000));
    assert!(poll(&mut future, Waker::noop()).is_pending());
    clock.advance(ms(99));
    assert!(poll(&mut future, Waker::noop()).is_pending());
    clock.advance(ms(21));
    assert!(poll(&mut future, Waker::noop()).is_ready());
}

#[test]
fn a_future_that_is_ready_wins_against_its_deadline() {
    let clock = ManualClock::install();
    let is_ready = Cell::new(false);
    let mut future = Box::pin(timeout(
        ms(10),
        poll_fn(|_| {
            if is_ready.get() {
                Poll::Ready(7)
            } else {
                Poll::Pending
            }
        }),
    ));
    assert!(poll(&mut future, Waker::noop()).is_pending());
    clock.advance(ms(1000));
    is_ready.set(true);
    assert_eq!(poll(&mut future, Waker::noop()), Poll::Ready(Ok(7)));
}

#[test]
fn zero_polls_the_future_once() {
    assert_eq!(
        poll(&mut never(Duration::ZERO), Waker::noop()),
        Poll::Ready(Err(Elapsed))
    );
    let mut done = Box::pin(timeout(Duration::ZERO, ready(3)));
    assert_eq!(poll(&mut done, Waker::noop()), Poll::Ready(Ok(3)));
    #[expect(clippy::disallowed_methods, reason = "a point in time that has passed")]
    let past = std::time::Instant::now()
        .checked_sub(ms(1))
        .expect("an uptime of a millisecond");
    let mut done = Box::pin(timeout_at(past, pending::<()>()));
    assert_eq!(poll(&mut done, Waker::noop()), Poll::Ready(Err(Elapsed)));
    assert!(poll(&mut Box::pin(sleep(Duration::ZERO)), Waker::noop()).is_ready());
}

#[test]
fn the_longest_durations_neither_panic_nor_fire() {
    let clock = ManualClock::install();
    let day = Duration::from_secs(86_400);
    let (counter, waker) = Counter::new();
    let cx = Context::from_waker(&waker);
    let mut longest = never(Duration::MAX);
    let mut year = Box::pin(sleep(365 * day));
    let mut idle = Deadline::new();
    idle.set(Duration::MAX, &waker);
    let mut days = 0;
    // A wait of more than 124 days is made of several; the end of each wakes its task.
    while poll(&mut year, &waker).is_pending() {
        assert!(poll(&mut longest, &waker).is_pending());
        assert!(idle.poll_elapsed(&cx).is_pending());
        clock.advance(day);
        days += 1;
    }
    assert!((365..=368).contains(&days), "{days} days");
    assert!(counter.wakes() > 0);
    assert!(poll(&mut longest, &waker).is_pending());
}

#[test]
fn a_poll_after_completion_says_the_same_again() {
    let clock = ManualClock::install();
    let mut future = never(ms(10));
    assert!(poll(&mut future, Waker::noop()).is_pending());
    clock.advance(ms(30));
    for _ in 0..3 {
        assert_eq!(poll(&mut future, Waker::noop()), Poll::Ready(Err(Elapsed)));
    }
    let mut nap: Pin<Box<Sleep>> = Box::pin(sleep(ms(10)));
    assert!(poll(&mut nap, Waker::noop()).is_pending());
    clock.advance(ms(30));
    assert!(poll(&mut nap, Waker::noop()).is_ready());
    assert!(poll(&mut nap, Waker::noop()).is_ready());
}

#[test]
fn what_is_dropped_wakes_nobody_and_drops_its_waker() {
    let clock = ManualClock::install();
    let (counter, waker) = Counter::new();
    let mut future = never(ms(50));
    assert!(poll(&mut future, &waker).is_pending());
    assert_eq!(Arc::strong_count(&counter), 3);
    drop(future);
    assert_eq!(Arc::strong_count(&counter), 2);
    clock.advance(ms(200));
    assert_eq!(counter.wakes(), 0);
}

#[test]
fn the_last_waker_is_woken() {
    let clock = ManualClock::install();
    let (first, first_waker) = Counter::new();
    let (second, second_waker) = Counter::new();
    let mut future = never(ms(50));
    assert!(poll(&mut future, &first_waker).is_pending());
    clock.advance(ms(20));
    assert!(poll(&mut future, &second_waker).is_pending());
    assert_eq!(Arc::strong_count(&first), 2);
    clock.advance(ms(50));
    assert_eq!((first.wakes(), second.wakes()), (0, 1));
}

#[test]
fn a_deadline_is_moved_cleared_and_set_again() {
    let clock = ManualClock::install();
    let (counter, waker) = Counter::new();
    let cx = Context::from_waker(&waker);
    let mut idle = Deadline::default();
    for _ in 0..100 {
        idle.set(ms(100), &waker);
        clock.advance(ms(50));
        assert!(idle.poll_elapsed(&cx).is_pending());
    }
    idle.clear();
    assert!(!idle.is_set());
    clock.advance(ms(500));
    assert_eq!(counter.wakes(), 0);
    idle.set(ms(1000), &waker);
    idle.set(ms(10), &waker);
    clock.advance(ms(30));
    assert_eq!(counter.wakes(), 1);
    assert!(idle.poll_elapsed(&cx).is_ready() && idle.is_set());
    assert!(idle.poll_elapsed(&cx).is_ready());
    idle.set(ms(10), &waker);
    assert!(idle.poll_elapsed(&cx).is_pending());
}

#[test]
fn an_interval_does_not_drift_and_skips_what_it_missed() {
    let clock = ManualClock::install();
    let mut seconds = interval(Duration::from_secs(1));
    assert_eq!(seconds.period(), Duration::from_secs(1));
    let cx = Context::from_waker(Waker::noop());
    assert!(seconds.poll_tick(&cx).is_ready());
    // Noticed late each time, and yet the next is due a second after the one before was.
    let mut late = 0;
    for _ in 0..10 {
        assert!(seconds.poll_tick(&cx).is_pending());
        clock.advance(ms(999 - late));
        assert!(seconds.poll_tick(&cx).is_pending());
        late = 25;
        clock.advance(ms(1 + late));
        assert!(seconds.poll_tick(&cx).is_ready());
    }
}

#[test]
fn an_interval_that_was_forgotten_ticks_once() {
    let clock = ManualClock::install();
    let mut tenths = interval(ms(100));
    let cx = Context::from_waker(Waker::noop());
    assert!(tenths.poll_tick(&cx).is_ready());
    assert!(tenths.poll_tick(&cx).is_pending());
    clock.advance(ms(1050));
    assert!(tenths.poll_tick(&cx).is_ready());
    assert!(tenths.poll_tick(&cx).is_pending());
    clock.advance(ms(80));
    assert!(tenths.poll_tick(&cx).is_ready());
}

#[test]
fn an_interval_below_a_tick_ticks_once_in_a_tick() {
    let clock = ManualClock::install();
    let mut ticks = interval(Duration::from_nanos(1));
    let cx = Context::from_waker(Waker::noop());
    assert!(ticks.poll_tick(&cx).is_ready());
    for _ in 0..5 {
        assert!(ticks.poll_tick(&cx).is_pending());
        clock.advance(2 * TICK);
        assert!(ticks.poll_tick(&cx).is_ready());
    }
}

#[test]
fn the_longest_interval_ticks_at_once_and_never_again() {
    let clock = ManualClock::install();
    let mut once = interval(Duration::MAX);
    let cx = Context::from_waker(Waker::noop());
    assert!(once.poll_tick(&cx).is_ready());
    for _ in 0..5 {
        assert!(once.poll_tick(&cx).is_pending());
        clock.advance(Duration::from_secs(365 * 86_400));
    }
}

#[test]
#[should_panic(expected = "the period of an interval is zero")]
fn an_interval_of_zero_panics_where_it_is_made() {
    drop(interval(Duration::ZERO));
}

#[test]
fn points_in_time_far_ahead_neither_panic_nor_fire() {
    let clock = ManualClock::install();
    #[expect(clippy::disallowed_methods, reason = "a point in time, far ahead")]
    let far = std::time::Instant::now() + Duration::from_secs(1000 * 365 * 86_400);
    let mut sleep = Box::pin(sleep_until(far));
    let mut timeout = Box::pin(timeout_at(far, pending::<()>()));
    for _ in 0..3 {
        assert!(poll(&mut sleep, Waker::noop()).is_pending());
        assert!(poll(&mut timeout, Waker::noop()).is_pending());
        clock.advance(Duration::from_secs(365 * 86_400));
    }
}

#[test]
fn a_future_that_panics_leaves_nothing_armed() {
    let clock = ManualClock::install();
    let (counter, waker) = Counter::new();
    let polls = Cell::new(0);
    let mut future = Box::pin(timeout(
        ms(10),
        poll_fn(|_| -> Poll<()> {
            polls.set(polls.get() + 1);
            assert!(polls.get() < 2, "as the test wants it");
            Poll::Pending
        }),
    ));
    assert!(poll(&mut future, &waker).is_pending());
    let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut future, &waker)));
    assert!(polled.is_err());
    drop(future);
    clock.advance(ms(100));
    assert_eq!((counter.wakes(), Arc::strong_count(&counter)), (0, 2));
}

struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        panic!("as the test wants it");
    }
}

#[test]
fn a_waker_that_panics_concerns_nobody_else() {
    let clock = ManualClock::install();
    let bad = Waker::from(Arc::new(Panicking));
    let (counter, good) = Counter::new();
    let mut futures: Vec<_> = (0..10).map(|_| never(ms(10))).collect();
    for (number, future) in futures.iter_mut().enumerate() {
        let waker = if number % 2 == 0 { &bad } else { &good };
        assert!(poll(future, waker).is_pending());
    }
    clock.advance(ms(30));
    assert_eq!(counter.wakes(), 5);
}

/// Drops other timeouts and arms new ones when it is woken.
struct Meddling(Mutex<Vec<Pin<Box<Never>>>>);

impl Wake for Meddling {
    fn wake(self: Arc<Self>) {
        let held = std::mem::take(&mut *self.0.lock().expect("nobody panics with it"));
        drop(held);
        let mut another = never(ms(10));
        assert!(poll(&mut another, Waker::noop()).is_pending());
        self.0.lock().expect("nobody panics with it").push(another);
    }
}

#[test]
fn a_waker_may_drop_and_arm_timers() {
    let clock = ManualClock::install();
    let (counter, others) = Counter::new();
    let meddling = Arc::new(Meddling(Mutex::default()));
    let mut trigger = never(ms(10));
    assert!(poll(&mut trigger, &Waker::from(Arc::clone(&meddling))).is_pending());
    for length in [10, 40, 5000] {
        let mut future = never(ms(length));
        assert!(poll(&mut future, &others).is_pending());
        meddling.0.lock().unwrap().push(future);
    }
    clock.advance(ms(6000));
    // The one that was due with the trigger may have been on its way.
    assert!(counter.wakes() <= 1);
    assert_eq!(Arc::strong_count(&counter), 2);
}

/// A waker whose clone arms and drops a timer: the executor's code runs inside ours.
const REENTRANT: &RawWakerVTable = &RawWakerVTable::new(reenter, ignore, ignore, ignore);

fn reenter(data: *const ()) -> RawWaker {
    let mut inner = never(ms(10));
    assert!(poll(&mut inner, Waker::noop()).is_pending());
    drop(inner);
    RawWaker::new(data, REENTRANT)
}

fn ignore(_: *const ()) {}

#[test]
fn cloning_a_waker_may_arm_timers() {
    let clock = ManualClock::install();
    // SAFETY: the functions ignore their data.
    #[expect(unsafe_code, reason = "only a raw waker has a clone of its own")]
    let waker = unsafe { Waker::new(std::ptr::null(), REENTRANT) };
    let mut future = never(ms(10));
    assert!(poll(&mut future, &waker).is_pending());
    clock.advance(ms(30));
    assert!(poll(&mut future, &waker).is_ready());
}

#[derive(Clone, Debug)]
enum Step {
    Set { place: usize, length: Duration },
    Clear { place: usize },
    Advance { length: Duration },
}

fn any_step() -> impl Strategy<Value = Step> {
    let length = || {
        prop::sample::select(vec![1, 5, 10, 20, 2560, 700_000, 200_000_000])
            .prop_flat_map(|most| (0..most * 1_000_000_u64).prop_map(Duration::from_nanos))
    };
    prop_oneof![
        4 => (0..8_usize, length()).prop_map(|(place, length)| Step::Set { place, length }),
        1 => (0..8_usize).prop_map(|place| Step::Clear { place }),
        3 => length().prop_map(|length| Step::Advance { length }),
    ]
}

/// Miri, which takes a thousand times as long, keeps no files.
fn config() -> ProptestConfig {
    if cfg!(miri) {
        ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(1)
        }
    } else {
        ProptestConfig::with_cases(200)
    }
}

proptest! {
    #![proptest_config(config())]

    /// Eight deadlines beside a list of when each is due, also where the numbers of ticks begin
    /// again.
    #[test]
    fn deadlines_agree_with_a_list(
        near_wrap in any::<bool>(),
        steps in prop::collection::vec(any_step(), 0..60),
    ) {
        let clock = ManualClock::install();
        if near_wrap {
            clock.advance(TICK * (u32::MAX - 100));
        }
        let cx = Context::from_waker(Waker::noop());
        let mut deadlines: [Deadline; 8] = std::array::from_fn(|_| Deadline::new());
        let mut due: [Option<Duration>; 8] = [None; 8];
        let mut now = Duration::ZERO;
        for step in steps {
            match step {
                Step::Set { place, length } => {
                    deadlines[place].set(length, cx.waker());
                    due[place] = Some(now + length);
                }
                Step::Clear { place } => {
                    deadlines[place].clear();
                    due[place] = None;
                }
                Step::Advance { length } => {
                    clock.advance(length);
                    now += length;
                }
            }
            for (deadline, due) in deadlines.iter_mut().zip(due) {
                let is_elapsed = deadline.poll_elapsed(&cx).is_ready();
                prop_assert!(!is_elapsed || due.is_some_and(|due| due <= now), "early");
                prop_assert!(is_elapsed || due.is_none_or(|due| now < due + 2 * TICK), "late");
            }
        }
    }
}
