//! What goes over the wire, row by row: each request is sent whole, byte by byte, and behind
//! another one in the same write.

mod rows;

use crate::support::{Answer, Client, End, post, serve};
use dwell_engine::handler::{
    Answer as Sent, BodyMode, Exchange, Handler, OwnedRequest, Responder, blocking,
};
use dwell_engine::{Body, Request, Response, Running};
use dwell_proto::http1::RequestHead;
use rows::{CONNECTIONS, FRAMING, REFUSED, Row};
use std::io::Write;
use std::time::Duration;

/// Answers in every shape, by the path.
struct Shapes;

impl Handler for Shapes {
    fn body(&self, head: &RequestHead<'_, '_>) -> BodyMode {
        match head.path {
            "/unread" | "/streamed" => BodyMode::Stream,
            "/forbidden" => BodyMode::Refuse(403),
            _ => BodyMode::Collect,
        }
    }

    fn handle(&self, request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
        let head = request.head;
        match head.path {
            "/204" => exchange.answer(Sent::text(204, "never sent")),
            "/304" => exchange.answer(Sent::text(304, "never sent")),
            "/hints" => {
                exchange.informational(103, &[("Link", b"</a.css>; rel=preload")]);
                exchange.answer(Sent::text(200, "hinted"));
            }
            "/chunked" => {
                let writer = exchange.responder().stream(Sent::new(200), None);
                let mut writer = writer.unwrap();
                writer.try_write("one").unwrap();
                writer.try_write("two").unwrap();
                writer.finish(vec![("Sum".into(), "6".into())]).unwrap();
            }
            "/announced" => {
                exchange.send(&Response {
                    status: 200,
                    fields: &[],
                    body: Body::Stream(Some(3)),
                });
                exchange.write(b"abc").unwrap();
                exchange.finish(&[]).unwrap();
            }
            "/close" => exchange.answer(Sent::text(200, "the last").close_after()),
            "/inject" => {
                exchange.answer(Sent::new(200).field("X-First", "a\r\nX-Injected: 1"));
            }
            "/trailers" => {
                let digest = request.trailers.find("digest").unwrap_or(b"none").to_vec();
                exchange.answer(Sent::text(200, digest));
            }
            "/streamed" => {
                let read = blocking(|mut request: OwnedRequest, responder: Responder| {
                    let body = request.body.read_all(1 << 20);
                    responder.send(Sent::text(200, body.unwrap())).unwrap();
                });
                read.handle(request, exchange);
            }
            "/method" => exchange.answer(Sent::text(200, head.method.to_owned())),
            "/host" => {
                let host = head.host.unwrap_or(b"none").to_vec();
                exchange.answer(Sent::text(200, host));
            }
            "/unread" => exchange.answer(Sent::text(200, "unread")),
            "*" => exchange.answer(Sent::new(200)),
            _ => exchange.answer(Sent::text(200, request.body.to_vec())),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Whole,
    ByteByByte,
    Behind,
}

const BEFORE: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nbefore";
const AFTER: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nafter";

fn check(rows: &[Row]) {
    let running = serve(|options| options, Shapes);
    for row in rows {
        for how in [How::Whole, How::ByteByByte, How::Behind] {
            check_row(&running, row, how);
        }
    }
    assert_eq!(running.statistics().panics, 0);
}

fn check_row(running: &Running, row: &Row, how: How) {
    let request = row.request.replace('|', "\r\n");
    let request = request.replace("TE:", "Transfer-Encoding:");
    let told = format!("{how:?}: {request:?}");
    let mut client = Client::connect(running);
    match how {
        How::Whole => drop(client.send(&request)),
        How::ByteByByte => {
            for byte in request.bytes() {
                client.send([byte]);
            }
        }
        How::Behind => {
            client.send(format!("{BEFORE}{request}"));
            assert_eq!(client.answer().text(), "before", "{told}");
        }
    }
    let method = request.split(' ').next().unwrap();
    if row.lives && how == How::Behind {
        client.send(AFTER);
    }
    let mut answer = None;
    for (status, body) in row.answers {
        let Ok(found) = client.try_answer_to(method) else {
            panic!(
                "no answer to {told}: {:?}",
                String::from_utf8_lossy(&client.received)
            );
        };
        assert_eq!((found.status, found.text()), (*status, *body), "{told}");
        answer = Some(found);
    }
    let answer: Answer = answer.unwrap();
    for (name, value) in row.fields {
        assert_eq!(answer.field(name), *value, "{name} of {told}");
    }
    let date = answer.field("date").unwrap();
    assert!(httpdate::parse_http_date(date).is_ok(), "{date} of {told}");
    if row.lives {
        if how != How::Behind {
            client.send(AFTER);
        }
        assert_eq!(client.answer().text(), "after", "{told}");
    } else {
        client.finish_sending();
        assert_eq!(client.end(), End::InOrder, "{told}");
        assert!(
            client.received.is_empty(),
            "more than was asked for: {told}"
        );
    }
}

#[test]
fn bodies_are_framed_as_they_should_be() {
    check(FRAMING);
}

#[test]
fn versions_hosts_methods_and_expectations() {
    check(CONNECTIONS);
}

#[test]
fn what_is_ambiguous_is_refused() {
    check(REFUSED);
}

#[test]
fn trailers_go_out_behind_chunks() {
    let running = serve(|options| options, Shapes);
    let answer = Client::connect(&running).get("/chunked");
    assert_eq!(answer.trailers, [("Sum".to_owned(), b"6".to_vec())]);
}

#[test]
fn a_continue_is_sent_when_the_body_is_wanted() {
    let running = serve(|options| options, Shapes);
    let expecting = |path: &str| {
        let head = post(path, 3);
        head.replace("Host: a", "Host: a\r\nExpect: 100-continue")
    };
    for path in ["/", "/streamed"] {
        let mut client = Client::connect(&running);
        assert_eq!(client.send(expecting(path)).answer().status, 100);
        assert_eq!(client.send("abc").answer().text(), "abc");
        assert_eq!(client.send(AFTER).answer().text(), "after");
    }
    // Who does not want it answers at once, and the connection ends.
    let mut client = Client::connect(&running);
    let answer = client.send(expecting("/unread")).answer();
    assert_eq!(
        (answer.status, answer.field("connection")),
        (200, Some("close"))
    );
    // Who sends it all the same is not told to.
    let mut client = Client::connect(&running);
    let whole = format!("{}abc", expecting("/"));
    assert_eq!(client.send(whole).answer().text(), "abc");
}

#[test]
fn pipelined_requests_are_answered_in_order_and_no_faster_than_they_are_taken() {
    let running = serve(|options| options, Shapes);
    let mut client = Client::connect(&running);
    let mut requests = String::new();
    for number in 0..500 {
        let path = if number % 3 == 0 { "/streamed" } else { "/" };
        let body = number.to_string();
        let length = body.len();
        requests.push_str(&post(path, length));
        requests.push_str(&body);
    }
    client.send(&requests);
    for number in 0..500 {
        assert_eq!(client.answer().text(), number.to_string());
    }
    // A client that never reads is not read either, once its answers do not fit.
    let mut greedy = Client::connect(&running);
    greedy.socket.set_nonblocking(true).unwrap();
    let large = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{}",
        "x".repeat(100_000)
    );
    let mut sent = 0;
    let mut refusals = 0;
    while refusals < 50 {
        let rest = &large.as_bytes()[sent % large.len()..];
        if let Ok(written) = greedy.socket.write(rest) {
            (sent, refusals) = (sent + written, 0);
        } else {
            refusals += 1;
            std::thread::park_timeout(Duration::from_millis(2));
        }
        assert!(sent < 64 << 20, "nothing holds the sender back");
    }
    assert_eq!(
        client.send(AFTER).answer().text(),
        "after",
        "others are served meanwhile"
    );
}
