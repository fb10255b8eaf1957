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
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Has fields about its framing that are not so.
async fn last() -> impl axum::response::IntoResponse {
    let fields = [
        ("connection", "keep-alive, close"),
        ("transfer-encoding", "gzip"),
        ("date", "long ago"),
    ];
    (fields, "last")
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
        .route("/last", any(last))
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
    let answer = client.get("/last");
    let framing =
        ["connection", "content-length", "transfer-encoding"].map(|name| answer.field(name));
    assert_eq!(framing, [Some("close"), Some("4"), None]);
    assert!(!answer.head.contains("long ago") && answer.text() == "last");
    assert_eq!(client.end(), End::InOrder);
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

/// Counts the pieces that are asked of it, of which there is no end.
struct Endless(Arc<AtomicUsize>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"piece")))))
    }
}

#[test]
fn a_body_that_no_answer_may_have_is_not_asked_for() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let endless = move |request: Request| {
        let status = request.uri().path()[1..].parse::<u16>().unwrap();
        let mut response = Response::new(Body::new(Endless(Arc::clone(&counter))));
        *response.status_mut() = status.try_into().unwrap();
        async move { response }
    };
    let running = serve(|options| options, service(Router::new().fallback(endless)));
    let mut client = Client::connect(&running);
    for status in [204, 304] {
        let answer = client.get(&format!("/{status}"));
        assert_eq!((answer.status, answer.field("connection")), (status, None));
        assert_eq!(answer.field("content-length"), None);
        assert_eq!(answer.field("transfer-encoding"), None);
    }
    client.send("HEAD /200 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.answer_to("HEAD").status, 200);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    until(&running, |figures| figures.in_flight == 0);
    // Nor is there a final answer of these.
    assert_eq!(client.get("/103").status, 500);
}

#[test]
fn sizes_that_are_not_kept_to_cut_the_answer_off() {
    let response = |request: Request| async move {
        let (left, length, announced) = match request.uri().path() {
            "/short" => (3, 10, 100),
            "/long" => (50, 10, 15),
            _ => (3, 10, 20),
        };
        let mut response = pieces(left, length, false);
        let fields = response.headers_mut();
        fields.insert("content-length", announced.into());
        fields.append("content-length", 7.into());
        response
    };
    let running = serve(|options| options, service(Router::new().fallback(response)));
    for target in ["/short", "/long"] {
        let mut client = Client::connect(&running);
        assert!(client.send(get(target)).try_answer_to("GET").is_err());
    }
    let mut client = Client::connect(&running);
    let answer = client.get("/exact");
    assert_eq!(
        (answer.field("content-length"), answer.body.len()),
        (Some("20"), 20)
    );
    assert_eq!(answer.head.matches("content-length").count(), 0);
}

#[test]
fn the_size_of_a_body_on_its_way_is_known_as_far_as_it_was_announced() {
    let hint = |request: Request| async move {
        let mut body = request.into_body();
        let before = http_body::Body::size_hint(&body).exact();
        let mut hints = vec![before];
        while let Some(frame) = body.frame().await {
            frame.unwrap();
            hints.push(http_body::Body::size_hint(&body).exact());
        }
        format!("{:?} {:?}", hints[0], hints.last().unwrap())
    };
    let running = serve(|options| options, service(Router::new().fallback(hint)));
    let mut client = Client::connect(&running);
    let answer = client.send(post("/", 5)).send("12345").answer();
    assert_eq!(answer.text(), "Some(5) Some(0)");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let answer = client.send("3\r\nabc\r\n0\r\n\r\n").answer();
    assert_eq!(answer.text(), "None None");
    assert_eq!(client.get("/").text(), "Some(0) Some(0)");
}

#[test]
fn values_that_are_not_ascii_go_through() {
    let mirror = |request: Request| async move {
        let mut response = Response::new(Body::empty());
        let value = request.headers()["x"].clone();
        response.headers_mut().insert("y", value);
        response
    };
    let running = serve(|options| options, service(Router::new().fallback(mirror)));
    let mut client = Client::connect(&running);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX: d\u{e9}j\u{e0} vu\r\n\r\n");
    assert_eq!(client.answer().field("y"), Some("d\u{e9}j\u{e0} vu"));
}
