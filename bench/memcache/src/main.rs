//! A memcached client's operations, in every way to give them a timeout.
//!
//! usage: `dwell-bench-memcache mixed CONTENDER SERVER ITERATIONS`, `... fault CONTENDER SERVER`,
//! `... serve drip|hole`, `... list`
//!
//! `mixed` does the sequence of the benchmark that memcache-client had in 2009, 12 operations per
//! iteration, and prints microseconds of wall and of processor time, and voluntary context
//! switches, per operation. `fault` asks a server that does not answer properly, and prints how
//! long that took and what came of it. `serve` is such a server.

mod contenders;
mod faults;
mod peers;
mod raw;

use contenders::{Contender, NAMES};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The timeout of every contender: long enough for a machine that has other things to do.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout against servers that do not answer.
pub const FAULT_TIMEOUT: Duration = Duration::from_millis(400);
/// What is stored: an empty list, as Ruby writes it.
pub const VALUE: &[u8] = b"\x04\x08[\0";

/// A failure with its reason.
pub type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["list"] => {
            println!("{}", NAMES.join("\n"));
            Ok(())
        }
        ["serve", kind] => faults::serve(kind),
        ["mixed", name, server, iterations] => mixed(name, server, iterations),
        ["fault", name, server] => fault(name, server),
        _ => Err("usage: mixed CONTENDER SERVER N, fault CONTENDER SERVER, serve KIND".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dwell-bench-memcache: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The keys, as long as those of 2009 with their namespace.
fn keys() -> [String; 3] {
    let names = [
        "Short".to_owned(),
        "Sym1-2-3::45".repeat(8),
        "Long".repeat(40),
    ];
    names.map(|name| format!("namespace:{name}"))
}

fn mixed(name: &str, server: &str, iterations: &str) -> Result<(), Failure> {
    let iterations: u32 = iterations.parse()?;
    let keys = keys();
    let [a, b, c] = &keys;
    let mut contender = Contender::new(name, server, TIMEOUT)?;
    for key in &keys {
        contender.set(key)?;
        contender.get(key)?;
    }
    let (started, before) = (Instant::now(), Usage::now());
    for _ in 0..iterations {
        for key in [a, b, c] {
            contender.set(key)?;
        }
        for key in [a, b, c] {
            contender.get(key)?;
        }
        for key in [a, b, c] {
            contender.set(key)?;
            contender.get(key)?;
        }
    }
    let (wall, after) = (started.elapsed(), Usage::now());
    let operations = f64::from(iterations * 12);
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / operations;
    println!(
        "{:.3} {:.3} {:.3}",
        micros(wall),
        micros(after.processor - before.processor),
        (after.switches - before.switches) as f64 / operations
    );
    Ok(())
}

fn fault(name: &str, server: &str) -> Result<(), Failure> {
    let started = Instant::now();
    let result =
        Contender::new(name, server, FAULT_TIMEOUT).and_then(|mut contender| contender.get("key"));
    let took = started.elapsed().as_secs_f64();
    println!(
        "{took:.3} {}",
        if result.is_ok() { "success" } else { "error" }
    );
    Ok(())
}

/// What this process has used.
struct Usage {
    processor: Duration,
    switches: i64,
}

impl Usage {
    fn now() -> Self {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the call fills the structure, which is valid when zero as well.
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
            usage.assume_init()
        };
        let time = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
        };
        Self {
            processor: time(usage.ru_utime) + time(usage.ru_stime),
            switches: usage.ru_nvcsw,
        }
    }
}
