//! Answers at once, later, in pieces; bodies in pieces; connections that leave HTTP.

use crate::support::{Fixture, answer, get};
use dwell_engine::files::{DirectoryOptions, FileOptions};
use dwell_engine::manager::{ConnError, Event, ManagerOptions};
use dwell_engine::sse::{Event as SseEvent, SharedEvent};
use std::io::Read;
use std::time::Duration;

#[test]
fn an_answer_has_its_framing_and_a_type() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(message) = event {
            let fields: &[(&str, &[u8])] = &[
                ("Content-Type", b"text/html"),
                ("Content-Length", b"999"),
                ("Transfer-Encoding", b"chunked"),
                ("X-A", b"1"),
                ("X-A", b"2"),
            ];
            match message.path() {
                "/plain" => conn.reply(200, &[], b"a\0b").unwrap(),
                "/own" => conn.reply(404, fields, b"gone.").unwrap(),
                "/last" => conn
                    .reply(200, &[("Connection", b"keep-alive, Close")], b"bye")
                    .unwrap(),
                _ => conn.reply_json(200, "{\"a\":1}").unwrap(),
            }
        }
    });
    let (mut client, _) = fixture.client();
    client.send(get("/plain"));
    let text = fixture.receive(&mut client, "a\0b");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\nDate: "));
    assert!(text.contains("\r\nContent-Type: text/plain; charset=utf-8\r\n"));
    assert!(text.contains("\r\nContent-Length: 3\r\n"));
    client.send(get("/own"));
    let text = fixture.receive(&mut client, "gone.");
    assert!(text.contains("\r\nContent-Type: text/html\r\nX-A: 1\r\nX-A: 2\r\n"));
    assert!(text.contains("\r\nContent-Length: 5\r\n"));
    assert!(!text.contains("999") && !text.contains("chunked"));
    client.send(get("/json"));
    let text = fixture.receive(&mut client, "{\"a\":1}");
    assert!(text.contains("\r\nContent-Type: application/json\r\n"));
    client.send(get("/plain").replace("GET", "HEAD"));
    let text = fixture.receive(&mut client, "\r\n\r\n");
    assert!(text.contains("\r\nContent-Length: 3\r\n"));
    client.send(get("/last"));
    let text = fixture.rest(&mut client);
    assert!(text.contains("\r\nConnection: close\r\n"));
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("bye"));
}

#[test]
fn a_request_is_answered_later_from_another_thread() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(_) = event {
            let (id, waker) = (conn.id(), conn.scope().waker());
            std::thread::spawn(move || {
                waker.run(id, |conn| conn.reply(200, &[], b"from a thread").unwrap())
            });
        }
    });
    let (mut client, _) = fixture.client();
    for _ in 0..3 {
        client.send(get("/"));
        fixture.receive(&mut client, "from a thread");
    }
    assert_eq!(fixture.manager.panics(), 0);
}

#[test]
fn one_that_is_never_answered_gets_503() {
    let mut options = ManagerOptions::default();
    options.answer_timeout = Duration::from_millis(30);
    let mut fixture = Fixture::with_options("http", options, |_, _| {});
    let (mut client, _) = fixture.client();
    client.send(get("/"));
    let text = fixture.receive(&mut client, "no answer in time\n");
    assert!(text.starts_with("HTTP/1.1 503 "));
}

#[test]
fn an_answer_is_written_in_pieces() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(message) = event {
            let length = message.query_parameter("length");
            let length = length.map(|length| length.parse().unwrap());
            conn.begin(200, &[], length).unwrap();
            conn.chunk(b"one,").unwrap();
            assert_eq!(conn.reply(200, &[], b""), Err(ConnError::Answered));
        }
    });
    let (mut client, id) = fixture.client();
    client.send(get("/"));
    let text = fixture.receive(&mut client, "4\r\none,\r\n");
    assert!(text.contains("\r\nTransfer-Encoding: chunked\r\n"));
    let mut conn = fixture.manager.conn(id).unwrap();
    conn.chunk(b"two").unwrap();
    conn.finish(&[("X-Trailer", b"yes")]).unwrap();
    fixture.receive(&mut client, "3\r\ntwo\r\n0\r\nX-Trailer: yes\r\n\r\n");
    client.send(get("/?length=7"));
    let text = fixture.receive(&mut client, "one,");
    assert!(text.contains("\r\nContent-Length: 7\r\n"));
    let mut conn = fixture.manager.conn(id).unwrap();
    let too_long = ConnError::TooLong {
        limit: 3,
        length: 4,
    };
    assert_eq!(conn.chunk(b"four"), Err(too_long));
    conn.chunk(b"two").unwrap();
    conn.chunk(b"").unwrap();
    fixture.receive(&mut client, "two");
    client.send(get("/"));
    fixture.receive(&mut client, "one,");
}

