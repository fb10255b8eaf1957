//! No memory for another page of slots: the process is aborted, as everywhere in Rust.
#![cfg(all(unix, not(miri)))]
#![expect(unsafe_code, reason = "an allocator that refuses")]

use dwell_timers::{sleep, statistics};
use std::alloc::{GlobalAlloc, Layout, System};
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

struct Refusing;

static IS_REFUSING: AtomicBool = AtomicBool::new(false);

// SAFETY: all is passed on to the system's allocator, or refused.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() == PAGE_BYTES && IS_REFUSING.load(Ordering::SeqCst) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// Only slots come in pieces that begin at a multiple of 4096.
const PAGE_BYTES: usize = 4096;
const IS_CHILD: &str = "DWELL_TIMERS_OUT_OF_MEMORY";

#[test]
fn without_memory_for_a_slot_the_process_is_aborted() {
    if std::env::var_os(IS_CHILD).is_some() {
        IS_REFUSING.store(true, Ordering::SeqCst);
        let mut cx = Context::from_waker(Waker::noop());
        let _ = pin!(sleep(Duration::from_secs(1))).poll(&mut cx);
        unreachable!("armed in one of {} slots", statistics().slots);
    }
    let status = Command::new(std::env::current_exe().expect("the path of this program"))
        .args([
            "--exact",
            "without_memory_for_a_slot_the_process_is_aborted",
        ])
        .env(IS_CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("the program starts");
    assert_eq!(status.signal(), Some(ABORTED), "{status}");
}

/// `SIGABRT`, the same number on every Unix.
const ABORTED: i32 = 6;
