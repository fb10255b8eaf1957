//! Load for a memcached server on loopback, and what its cache keeps; one JSON line each.
//!
//! ```text
//! dwell-bench-store load PORT gets|sets|mixed|multi SECONDS
//! dwell-bench-store trace PORT zipf|scan REQUESTS
//! dwell-bench-store fill PORT KEY_BYTES VALUE_BYTES
//! ```
#![forbid(unsafe_code)]

mod load;
mod random;
mod trace;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

/// Replies are read into a buffer of this size.
const RECEIVE_BYTES: usize = 1 << 18;
const TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> io::Result<String> {
    let usage = || io::Error::other("usage: see the top of bench/store/src/main.rs");
    let number = |word: &str| word.parse::<u64>().map_err(|_| usage());
    match *words {
        ["load", port, mode, seconds] => {
            let mode = load::Mode::from_name(mode).ok_or_else(usage)?;
            let seconds = seconds.parse::<f64>().map_err(|_| usage())?;
            load::run(number(port)?, mode, Duration::from_secs_f64(seconds))
        }
        ["trace", port, kind, requests] => {
            let kind = trace::Kind::from_name(kind).ok_or_else(usage)?;
            trace::run(number(port)?, kind, number(requests)?)
        }
        ["fill", port, key, value] => trace::fill(number(port)?, number(key)?, number(value)?),
        _ => Err(usage()),
    }
}

fn connect(port: u64) -> io::Result<TcpStream> {
    let port = u16::try_from(port).map_err(io::Error::other)?;
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Sends one request and reads until the reply ends with `end`.
fn ask(stream: &mut TcpStream, request: &[u8], end: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    let mut reply = Vec::new();
    let mut piece = vec![0; RECEIVE_BYTES];
    while !reply.ends_with(end) {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        reply.extend_from_slice(&piece[..read]);
    }
    Ok(reply)
}

/// Writes a `set` without flags and expiry.
fn push_set(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    out.extend_from_slice(format!("set {key} 0 0 {}\r\n", value.len()).as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
