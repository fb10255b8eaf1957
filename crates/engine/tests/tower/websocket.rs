//! WebSocket in the handlers of an axum `Router`.

use axum::Router;
use axum::response::Response;
use axum::routing::any;
use dwell_engine::handler::axum::WebSocketUpgrade;
use dwell_engine::handler::tower::service;
use dwell_engine::handler::web_socket_fn;
use dwell_engine::websocket::UpgradeOptions;
use dwell_engine::{Running, Server};
use std::time::Duration;
use tungstenite::client::IntoClientRequest;
use tungstenite::{Error, Message};

async fn echo(upgrade: WebSocketUpgrade) -> Response {
    let options = UpgradeOptions {
        subprotocols: &["chat.v2"],
        ..UpgradeOptions::default()
    };
    upgrade.on_upgrade_with(
        &options,
        web_socket_fn(|socket, message| {
            socket.send(message.kind, &message.payload).unwrap();
        }),
    )
}

fn served() -> Running {
    let router = Router::new().route("/echo", any(echo));
    Server::builder()
        .listen(([127, 0, 0, 1], 0).into())
        .pollers(1)
        .serve(service(router))
        .unwrap()
}

fn url(running: &Running) -> String {
    format!("ws://{}/echo?room=1", running.addresses()[0])
}

#[test]
fn a_client_is_upgraded_and_closed_in_order() {
    let running = served();
    let mut request = url(&running).into_client_request().unwrap();
    let offered = "chat.v1, chat.v2".parse().unwrap();
    request
        .headers_mut()
        .insert("Sec-WebSocket-Protocol", offered);
    let (mut client, response) = tungstenite::connect(request).unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["sec-websocket-protocol"], "chat.v2");
    for size in [0, 1, 70_000] {
        let message = Message::binary(vec![7; size]);
        client.send(message.clone()).unwrap();
        assert_eq!(client.read().unwrap(), message);
    }
    client.send(Message::Ping("p".into())).unwrap();
    assert_eq!(client.read().unwrap(), Message::Pong("p".into()));
    client.close(None).unwrap();
    assert!(client.read().unwrap().is_close());
    assert!(matches!(client.read(), Err(Error::ConnectionClosed)));
    let shutdown = running.shutdown(Duration::from_secs(10));
    assert_eq!(shutdown.cut_requests, 0);
}

#[test]
fn pages_of_another_host_are_refused() {
    let running = served();
    let mut request = url(&running).into_client_request().unwrap();
    let origin = "https://elsewhere.example".parse().unwrap();
    request.headers_mut().insert("Origin", origin);
    match tungstenite::connect(request) {
        Err(Error::Http(response)) => assert_eq!(response.status(), 403),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_handshake_is_answered_and_the_connection_goes_on() {
    let running = served();
    let address = running.addresses()[0];
    let plain = "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n";
    let keyless = "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\n\r\n";
    let old = "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close, upgrade\r\n\
               Upgrade: websocket\r\nSec-WebSocket-Version: 8\r\n\
               Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let answers = dwell_testkit::ask(address, format!("{plain}{keyless}{old}"));
    let mut statuses = answers
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| &answer[..3]);
    assert_eq!(statuses.next(), Some("426"), "{answers}");
    assert_eq!(statuses.next(), Some("400"), "{answers}");
    assert_eq!(statuses.next(), Some("426"), "{answers}");
    assert!(answers.contains("sec-websocket-version: 13"), "{answers}");
}
