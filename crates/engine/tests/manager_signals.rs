//! Signals, in a process of their own: they concern all of it.

use dwell_engine::manager::Manager;
use signal_hook::consts::{SIGTERM, SIGUSR1};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn run_ends_with_a_signal_and_polls_go_on_after_one_that_is_handled_elsewhere() {
    // The process handles both itself, so neither ever has its default action.
    let handled = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::default()).unwrap();
    signal_hook::flag::register(SIGUSR1, Arc::clone(&handled)).unwrap();

    let mut manager = Manager::new(|_, _| {}).unwrap();
    let (waker, begun) = (manager.waker(), Instant::now());
    let raiser = std::thread::spawn(move || {
        // Until `run` watches for it, the signal means nothing to the manager.
        while begun.elapsed() < PATIENCE && !waker.is_closed() {
            signal_hook::low_level::raise(SIGTERM).unwrap();
            std::thread::yield_now();
        }
    });
    manager.run().unwrap();
    raiser.join().unwrap();
    assert!(begun.elapsed() < PATIENCE);
    assert!(manager.is_closed());

    let mut manager = Manager::new(|_, _| {}).unwrap();
    manager
        .timer(Duration::ZERO, false, |_| {
            signal_hook::low_level::raise(SIGUSR1).unwrap();
        })
        .unwrap();
    manager.poll(PATIENCE).unwrap();
    assert!(handled.load(Ordering::SeqCst));
    manager.poll(Duration::ZERO).unwrap();
}
