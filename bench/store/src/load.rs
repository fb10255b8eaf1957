//! Throughput: eight connections kept busy with batches prepared beforehand.
//!
//! The length of the replies to a batch is known, so only bytes are counted while the clock runs.

use crate::random::Random;
use crate::{RECEIVE_BYTES, ask, connect, push_set};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 8;
const BATCHES: usize = 64;
const OPERATIONS_PER_BATCH: usize = 96;
const KEYS: u64 = 10_000;
const KEYS_PER_MULTI: usize = 16;
const VALUE: [u8; 100] = [b'v'; 100];

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Gets,
    Sets,
    /// Nine gets to a set.
    Mixed,
    /// Gets of 16 keys; every key counts as an operation.
    Multi,
}

impl Mode {
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "gets" => Self::Gets,
            "sets" => Self::Sets,
            "mixed" => Self::Mixed,
            "multi" => Self::Multi,
            _ => return None,
        })
    }
}

/// Requests that are sent at once, and the length of their replies.
#[derive(Default)]
struct Batch {
    requests: Vec<u8>,
    reply_bytes: usize,
}

impl Batch {
    fn make(mode: Mode, random: &mut Random) -> Self {
        let mut batch = Self::default();
        let mut done = 0;
        while done < OPERATIONS_PER_BATCH {
            let keys = if mode == Mode::Multi {
                KEYS_PER_MULTI
            } else {
                1
            };
            if mode == Mode::Sets || (mode == Mode::Mixed && done % 10 == 9) {
                push_set(&mut batch.requests, &key(random.below(KEYS)), &VALUE);
                batch.reply_bytes += b"STORED\r\n".len();
            } else {
                batch.requests.extend_from_slice(b"get");
                for _ in 0..keys {
                    let key = key(random.below(KEYS));
                    batch.requests.push(b' ');
                    batch.requests.extend_from_slice(key.as_bytes());
                    batch.reply_bytes += format!("VALUE {key} 0 100\r\n\r\n").len() + VALUE.len();
                }
                batch.requests.extend_from_slice(b"\r\n");
                batch.reply_bytes += b"END\r\n".len();
            }
            done += keys;
        }
        batch
    }
}

fn key(number: u64) -> String {
    format!("key-{number:06}")
}

pub fn run(port: u64, mode: Mode, time: Duration) -> io::Result<String> {
    store_all(port)?;
    let mut random = Random::new(2009);
    let batches: Vec<Batch> = (0..BATCHES)
        .map(|_| Batch::make(mode, &mut random))
        .collect();
    let mut peers = Vec::new();
    for place in 0..CONNECTIONS {
        let mut stream = connect(port)?;
        stream.write_all(&batches[place].requests)?;
        peers.push((stream, place));
    }
    let mut buffer = vec![0; RECEIVE_BYTES];
    let began = Instant::now();
    let mut operations = 0;
    while began.elapsed() < time {
        for (stream, place) in &mut peers {
            take_replies(stream, batches[*place].reply_bytes, &mut buffer)?;
            operations += OPERATIONS_PER_BATCH;
            *place = (*place + CONNECTIONS) % BATCHES;
            stream.write_all(&batches[*place].requests)?;
        }
    }
    for (stream, place) in &mut peers {
        take_replies(stream, batches[*place].reply_bytes, &mut buffer)?;
        operations += OPERATIONS_PER_BATCH;
    }
    let seconds = began.elapsed().as_secs_f64();
    Ok(format!(
        "{{\"operations\": {operations}, \"seconds\": {seconds}}}"
    ))
}

fn store_all(port: u64) -> io::Result<()> {
    let mut stream = connect(port)?;
    let mut requests = Vec::new();
    for number in 0..KEYS {
        requests.clear();
        push_set(&mut requests, &key(number), &VALUE);
        ask(&mut stream, &requests, b"STORED\r\n")?;
    }
    Ok(())
}

fn take_replies(stream: &mut TcpStream, bytes: usize, buffer: &mut [u8]) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let read = stream.read(buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left = left
            .checked_sub(read)
            .ok_or_else(|| io::Error::other("replies are longer than they should be"))?;
    }
    Ok(())
}
