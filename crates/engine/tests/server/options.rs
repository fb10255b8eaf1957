//! Each option does what its name says.

use crate::support::{Client, End, get, post, serve, until};
use crate::takeover::HANDSHAKE;
use dwell_engine::handler::{Answer, Exchange, OwnedRequest, Responder, blocking, streamed};
use dwell_engine::websocket::{Message, UpgradeOptions, WebSocketOptions, WebSocketRef};
use dwell_engine::{Request, Server, ServerError};
use dwell_evloop::ListenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Long enough for a client on a busy machine, short enough for a test.
const SHORT: Duration = Duration::from_millis(150);

fn hello(request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
    exchange.answer(Answer::text(200, format!("{} bytes", request.body.len())));
}

/// Wants nothing of the body.
fn unread(_: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
    exchange.answer(Answer::text(200, "unread"));
}

#[test]
fn the_keep_alive_timeout_closes_all_of_a_hundred_idle_clients() {
    let timeout = Duration::from_secs(1);
    let running = serve(|options| options.keep_alive_timeout(timeout), hello);
    // Each asks as soon as it has come: its time runs.
    let asked = |_| {
        let mut client = Client::connect(&running);
        assert_eq!(client.get("/").status, 200);
        client
    };
    let mut clients: Vec<_> = (0..100).map(asked).collect();
    for client in &mut clients {
        assert_eq!(client.end(), End::InOrder);
    }
    until(&running, |figures| figures.connections == 0);
}

#[test]
fn a_slow_head_gets_408_and_costs_a_handful_of_turns() {
    let running = serve(|options| options.header_timeout(SHORT), hello);
    let mut client = Client::connect(&running);
    until(&running, |figures| figures.accepted == 1);
    let before = running.statistics().turns;
    let answer = client.send("GET / HTTP/1.1\r\nHos").answer();
    assert_eq!(answer.status, 408);
    let turns = running.statistics().turns - before;
    assert!(turns <= 6, "{turns} turns while one head was waited for");
    client.finish_sending();
    assert_eq!(client.end(), End::InOrder);
}

#[test]
fn a_slow_body_gets_408_be_it_gathered_or_streamed() {
    let running = serve(|options| options.read_timeout(SHORT), hello);
    let mut client = Client::connect(&running);
    let answer = client.send(post("/", 10)).send("half").answer();
    assert_eq!(answer.status, 408);
    let (told, heard) = channel();
    let told = Mutex::new(told);
    let reader = blocking(move |mut request: OwnedRequest, responder: Responder| {
        let end = request.body.read_all(100);
        told.lock().unwrap().send(end.is_err()).unwrap();
        drop(responder);
    });
    let running = serve(|options| options.read_timeout(SHORT), reader);
    let mut client = Client::connect(&running);
    let answer = client.send(post("/", 10)).send("half").answer();
    assert_eq!(answer.status, 408);
    assert!(
        heard.recv().unwrap(),
        "the reader learns that the rest does not come"
    );
}

#[test]
fn a_body_has_the_time_of_its_bytes_at_the_lowest_rate() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    for (rate, status) in [(512, 408), (1, 200)] {
        let options = |options: dwell_engine::ServerBuilder| {
            options.read_timeout(TIMEOUT).min_body_rate(rate)
        };
        let running = serve(options, hello);
        let mut client = Client::connect(&running);
        client.send(post("/", 30));
        // Half as long again as a body of no bytes may take.
        for _ in 0..30 {
            sleep(TIMEOUT / 20);
            client.send("b");
        }
        assert_eq!(client.answer().status, status, "{rate} bytes a second");
    }
}

