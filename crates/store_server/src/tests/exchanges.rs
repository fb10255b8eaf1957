//! Files of exchanges: a name, then indented what is sent step by step, and below it, after `!`,
//! our reply where it is not memcached's.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(super) struct Exchange {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
}

pub(super) struct Step {
    pub(super) line: &'static str,
    /// Our reply where it is not memcached's.
    pub(super) differs: Option<&'static str>,
}

pub(super) fn read(file: &'static str) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    for line in file.lines() {
        let last = exchanges.last_mut();
        if line.is_empty() || line.starts_with('#') {
        } else if let Some(reply) = line.strip_prefix("  !") {
            let step = last.and_then(|exchange| exchange.steps.last_mut());
            step.expect("a reply follows a step").differs = Some(reply.trim_start());
        } else if let Some(line) = line.strip_prefix("    ") {
            let steps = &mut last.expect("a step follows a name").steps;
            let differs = None;
            steps.push(Step { line, differs });
        } else {
            let steps = Vec::new();
            exchanges.push(Exchange { name: line, steps });
        }
    }
    exchanges
}

pub(super) fn connect(address: SocketAddr, read_timeout: Duration) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(read_timeout)).unwrap();
    stream
}
