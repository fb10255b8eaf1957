//! What a cache keeps: a program that asks for keys and stores what it does not find.

use crate::random::{Random, Zipf};
use crate::{ask, connect, push_set};
use std::io;
use std::net::TcpStream;

/// Keys of the popular part; with their values several times the memory of the server.
const KEYS: usize = 1_000_000;
const EXPONENT: f64 = 0.9;
const VALUE: [u8; 200] = [b'v'; 200];
/// Keys asked for in one request.
const KEYS_PER_GET: usize = 64;
/// Between two scans.
const REQUESTS_PER_SCAN: u64 = 200_000;
/// Keys of a scan, which nobody asks for again.
const KEYS_PER_SCAN: u64 = 100_000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Popularity by Zipf's law.
    Zipf,
    /// The same, interrupted by scans of keys that are asked for once.
    Scan,
}

impl Kind {
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "zipf" => Some(Self::Zipf),
            "scan" => Some(Self::Scan),
            _ => None,
        }
    }
}

pub fn run(port: u64, kind: Kind, requests: u64) -> io::Result<String> {
    let mut stream = connect(port)?;
    let zipf = Zipf::new(KEYS, EXPONENT);
    let mut random = Random::new(2009);
    let (mut hits, mut asked, mut scanned) = (0, 0, 0);
    let mut until_scan = REQUESTS_PER_SCAN;
    while asked < requests {
        let keys: Vec<String> = (0..KEYS_PER_GET)
            .map(|_| format!("item:{:07}", zipf.rank(&mut random)))
            .collect();
        let found = look_aside(&mut stream, &keys)?;
        // The first half fills the cache.
        if asked >= requests / 2 {
            hits += found;
        }
        asked += KEYS_PER_GET as u64;
        until_scan = until_scan.saturating_sub(KEYS_PER_GET as u64);
        if kind == Kind::Scan && until_scan == 0 {
            for _ in 0..KEYS_PER_SCAN / KEYS_PER_GET as u64 {
                let keys: Vec<String> = (0..KEYS_PER_GET as u64)
                    .map(|place| format!("scan:{:09}", scanned + place))
                    .collect();
                look_aside(&mut stream, &keys)?;
                scanned += KEYS_PER_GET as u64;
            }
            until_scan = REQUESTS_PER_SCAN;
        }
    }
    let counted = asked - requests / 2;
    let ratio = hits as f64 / counted as f64;
    Ok(format!(
        "{{\"requests\": {counted}, \"hits\": {hits}, \"hit_ratio\": {ratio:.5}}}"
    ))
}

/// Asks for keys and stores those that are missing; returns how many were there.
fn look_aside(stream: &mut TcpStream, keys: &[String]) -> io::Result<u64> {
    let request = format!("get {}\r\n", keys.join(" "));
    let reply = ask(stream, request.as_bytes(), b"END\r\n")?;
    let reply = String::from_utf8_lossy(&reply);
    let found: std::collections::HashSet<&str> = reply
        .lines()
        .filter_map(|line| line.strip_prefix("VALUE ")?.split(' ').next())
        .collect();
    let mut sets = Vec::new();
    for key in keys.iter().filter(|key| !found.contains(key.as_str())) {
        push_set(&mut sets, key, &VALUE);
    }
    if !sets.is_empty() {
        sets.extend_from_slice(b"mn\r\n");
        ask(stream, &sets, b"MN\r\n")?;
    }
    Ok(keys
        .iter()
        .filter(|key| found.contains(key.as_str()))
        .count() as u64)
}

/// Stores until items are evicted; tells what one item took of the memory limit beyond its key and
/// value.
pub fn fill(port: u64, key_bytes: u64, value_bytes: u64) -> io::Result<String> {
    let mut stream = connect(port)?;
    let value = vec![b'v'; usize::try_from(value_bytes).map_err(io::Error::other)?];
    let width = usize::try_from(key_bytes).map_err(io::Error::other)?;
    // Whatever was done before may have evicted, too.
    let evicted_before = stats(&mut stream)?("evictions");
    let mut number = 0;
    loop {
        let mut sets = Vec::new();
        for _ in 0..1000 {
            push_set(&mut sets, &format!("{number:0width$}"), &value);
            number += 1;
        }
        sets.extend_from_slice(b"mn\r\n");
        ask(&mut stream, &sets, b"MN\r\n")?;
        let stats = stats(&mut stream)?;
        if stats("evictions") - evicted_before > number / 4 {
            let items = stats("curr_items");
            let limit = stats("limit_maxbytes");
            let overhead = limit as f64 / items as f64 - (key_bytes + value_bytes) as f64;
            return Ok(format!(
                "{{\"items\": {items}, \"overhead_bytes\": {overhead:.1}}}"
            ));
        }
    }
}

fn stats(stream: &mut TcpStream) -> io::Result<impl Fn(&str) -> u64> {
    let reply = ask(stream, b"stats\r\n", b"END\r\n")?;
    let reply = String::from_utf8_lossy(&reply).into_owned();
    Ok(move |name: &str| {
        let line = format!("STAT {name} ");
        let value = reply
            .lines()
            .find_map(|stat| stat.strip_prefix(line.as_str()));
        value
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or(0)
    })
}