#[test]
fn a_client_has_all_its_time_while_the_handler_does_not_read() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let (told, heard) = channel();
    let told = Mutex::new(told);
    let reader = blocking(move |mut request: OwnedRequest, responder: Responder| {
        let mut piece = [0; 4];
        request.body.read_exact(&mut piece).unwrap();
        // The client has more leave to send, and waits for what the handler makes of this.
        sleep(TIMEOUT + TIMEOUT / 2);
        told.lock().unwrap().send(piece).unwrap();
        let rest = request.body.read_all(100).unwrap();
        responder.send(Answer::text(200, rest)).unwrap();
    });
    let running = serve(|options| options.read_timeout(TIMEOUT), reader);
    let mut client = Client::connect(&running);
    client.send(post("/", 8)).send("half");
    assert_eq!(&heard.recv().unwrap(), b"half");
    assert_eq!(client.send("rest").answer().text(), "rest");
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let (told, heard) = channel();
    let told = Mutex::new(told);
    let endless = blocking(move |_: OwnedRequest, responder: Responder| {
        let mut writer = responder.stream(Answer::new(200), None).unwrap();
        let mut written = 0;
        while writer.write_blocking(vec![b'x'; 65_536]).is_ok() {
            written += 65_536;
        }
        told.lock().unwrap().send(written).unwrap();
    });
    let options =
        |options: dwell_engine::ServerBuilder| options.write_timeout(SHORT).output_bytes(200_000);
    let running = serve(options, endless);
    let mut client = Client::connect(&running);
    client.send(get("/"));
    let written = heard.recv().unwrap();
    // What the kernel holds for both ends, and the bound.
    assert!(
        written < 32 << 20,
        "{written} bytes for a client that reads none"
    );
    // The writer is told before it is counted.
    until(&running, |figures| {
        (figures.write_timeouts, figures.connections) == (1, 0)
    });
}

#[test]
fn an_answer_that_does_not_come_is_503() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeper = Arc::clone(&kept);
    let keep = move |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        keeper.lock().unwrap().push(exchange.responder());
    };
    let running = serve(|options| options.answer_timeout(SHORT), keep);
    let mut client = Client::connect(&running);
    assert_eq!(client.get("/").status, 503);
    let responder = kept.lock().unwrap().pop().unwrap();
    assert!(responder.is_cancelled());
    assert!(responder.send(Answer::text(200, "late")).is_err());
    assert_eq!(
        client.send(get("/")).answer().status,
        503,
        "the connection lives on"
    );
    until(&running, |figures| {
        (figures.answer_timeouts, figures.in_flight) == (2, 0)
    });
}

#[test]
fn sizes_that_go_over_get_their_status() {
    let options = |options: dwell_engine::ServerBuilder| {
        options
            .max_header_bytes(1000)
            .max_header_fields(5)
            .max_target_bytes(100)
            .max_body_bytes(10)
    };
    let running = serve(options, hello);
    let long_field = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "x".repeat(1000)
    );
    let many_fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(5));
    let long_target = get(&format!("/{}", "t".repeat(100)));
    let long_body = post("/", 11);
    for (request, status) in [
        (long_field, 431),
        (many_fields, 431),
        (long_target, 414),
        (long_body, 413),
        (format!("{}0123456789", post("/", 10)), 200),
    ] {
        assert_eq!(
            Client::connect(&running).send(&request).answer().status,
            status,
            "{request}"
        );
    }
    assert_eq!(running.statistics().rejected, 4);
}

#[test]
fn the_bound_on_connections_holds_and_recovers() {
    let running = serve(|options| options.max_connections(5).pollers(2), hello);
    for _ in 0..20 {
        let mut client = Client::connect(&running);
        let answer = client
            .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .answer();
        assert_eq!(
            (answer.status, answer.field("connection")),
            (200, Some("close"))
        );
        client.finish_sending();
        client.end();
        drop(client);
        until(&running, |figures| figures.connections == 0);
    }
    let mut clients: Vec<_> = (0..5).map(|_| Client::connect(&running)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    assert!(
        Client::connect(&running)
            .send(get("/"))
            .try_answer_to("GET")
            .is_err()
    );
    assert_eq!(running.statistics().refused, 1);
    assert_eq!(running.statistics().connections, 5);
    clients.clear();
    until(&running, |figures| figures.connections == 0);
    assert_eq!(Client::connect(&running).get("/").status, 200);
}

#[test]
fn a_head_may_be_larger_than_the_usual_buffer() {
    let options = |options: dwell_engine::ServerBuilder| {
        options.max_header_bytes(100_000).buffer_size(200_000)
    };
    let running = serve(options, hello);
    let head = |bytes| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
            "x".repeat(bytes)
        )
    };
    let mut client = Client::connect(&running);
    assert_eq!(client.send(head(90_000)).answer().status, 200);
    assert_eq!(client.send(head(100_000)).answer().status, 431);
}

