//! The query to the running process.

use dwell_edge::Explanation;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Asks the process at `address`; `None` if there is none.
///
/// # Errors
/// The error of the process, or a malformed response.
pub(super) fn ask(address: &str, query: &str) -> Result<Option<Explanation>, String> {
    let failed = |error: io::Error| format!("cannot ask {address}: {error}");
    let mut stream = match connect(address) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // The address and not the user's name for it, which the process may not accept.
    let host = stream.peer_addr().map_err(failed)?;
    let request =
        format!("GET /-/explain?{query} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    let mut limited = stream.take(ANSWER_BYTES_MAX);
    limited.read_to_end(&mut answer).map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&*answer, ""));
    if !head.starts_with("HTTP/1.1 200 ") {
        let status = head.lines().next().unwrap_or_default();
        return Err(format!("{address} answers {status}: {}", body.trim_end()));
    }
    let explanation = serde_json::from_str(body);
    explanation
        .map(Some)
        .map_err(|error| format!("{address} does not explain: {error}"))
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut refusal = ErrorKind::AddrNotAvailable.into();
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ANSWER_TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

/// Timeout of a connection attempt, and of a read.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 1 << 20;
