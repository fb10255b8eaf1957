//! Answers in pieces, and byte for byte; connections that leave HTTP.

use crate::support::{Client, End, Fixture, get};
use bytes::Bytes;
use dwell_engine::{Limits, WriteError};
use dwell_evloop::ReadOutcome;
use dwell_testkit::Rig;
use std::time::Duration;

/// The body of a chunked answer.
fn unchunked(server: &mut Fixture, client: &mut Client) -> Vec<u8> {
    let mut decoder =
        dwell_proto::http1::BodyDecoder::new(dwell_proto::http1::BodyFraming::Chunked, u64::MAX);
    let mut body = Vec::new();
    for _ in 0..10_000 {
        server.turn();
        client.receive();
        let mut used = 0;
        while let Ok(part) = decoder.decode(&client.received[used..]) {
            body.extend_from_slice(part.data);
            used += part.consumed;
            if part.done || part.consumed == 0 {
                break;
            }
        }
        let _ = client.received.split_to(used);
        if decoder.is_done() {
            return body;
        }
    }
    panic!("the answer does not end");
}

/// Takes the head of an answer.
fn head(server: &mut Fixture, client: &mut Client) -> String {
    for _ in 0..1000 {
        server.turn();
        client.receive();
        let end = client
            .received
            .windows(4)
            .position(|bytes| bytes == b"\r\n\r\n");
        if let Some(end) = end {
            return String::from_utf8(client.received.split_to(end + 4).to_vec()).unwrap();
        }
    }
    panic!("no head comes");
}

#[test]
fn an_answer_goes_out_by_and_by_and_another_request_follows() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    server.send(&mut client, get("/stream") + &get("/next"));
    assert!(head(&mut server, &mut client).contains("\r\nTransfer-Encoding: chunked\r\n"));
    server.reply(0, |reply| reply.write(b"hello, ").unwrap());
    client.receive();
    assert_eq!(&client.received[..], b"7\r\nhello, \r\n");
    server.reply(0, |reply| {
        reply.write_shared(&Bytes::from_static(b"world")).unwrap();
        reply.finish(&[("X-Sum", b"12")]).unwrap();
        assert_eq!(reply.write(b"late"), Err(WriteError::NotOpen));
        assert_eq!(reply.finish(&[]), Err(WriteError::NotOpen));
    });
    client.receive();
    assert!(client.received.ends_with(b"0\r\nX-Sum: 12\r\n\r\n"));
    client.received.clear();
    assert_eq!(server.answer(&mut client).text(), "GET /next []");
}

#[test]
fn pieces_of_one_callback_end_with_it() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    server.send(&mut client, get("/pieces"));
    let hint = head(&mut server, &mut client);
    assert!(
        hint.starts_with("HTTP/1.1 103 Early Hints\r\nLink: "),
        "{hint}"
    );
    head(&mut server, &mut client);
    assert_eq!(unchunked(&mut server, &mut client), b"onetwo");
    assert_eq!(
        server.ask(&mut client, &get("/next")).text(),
        "GET /next []"
    );
}

#[test]
fn an_answer_of_announced_length_is_neither_longer_nor_silently_shorter() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    server.send(&mut client, get("/stream?length=5"));
    assert!(head(&mut server, &mut client).contains("\r\nContent-Length: 5\r\n"));
    let result = server.reply(0, |reply| {
        reply.write(b"abc").unwrap();
        reply.write(b"def")
    });
    assert_eq!(
        result,
        Err(WriteError::TooLong {
            limit: 2,
            length: 3
        })
    );
    server.reply(0, |reply| reply.finish(&[]).unwrap());
    assert_eq!(server.end(&mut client), End::InOrder);
    assert_eq!(&client.received[..], b"abc");

    let mut client = server.connect();
    server.send(&mut client, get("/stream?length=3"));
    head(&mut server, &mut client);
    server.reply(1, |reply| {
        reply.write(b"abc").unwrap();
        reply.finish(&[]).unwrap();
    });
    client.receive();
    assert_eq!(&client.received.split()[..], b"abc");
    assert_eq!(
        server.ask(&mut client, &get("/next")).text(),
        "GET /next []"
    );
}

#[test]
fn an_old_client_reads_a_streaming_answer_until_the_connection_closes() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    let request = "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    server.send(&mut client, request);
    let head = head(&mut server, &mut client);
    assert!(!head.contains("Transfer-Encoding") && head.contains("\r\nConnection: close\r\n"));
    server.reply(0, |reply| {
        reply.write(b"abc").unwrap();
        reply.finish(&[("X-Sum", b"3")]).unwrap();
    });
    assert_eq!(server.end(&mut client), End::InOrder);
    assert_eq!(&client.received[..], b"abc");
}

