//! Answers that are given twice, by several, in crumbs, or by what panics at its end.

use crate::support::{Client, End, get, serve, until};
use dwell_engine::handler::{Answer, Exchange, Gone, Responder};
use dwell_engine::{Body, Request, Response};
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Gives away two responders for each request.
fn pairs(
    to: Sender<[Responder; 2]>,
) -> impl Fn(&Request<'_>, &mut Exchange<'_, '_>) + Send + Sync + 'static {
    let to = Mutex::new(to);
    move |_, exchange| {
        let pair = [exchange.responder(), exchange.responder()];
        to.lock().unwrap().send(pair).unwrap();
    }
}

#[test]
fn a_spare_responder_that_is_dropped_leaves_a_stream_alone() {
    let handler = |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let (responder, spare) = (exchange.responder(), exchange.responder());
        let answer = move || {
            let mut writer = responder.stream(Answer::new(200), None).unwrap();
            writer.try_write("before, ").unwrap();
            drop(spare);
            writer.try_write("after").unwrap();
            writer.finish(Vec::new()).unwrap();
        };
        match request.head.path {
            "/here" => answer(),
            _ => exchange.offload(answer).unwrap(),
        }
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    for target in ["/here", "/elsewhere"] {
        let answer = client.get(target);
        assert_eq!((answer.status, answer.text()), (200, "before, after"));
    }
}

#[test]
fn every_request_is_told_the_address_of_its_own_client() {
    let handler = |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let peer = exchange.peer_address().unwrap().to_string();
        exchange.send(&Response {
            status: 200,
            fields: &[],
            body: Body::Slice(peer.as_bytes()),
        });
    };
    let running = serve(|options| options, handler);
    let mut lasting = Client::connect(&running);
    for _ in 0..3 {
        // Each of these has the place of the one before it.
        let mut client = Client::connect(&running);
        for client in [&mut lasting, &mut client] {
            let own = client.socket.local_addr().unwrap().to_string();
            assert_eq!(client.get("/").text(), own);
            assert_eq!(client.get("/").text(), own);
        }
        drop(client);
        until(&running, |statistics| statistics.connections == 1);
    }
}

#[test]
fn a_stream_that_has_no_body_is_over_with_its_head() {
    let (tell, told) = channel();
    let handler = move |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let status = if request.head.path == "/nothing" {
            204
        } else {
            200
        };
        let (responder, tell) = (exchange.responder(), tell.clone());
        let produce = move || {
            let mut writer = responder.stream(Answer::new(status), None).unwrap();
            // As much as there is: only an end that is told stops it.
            while writer.write_blocking("a piece").is_ok() {}
            tell.send(()).unwrap();
        };
        exchange.offload(produce).unwrap();
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    for (method, target) in [("HEAD", "/"), ("GET", "/nothing"), ("HEAD", "/nothing")] {
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.answer_to(method);
        assert!(matches!(answer.status, 200 | 204));
        assert_eq!(answer.text(), "");
        told.recv().unwrap();
    }
}

#[test]
fn the_first_of_several_responders_answers() {
    let (to, responders) = channel();
    let running = serve(|options| options, pairs(to));
    let mut client = Client::connect(&running);
    for late in 0..4 {
        client.send(get("/"));
        let [first, second] = responders.recv().unwrap();
        let mut writer = first.stream(Answer::new(200), None).unwrap();
        writer.try_write("the ").unwrap();
        match late {
            0 => assert_eq!(second.send(Answer::new(404)), Err(Gone)),
            1 => assert!(second.stream(Answer::new(404), None).is_err()),
            2 => second.abort(),
            _ => {
                let echo = |_: &mut dwell_engine::StreamRef<'_>, input: &[u8]| input.len();
                assert_eq!(second.take_over(Answer::new(101), echo), Err(Gone));
            }
        }
        writer.try_write("first").unwrap();
        writer.finish(Vec::new()).unwrap();
        assert_eq!(client.answer().text(), "the first", "{late}");
    }
}

#[test]
fn everybody_who_waits_for_the_end_of_an_exchange_is_told() {
    struct Told(Mutex<Sender<()>>);
    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.lock().unwrap().send(()).unwrap();
        }
    }
    let (to, responders) = channel();
    let running = serve(|options| options, pairs(to));
    let mut client = Client::connect(&running);
    client.send(get("/"));
    let pair = responders.recv().unwrap();
    let (told, heard) = channel();
    let mut waits: Vec<_> = pair.iter().map(|each| Box::pin(each.cancelled())).collect();
    for wait in &mut waits {
        let waker = Waker::from(Arc::new(Told(Mutex::new(told.clone()))));
        for _ in 0..3 {
            let polled = wait.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
    }
    drop(client);
    heard.recv().unwrap();
    heard.recv().unwrap();
    until(&running, |figures| figures.connections == 0);
    assert!(heard.try_recv().is_err(), "each is told once");
}

#[test]
fn crumbs_fill_the_queue_by_what_they_take() {
    let (told, heard) = channel();
    let told = Mutex::new(told);
    let handler = move |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let mut writer = exchange.responder().stream(Answer::new(200), None).unwrap();
        let mut crumbs = 0;
        while writer.try_write("x").is_ok() {
            crumbs += 1;
        }
        told.lock().unwrap().send(crumbs).unwrap();
        writer.finish(Vec::new()).unwrap();
    };
    let running = serve(|options| options, handler);
    let answer = Client::connect(&running).get("/");
    let crumbs: usize = heard.recv().unwrap();
    assert_eq!(answer.body.len(), crumbs);
    assert!(crumbs < 50_000, "{crumbs} orders in a queue of a megabyte");
}

