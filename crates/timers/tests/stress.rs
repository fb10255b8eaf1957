//! Random arming, polling, cancelling and handing over on several threads: nothing fires early,
//! nothing is lost, nobody is woken twice.
#![expect(
    clippy::disallowed_methods,
    reason = "what the timers do is held against the clock"
)]

use dwell_timers::{Elapsed, Timeout, timeout};
use std::future::{Pending, pending};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Counts its wakes and keeps the time of the last.
struct Watch {
    start: Instant,
    wakes: AtomicU64,
    woken_ns: AtomicU64,
}

/// A timeout, its waker, and the earliest time at which it may fire.
struct Running {
    future: Pin<Box<Timeout<Pending<()>>>>,
    watch: Arc<Watch>,
    not_before_ns: u64,
}

#[derive(Debug, Default)]
struct Tally {
    armed: u64,
    fired: u64,
    early: u64,
    doubly_woken: u64,
    not_elapsed: u64,
}

impl Watch {
    fn new(start: Instant) -> Arc<Self> {
        Arc::new(Self {
            start,
            wakes: AtomicU64::new(0),
            woken_ns: AtomicU64::new(0),
        })
    }
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        self.woken_ns.store(now_ns(self.start), Ordering::SeqCst);
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
}

fn now_ns(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

fn poll(running: &mut Running, watch: &Arc<Watch>) -> Poll<()> {
    let waker = Waker::from(Arc::clone(watch));
    let polled = running
        .future
        .as_mut()
        .poll(&mut Context::from_waker(&waker));
    polled.map(|result| assert_eq!(result, Err(Elapsed)))
}

struct Worker {
    start: Instant,
    state: u64,
    live: Vec<Running>,
    others: Vec<mpsc::Sender<Running>>,
    tally: Tally,
}

impl Worker {
    fn random(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 8) % below
    }

    fn step(&mut self) {
        match self.random(8) {
            0..=3 => self.arm(),
            4..=5 => drop(self.take_any()),
            6 => {
                if let Some(running) = self.take_any() {
                    let to = self.random(self.others.len() as u64) as usize;
                    // The other may have ended; then this drops it.
                    drop(self.others[to].send(running));
                }
            }
            _ => self.poll_with_another_waker(),
        }
    }

    fn arm(&mut self) {
        let nanoseconds = match self.random(4) {
            0 => 1 + self.random(10_000_000),
            1 => 10_000_000 * (1 + self.random(4)),
            2 => 1 + self.random(100_000_000),
            _ => 3_000_000_000,
        };
        let watch = Watch::new(self.start);
        let not_before_ns = now_ns(self.start) + nanoseconds;
        let future = timeout(Duration::from_nanos(nanoseconds), pending());
        let mut running = Running {
            future: Box::pin(future),
            watch: Arc::clone(&watch),
            not_before_ns,
        };
        assert!(poll(&mut running, &watch).is_pending());
        self.live.push(running);
        self.tally.armed += 1;
    }

    fn take_any(&mut self) -> Option<Running> {
        let count = self.live.len() as u64;
        (count > 0).then(|| {
            let place = self.random(count) as usize;
            self.live.swap_remove(place)
        })
    }

    fn poll_with_another_waker(&mut self) {
        let Some(mut running) = self.take_any() else {
            return;
        };
        let watch = Watch::new(self.start);
        if poll(&mut running, &watch).is_ready() {
            let is_early = now_ns(self.start) < running.not_before_ns;
            self.tally.early += u64::from(is_early);
            self.tally.fired += 1;
        } else {
            running.watch = watch;
            self.live.push(running);
        }
    }

    /// Takes out what was woken; says whether anything is left.
    fn harvest(&mut self) -> bool {
        let tally = &mut self.tally;
        self.live.retain_mut(|running| {
            let wakes = running.watch.wakes.load(Ordering::SeqCst);
            if wakes == 0 {
                return true;
            }
            let woken_ns = running.watch.woken_ns.load(Ordering::SeqCst);
            tally.doubly_woken += u64::from(wakes > 1);
            tally.early += u64::from(woken_ns < running.not_before_ns);
            let watch = Arc::clone(&running.watch);
            tally.not_elapsed += u64::from(poll(running, &watch).is_pending());
            tally.fired += 1;
            false
        });
        !self.live.is_empty()
    }

    /// A fixed amount of work; then waits until everything still armed has fired. A lost timer
    /// shows as a test that does not end.
    fn run(mut self, inbox: &mpsc::Receiver<Running>, rounds: u32) -> Tally {
        for _ in 0..rounds {
            for _ in 0..200 {
                self.step();
            }
            self.live.extend(inbox.try_iter());
            self.harvest();
            while self.live.len() > 3000 {
                drop(self.take_any());
            }
        }
        self.others.clear();
        self.live.extend(inbox.iter());
        while self.harvest() {
            thread::yield_now();
        }
        self.tally
    }
}

fn stress(rounds: u32) {
    const WORKERS: usize = 4;
    let start = Instant::now();
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..WORKERS).map(|_| mpsc::channel()).unzip();
    let workers: Vec<_> = inboxes
        .into_iter()
        .enumerate()
        .map(|(number, inbox)| {
            let worker = Worker {
                start,
                state: 88_172_645_463_325_252 + 7_777_777 * number as u64,
                live: Vec::new(),
                others: senders.clone(),
                tally: Tally::default(),
            };
            thread::spawn(move || worker.run(&inbox, rounds))
        })
        .collect();
    drop(senders);
    for worker in workers {
        let tally = worker.join().expect("a worker does not panic");
        assert!(tally.armed > 0 && tally.fired > 0);
        assert_eq!(
            (tally.early, tally.doubly_woken, tally.not_elapsed),
            (0, 0, 0)
        );
    }
}

#[test]
fn nothing_is_early_lost_or_woken_twice() {
    let usual = if cfg!(miri) { 1 } else { 400 };
    let rounds = std::env::var("STRESS_ROUNDS").map_or(usual, |rounds| rounds.parse().unwrap());
    stress(rounds);
}

/// This program again, running the test above.
fn another() -> Child {
    Command::new(std::env::current_exe().expect("the path of this program"))
        .args(["--exact", "nothing_is_early_lost_or_woken_twice"])
        .env("STRESS_ROUNDS", "600")
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts")
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", child.id())])
        .status();
    assert!(sent.expect("there is a shell").success());
}

#[test]
fn a_process_that_is_stopped_and_continued_fires_nothing_early() {
    let mut child = another();
    let mut stops = 0;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        if stops < 5 {
            signal(&child, "STOP");
            thread::sleep(Duration::from_millis(150));
            signal(&child, "CONT");
            stops += 1;
        }
        thread::sleep(Duration::from_millis(150));
    };
    assert!(status.success(), "{status}");
    assert!(stops > 0);
}
