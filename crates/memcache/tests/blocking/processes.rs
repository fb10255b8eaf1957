//! Processes that are forked, and processes that a profiler interrupts.
#![expect(unsafe_code, reason = "`fork` is not in the standard library")]

use std::ffi::c_int;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dwell_memcache::{Client, ClientOptions, Error, Exptime, Timeouts};
use dwell_testkit::{Memcached, Script, ScriptedServer, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{EVERY_WATCH, IN_TIME, TIMEOUT, client, patient, timed, watched};

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

/// Runs `child` in a child process and `parent` meanwhile; whether the child said yes.
fn beside(child: impl FnOnce() -> bool, parent: impl FnOnce()) -> bool {
    // SAFETY: the child runs `child` and ends by `_exit`; it touches nothing of this test's but
    // what `child` owns.
    let pid = unsafe { fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends the process, and only that.
        unsafe { _exit(c_int::from(!said.unwrap_or(false))) };
    }
    parent();
    let mut status = 0;
    // SAFETY: the status is written to a place of the right type.
    let waited = unsafe { waitpid(pid, &raw mut status, 0) };
    waited == pid && status == 0
}

/// Whether so many gets of `key` all find `key`.
fn finds_its_own(client: &Client, key: &str) -> bool {
    (0..200).all(|_| {
        let value = client.get(key).unwrap().unwrap();
        value.data == key.as_bytes()
    })
}

#[test]
fn a_child_and_its_parent_use_one_client() {
    for timeouts in EVERY_WATCH {
        let memcached = Memcached::start();
        let options = ClientOptions {
            timeouts,
            ..patient()
        };
        let client = client(&[memcached.address()], options);
        client.set("parent", "parent", Exptime::Never).unwrap();
        client.set("child", "child", Exptime::Never).unwrap();
        assert_eq!(client.statuses()[0].idle_connections, 1);
        let copy = client.clone();
        assert!(beside(
            move || finds_its_own(&copy, "child"),
            || assert!(finds_its_own(&client, "parent")),
        ));
        assert!(finds_its_own(&client, "parent"));
    }
}

#[test]
fn a_fork_while_other_threads_use_the_client_blocks_nobody() {
    let memcached = Memcached::start();
    let client = client(&[memcached.address()], patient());
    client.set("parent", "parent", Exptime::Never).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..3)
        .map(|_| {
            let (client, is_over) = (client.clone(), Arc::clone(&is_over));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    assert!(client.get("parent").unwrap().is_some());
                }
            })
        })
        .collect();
    for _ in 0..10 {
        let copy = client.clone();
        assert!(beside(move || finds_its_own(&copy, "parent"), || {}));
    }
    is_over.store(true, Ordering::SeqCst);
    for thread in busy {
        thread.join().unwrap();
    }
}

/// Names the server and the watch of a process that is to be interrupted.
const WORK: &str = "DWELL_INTERRUPTED_WORK";

/// Runs in a process of its own, which is interrupted all the time; by itself it does nothing.
#[test]
fn interrupted_work() {
    let Ok(work) = std::env::var(WORK) else {
        return;
    };
    let signals = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&signals);
    let count = move || {
        counter.fetch_add(1, Ordering::SeqCst);
    };
    // SAFETY: the handler only adds to a number.
    unsafe { signal_hook::low_level::register(signal_hook::consts::SIGPROF, count) }.unwrap();
    let (server, watch) = work.split_once(' ').unwrap();
    let timeouts = EVERY_WATCH
        .into_iter()
        .find(|name| name.to_string() == watch);
    let server = server.parse().unwrap();
    let client = Client::new(&[server], watched(timeouts.unwrap())).unwrap();
    assert!(client.get("a").unwrap().is_none());
    let (result, took) = timed(|| client.get("a"));
    assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}");
    assert!(took >= TIMEOUT && took < IN_TIME, "{took:?}");
    let signals = signals.load(Ordering::SeqCst);
    assert!(signals > 10, "only {signals} signals came");
}

fn assert_in_time_though_interrupted(timeouts: Timeouts, answer: Script) {
    let server = ScriptedServer::start([answer]);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::interrupted_work", "--test-threads=1"])
        .env(WORK, format!("{} {timeouts}", server.address()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(wait_until(|| server.connections() == 1));
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    while child.try_wait().unwrap().is_none() {
        kill_process(pid, Signal::PROF).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{timeouts}: {output:?}");
}

#[test]
fn a_profilers_timer_does_not_move_the_end() {
    for timeouts in EVERY_WATCH {
        let first = || {
            Script::new()
                .expect("get a\r\n")
                .send("END\r\n")
                .expect("get a\r\n")
        };
        assert_in_time_though_interrupted(timeouts, first().hang());
    }
    for timeouts in EVERY_WATCH {
        let first = || {
            Script::new()
                .expect("get a\r\n")
                .send("END\r\n")
                .expect("get a\r\n")
        };
        let pause = TIMEOUT / 2;
        assert_in_time_though_interrupted(timeouts, first().drip("END\r\n", pause));
    }
}
