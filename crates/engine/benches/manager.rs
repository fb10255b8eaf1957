//! The cost of a manager's turns, wake-ups, signals and idle connections:
//! `cargo bench -p dwell-engine --bench manager`. The figures of docs/poll-timeout.md come from it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program that measures, prints, and stops where it cannot"
)]

use dwell_engine::manager::{Conn, Event, EventKind, EventSet, Manager, ManagerOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const IDLE: usize = 10_000;
const ACTIVE: usize = 10;
const ROUNDS: usize = 3_000;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    if let [_, flag, address, count] = &arguments[..]
        && flag == "--hold"
    {
        return hold(address.parse().unwrap(), count.parse().unwrap());
    }
    turns();
    wakeups();
    timers();
    signals();
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "handlers are given their event"
)]
fn answer(conn: &mut Conn<'_>, event: Event<'_>) {
    if let Event::HttpMessage(_) = event {
        conn.reply(200, &[], b"hello, world\n").unwrap();
    }
}

/// A manager that serves requests, and where.
fn server() -> (Manager, SocketAddr) {
    let mut options = ManagerOptions::default();
    options.events = EventSet::NONE.with(EventKind::HttpMessage);
    let mut manager = Manager::with_options(options, answer).unwrap();
    let listener = manager.listen("http://127.0.0.1:0").unwrap();
    let address = manager.conn(listener).unwrap().local_address().unwrap();
    (manager, address)
}

/// The cost of an empty turn, and of one with ten requests, alone and among idle connections.
fn turns() {
    let (mut alone, address) = server();
    let mut alone_clients = Active::connect(&mut alone, address);
    let (mut crowded, address) = server();
    let mut crowded_clients = Active::connect(&mut crowded, address);
    let before = resident_bytes();
    let mut holder = hold_elsewhere(address);
    while crowded.connection_count() < IDLE + ACTIVE + 1 {
        crowded.poll(Duration::from_secs(10)).unwrap();
    }
    // Until the first request of each is answered.
    for _ in 0..20 {
        crowded.poll(Duration::from_millis(20)).unwrap();
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("resident bytes per idle connection: {}", grown / IDLE);
    // In turns, so that what else the machine does concerns both.
    let (mut empty, mut busy) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..ROUNDS {
        empty[0].push(time(|| alone.poll(Duration::ZERO).unwrap()));
        empty[1].push(time(|| crowded.poll(Duration::ZERO).unwrap()));
        busy[0].push(alone_clients.round(&mut alone));
        busy[1].push(crowded_clients.round(&mut crowded));
    }
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let [none, idle] = empty.map(|mut samples| quantile(&mut samples, 50));
    println!("empty turn, nothing idle: {none:?}");
    println!("empty turn, {IDLE} idle: {idle:?}");
    let [alone, crowded] = busy.map(|mut samples| quantile(&mut samples, 50));
    println!("turn with {ACTIVE} requests, nothing idle: {alone:?}");
    println!("turn with {ACTIVE} requests, {IDLE} idle: {crowded:?}");
    let ratio = crowded.as_secs_f64() / alone.as_secs_f64();
    println!("ratio: {ratio:.3}");
}

/// From the call of another thread to the handler.
fn wakeups() {
    let (tell, told) = std::sync::mpsc::channel();
    let begun = Instant::now();
    let mut manager = Manager::new(move |_, event| {
        if let Event::Wakeup(data) = event {
            let sent = u64::from_le_bytes(data.try_into().unwrap());
            tell.send(begun.elapsed().saturating_sub(Duration::from_nanos(sent)))
                .unwrap();
        }
    })
    .unwrap();
    let id = manager.listen("tcp://127.0.0.1:0").unwrap();
    let waker = manager.waker();
    let sender = std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            std::thread::sleep(Duration::from_micros(300));
            let now = begun.elapsed().as_nanos() as u64;
            waker.wakeup_with(id, now.to_le_bytes().to_vec()).unwrap();
        }
    });
    let mut samples = Vec::new();
    while samples.len() < ROUNDS {
        manager.poll(Duration::from_secs(10)).unwrap();
        samples.extend(told.try_iter());
    }
    sender.join().unwrap();
    println!(
        "wake-up to handler, median: {:?}",
        quantile(&mut samples, 50)
    );
    println!("wake-up to handler, p99: {:?}", quantile(&mut samples, 99));
}

