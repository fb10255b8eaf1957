//! Another implementation's client agrees with us.

use crate::support::{Answer, Fixture};
use dwell_engine::websocket::{EndCause, WebSocketOptions};
use dwell_testkit::Rig;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Error, Message};

#[test]
fn messages_of_every_length_class_come_back() {
    let mut fixture = Fixture::new(Answer::Echo, WebSocketOptions::default());
    let address = fixture.address;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stream = TcpStream::connect(address).unwrap();
            // Ours and its own frames meet at different limits.
            let config = WebSocketConfig::default().max_frame_size(Some(1 << 20));
            let url = format!("ws://{address}/");
            let (mut client, response) =
                tungstenite::client::client_with_config(url, stream, Some(config)).unwrap();
            assert_eq!(response.status(), 101);
            for size in [0, 1, 125, 126, 127, 128, 65_535, 65_536, 65_537, 1_000_000] {
                for message in [
                    Message::text("x".repeat(size)),
                    Message::binary(vec![0xf0; size]),
                ] {
                    client.send(message.clone()).unwrap();
                    assert_eq!(client.read().unwrap(), message);
                }
            }
            client.send(Message::Ping("here".into())).unwrap();
            assert_eq!(client.read().unwrap(), Message::Pong("here".into()));
            let frame = CloseFrame {
                code: CloseCode::Normal,
                reason: "done".into(),
            };
            client.close(Some(frame)).unwrap();
            loop {
                match client.read() {
                    Ok(message) => assert!(message.is_close()),
                    Err(Error::ConnectionClosed) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            fixture.turn_for(Duration::from_millis(10));
        }
    });
    let end = fixture.until_end();
    assert_eq!(
        (end.code, end.is_clean, end.cause),
        (1000, true, EndCause::Peer)
    );
    assert_eq!(end.reason, "done");
}