#[test]
fn a_connection_ends_after_so_many_requests() {
    let running = serve(|options| options.max_requests_per_connection(3), hello);
    let mut client = Client::connect(&running);
    assert_eq!(client.get("/").field("connection"), None);
    assert_eq!(client.get("/").field("connection"), None);
    assert_eq!(client.get("/").field("connection"), Some("close"));
    assert_eq!(client.end(), End::InOrder);
}

#[test]
fn an_unread_body_is_drained_up_to_its_bound() {
    let running = serve(|options| options.unread_body_bytes(1000), streamed(unread));
    let mut client = Client::connect(&running);
    for _ in 0..2 {
        let answer = client.send(post("/", 1000)).send(vec![b'x'; 1000]).answer();
        assert_eq!((answer.status, answer.field("connection")), (200, None));
    }
    let answer = client.send(post("/", 1001)).answer();
    assert_eq!(
        (answer.status, answer.field("connection")),
        (200, Some("close"))
    );
}

#[test]
fn a_full_pool_answers_503_and_works_on() {
    let (entered, left) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let barriers = (Arc::clone(&entered), Arc::clone(&left));
    let busy = blocking(move |request: OwnedRequest, responder: Responder| {
        if request.path() == "/wait" {
            barriers.0.wait();
            barriers.1.wait();
        }
        responder.send(Answer::text(200, "done")).unwrap();
    });
    let running = serve(|options| options.workers(1).worker_queue(1), busy);
    let (mut first, mut second) = (Client::connect(&running), Client::connect(&running));
    first.send(get("/wait"));
    entered.wait();
    second.send(get("/queued"));
    until(&running, |figures| figures.in_flight == 2);
    let refused = Client::connect(&running).get("/refused");
    assert_eq!(
        (refused.status, refused.field("retry-after")),
        (503, Some("1"))
    );
    left.wait();
    assert_eq!((first.answer().status, second.answer().status), (200, 200));
    let figures = running.statistics();
    assert_eq!(
        (figures.workers, figures.jobs, figures.jobs_refused),
        (1, 2, 1)
    );
}

#[test]
fn every_loop_serves_and_one_that_gets_everything_hands_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let running = Server::builder()
        .pollers(3)
        .listen_unix(&path)
        .serve(hello)
        .unwrap();
    assert_eq!(running.statistics().loops, 3);
    let ask = |client: &mut UnixStream| {
        client.write_all(get("/").as_bytes()).unwrap();
        let mut answer = [0; 15];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
    };
    let mut clients = Vec::new();
    for _ in 0..60 {
        // One loop accepts them all: the socket is registered with no other.
        let mut client = UnixStream::connect(&path).unwrap();
        ask(&mut client);
        clients.push(client);
    }
    let figures = running.statistics();
    assert_eq!((figures.connections, figures.accepted), (60, 60));
    assert!(figures.handed_over >= 24, "{figures:?}");
    clients.clear();
    until(&running, |figures| figures.connections == 0);
}

#[test]
fn several_addresses_and_their_ports() {
    let running = serve(|options| options.listen(([127, 0, 0, 1], 0).into()), hello);
    let addresses = running.addresses();
    assert_ne!(addresses[0].port(), addresses[1].port());
    for address in addresses {
        assert_eq!(Client::to(*address).get("/").status, 200);
    }
}

#[test]
fn a_small_buffer_serves_what_is_larger() {
    let options = |options: dwell_engine::ServerBuilder| {
        options.buffer_size(33 * 1024).max_body_bytes(1 << 20)
    };
    let running = serve(options, hello);
    let mut client = Client::connect(&running);
    let answer = client
        .send(post("/", 1 << 20))
        .send(vec![b'x'; 1 << 20])
        .answer();
    assert_eq!(answer.text(), "1048576 bytes");
}

#[test]
fn options_that_cannot_be_are_refused() {
    let refused = |builder: dwell_engine::ServerBuilder| builder.serve(hello).unwrap_err();
    assert!(matches!(refused(Server::builder()), ServerError::NoAddress));
    let any = Server::builder().listen(([127, 0, 0, 1], 0).into());
    let error = refused(any.clone().buffer_size(1000));
    assert_eq!(error.to_string(), "buffer_size is less than 32769: 1000");
    let running = any.serve(hello).unwrap();
    let taken = Server::builder().listen(running.addresses()[0]);
    assert!(matches!(refused(taken), ServerError::Listen { .. }));
}

