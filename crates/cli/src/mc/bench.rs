//! `dwell mc bench`: sets and gets, timed.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use dwell_memcache::{Client, Exptime};

use super::Failure;
use super::arguments::BenchArguments;

/// Runs the operations and prints their times.
pub(super) fn run(
    client: &Client,
    bench: &BenchArguments,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let rounds = (bench.operations / 2 / bench.threads).max(1);
    let value = vec![b'x'; bench.value_bytes];
    let started = Instant::now();
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..bench.threads)
            .map(|thread| {
                let (client, value) = (client.clone(), &value);
                scope.spawn(move || work(&client, thread, rounds, value))
            })
            .collect();
        threads
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect()
    });
    let took = started.elapsed();
    let mut times = Vec::new();
    for result in results {
        // A panic has been printed to standard error.
        let result = result.map_err(|_| "a thread of the bench panicked")?;
        times.extend(result?);
    }
    Ok(write_times(times, took, out)?)
}

fn write_times(mut times: Vec<Duration>, took: Duration, out: &mut impl Write) -> io::Result<()> {
    times.sort_unstable();
    let count = times.len();
    let micros = took.as_micros().max(1);
    writeln!(out, "operations\t{count}")?;
    writeln!(out, "per second\t{}", count as u128 * 1_000_000 / micros)?;
    for (name, per_mille) in [("p50", 500), ("p99", 990), ("p99.9", 999), ("max", 1000)] {
        let time = times.get(count * per_mille / 1000).or(times.last());
        writeln!(out, "{name}\t{} us", time.map_or(0, Duration::as_micros))?;
    }
    Ok(())
}

fn work(
    client: &Client,
    thread: u32,
    rounds: u32,
    value: &[u8],
) -> Result<Vec<Duration>, dwell_memcache::Error> {
    let mut times = Vec::with_capacity(rounds as usize * 2);
    for round in 0..rounds {
        let key = format!("dwell-mc-bench:{thread}:{}", round % KEYS);
        let started = Instant::now();
        client.set(&key, value, Exptime::In(LIFE))?;
        let between = Instant::now();
        client.get(&key)?;
        times.push(between - started);
        times.push(between.elapsed());
    }
    Ok(times)
}

/// Keys per thread.
const KEYS: u32 = 1000;
/// Lifetime of the keys, so that they need no cleanup.
const LIFE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn written(micros: impl Iterator<Item = u64>) -> String {
        let mut out = Vec::new();
        let times = micros.map(Duration::from_micros).collect();
        write_times(times, Duration::from_millis(500), &mut out).expect("there is room");
        String::from_utf8(out).expect("it is text")
    }

    #[test]
    fn times_are_those_that_so_many_operations_did_not_exceed() {
        let expected = "operations\t1000\nper second\t2000\n\
                        p50\t501 us\np99\t991 us\np99.9\t1000 us\nmax\t1000 us\n";
        assert_eq!(written((1..=1000).rev()), expected);
        let lone = written(std::iter::once(7));
        assert!(lone.contains("p50\t7 us\n") && lone.ends_with("max\t7 us\n"));
        assert!(written(std::iter::empty()).ends_with("max\t0 us\n"));
    }
}
