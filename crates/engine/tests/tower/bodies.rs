//! Bodies both ways, on the loop alone: none of this needs a runtime.

use crate::support::{Client, End, get, post, serve, until};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{any, get as on_get, post as on_post};
use bytes::Bytes;
use dwell_engine::Running;
use dwell_engine::handler::tower::service;
use http_body::Frame;
use http_body_util::BodyExt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body of so many pieces, and a trailer field.
struct Pieces {
    left: usize,
    length: usize,
    fails: bool,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if self.left == 0 && self.fails {
            return Poll::Ready(Some(Err(std::io::Error::other("as the test wants it"))));
        }
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        if self.left.is_multiple_of(3) {
            // A body that wakes itself is asked again in the same turn.
            task.waker().wake_by_ref();
        }
        let frame = if self.left == 0 && !self.fails {
            let fields = [("sum".parse().unwrap(), "7".parse().unwrap())];
            Frame::trailers(fields.into_iter().collect())
        } else {
            Frame::data(vec![b'p'; self.length].into())
        };
        Poll::Ready(Some(Ok(frame)))
    }
}

async fn echo(request: Request) -> Response {
    Response::new(request.into_body())
}

async fn sum(request: Request) -> String {
    let collected = request.into_body().collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let digest = trailers
        .get("digest")
        .map(|value| value.to_str().unwrap().to_owned());
    format!("{} bytes, {digest:?}", collected.to_bytes().len())
}

async fn panics() -> &'static str {
    panic!("as the test wants it")
}

fn pieces(left: usize, length: usize, fails: bool) -> Response {
    let pieces = Pieces {
        left,
        length,
        fails,
    };
    Response::new(Body::new(pieces))
}

fn running() -> Running {
    let router = Router::new()
        .route("/", on_get(|| async { "hello" }))
        .route("/echo", on_post(echo))
        .route("/sum", on_post(sum))
        .route("/pieces", any(|| async { pieces(50, 20_000, false) }))
        .route("/much", any(|| async { pieces(100_000, 20_000, false) }))
        .route("/fails", any(|| async { pieces(3, 10, true) }))
        .route("/never", any(std::future::pending::<&str>))
        .route("/panics", any(panics));
    serve(|options| options.max_body_bytes(1 << 30), service(router))
}

#[test]
fn routes_methods_and_heads() {
    let running = running();
    let mut client = Client::connect(&running);
    let answer = client.get("/");
    assert_eq!(
        (answer.text(), answer.field("content-length")),
        ("hello", Some("5"))
    );
    assert_eq!(client.get("/nothing").status, 404);
    assert_eq!(client.get("/sum").status, 405);
    let head = client
        .send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
        .answer_to("HEAD");
    assert_eq!((head.field("content-length"), head.text()), (Some("5"), ""));
    assert_eq!(client.get("/").text(), "hello");
    until(&running, |figures| figures.in_flight == 0);
}

#[test]
fn an_upload_streams_through_and_back() {
    let running = running();
    let mut client = Client::connect(&running);
    client
        .send(post("/sum", 3_000_000))
        .send(vec![b'x'; 3_000_000]);
    assert_eq!(client.answer().text(), "3000000 bytes, None");
    client.send("POST /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("3\r\nabc\r\n0\r\nDigest: z\r\n\r\n");
    assert_eq!(client.answer().text(), "3 bytes, Some(\"z\")");
    // Echoed while it comes: the first half is back before the second is sent.
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("5\r\nfirst\r\n");
    while !client.received.windows(5).any(|bytes| bytes == b"first") {
        assert_eq!(client.receive(), None);
    }
    client.send("6\r\nsecond\r\n0\r\nDigest: y\r\n\r\n");
    let answer = client.answer();
    assert_eq!(answer.text(), "firstsecond");
    assert_eq!(answer.trailers, [("digest".to_owned(), b"y".to_vec())]);
}

#[test]
fn a_response_streams_with_its_trailers_and_waits_for_a_slow_reader() {
    let running = running();
    let mut client = Client::connect(&running);
    let answer = client.get("/pieces");
    assert_eq!(answer.body.len(), 49 * 20_000);
    assert_eq!(answer.trailers, [("sum".to_owned(), b"7".to_vec())]);
    // Two gigabytes for a client that reads none: the body is asked for no more than fits.
    let mut idle = Client::connect(&running);
    idle.send(get("/much"));
    until(&running, |figures| figures.in_flight == 1);
    assert_eq!(client.get("/").text(), "hello");
    drop(idle);
    until(&running, |figures| {
        figures.in_flight == 0 && figures.connections == 1
    });
}

#[test]
fn what_fails_costs_its_own_connection() {
    let running = running();
    let mut client = Client::connect(&running);
    let answer = client.get("/panics");
    assert_eq!(
        (answer.status, answer.field("connection")),
        (500, Some("close"))
    );
    let mut client = Client::connect(&running);
    assert!(
        client.send(get("/fails")).try_answer_to("GET").is_err(),
        "cut off"
    );
    let mut client = Client::connect(&running);
    client.send(get("/never"));
    until(&running, |figures| figures.in_flight == 1);
    drop(client);
    until(&running, |figures| figures.in_flight == 0);
    let mut client = Client::connect(&running);
    client.send(get("/never")).finish_sending();
    assert_eq!(client.end(), End::InOrder, "its future is dropped");
    assert_eq!(running.statistics().panics, 1);
}