#[test]
fn a_half_closed_client_is_answered_where_it_is_wanted() {
    let later = |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let responder = exchange.responder();
        std::thread::spawn(move || {
            let begun = Instant::now();
            // The end of the client's side comes first, or is not told here.
            while !responder.is_cancelled() && begun.elapsed() < SHORT {
                std::thread::yield_now();
            }
            responder.send(Answer::text(200, "all the same")).is_ok()
        });
    };
    let running = serve(|options| options.half_close(true), later);
    let mut client = Client::connect(&running);
    client.send(get("/")).finish_sending();
    assert_eq!(client.answer().text(), "all the same");
    let running = serve(|options| options, later);
    let mut client = Client::connect(&running);
    client.send(get("/")).finish_sending();
    assert_eq!(client.try_answer_to("GET"), Err(End::InOrder));
}

#[test]
fn a_streamed_body_comes_no_further_than_its_window() {
    let pieces = blocking(|mut request: OwnedRequest, responder: Responder| {
        let (mut all, mut longest) = (0, 0);
        loop {
            let piece = request.body.next_blocking().unwrap().len();
            if piece == 0 {
                break;
            }
            all += piece;
            longest = longest.max(piece);
        }
        let text = format!("{all} bytes, at most {longest}");
        responder.send(Answer::text(200, text)).unwrap();
    });
    let running = serve(|options| options.body_window(1000), pieces);
    let mut client = Client::connect(&running);
    let answer = client
        .send(post("/", 100_000))
        .send(vec![b'x'; 100_000])
        .answer();
    assert_eq!(answer.text(), "100000 bytes, at most 1000");
}

#[test]
fn a_web_socket_is_bound_by_its_options() {
    let mut web_socket = WebSocketOptions::default();
    web_socket.messages.message_bytes_max = 5;
    let handler = |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let echo = |socket: &mut WebSocketRef<'_>, message: Message<'_>| {
            socket.send(message.kind, &message.payload).unwrap();
        };
        exchange.web_socket(request, &UpgradeOptions::default(), echo);
    };
    let running = serve(|options| options.web_socket_options(web_socket), handler);
    let mut client = Client::connect(&running);
    assert_eq!(client.send(HANDSHAKE).answer().status, 101);
    let message = |length: u8| {
        let mut frame = vec![0x82, 0x80 | length, 0, 0, 0, 0];
        frame.resize(6 + usize::from(length), b'x');
        frame
    };
    client.send(message(5)).send(message(6)).finish_sending();
    client.end();
    assert_eq!(client.received[..7], *b"\x82\x05xxxxx");
    assert_eq!(client.received[7], 0x88);
    assert_eq!(client.received[9..11], [0x03, 0xf1], "1009, too big");
}

#[test]
fn a_unix_socket_has_its_permissions_and_goes_with_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let mut listen = ListenOptions::default();
    listen.unix_permissions = Some(0o640);
    for _ in 0..2 {
        let builder = Server::builder().pollers(2).listen_options(listen);
        let running = builder.listen_unix(&path).serve(hello).unwrap();
        assert!(running.paths().eq([path.as_path()]));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        drop(running);
        assert!(!path.exists());
    }
}

#[test]
fn timeouts_may_be_as_long_as_can_be_said() {
    let options = |options: dwell_engine::ServerBuilder| {
        options
            .keep_alive_timeout(Duration::MAX)
            .header_timeout(Duration::MAX)
            .read_timeout(Duration::MAX)
            .write_timeout(Duration::MAX)
            .answer_timeout(Duration::MAX)
    };
    let running = serve(options, streamed(unread));
    let mut client = Client::connect(&running);
    assert_eq!(client.send(post("/", 3)).send("abc").answer().status, 200);
    assert_eq!(client.get("/").status, 200);
    let turns = running.statistics().turns;
    assert!(turns < 20, "{turns} turns for two requests");
    let shutdown = running.shutdown(Duration::MAX);
    assert_eq!(shutdown.cut_connections, 0);
}