/// A future that is ready at once, and panics when it is dropped.
struct Last(Option<Responder>);

impl Future for Last {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let responder = self.0.take().unwrap();
        responder.send(Answer::text(200, "done")).unwrap();
        Poll::Ready(())
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        assert!(self.0.is_some(), "as the test wants it");
    }
}

#[test]
fn a_future_that_panics_when_it_is_dropped_costs_nobody_else() {
    let handler = |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        exchange.spawn(|responder| Last(Some(responder)));
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    for panics in 1..=2 {
        assert_eq!(client.get("/").text(), "done");
        until(&running, |figures| figures.panics == panics);
    }
    assert_eq!(running.shutdown(std::time::Duration::ZERO).failed_loops, 0);
    client.finish_sending();
    assert_eq!(client.end(), End::InOrder);
}

/// Fields that frame an answer, or split one, and that no program may decide.
const OWN: [(&str, &[u8]); 6] = [
    ("Content-Length", b"999"),
    ("Transfer-Encoding", b"chunked"),
    ("Connection", b"keep-alive"),
    ("Keep-Alive", b"timeout=9"),
    ("DATE", b"long ago"),
    ("Content-Length\r\nX-Split", b"1\r\nX-Split: 1"),
];

#[test]
fn what_frames_an_answer_is_sent_once_whatever_a_program_adds() {
    let handler = |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let mut answer = Answer::new(200).field("X-Own", "a\r\nX-Split: 1");
        for (name, value) in OWN {
            answer = answer.field(name, value);
        }
        match request.head.path {
            "/reply" => {
                exchange.informational(103, &OWN);
                let body = Body::Slice(b"hello");
                exchange.send(&Response {
                    status: 200,
                    fields: &OWN,
                    body,
                });
            }
            "/pieces" => {
                exchange.send(&Response {
                    status: 200,
                    fields: &OWN,
                    body: Body::Stream(None),
                });
                exchange.write(b"hello").unwrap();
                exchange.finish(&OWN).unwrap();
            }
            "/whole" => exchange.responder().send(answer.body("hello")).unwrap(),
            _ => {
                let mut writer = exchange.responder().stream(answer, Some(5)).unwrap();
                writer.try_write("hello").unwrap();
                writer.finish(Vec::new()).unwrap();
            }
        }
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    for target in ["/reply", "/pieces", "/whole", "/length"] {
        let mut answer = client.get(target);
        if answer.status == 103 {
            assert_eq!(answer.head, "HTTP/1.1 103 Early Hints\r\n\r\n");
            answer = client.answer();
        }
        let head = answer.head.to_ascii_lowercase();
        let count = |name: &str| head.matches(&format!("\r\n{name}:")).count();
        assert_eq!(answer.text(), "hello", "{target}");
        assert_eq!(count("date"), 1, "{head}");
        assert_eq!(
            count("content-length") + count("transfer-encoding"),
            1,
            "{head}"
        );
        assert_eq!(count("connection") + count("keep-alive"), 0, "{head}");
        assert_eq!(count("x-split"), 0, "{head}");
        assert!(
            !head.contains("999") && !head.contains("long ago"),
            "{head}"
        );
        // Behind a body a date frames nothing.
        let mut trailers = answer.trailers.iter();
        assert!(trailers.all(|(name, _)| name.eq_ignore_ascii_case("date")));
    }
}

#[test]
fn wishes_among_the_fields_are_granted() {
    let handler = |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let (status, fields, body): (u16, &[(&str, &[u8])], Body<'_>) = match request.head.path {
            "/upgrade" => (
                426,
                &[("Upgrade", b"h3"), ("Connection", b"upgrade")],
                Body::Empty,
            ),
            "/large" => (200, &[("content-length", b"12345")], Body::Empty),
            "/stream" => (200, &[("content-length", b"12345")], Body::Stream(None)),
            "/true" => (200, &[("content-length", b"12345")], Body::Slice(b"true")),
            "/304" => (304, &[("content-length", b"12345")], Body::Empty),
            _ => (
                200,
                &[("Connection", b"keep-alive, Close")],
                Body::Slice(b"last"),
            ),
        };
        exchange.send(&Response {
            status,
            fields,
            body,
        });
        if exchange.is_open() {
            exchange.finish(&[]).unwrap();
        }
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    assert_eq!(client.get("/upgrade").field("connection"), Some("upgrade"));
    let lengths = [
        ("/large", Some("12345")),
        ("/stream", Some("12345")),
        ("/true", Some("4")),
        ("/304", None),
    ];
    for (target, length) in lengths {
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.answer_to("HEAD");
        assert_eq!(answer.field("content-length"), length, "{target}");
        assert_eq!(answer.field("transfer-encoding"), None);
    }
    assert_eq!(client.get("/large").field("content-length"), Some("0"));
    let answer = client.get("/last");
    assert_eq!(
        (answer.field("connection"), answer.text()),
        (Some("close"), "last")
    );
    assert_eq!(client.end(), End::InOrder);
}
