//! A server that is polled: `cargo run --release -p dwell-engine --example manager_hello`
use dwell_engine::manager::{Event, Manager, ManagerError};

fn main() -> Result<(), ManagerError> {
    let mut manager = Manager::new(|conn, event| {
        if let Event::HttpMessage(message) = event {
            let body = format!("hello, you asked for {}\n", message.path());
            // Refused only where the request has its answer already.
            let _ = conn.reply(200, &[], body.as_bytes());
        }
    })?;
    manager.listen("http://127.0.0.1:8000")?;
    manager.run()
}
