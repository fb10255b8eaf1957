//! The proxy without an application: the test reads its actions, and tells it what came of them.

mod harness;

use super::actions::Action;
use super::arriving::{CONTINUE_TIMEOUT, PROBE_TIMEOUT};
use super::{Adopted, Proxy};
use crate::held::hold;
use crate::ids::{FetchId, ProxiedId};
use crate::metrics::UpstreamOutcome;
use crate::responder::HeldClient;
use bytes::Bytes;
use dwell_engine::Detached;
use dwell_evloop::{Id, Token};
use dwell_proto::http1::BodyFraming;
use dwell_upstream::{AnswerHead, AnswerPart, UpstreamError, UpstreamEvent};
use harness::{Client, Edge, PATIENCE};

/// The exchange with the application.
const CONNECTION: Token = Token::new(9, 1, 0);
const WINDOW: usize = 4096;

fn head(status: u16, framing: BodyFraming) -> AnswerHead {
    AnswerHead {
        status,
        fields: vec![("X-App".to_owned(), Bytes::from_static(b"yes"))],
        content_length: None,
        framing,
        upgrade: None,
    }
}

fn parts(tag: u64, parts: impl Into<Vec<AnswerPart>>) -> UpstreamEvent {
    UpstreamEvent::Parts {
        tag,
        connection: CONNECTION,
        server: ([127, 0, 0, 1], 80).into(),
        parts: parts.into(),
    }
}

fn started(tag: u64) -> UpstreamEvent {
    let connection = CONNECTION;
    UpstreamEvent::Started { tag, connection }
}

fn body(bytes: &'static [u8]) -> AnswerPart {
    AnswerPart::Body(Bytes::from_static(bytes))
}