/// How late a timer of 20 ms is under a poll of 500 ms.
fn timers() {
    let (tell, told) = std::sync::mpsc::channel();
    let mut manager = Manager::new(|_, _| {}).unwrap();
    let mut samples = Vec::new();
    for _ in 0..50 {
        let (begun, tell) = (Instant::now(), tell.clone());
        let delay = Duration::from_millis(20);
        manager
            .timer(delay, false, move |_| tell.send(begun.elapsed()).unwrap())
            .unwrap();
        let before = samples.len();
        while samples.len() == before {
            manager.poll(Duration::from_millis(500)).unwrap();
            samples.extend(told.try_iter());
        }
    }
    println!(
        "timer of 20 ms under poll(500), median: {:?}",
        quantile(&mut samples, 50)
    );
    println!(
        "timer of 20 ms under poll(500), most: {:?}",
        quantile(&mut samples, 100)
    );
}

/// From SIGTERM to the end of `run`.
fn signals() {
    let mut samples = Vec::new();
    for _ in 0..50 {
        let mut manager = Manager::new(|_, _| {}).unwrap();
        // Set when the loop turns, so when `run` watches for it.
        let (ready, is_ready) = std::sync::mpsc::channel();
        manager
            .timer(Duration::ZERO, false, move |_| ready.send(()).unwrap())
            .unwrap();
        let raiser = std::thread::spawn(move || {
            is_ready.recv().unwrap();
            std::thread::sleep(Duration::from_millis(5));
            let raised = Instant::now();
            signal_hook::low_level::raise(signal_hook::consts::SIGTERM).unwrap();
            raised
        });
        manager.run().unwrap();
        samples.push(raiser.join().unwrap().elapsed());
    }
    println!(
        "SIGTERM to the end of run, median: {:?}",
        quantile(&mut samples, 50)
    );
    println!(
        "SIGTERM to the end of run, most: {:?}",
        quantile(&mut samples, 100)
    );
}

/// Clients that all ask in every round.
struct Active(Vec<TcpStream>);

impl Active {
    fn connect(manager: &mut Manager, address: SocketAddr) -> Self {
        let streams = (0..ACTIVE).map(|_| TcpStream::connect(address).unwrap());
        let mut active = Self(streams.collect());
        manager.poll(Duration::from_secs(1)).unwrap();
        active.round(manager);
        active
    }

    /// All ask, one turn answers; returns what that turn took.
    fn round(&mut self, manager: &mut Manager) -> Duration {
        for stream in &mut self.0 {
            stream.write_all(REQUEST).unwrap();
        }
        let turn = time(|| manager.poll(Duration::from_secs(1)).unwrap());
        let mut buffer = [0; 1024];
        for stream in &mut self.0 {
            assert!(stream.read(&mut buffer).unwrap() > 0);
        }
        turn
    }
}

/// Starts this program once more, to hold idle connections: a process may not open them all twice.
fn hold_elsewhere(address: SocketAddr) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--hold", &address.to_string(), &IDLE.to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Connects, asks once on each, and waits for the end of standard input.
fn hold(address: SocketAddr, count: usize) {
    let connect = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(REQUEST).unwrap();
        stream
    };
    let streams: Vec<_> = (0..count).map(connect).collect();
    let _ = std::io::stdin().read(&mut [0]);
    drop(streams);
}

fn time(act: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    act();
    begun.elapsed()
}

fn quantile(samples: &mut [Duration], percent: usize) -> Duration {
    samples.sort();
    samples[(samples.len() - 1) * percent / 100]
}

/// Memory of this process that is in use.
fn resident_bytes() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}
