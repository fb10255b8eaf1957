//! What public conformance tools expect of a server.
//!
//! ```text
//! cargo run --release -p dwell-engine --example echo -- --listen 127.0.0.1:9002
//! ```
//!
//! `GET /` is 200 and empty; `POST /` echoes the body; `/echo` answers with the header lines of the
//! request, `/cookie` with its cookies, one a line; `/ws` echoes WebSocket messages of any size and
//! fragmentation, and `/ws-deflate` does so with permessage-deflate.
#![expect(
    clippy::print_stdout,
    reason = "the address is told to whoever started it"
)]

use dwell_engine::handler::{Answer, Exchange};
use dwell_engine::websocket::{
    Message, MessageLimits, OriginPolicy, UpgradeOptions, WebSocketOptions, WebSocketRef,
};
use dwell_engine::{Request, Server};
use dwell_proto::http1::Fields;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

/// Echoes need room for what is echoed.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
const BODY_BYTES_MAX: u64 = 64 << 20;

fn respond(request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
    let fields = request.head.fields;
    match request.head.path {
        "/" => exchange.answer(Answer::new(200).body(request.body.to_vec())),
        "/echo" => exchange.answer(Answer::text(200, lines(fields))),
        "/cookie" => exchange.answer(Answer::text(200, cookies(fields))),
        "/ws" => web_socket(request, exchange, false),
        "/ws-deflate" => web_socket(request, exchange, true),
        _ => exchange.text(404, "not found"),
    }
}

/// `name: value`, a line each.
fn lines(fields: Fields<'_, '_>) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in fields.iter() {
        lines.extend_from_slice(&[name.as_bytes(), b": ", value, b"\n"].concat());
    }
    lines
}

/// `name=value`, a line each, of all `Cookie` fields.
fn cookies(fields: Fields<'_, '_>) -> Vec<u8> {
    let mut lines = Vec::new();
    for cookie in fields
        .all("cookie")
        .flat_map(|value| value.split(|byte| *byte == b';'))
    {
        let cookie = cookie.trim_ascii();
        if !cookie.is_empty() {
            lines.extend_from_slice(&[cookie, b"\n"].concat());
        }
    }
    lines
}

fn web_socket(request: &Request<'_>, exchange: &mut Exchange<'_, '_>, deflates: bool) {
    let mut options = UpgradeOptions {
        origin: OriginPolicy::Any,
        ..UpgradeOptions::default()
    };
    if !deflates {
        options.deflate = None;
    }
    let echo = |socket: &mut WebSocketRef<'_>, message: Message<'_>| {
        // There is room for it: no message is handed over before there is.
        let _ = socket.send(message.kind, &message.payload);
    };
    exchange.web_socket(request, &options, echo);
}

fn listen_address() -> Result<SocketAddr, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut address = SocketAddr::from(([127, 0, 0, 1], 9002));
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--listen" => address = arguments.next().ok_or("--listen ADDRESS")?.parse()?,
            other => return Err(format!("unknown argument {other}; try --listen ADDRESS").into()),
        }
    }
    Ok(address)
}

fn main() -> Result<(), Box<dyn Error>> {
    let web_socket_options = WebSocketOptions {
        messages: MessageLimits {
            frame_bytes_max: MESSAGE_BYTES_MAX as u64,
            message_bytes_max: MESSAGE_BYTES_MAX,
            ..MessageLimits::default()
        },
        ..WebSocketOptions::default()
    };
    let running = Server::builder()
        .listen(listen_address()?)
        .max_body_bytes(BODY_BYTES_MAX)
        .web_socket_options(web_socket_options)
        .shutdown_on_signals(Duration::from_secs(5))
        .serve(respond)?;
    println!("listening on http://{}", running.addresses()[0]);
    running.wait();
    Ok(())
}
