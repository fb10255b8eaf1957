//! The least that can be called a client, with each of the ways to bound its calls.
//!
//! It sends ready-made bytes and looks at the end of what comes back, so that what differs between
//! the rows is the timeout and nothing else.

use crate::{Failure, VALUE};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Who watches over the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Nobody.
    None,
    /// SO_RCVTIMEO and SO_SNDTIMEO, set once: each call is bounded, the operation is not.
    Kernel,
    /// `setitimer` before and after each operation; the signal's handler ends the connection.
    Alarm,
    /// SO_RCVTIMEO and SO_SNDTIMEO, set to what is left before each call.
    Rearm,
    /// `poll` before each call.
    PollFirst,
    /// A thread that waits for all operations, woken for each.
    Watchdog,
    /// A thread for each operation.
    Thread,
}

/// A connection.
pub struct Raw {
    stream: TcpStream,
    watch: Watch,
    timeout: Duration,
    input: Vec<u8>,
    watchdog: Arc<Watchdog>,
}

#[derive(Default)]
struct Watchdog {
    deadline: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Raw {
    pub fn connect(server: &str, watch: Watch, timeout: Duration) -> Result<Self, Failure> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        let watchdog = Arc::new(Watchdog::default());
        match watch {
            Watch::Kernel => set_timeout(&stream, timeout)?,
            Watch::Alarm => handle_alarms(&stream),
            Watch::Watchdog => {
                let (watchdog, stream) = (Arc::clone(&watchdog), stream.try_clone()?);
                std::thread::spawn(move || watchdog.run(&stream));
            }
            _ => {}
        }
        let input = vec![0; 4096];
        Ok(Self {
            stream,
            watch,
            timeout,
            input,
            watchdog,
        })
    }

    pub fn set(&mut self, key: &str) -> Result<(), Failure> {
        let mut request = format!("set {key} 0 0 {}\r\n", VALUE.len()).into_bytes();
        request.extend_from_slice(VALUE);
        request.extend_from_slice(b"\r\n");
        self.operation(&request, b"STORED\r\n").map(drop)
    }

    pub fn get(&mut self, key: &str) -> Result<bool, Failure> {
        let request = format!("get {key}\r\n");
        Ok(self.operation(request.as_bytes(), b"END\r\n")? > b"END\r\n".len())
    }

    /// Sends and receives under the watch; how many bytes came.
    fn operation(&mut self, request: &[u8], end: &[u8]) -> Result<usize, Failure> {
        match self.watch {
            Watch::Alarm => {
                set_alarm(self.timeout);
                let result = self.exchange(request, end);
                set_alarm(Duration::ZERO);
                result
            }
            Watch::Watchdog => {
                self.watchdog.set(Some(Instant::now() + self.timeout));
                let result = self.exchange(request, end);
                self.watchdog.set(None);
                result
            }
            Watch::Thread => {
                let (timeout, stream) = (self.timeout, self.stream.try_clone()?);
                let thread = std::thread::spawn(move || {
                    let deadline = Instant::now() + timeout;
                    while !DONE.swap_and_park(deadline) {
                        if Instant::now() >= deadline {
                            drop(stream.shutdown(Shutdown::Both));
                            return;
                        }
                    }
                });
                let result = self.exchange(request, end);
                DONE.set();
                thread.thread().unpark();
                drop(thread.join());
                result
            }
            _ => self.exchange(request, end),
        }
    }

    fn exchange(&mut self, request: &[u8], end: &[u8]) -> Result<usize, Failure> {
        let deadline = Instant::now() + self.timeout;
        self.before_call(deadline, libc::POLLOUT)?;
        self.stream.write_all(request)?;
        let mut count = 0;
        while !self.input[..count].ends_with(end) {
            self.before_call(deadline, libc::POLLIN)?;
            match self.stream.read(&mut self.input[count..])? {
                0 => return Err("the connection ended".into()),
                more => count += more,
            }
        }
        Ok(count)
    }

    fn before_call(&self, deadline: Instant, events: i16) -> Result<(), Failure> {
        if !matches!(self.watch, Watch::Rearm | Watch::PollFirst) {
            return Ok(());
        }
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err("timed out".into());
        }
        if self.watch == Watch::Rearm {
            return Ok(set_timeout(&self.stream, rest)?);
        }
        let mut descriptor = libc::pollfd {
            fd: self.stream.as_raw_fd(),
            events,
            revents: 0,
        };
        // SAFETY: one descriptor, as the length says.
        match unsafe { libc::poll(&raw mut descriptor, 1, rest.as_millis() as i32 + 1) } {
            1 => Ok(()),
            _ => Err("timed out".into()),
        }
    }
}

/// Tells the thread of an operation that it is over.
struct Done(std::sync::atomic::AtomicBool);

static DONE: Done = Done(std::sync::atomic::AtomicBool::new(false));

impl Done {
    fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether the operation is over; waits for it until the deadline.
    fn swap_and_park(&self, deadline: Instant) -> bool {
        if self.0.swap(false, Ordering::SeqCst) {
            return true;
        }
        std::thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl Watchdog {
    fn set(&self, deadline: Option<Instant>) {
        *self.deadline.lock().unwrap() = deadline;
        self.changed.notify_one();
    }

    fn run(&self, stream: &TcpStream) {
        let mut deadline = self.deadline.lock().unwrap();
        loop {
            deadline = match *deadline {
                None => self.changed.wait(deadline).unwrap(),
                Some(end) if end <= Instant::now() => {
                    drop(stream.shutdown(Shutdown::Both));
                    return;
                }
                Some(end) => {
                    let rest = end - Instant::now();
                    self.changed.wait_timeout(deadline, rest).unwrap().0
                }
            };
        }
    }
}

fn set_timeout(stream: &TcpStream, timeout: Duration) -> std::io::Result<()> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))
}

/// What the handler shuts down.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_alarm(_: libc::c_int) {
    // SAFETY: `shutdown` may be called in a handler, with any number.
    unsafe { libc::shutdown(DESCRIPTOR.load(Ordering::SeqCst), libc::SHUT_RDWR) };
}

fn handle_alarms(stream: &TcpStream) {
    DESCRIPTOR.store(stream.as_raw_fd(), Ordering::SeqCst);
    let handler = on_alarm as extern "C" fn(libc::c_int);
    // SAFETY: the handler only makes a call that handlers may make.
    unsafe { libc::signal(libc::SIGALRM, handler as libc::sighandler_t) };
}

fn set_alarm(timeout: Duration) {
    let timer = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: timeout.as_secs() as i64,
            tv_usec: timeout.subsec_micros().into(),
        },
    };
    // SAFETY: the timer is read, and nothing is written.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}
