//! A server that takes HTTP/1.1 and HTTP/2 on one port, without TLS.
//!
//! `cargo run --release -p dwell-engine --example h2c -- 127.0.0.1:8000`
//!
//! `GET /big/N` has N bytes, `POST` brings back what it sent, everything else gets 13 bytes.

use dwell_engine::handler::Exchange;
use dwell_engine::{Body, Request, Response, Server};
use std::error::Error;
use std::time::Duration;

fn answer(request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
    let mut big = Vec::new();
    let body = match (request.head.method, request.head.path.strip_prefix("/big/")) {
        ("POST" | "PUT", _) => request.body,
        (_, Some(size)) => {
            big.resize(size.parse().unwrap_or(0).min(SIZE_MAX), b'.');
            &big
        }
        _ => b"hello, world\n",
    };
    exchange.send(&Response {
        status: 200,
        fields: &[("Content-Type", b"text/plain")],
        body: Body::Slice(body),
    });
}

/// The most that one answer has.
const SIZE_MAX: usize = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:8000".into());
    let running = Server::builder()
        .listen(address.parse()?)
        .h2c(true)
        .max_body_bytes(64 << 20)
        .shutdown_on_signals(Duration::from_secs(10))
        .serve(answer)?;
    running.wait();
    Ok(())
}