/// Requests to the application, by what they came to.
fn counts(proxy: &Proxy) -> Vec<(UpstreamOutcome, u64)> {
    let of = |outcome: &UpstreamOutcome| proxy.metrics().upstream_requests.of(*outcome).value();
    let all = UpstreamOutcome::ALL.iter();
    let counts = all.map(|outcome| (*outcome, of(outcome)));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Takes the pieces of a body that are to be written by now.
fn pieces(edge: &mut Edge) -> (Vec<u8>, bool) {
    edge.settle();
    let (mut bytes, mut is_over) = (Vec::new(), false);
    for action in edge.with(|_, _, proxy, _| proxy.actions.take()) {
        match action {
            Action::Write { piece, is_last, .. } => {
                bytes.extend(piece);
                is_over |= is_last;
            }
            other => panic!("no piece: {other:?}"),
        }
    }
    (bytes, is_over)
}

#[test]
fn a_body_is_read_no_further_than_a_window_beyond_what_the_application_has_taken() {
    let mut edge = Edge::new(|config| {
        config.upstream.request_buffer_bytes = 0;
        config.upstream.window_bytes = WINDOW as u64;
    });
    let sent: Vec<u8> = (0..=250).cycle().take(10_000).collect();
    let mut client = edge.ask("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n");
    client.send(&sent);
    let (tag, request) = edge.request();
    assert!(request.starts_with("POST /up HTTP/1.1\r\n"), "{request}");
    assert_eq!(pieces(&mut edge), (Vec::new(), false), "no connection yet");
    edge.tell(started(tag));
    assert_eq!(pieces(&mut edge), (sent[..WINDOW].to_vec(), false));
    edge.tell(UpstreamEvent::BodyTaken { tag });
    assert_eq!(
        pieces(&mut edge),
        (sent[WINDOW..2 * WINDOW].to_vec(), false)
    );
    edge.tell(UpstreamEvent::BodyTaken { tag });
    assert_eq!(pieces(&mut edge), (sent[2 * WINDOW..].to_vec(), true));
}

#[test]
fn pieces_that_came_while_the_connection_changed_go_to_the_next() {
    let mut edge = Edge::new(|config| config.upstream.request_buffer_bytes = 0);
    let mut client = edge.ask("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
    let (tag, _) = edge.request();
    edge.tell(started(tag));
    client.send(b"body");
    edge.turn_until(|proxy| proxy.has_actions());
    let (piece, is_last) = pieces(&mut edge);
    assert!(is_last);
    let id = ProxiedId::from_bits(tag);
    edge.with(|_, _, proxy, _| proxy.keep(id, &piece, is_last));
    assert_eq!(pieces(&mut edge), (Vec::new(), false));
    edge.tell(started(tag));
    assert_eq!(pieces(&mut edge), (b"body".to_vec(), true));
}

#[test]
fn a_body_that_its_client_holds_back_comes_when_the_application_asks_for_it() {
    let mut edge = Edge::new(|config| config.upstream.request_buffer_bytes = 0);
    let request = "PUT /up HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n";
    let mut client = edge.ask(&format!("{request}Expect: 100-continue\r\n\r\n"));
    let (tag, request) = edge.request();
    assert!(request.contains("100-continue"), "{request}");
    edge.tell(started(tag));
    edge.settle();
    client.read();
    assert_eq!(client.received, b"", "it is not told to go on");
    let interim = AnswerPart::Interim(head(100, BodyFraming::None));
    edge.tell(parts(tag, [interim]));
    edge.read_until(&mut client, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"body");
    edge.turn_until(|proxy| proxy.has_actions());
    assert_eq!(pieces(&mut edge), (b"body".to_vec(), true));
}

#[test]
fn trailers_of_the_connection_and_of_doubtful_names_stay_behind() {
    let mut edge = Edge::new(|config| config.upstream.request_buffer_bytes = 0);
    let fields = "Host: a\r\nTransfer-Encoding: chunked\r\nConnection: X-Hop\r\n";
    let mut client = edge.ask(&format!("POST /up HTTP/1.1\r\n{fields}\r\n"));
    let (tag, _) = edge.request();
    edge.tell(started(tag));
    client.send(b"2\r\nok\r\n0\r\nX-Hop: 1\r\nX_Under: 2\r\nX-End: 3\r\n\r\n");
    edge.turn_until(|proxy| proxy.has_actions());
    let (bytes, is_last) = pieces(&mut edge);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text, "2\r\nok\r\n0\r\nX-End: 3\r\n\r\n");
    assert!(is_last);
}

#[test]
fn an_answer_is_granted_on_as_its_client_takes_it() {
    const LARGE: usize = 1 << 20;
    let mut edge = Edge::new(|_| {});
    let mut client = edge.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (tag, _) = edge.request();
    let length = (LARGE + 2) as u64;
    let begin = AnswerPart::Head(head(200, BodyFraming::Length(length)));
    edge.tell(parts(tag, [begin, body(b"ok")]));
    let Action::Grant { bytes, .. } = edge.action() else {
        panic!("a client that takes all is granted more");
    };
    assert_eq!(bytes, 2);
    edge.tell(parts(tag, [AnswerPart::Body(vec![b'a'; LARGE].into())]));
    edge.settle();
    let is_left = edge.with(|_, _, proxy, _| proxy.has_actions());
    assert!(!is_left, "a client that does not read is granted nothing");
    edge.turn_until(|proxy| {
        client.read();
        proxy.has_actions()
    });
    let Action::Grant {
        bytes, connection, ..
    } = edge.action()
    else {
        panic!("what was taken is granted");
    };
    assert_eq!((bytes, connection), (LARGE, CONNECTION));
    edge.tell(parts(tag, [AnswerPart::End(Vec::new())]));
    let text = edge.read_until(&mut client, "a");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(body.len(), LARGE + 2);
    assert!(head.contains("X-App: yes\r\n"), "{head}");
    assert!(head.contains("Cache-Status: dwell; fwd=bypass"), "{head}");
    edge.turn_until(|proxy| proxy.is_idle());
    assert_eq!(counts(&edge.driver.app.0), [(UpstreamOutcome::Answered, 1)]);
}

#[test]
fn an_answer_that_is_cut_short_does_not_end_in_order() {
    for (request, framing) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", BodyFraming::Length(10)),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", BodyFraming::Chunked),
        ("GET / HTTP/1.0\r\nHost: a\r\n\r\n", BodyFraming::UntilClose),
    ] {
        let mut edge = Edge::new(|_| {});
        let mut client = edge.ask(request);
        let (tag, _) = edge.request();
        edge.tell(parts(
            tag,
            [AnswerPart::Head(head(200, framing)), body(b"half")],
        ));
        edge.turn_until(|_| {
            client.read();
            client.received.windows(4).any(|bytes| bytes == b"half")
        });
        edge.tell(UpstreamEvent::failed(tag, UpstreamError::Closed));
        let (text, is_reset) = edge.read_to_end(&mut client);
        assert!(!text.ends_with("0\r\n\r\n"), "{framing:?}: {text}");
        assert!(is_reset, "{framing:?}: taken for whole: {text}");
        assert_eq!(
            counts(&edge.driver.app.0),
            [(UpstreamOutcome::BadAnswer, 1)]
        );
        assert!(edge.driver.app.0.records.is_empty());
    }
}

