//! The four ways in which a client waits: between requests (`/`), in a long-poll (`/hold`), on an
//! event stream (`/sse`) and on a WebSocket (`/ws`, which echoes).
//!
//! `cargo run --release -p dwell-engine --example waiting -- 127.0.0.1:8000`. What each costs while
//! nothing happens is measured with it by `make bench`.

use dwell_engine::manager::{Conn, ConnError, Event, HttpMessage, Manager, ManagerError};
use dwell_engine::websocket::UpgradeOptions;

fn main() -> Result<(), ManagerError> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:8000".into());
    let mut manager = Manager::new(|conn, event| {
        let done = match event {
            Event::HttpMessage(message) => answer(conn, &message),
            Event::WebSocketMessage { data, .. } => conn.ws_text(&String::from_utf8_lossy(data)),
            _ => Ok(()),
        };
        if done.is_err() {
            conn.abort();
        }
    })?;
    manager.listen(&format!("http://{address}"))?;
    manager.run()
}

fn answer(conn: &mut Conn<'_>, message: &HttpMessage<'_>) -> Result<(), ConnError> {
    match message.path() {
        "/" => conn.reply(200, &[], b"hello, world\n"),
        // Nobody ever answers it: it waits until the limit for answers.
        "/hold" => Ok(()),
        "/sse" => conn.sse(),
        "/ws" => conn.ws_upgrade(message, &UpgradeOptions::default()),
        _ => conn.reply(404, &[], b"not here\n"),
    }
}
