//! Clients beside a loop that the test itself turns.

use crate::GUARD;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Instant;

/// Runs `client` on a thread of its own, and takes one `step` after the other here until it has
/// ended; returns what it returned.
///
/// Shape: a step should wait for some milliseconds at most, as it is not told of that end.
///
/// # Panics
/// If the client does, or has not ended after [`GUARD`].
///
/// ```
/// use dwell_testkit::beside;
/// use std::sync::mpsc;
///
/// let (question, asked) = mpsc::channel();
/// let (answer, answered) = mpsc::channel();
/// let client = move || {
///     question.send(6).expect("the server lives");
///     answered.recv().expect("the server answers")
/// };
/// let answer = beside(client, || {
///     if let Ok(number) = asked.try_recv() {
///         answer.send(number * 7).expect("the client lives");
///     }
/// });
/// assert_eq!(answer, 42);
/// ```
pub fn beside<T: Send>(client: impl FnOnce() -> T + Send, mut step: impl FnMut()) -> T {
    thread::scope(|scope| {
        let client = scope.spawn(client);
        let started = Instant::now();
        while !client.is_finished() {
            assert!(started.elapsed() < GUARD, "the client does not end");
            step();
        }
        match client.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Sends `request` to `address`, and returns all that comes until the server ends the connection.
///
/// # Panics
/// If the server cannot be reached, or ends the connection otherwise than in order.
///
/// ```
/// use dwell_testkit::ask;
/// use std::io::{Read, Write};
/// use std::net::TcpListener;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = std::thread::spawn(move || -> std::io::Result<()> {
///     let (mut client, _) = listener.accept()?;
///     client.read_exact(&mut [0; 4])?;
///     client.write_all(b"pong")
/// });
/// assert_eq!(ask(address, "ping"), "pong");
/// server.join().expect("it does not panic")?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn ask(address: impl Into<Option<SocketAddr>>, request: impl AsRef<[u8]>) -> String {
    whole_answer(address.into(), request.as_ref(), false)
}

/// As [`ask`], and says with the end of its sending side that no more will come.
///
/// # Panics
/// As [`ask`].
pub fn ask_and_finish(address: impl Into<Option<SocketAddr>>, request: impl AsRef<[u8]>) -> String {
    whole_answer(address.into(), request.as_ref(), true)
}

fn whole_answer(address: Option<SocketAddr>, request: &[u8], finish: bool) -> String {
    let Some(address) = address else {
        panic!("there is no address to ask at");
    };
    match exchange(address, request, finish) {
        Ok(answer) => String::from_utf8_lossy(&answer).into_owned(),
        Err(error) => panic!("{address}: {error}"),
    }
}

fn exchange(address: SocketAddr, request: &[u8], finish: bool) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(GUARD))?;
    stream.write_all(request)?;
    if finish {
        stream.shutdown(Shutdown::Write)?;
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}
