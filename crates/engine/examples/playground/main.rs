//! A page to try everything on, served by the event loops or, to compare, by a thread a
//! connection.
//!
//! ```text
//! cargo run --release -p dwell-engine --example playground -- --type dwell --listen 127.0.0.1:1826
//! ```
//!
//! `--type std` serves the same routes with one thread a connection and nothing of the engine but
//! the parsers.
#![expect(
    clippy::print_stdout,
    reason = "the address is told to whoever started it"
)]

mod dwell;
mod echo;
mod runtime;
mod threads;

use std::error::Error;
use std::net::SocketAddr;

/// The overview.
const PAGE: &str = include_str!("page.html");
/// What `/file` serves: the page itself, where it was built.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/playground/page.html");
const HTML: &str = "text/html; charset=utf-8";

struct Arguments {
    is_dwell: bool,
    listen: SocketAddr,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut given = std::env::args().skip(1);
    let mut arguments = Arguments {
        is_dwell: true,
        listen: SocketAddr::from(([127, 0, 0, 1], 1826)),
    };
    while let Some(name) = given.next() {
        let value = given.next();
        match (name.as_str(), value.as_deref()) {
            ("--type", Some("dwell")) => arguments.is_dwell = true,
            ("--type", Some("std")) => arguments.is_dwell = false,
            ("--listen", Some(address)) => arguments.listen = address.parse()?,
            _ => return Err("usage: playground [--type dwell|std] [--listen ADDRESS]".into()),
        }
    }
    Ok(arguments)
}

/// The page, with what serves it.
fn page(server: &str) -> String {
    PAGE.replace("{{server}}", server)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    if arguments.is_dwell {
        let running = dwell::serve(arguments.listen)?;
        println!("open http://{}/", running.addresses()[0]);
        running.wait();
        Ok(())
    } else {
        println!("open http://{}/", arguments.listen);
        Ok(threads::serve(arguments.listen)?)
    }
}