#[test]
fn a_head_sent_as_bytes_is_followed_by_chunks() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(_) = event {
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .unwrap();
            conn.chunk(b"piece").unwrap();
            conn.chunk(b"").unwrap();
        }
    });
    let (mut client, _) = fixture.client();
    for _ in 0..2 {
        // The second on the same connection: the engine knows that the first is complete.
        client.send(get("/"));
        fixture.receive(&mut client, "\r\n\r\n5\r\npiece\r\n0\r\n\r\n");
    }
}

#[test]
fn a_reader_that_stops_reading_is_bounded() {
    let mut options = ManagerOptions::default();
    options.http.output_bytes_max = 100_000;
    let mut fixture = Fixture::with_options("http", options, |conn, event| match event {
        Event::HttpMessage(_) => conn.begin(200, &[], None).unwrap(),
        Event::Drained => conn.finish(&[]).unwrap(),
        _ => {}
    });
    let (mut client, id) = fixture.client();
    client.send(get("/"));
    fixture.until_line("message / ''");
    let mut conn = fixture.manager.conn(id).unwrap();
    let piece = vec![b'p'; 50_000];
    while conn.chunk(&piece).is_ok() {}
    assert!(conn.is_full());
    assert!(conn.queued_bytes() < 200_000);
    assert_eq!(conn.chunk(b"x"), Err(ConnError::Full { limit: 100_000 }));
    fixture.receive(&mut client, "0\r\n\r\n");
    assert!(fixture.log.has("drained"));
}

#[test]
fn a_body_is_streamed_paused_and_answered() {
    let mut fixture = Fixture::new("http", |conn, event| match event {
        Event::HttpHeaders(_) => conn.stream_body(1 << 30),
        Event::HttpBody { is_last: true, .. } => conn.reply(200, &[], b"got it").unwrap(),
        _ => {}
    });
    let (mut client, id) = fixture.client();
    let size = 3 << 20;
    client.send(format!(
        "PUT /up HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n"
    ));
    fixture.until_line("headers PUT /up");
    fixture.manager.conn(id).unwrap().pause();
    let (piece, mut sent) = (vec![b'u'; 1 << 16], 0);
    let offer = |client: &mut crate::support::Client, sent: &mut usize| {
        *sent += client.offer(&piece[..piece.len().min(size - *sent)]);
    };
    for _ in 0..200 {
        offer(&mut client, &mut sent);
        fixture.poll();
    }
    let taken = |log: &crate::support::Log| -> usize {
        let lines = log.of(id);
        let sizes = lines.iter().filter_map(|line| line.strip_prefix("body "));
        sizes.map(|size| size.parse::<usize>().unwrap_or(0)).sum()
    };
    assert!(
        taken(&fixture.log) <= 256 * 1024,
        "no more than was granted"
    );
    fixture.manager.conn(id).unwrap().resume();
    while sent < size {
        offer(&mut client, &mut sent);
        fixture.poll();
    }
    fixture.receive(&mut client, "got it");
    assert_eq!(taken(&fixture.log), size);
    assert!(!fixture.log.has("message /up ''"));
    client.send(get("/next"));
    fixture.until_line("message /next ''");
}

#[test]
fn a_body_is_collected_whatever_is_done_at_its_head() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpHeaders(message) = &event
            && message.method() == "PUT"
        {
            // Nothing of it is an answer.
            conn.pause();
            conn.resume();
            let listener = conn.scope().connections()[0];
            conn.scope().conn(listener).unwrap().pause();
        }
        answer(conn, event);
    });
    let (mut client, _) = fixture.client();
    client.send("PUT /up HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n");
    fixture.until_line("headers PUT /up");
    client.send("ab");
    fixture.receive(&mut client, "you asked for /up.");
    assert!(fixture.log.has("message /up 'ab'"));
}

#[test]
fn an_upload_is_refused_at_its_head() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpHeaders(message) = event
            && message.method() == "POST"
        {
            conn.reply(403, &[], b"no uploads").unwrap();
        }
    });
    let (mut client, _) = fixture.client();
    client.send("POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n");
    let text = fixture.rest(&mut client);
    assert!(text.starts_with("HTTP/1.1 403 ") && text.ends_with("no uploads"));
    assert!(!fixture.log.has("message /up ''"));
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    let mut options = ManagerOptions::default();
    options.body_bytes_max = 10;
    let mut fixture = Fixture::with_options("http", options, answer);
    let (mut client, _) = fixture.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n01234567890");
    assert!(fixture.rest(&mut client).starts_with("HTTP/1.1 413 "));
}