#[test]
fn a_request_that_fails_without_an_answer_is_told_why() {
    let full = UpstreamError::QueueFull { limit: 1 };
    for (error, status, outcome) in [
        (UpstreamError::Closed, 502, UpstreamOutcome::BadAnswer),
        (full, 503, UpstreamOutcome::Refused),
    ] {
        let mut edge = Edge::new(|_| {});
        let mut client = edge.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (tag, _) = edge.request();
        let reason = format!("upstream: {error}\n");
        edge.tell(UpstreamEvent::failed(tag, error));
        let text = edge.read_until(&mut client, &reason);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        assert_eq!(text.contains("Retry-After: "), status == 503, "{text}");
        assert_eq!(counts(&edge.driver.app.0), [(outcome, 1)]);
        assert!(edge.driver.app.0.is_idle());
    }
}

#[test]
fn requests_that_have_nowhere_to_go_are_refused() {
    let mut edge = Edge::new(|config| config.upstream.url.clear());
    let mut client = edge.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let text = edge.read_until(&mut client, "no route and no upstream\n");
    assert!(text.starts_with("HTTP/1.1 404 "), "{text}");

    drop(edge);
    let mut edge = Edge::new(|config| config.limits.connections_max = 1);
    let _first = edge.ask("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
    edge.request();
    let mut second = edge.ask("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    let text = edge.read_until(&mut second, "too many requests are in progress\n");
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(text.contains("Retry-After: "), "{text}");
    assert_eq!(counts(&edge.driver.app.0), [(UpstreamOutcome::Refused, 1)]);
}

#[test]
fn a_client_that_leaves_takes_its_request_along() {
    let mut edge = Edge::new(|_| {});
    let client = edge.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (first, _) = edge.request();
    client.reset();
    let Action::Cancel {
        connection,
        request,
    } = edge.action()
    else {
        panic!("it is cancelled");
    };
    assert_eq!((connection, request.to_bits()), (None, first));
    assert_eq!(counts(&edge.driver.app.0), []);

    let mut client = edge.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (second, _) = edge.request();
    edge.tell(parts(
        second,
        [AnswerPart::Head(head(200, BodyFraming::Chunked))],
    ));
    edge.read_until(&mut client, "\r\n\r\n");
    client.reset();
    let Action::Cancel {
        connection,
        request,
    } = edge.action()
    else {
        panic!("it is cancelled where its answer comes");
    };
    assert_eq!((connection, request.to_bits()), (Some(CONNECTION), second));
    assert_eq!(counts(&edge.driver.app.0), [(UpstreamOutcome::Answered, 1)]);
    assert!(edge.driver.app.0.is_idle());
}

#[test]
fn a_client_that_has_ended_its_side_is_probed_once_and_gets_its_answer() {
    let mut edge = Edge::new(|_| {});
    let mut client = edge.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (tag, _) = edge.request();
    client.socket.shutdown_write().unwrap();
    let Action::Probe { id, exchange } = edge.action() else {
        panic!("it may still read");
    };
    assert_eq!(id.to_bits(), tag);
    edge.settle();
    assert!(!edge.driver.app.0.has_actions());
    edge.with(|context, http, _, _| hold(http, context, exchange, tag, PROBE_TIMEOUT));
    edge.pass(2 * PROBE_TIMEOUT);
    edge.read_until(&mut client, "HTTP/1.1 100 Continue\r\n\r\n");
    let begin = AnswerPart::Head(head(200, BodyFraming::Length(2)));
    edge.tell(parts(
        tag,
        [begin, body(b"ok"), AnswerPart::End(Vec::new())],
    ));
    let text = edge.read_until(&mut client, "\r\n\r\nok");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

/// A client and an application whose connection changes its protocol.
fn tunnel(edge: &mut Edge) -> (Client, Client) {
    let fields = "Host: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n";
    let client = edge.ask(&format!("GET /chat HTTP/1.1\r\n{fields}\r\n"));
    let (tag, request) = edge.request();
    assert!(request.contains("Upgrade: echo\r\n"), "{request}");
    let (application, stream) = edge.pair();
    let head = AnswerHead {
        upgrade: Some(Bytes::from_static(b"echo")),
        ..head(101, BodyFraming::None)
    };
    let input = b"first".to_vec();
    edge.tell(UpstreamEvent::Switched {
        server: ([127, 0, 0, 1], 80).into(),
        tag,
        head,
        detached: Box::new(Detached { stream, input }),
    });
    let Action::Tunnel(tunnel) = edge.action() else {
        panic!("a tunnel is to begin");
    };
    assert!(edge.driver.app.0.is_idle(), "it is no request any more");
    edge.with(|context, _, _, tunnels| tunnels.open(context, *tunnel));
    (client, application)
}

#[test]
fn a_connection_that_changes_its_protocol_passes_bytes_both_ways_and_their_ends() {
    let mut edge = Edge::new(|_| {});
    let (mut client, mut application) = tunnel(&mut edge);
    let text = edge.read_until(&mut client, "\r\n\r\nfirst");
    assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
    assert!(text.contains("Upgrade: echo\r\n"), "{text}");
    client.send(b"up");
    assert_eq!(edge.read_until(&mut application, "up"), "up");
    client.socket.shutdown_write().unwrap();
    assert_eq!(edge.read_to_end(&mut application), (String::new(), false));
    application.send(b"down");
    assert_eq!(edge.read_until(&mut client, "down"), "down");
    application.socket.shutdown_write().unwrap();
    assert_eq!(edge.read_to_end(&mut client), (String::new(), false));
    assert_eq!(edge.driver.tunnels.len(), 0);
}

#[test]
fn a_held_exchange_is_taken_over_with_the_beginning_of_its_answer() {
    let mut edge = Edge::new(|config| config.limits.connections_max = 2);
    let mut client = edge.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (tag, _) = edge.request();
    let held = ProxiedId::from_bits(tag);
    let exchange = edge.with(|_, _, proxy, _| proxy.records.get(held).unwrap().client.exchange);
    let fetch = FetchId::nth(0);
    let adopted = Adopted {
        client: HeldClient {
            exchange,
            arrived: edge.with(|context, _, _, _| context.now()),
            was_held: false,
            route_place: None,
            route: None,
            line: None,
            is_head: false,
        },
        connection: CONNECTION,
        server: ([127, 0, 0, 1], 80).into(),
        fetch,
    };
    let begin = [AnswerPart::Head(head(200, BodyFraming::Chunked))];
    let mut adopt =
        || edge.with(|context, http, proxy, _| proxy.adopt(context, http, &adopted, &begin));
    assert!(adopt());
    assert!(!adopt(), "there is no room for a third");
    let Action::TakeOver {
        connection,
        fetch: of,
        ..
    } = edge.action()
    else {
        panic!("the answer goes on elsewhere");
    };
    assert_eq!((connection, of), (CONNECTION, fetch));
    let text = edge.read_until(&mut client, "\r\n\r\n");
    assert!(text.contains("Cache-Status: dwell; fwd=miss"), "{text}");
}

#[test]
fn a_tunnel_that_one_end_resets_is_reset_at_the_other() {
    let mut edge = Edge::new(|_| {});
    let (mut client, application) = tunnel(&mut edge);
    edge.read_until(&mut client, "first");
    application.reset();
    assert_eq!(edge.read_to_end(&mut client), (String::new(), true));
    assert_eq!(edge.driver.tunnels.len(), 0);
}

#[test]
fn a_tunnel_ends_when_neither_end_has_sent_for_a_time() {
    let mut edge = Edge::new(|_| {});
    let (mut client, mut application) = tunnel(&mut edge);
    edge.read_until(&mut client, "first");
    edge.pass(PATIENCE / 2);
    application.send(b"still here");
    edge.pass(PATIENCE * 3 / 4);
    assert_eq!(edge.driver.tunnels.len(), 1);
    edge.pass(PATIENCE / 2);
    assert_eq!(edge.driver.tunnels.len(), 0);
    let end = edge.read_to_end(&mut client);
    assert_eq!(end, ("still here".to_owned(), false));
    assert_eq!(edge.read_to_end(&mut application), (String::new(), false));
}

#[test]
fn a_body_that_is_held_back_comes_in_time_if_the_application_never_asks() {
    let mut edge = Edge::new(|config| config.upstream.request_buffer_bytes = 0);
    let request = "PUT /up HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n";
    let mut client = edge.ask(&format!("{request}Expect: 100-continue\r\n\r\n"));
    let (tag, _) = edge.request();
    edge.pass(2 * CONTINUE_TIMEOUT);
    client.read();
    assert_eq!(client.received, b"", "there is no connection yet");
    edge.tell(started(tag));
    edge.pass(CONTINUE_TIMEOUT / 2);
    client.read();
    assert_eq!(client.received, b"", "the application may still ask");
    edge.pass(CONTINUE_TIMEOUT);
    edge.read_until(&mut client, "HTTP/1.1 100 Continue\r\n\r\n");
    // Even before the body comes, the request is no longer one to be sent again.
    assert_eq!(pieces(&mut edge), (Vec::new(), false));
    client.send(b"body");
    edge.turn_until(|proxy| proxy.has_actions());
    assert_eq!(pieces(&mut edge), (b"body".to_vec(), true));
}

#[test]
fn interim_answers_come_before_the_answer_and_are_not_counted() {
    let mut edge = Edge::new(|_| {});
    let mut client = edge.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (tag, _) = edge.request();
    let interim = |status| AnswerPart::Interim(head(status, BodyFraming::None));
    edge.tell(parts(tag, [interim(100), interim(103)]));
    let text = edge.read_until(&mut client, "103 Early Hints\r\nX-App: yes\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 100 Continue\r\n"), "{text}");
    assert_eq!(counts(&edge.driver.app.0), []);
    let answer = AnswerPart::Head(head(204, BodyFraming::None));
    edge.tell(parts(tag, [answer, AnswerPart::End(Vec::new())]));
    let text = edge.read_until(&mut client, "\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 204 "), "{text}");
    assert_eq!(counts(&edge.driver.app.0), [(UpstreamOutcome::Answered, 1)]);
}

#[test]
fn an_answer_in_parts_ends_with_its_trailers() {
    let mut edge = Edge::new(|_| {});
    let mut client = edge.ask("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    let (tag, _) = edge.request();
    let begin = AnswerPart::Head(head(500, BodyFraming::Chunked));
    edge.tell(parts(tag, [begin, body(b"one")]));
    edge.tell(parts(tag, [body(b"two")]));
    let trailers = vec![("X-End".to_owned(), Bytes::from_static(b"yes"))];
    edge.tell(parts(tag, [AnswerPart::End(trailers)]));
    let text = edge.read_until(&mut client, "0\r\nX-End: yes\r\n\r\n");
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(body.starts_with("3\r\none\r\n3\r\ntwo\r\n"), "{body}");
    let failure = UpstreamOutcome::ServerError;
    assert_eq!(counts(&edge.driver.app.0), [(failure, 1)]);
}

#[test]
fn an_answer_to_head_has_the_fields_of_its_body_alone() {
    let mut edge = Edge::new(|_| {});
    let mut client = edge.ask("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (tag, _) = edge.request();
    let head = AnswerHead {
        content_length: Some(1234),
        ..head(200, BodyFraming::None)
    };
    edge.tell(parts(
        tag,
        [AnswerPart::Head(head), AnswerPart::End(Vec::new())],
    ));
    let text = edge.read_until(&mut client, "\r\n\r\n");
    assert!(text.contains("Content-Length: 1234\r\n"), "{text}");
    edge.turn_until(|proxy| proxy.is_idle());
}
