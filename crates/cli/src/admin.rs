//! Requests to the admin listener of a running process.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The answer of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminAnswer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Error of a request to the admin listener.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum AdminError {
    /// No process listens there.
    Absent,
    /// The connection fails, or its time is over.
    Connection(io::Error),
    /// The answer is not HTTP/1.1, or not whole.
    NotHttp,
}

/// Sends `GET target` to the process at `address`, which has `timeout` for everything together.
///
/// # Errors
/// [`AdminError`].
pub(crate) fn get(
    address: &str,
    target: &str,
    timeout: Duration,
) -> Result<AdminAnswer, AdminError> {
    let until = Instant::now() + timeout;
    let mut stream = connect(address, until)?;
    // The address and not the user's name for it, which the process may not accept.
    let host = stream.peer_addr()?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.set_write_timeout(Some(left(until)?))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut piece)? {
            0 => break,
            count if answer.len() + count > ANSWER_BYTES_MAX => return Err(AdminError::NotHttp),
            count => answer.extend_from_slice(&piece[..count]),
        }
    }
    parse(&answer).ok_or(AdminError::NotHttp)
}

fn parse(answer: &[u8]) -> Option<AdminAnswer> {
    let answer = String::from_utf8_lossy(answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let lengths = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let is_whole = lengths.all(|(_, length)| length.trim().parse() == Ok(body.len()));
    is_whole.then(|| AdminAnswer {
        status,
        body: body.to_owned(),
    })
}

fn connect(address: &str, until: Instant) -> Result<TcpStream, AdminError> {
    let mut refusal = AdminError::from(io::Error::from(ErrorKind::AddrNotAvailable));
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(until)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => refusal = error.into(),
        }
    }
    Err(refusal)
}

/// The time until then, which is not zero.
fn left(until: Instant) -> Result<Duration, AdminError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(AdminError::Connection(ErrorKind::TimedOut.into()));
    }
    Ok(left)
}

impl From<io::Error> for AdminError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Absent,
            // A socket tells a timeout in these words.
            ErrorKind::WouldBlock => Self::Connection(ErrorKind::TimedOut.into()),
            _ => Self::Connection(error),
        }
    }
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("no process listens there"),
            Self::Connection(error) => error.fmt(f),
            Self::NotHttp => f.write_str("the answer is not HTTP/1.1, or not whole"),
        }
    }
}

impl std::error::Error for AdminError {}

const ANSWER_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// Answers one request with `answer`, or with nothing until the client has left.
    fn answering(answer: Option<&'static str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client connects");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            match answer {
                Some(answer) => stream.write_all(answer.as_bytes()).expect("it is read"),
                None => while matches!(stream.read(&mut request), Ok(1..)) {},
            }
        });
        address
    }

    fn ask(address: &str) -> Result<AdminAnswer, AdminError> {
        get(address, "/-/health", Duration::from_millis(500))
    }

    #[test]
    fn a_whole_answer_is_returned() {
        let address = answering(Some("HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno"));
        let answer = ask(&address).expect("it is whole");
        assert_eq!((answer.status, answer.body.as_str()), (503, "no"));
    }

    #[test]
    fn a_truncated_answer_is_none() {
        let address = answering(Some("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno"));
        assert!(matches!(ask(&address), Err(AdminError::NotHttp)));
        let address = answering(Some("SSH-2.0-x\r\n"));
        assert!(matches!(ask(&address), Err(AdminError::NotHttp)));
    }

    #[test]
    fn a_silent_process_is_waited_for_until_the_timeout() {
        let address = answering(None);
        let error = ask(&address).expect_err("nothing answers");
        assert!(
            matches!(&error, AdminError::Connection(error)
            if error.kind() == ErrorKind::TimedOut),
            "{error}"
        );
    }

    #[test]
    fn a_port_without_a_listener_is_absent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        drop(listener);
        assert!(matches!(ask(&address), Err(AdminError::Absent)));
    }
}
