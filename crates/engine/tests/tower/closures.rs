//! Closures from a request to a response.

use crate::support::{Client, End, get, post, serve};
use bytes::Bytes;
use dwell_engine::StreamRef;
use dwell_engine::handler::RequestBody;
use dwell_engine::handler::http::{OnUpgrade, PeerAddress, inline, pooled};
use http::{Request, Response, StatusCode};
use std::io::Read;

#[test]
fn a_closure_on_the_loop() {
    let handler = |request: Request<Bytes>| {
        let peer = request.extensions().get::<PeerAddress>().unwrap();
        assert!(peer.0.ip().is_loopback());
        let host = request.headers()["host"].to_str().unwrap();
        let text = format!("{} {} {host}", request.method(), request.uri());
        let mut response = Response::new([text.as_bytes(), request.body()].concat());
        // What frames the answer is not the handler's.
        let fields = response.headers_mut();
        fields.insert("content-length", "99999".parse().unwrap());
        fields.insert("transfer-encoding", "chunked".parse().unwrap());
        fields.append("set-cookie", "a=1".parse().unwrap());
        fields.append("set-cookie", "b=2".parse().unwrap());
        if request.uri().path() == "/hints" {
            *response.status_mut() = StatusCode::EARLY_HINTS;
            return response;
        }
        if request.uri().path() == "/close" {
            fields.insert("connection", "close".parse().unwrap());
        }
        response
    };
    let running = serve(|options| options, inline(handler));
    let mut client = Client::connect(&running);
    let answer = client.send(post("/echo?x=1", 3)).send("abc").answer();
    assert_eq!(answer.text(), "POST /echo?x=1 aabc");
    assert_eq!(answer.head.matches("set-cookie").count(), 2);
    assert_eq!(answer.field("transfer-encoding"), None);
    assert_eq!(client.get("/hints").status, 500, "that is no final answer");
    assert_eq!(client.get("/close").field("connection"), Some("close"));
    assert_eq!(client.end(), End::InOrder);
}

#[test]
fn a_closure_on_the_pool_reads_as_the_body_comes() {
    let handler = |mut request: Request<RequestBody>| {
        let mut bytes = Vec::new();
        let read = request.body_mut().read_to_end(&mut bytes).unwrap();
        let mut response = Response::new(format!("{read} bytes"));
        *response.status_mut() = StatusCode::CREATED;
        response
    };
    let running = serve(|options| options, pooled(handler));
    let mut client = Client::connect(&running);
    let answer = client
        .send(post("/", 1 << 20))
        .send(vec![b'x'; 1 << 20])
        .answer();
    assert_eq!((answer.status, answer.text()), (201, "1048576 bytes"));
    assert_eq!(client.send(get("/")).answer().text(), "0 bytes");
}

#[test]
fn a_connection_is_taken_over_by_a_101() {
    let handler = |request: Request<Bytes>| {
        let upgrade = request.extensions().get::<OnUpgrade>();
        if let Some(upgrade) = upgrade.filter(|_| request.uri().path() == "/echo") {
            upgrade.take_over(|stream: &mut StreamRef<'_>, input: &[u8]| {
                stream.write(input);
                input.len()
            });
        }
        let mut response = Response::new("");
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let fields = response.headers_mut();
        fields.insert("connection", "upgrade".parse().unwrap());
        fields.insert("upgrade", "echo".parse().unwrap());
        response
    };
    let running = serve(|options| options, inline(handler));
    let asking = |path: &str| {
        let head = get(path);
        head.replace("Host: a", "Host: a\r\nConnection: upgrade\r\nUpgrade: echo")
    };
    let mut client = Client::connect(&running);
    client.send(asking("/echo")).send("over");
    let answer = client.answer();
    assert_eq!(
        (answer.status, answer.field("upgrade")),
        (101, Some("echo"))
    );
    while client.received != b"over" {
        assert_eq!(client.receive(), None);
    }
    // Nobody takes it over, or nobody asked.
    for request in [asking("/"), get("/echo")] {
        assert_eq!(Client::connect(&running).send(request).answer().status, 500);
    }
}