#[test]
fn a_connection_leaves_http_in_its_handler_and_from_outside() {
    let mut fixture = Fixture::new("http", |conn, event| match event {
        Event::HttpMessage(message) if message.path() == "/now" => {
            let fields: &[(&str, &[u8])] = &[("Connection", b"Upgrade"), ("Upgrade", b"x")];
            conn.reply(101, fields, b"").unwrap();
            conn.hijack().unwrap();
        }
        Event::Read { data, .. } if !data.is_empty() => conn.send(data).unwrap(),
        _ => {}
    });
    let (mut client, _) = fixture.client();
    let upgrade = "GET /now HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    client.send(format!("{upgrade}early"));
    let text = fixture.receive(&mut client, "early");
    assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
    assert!(text.contains("\r\nConnection: Upgrade\r\n"));
    client.send("late");
    fixture.receive(&mut client, "late");

    let (mut client, id) = fixture.client();
    client.send(get("/later"));
    fixture.until_line("message /later ''");
    let mut conn = fixture.manager.conn(id).unwrap();
    conn.hijack().unwrap();
    client.send("raw");
    fixture.receive(&mut client, "raw");
    drop(client);
    fixture.until("told", |log| log.of(id).last().unwrap() == "close");
}

#[test]
fn an_event_stream_reaches_every_listener() {
    let mut fixture = Fixture::new("http", |conn, event| match event {
        Event::HttpMessage(message) if message.path() == "/events" => {
            conn.sse().unwrap();
            conn.sse_comment("hello").unwrap();
        }
        Event::HttpMessage(message) => {
            // Published to all, made once.
            let text = message.text();
            let event = SseEvent {
                id: Some("7"),
                ..SseEvent::new(&text)
            };
            let event = SharedEvent::new(&event).unwrap();
            let own = conn.id();
            let mut scope = conn.scope();
            for id in scope.connections() {
                let mut other = scope.conn(id).unwrap();
                if id != own && !other.is_listening() {
                    other.sse_shared(&event).unwrap();
                }
            }
            let broken = SseEvent {
                event: Some("a\nb"),
                ..SseEvent::new("")
            };
            assert!(matches!(conn.sse_event(&broken), Err(ConnError::Event(_))));
            conn.reply(204, &[], b"").unwrap();
        }
        _ => {}
    });
    let mut listeners: Vec<_> = (0..3).map(|_| fixture.client().0).collect();
    for listener in &mut listeners {
        listener.send(get("/events"));
        let text = fixture.receive(listener, ": hello\n\n");
        assert!(text.contains("\r\nContent-Type: text/event-stream\r\n"));
    }
    let (mut publisher, _) = fixture.client();
    publisher.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n\r\ntwo\nlin");
    for listener in &mut listeners {
        fixture.receive(listener, "id: 7\ndata: two\ndata: lin\n\n");
    }
}

#[test]
fn files_are_served_with_ranges_and_within_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("page.html"), "<p>0123456789").unwrap();
    let root = folder.path().to_owned();
    let mut fixture = Fixture::new("http", move |conn, event| {
        if let Event::HttpMessage(message) = event {
            let served = if message.path() == "/one" {
                let file = root.join("page.html");
                conn.serve_file(&message, file, &FileOptions::default())
            } else {
                conn.serve_dir(&message, &root, &DirectoryOptions::default())
            };
            served.unwrap();
        }
    });
    let (mut client, _) = fixture.client();
    client.send(get("/page.html"));
    let text = fixture.receive(&mut client, "<p>0123456789");
    assert!(
        text.contains("\r\nContent-Type: text/html; charset=utf-8\r\n"),
        "{text}"
    );
    client.send("GET /one HTTP/1.1\r\nHost: h\r\nRange: bytes=3-5\r\n\r\n");
    let text = fixture.receive(&mut client, "\r\n\r\n012");
    assert!(text.starts_with("HTTP/1.1 206 "));
    client.send(get("/../../etc/passwd"));
    let text = fixture.receive(&mut client, "\r\n\r\n");
    assert!(!text.starts_with("HTTP/1.1 2"), "{text}");
}

#[test]
fn early_hints_go_before_the_answer() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(_) = event {
            conn.informational(103, &[("Link", b"</a>")]).unwrap();
            let error = Err(ConnError::Status(101));
            assert_eq!(conn.informational(101, &[]), error);
            conn.reply(200, &[], b"final").unwrap();
        }
    });
    let (mut client, _) = fixture.client();
    client.send(get("/"));
    let text = fixture.receive(&mut client, "final");
    assert!(text.starts_with("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK"));
}

#[test]
fn http_on_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http.sock");
    let mut fixture = Fixture::new("http", answer);
    let url = format!("http+unix://{}", path.display());
    fixture.manager.listen(&url).unwrap();
    let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let request = get("/unix").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    std::io::Write::write_all(&mut client, request.as_bytes()).unwrap();
    fixture.until_line("close");
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("you asked for /unix."));
}

#[test]
fn a_client_that_leaves_ends_its_held_request() {
    let mut fixture = Fixture::new("http", |_, _| {});
    let (mut client, id) = fixture.client();
    client.send(get("/held"));
    fixture.until_line("message /held ''");
    client.shutdown();
    fixture.until("told", |log| log.of(id).last().unwrap() == "close");
    assert!(fixture.manager.conn(id).is_none());
}
