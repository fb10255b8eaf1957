//! The gates that are counts: two system calls per operation, with a timeout as without.

use std::collections::HashMap;
use std::process::Command;
use std::time::Duration;

use dwell_memcache::{Client, ClientOptions, Exptime, Timeouts};
use dwell_testkit::Memcached;

/// Names the work that a traced process of this program is to do.
const WORK: &str = "DWELL_TRACED_WORK";

/// Runs in a traced process of its own; by itself it does nothing.
#[test]
fn traced_work() {
    let Ok(work) = std::env::var(WORK) else {
        return;
    };
    let words: Vec<_> = work.split(' ').collect();
    let [server, mode, count] = words[..] else {
        panic!("not a work: {work}")
    };
    let timeouts = match mode {
        "reaper" => Timeouts::Reaper,
        "strict" => Timeouts::Strict,
        _ => Timeouts::Kernel,
    };
    let options = ClientOptions {
        timeout: (mode != "none").then_some(Duration::from_secs(20)),
        timeouts,
        ..options_of(mode)
    };
    let client = Client::new(&[server.parse().unwrap()], options).unwrap();
    // Connects, which is not what is counted.
    client.set("key", "value", Exptime::Never).unwrap();
    mark(BEGIN);
    for _ in 0..count.parse::<usize>().unwrap() / 2 {
        client.set("key", "value", Exptime::Never).unwrap();
        assert!(client.get("key").unwrap().is_some());
    }
    mark(END);
}

/// The options of a client under TLS, or of a plain one.
fn options_of(mode: &str) -> ClientOptions {
    match mode {
        #[cfg(feature = "tls")]
        "tls" => crate::tls::secure(),
        _ => ClientOptions::default(),
    }
}

/// A system call that shows in the trace where what is counted begins and ends.
fn mark(path: &str) {
    assert!(std::fs::metadata(path).is_err(), "{path} is there");
}

const BEGIN: &str = "/the-operations-begin-here";
const END: &str = "/the-operations-end-here";

/// The system calls of so many operations, by name: all that their thread made meanwhile.
fn calls_of_operations(mode: &str) -> HashMap<String, usize> {
    let memcached = match mode {
        #[cfg(feature = "tls")]
        "tls" => crate::tls::secure_memcached(),
        _ => Memcached::start(),
    };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls");
    let output = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&log)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "system_calls::traced_work", "--test-threads=1"])
        .env(WORK, format!("{} {mode} {OPERATIONS}", memcached.address()))
        .output()
        .unwrap_or_else(|error| panic!("apt-get install strace: {error}"));
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&log).unwrap();
    let thread_of = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let begin = text.lines().position(|line| line.contains(BEGIN)).unwrap();
    let end = text.lines().position(|line| line.contains(END)).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let worker = thread_of(lines[begin]);
    let mut calls = HashMap::new();
    for line in &lines[begin + 1..end] {
        let call = line.trim_start_matches(&*worker);
        if thread_of(line) != worker || call.contains(BEGIN) {
            continue;
        }
        // The rest of a call that another thread's interrupted in the log, or a signal.
        if let Some((name, _)) = call.trim_start().split_once('(')
            && !name.starts_with(['<', '-', '+'])
        {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

fn assert_two_calls(mode: &str) {
    let calls = calls_of_operations(mode);
    let expected = [("sendto", OPERATIONS), ("recvfrom", OPERATIONS)];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(calls, HashMap::from(expected), "{mode}");
}

const OPERATIONS: usize = 2000;

#[test]
fn without_a_timeout_two() {
    assert_two_calls("none");
}

#[test]
fn with_the_kernels_timeout_two() {
    assert_two_calls("kernel");
}

#[test]
fn with_the_reaper_two() {
    assert_two_calls("reaper");
}

#[cfg(feature = "tls")]
#[test]
fn under_tls_two() {
    assert_two_calls("tls");
}

#[test]
fn strictly_at_most_three() {
    let calls = calls_of_operations("strict");
    assert_eq!(calls.values().sum::<usize>(), 3 * OPERATIONS, "{calls:?}");
}
