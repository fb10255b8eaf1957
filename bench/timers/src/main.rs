//! The timers beside those of pingora-timeout and tokio, in one process.
//!
//! Prints a line per measurement, `CONTENDER FIGURE VALUE`; `bench/run-timers` starts it, makes
//! the table and keeps the result. Each round measures every contender in turn, so that a slow
//! minute of the machine hits all of them; within a round the fastest of many chunks counts, as
//! what disturbs a loop can only make it slower.

mod faults;
mod firing;
mod futures;
mod local;
mod memory;

use std::fmt::Display;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Says what was measured.
pub(crate) fn report(contender: &str, figure: &str, value: impl Display) {
    println!("{contender} {figure} {value}");
}

/// Nanoseconds per operation of the fastest of `chunks` chunks of `count` operations.
pub(crate) fn fastest(chunks: u32, count: u32, mut chunk: impl FnMut(u32)) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..chunks {
        best = best.min(per_operation(count, || chunk(count)));
    }
    best
}

/// Nanoseconds per operation.
pub(crate) fn per_operation(count: u32, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments
        .get(1)
        .is_some_and(|first| first == faults::STOPPED)
    {
        return faults::be_stopped(&arguments[2]);
    }
    // First, while this is the only thread but those of the timers.
    faults::threads_of_wheel();
    faults::dead_after_fork();
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let rounds: u32 = arguments
        .get(1)
        .map_or(3, |rounds| rounds.parse().expect("a number of rounds"));
    for round in 0..rounds {
        let runtime = runtime();
        futures::measure(&runtime, round == 0);
        let _entered = runtime.enter();
        firing::measure();
        local::measure();
        local::measure_connections();
    }
    let runtime = runtime();
    let _entered = runtime.enter();
    faults::leaked_on_cancel();
    faults::extra_threads();
}
