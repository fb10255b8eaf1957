//! What the process is doing, for `/-/runtime`.

use dwell_engine::Statistics;
use std::fmt::Write;

/// The figures of the event loops and of the process.
pub(crate) fn of_loops(figures: &Statistics) -> String {
    let rows: [(&str, u64); 15] = [
        ("loops", figures.loops as u64),
        ("connections", figures.connections as u64),
        ("connections that left HTTP", figures.raw_connections as u64),
        ("requests in flight", figures.in_flight as u64),
        ("accepted", figures.accepted),
        ("refused", figures.refused),
        ("handed over", figures.handed_over),
        ("requests", figures.requests),
        ("rejected by the engine", figures.rejected),
        ("write timeouts", figures.write_timeouts),
        ("handlers that panicked", figures.panics),
        ("worker threads", figures.workers as u64),
        ("jobs", figures.jobs),
        ("turns", figures.turns),
        ("wake-ups", figures.wake_ups),
    ];
    table(&rows) + &of_process()
}

/// The figures of the baseline and of the process.
pub(crate) fn of_threads(connections: u64, requests: u64) -> String {
    table(&[("connections", connections), ("requests", requests)]) + &of_process()
}

fn table(rows: &[(&str, u64)]) -> String {
    let mut text = String::new();
    for (name, value) in rows {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<28}{value:>12}");
    }
    text
}

/// Threads and memory, as the system counts them.
#[cfg(target_os = "linux")]
fn of_process() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let read = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    table(&[
        ("threads", read("Threads:").unwrap_or(0)),
        ("resident memory, KiB", read("VmRSS:").unwrap_or(0)),
    ])
}

#[cfg(not(target_os = "linux"))]
fn of_process() -> String {
    String::new()
}
