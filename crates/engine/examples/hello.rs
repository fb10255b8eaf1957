//! The smallest server on the engine: every request gets the same 13 bytes.
//!
//! `cargo run --release -p dwell-engine --example hello -- 127.0.0.1:8000`

use dwell_engine::{Body, HttpDriver, Limits, Outcome, Reply, Request, Response};
use dwell_evloop::{Context, EventLoop};
use std::error::Error;

fn hello(_: &mut Context, _: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
    reply.send(&Response {
        status: 200,
        fields: &[("Content-Type", b"text/plain")],
        body: Body::Slice(b"hello, world\n"),
    });
    Outcome::Answered
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:8000".into());
    let mut event_loop = EventLoop::new()?;
    let mut driver = HttpDriver::new(Limits::default(), hello);
    driver.listen(event_loop.context(), address.parse()?)?;
    event_loop.run(&mut driver)?;
    Ok(())
}