#[test]
fn an_answer_that_is_cut_off_does_not_look_whole() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    server.send(&mut client, "GET /stream?ms=30&then=close HTTP/1.0\r\n\r\n");
    head(&mut server, &mut client);
    server.reply(0, |reply| reply.write(b"half of").unwrap());
    assert_eq!(server.end(&mut client), End::Reset);

    let mut client = server.connect();
    server.send(&mut client, get("/hold"));
    let exchange = server.server.app.held[1].0;
    let context = server.event_loop.context();
    assert!(server.server.http.abort(context, exchange));
    assert_eq!(server.end(&mut client), End::Reset);
    assert!(
        !server
            .server
            .http
            .abort(server.event_loop.context(), exchange)
    );
}

#[test]
fn a_streaming_answer_to_head_has_a_head_only() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    server.send(&mut client, "HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    head(&mut server, &mut client);
    server.reply(0, |reply| {
        reply.write(b"abc").unwrap();
        reply.finish(&[]).unwrap();
    });
    assert_eq!(
        server.ask(&mut client, &get("/next")).text(),
        "GET /next []"
    );
}

#[test]
fn a_slow_reader_is_written_to_as_far_as_the_bound_and_then_again() {
    let limits = Limits {
        output_bytes_max: 100_000,
        ..Limits::default()
    };
    let mut server = Fixture::new(limits);
    let mut client = Client::connect_narrow(server.address);
    client = server.accept(client);
    server.send(&mut client, get("/stream"));
    head(&mut server, &mut client);
    let piece = Bytes::from(vec![b'x'; 50_000]);
    let mut written = 0;
    let refused = loop {
        match server.reply(0, |reply| reply.write_shared(&piece)) {
            Ok(()) => written += piece.len(),
            Err(error) => break error,
        }
        assert!(written < 100_000_000, "there is no bound");
    };
    assert!(matches!(refused, WriteError::Full { limit: 100_000, queued } if queued > 100_000));
    assert_eq!(server.server.app.drained, 0);
    for _ in 0..100_000 {
        client.receive();
        server.turn();
        if server.server.app.drained > 0 {
            break;
        }
    }
    assert_eq!(server.server.app.drained, 1);
    server.reply(0, |reply| {
        reply.write_shared(&piece).unwrap();
        reply.finish(&[]).unwrap();
    });
    assert_eq!(
        unchunked(&mut server, &mut client).len(),
        written + piece.len()
    );
}

#[test]
fn a_reader_that_takes_nothing_of_a_stream_is_cut_off() {
    let limits = Limits {
        write_timeout: Duration::from_millis(30),
        ..Limits::default()
    };
    let mut server = Fixture::new(limits);
    let mut client = Client::connect_narrow(server.address);
    client = server.accept(client);
    server.send(&mut client, get("/stream?ms=1"));
    let piece = Bytes::from(vec![b'x'; 8_000_000]);
    server.reply(0, |reply| reply.write_shared(&piece).unwrap());
    server.turn_until("the hold is given up", |server| {
        !server.app.abandoned.is_empty()
    });
    assert_eq!(server.connections_left(), 0);
}

#[test]
fn an_answer_byte_for_byte_ends_where_its_app_ends_it() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    server.send(&mut client, get("/verbatim") + &get("/next"));
    let answer = server.answer(&mut client);
    assert_eq!((answer.text(), answer.field("date")), ("own", None));
    assert_eq!(server.answer(&mut client).text(), "GET /next []");

    server.send(&mut client, get("/hold"));
    for byte in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n" {
        server.reply(0, |reply| {
            reply.verbatim();
            reply.write(&[*byte]).unwrap();
        });
    }
    server.reply(0, |reply| reply.finish(&[]).unwrap());
    head(&mut server, &mut client);
    assert_eq!(unchunked(&mut server, &mut client), b"a");
    assert_eq!(
        server.ask(&mut client, &get("/next")).text(),
        "GET /next []"
    );
}

#[test]
fn a_connection_leaves_http_with_what_its_client_has_sent() {
    let mut server = Fixture::default();
    let mut client = server.connect();
    let upgrade = "GET /detach HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: own\r\n\r\n";
    server.send(&mut client, upgrade.to_owned() + "early bytes");
    let answer = server.answer(&mut client);
    assert_eq!((answer.status, answer.field("upgrade")), (101, Some("own")));
    assert_eq!(server.server.http.connections(), 0);
    let (tag, mut detached) = server.server.app.detached.pop().unwrap();
    assert_eq!((tag, &detached.input[..]), (77, &b"early bytes"[..]));
    client.send(b"later");
    let mut buffer = [0; 10];
    let outcome = detached.stream.read(&mut buffer).unwrap();
    assert_eq!(outcome, ReadOutcome::Drained(5));
    detached.stream.write(b"answer").unwrap();
    client.receive();
    assert_eq!(&client.received[..], b"answer");

    let mut client = server.connect();
    server.send(&mut client, get("/hold") + "beyond");
    let exchange = server.server.app.held[0].0;
    let context = server.event_loop.context();
    let detached = server.server.http.detach(context, exchange).unwrap();
    assert_eq!(detached.input, b"beyond");
    assert!(
        server
            .server
            .http
            .detach(server.event_loop.context(), exchange)
            .is_none()
    );
    drop(detached);
    assert!(matches!(server.end(&mut client), End::InOrder | End::Reset));
}
