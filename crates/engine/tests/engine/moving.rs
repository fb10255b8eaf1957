//! Connections that go on in another server.

use dwell_engine::{Detached, HttpDriver, Limits, Outcome, Reply, Request};
use dwell_evloop::{Context, EventLoop};
use dwell_testkit::beside;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The time that a client waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says which server it is.
fn server(
    name: &'static str,
) -> HttpDriver<impl FnMut(&mut Context, &Request<'_>, &mut Reply<'_>) -> Outcome> {
    HttpDriver::new(
        Limits::default(),
        move |_: &mut Context, _: &Request<'_>, reply: &mut Reply<'_>| {
            reply.text(200, name);
            Outcome::Answered
        },
    )
}

#[test]
fn what_comes_behind_a_body_is_served_by_the_successor() {
    let (mut old_loop, mut new_loop) = (EventLoop::new().unwrap(), EventLoop::new().unwrap());
    let (mut old, mut new) = (server("old"), server("new"));
    let any = ([127, 0, 0, 1], 0).into();
    let address = old.listen(old_loop.context(), any).unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let put = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    client.write_all(put.as_bytes()).unwrap();
    let mut go_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    beside(
        || client.read_exact(&mut go_on).unwrap(),
        || {
            let patience = Duration::from_millis(10);
            old_loop.turn(&mut old, Some(patience)).unwrap();
        },
    );
    // Its body is under way when the server begins to hand over.
    let mut left: Vec<Detached> = Vec::new();
    client
        .write_all(b"abcdGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    while left.is_empty() {
        let (http, app) = (&mut old.http, &mut old.app);
        http.hand_over(old_loop.context(), app, false, usize::MAX, |_, detached| {
            left.push(detached);
        });
        if left.is_empty() {
            old_loop.turn(&mut old, None).unwrap();
        }
    }
    for detached in left {
        new.http
            .adopt_detached(new_loop.context(), detached, &mut new.app);
    }
    while new.http.connections() > 0 {
        new_loop.turn(&mut new, None).unwrap();
    }
    let mut answers = String::new();
    client.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches(" 200 OK\r\n").count(), 2, "{answers}");
    assert!(
        answers.contains("\r\n\r\nold\n") && answers.ends_with("\r\n\r\nnew\n"),
        "{answers}"
    );
}

#[test]
fn a_connection_that_fails_on_its_way_is_not_served() {
    for (keeps, served) in [(false, 1), (true, 0)] {
        let (mut old_loop, mut new_loop) =
            (EventLoop::new().unwrap(), EventLoop::<()>::new().unwrap());
        let (mut old, mut new) = (server("old"), server("new"));
        if keeps {
            let none = server("none").http;
            new.http = std::mem::replace(&mut new.http, none).keep_all_peers();
        }
        let address = old.listen(old_loop.context(), ([127, 0, 0, 1], 0).into());
        let mut client = TcpStream::connect(address.unwrap()).unwrap();
        while old.http.connections() == 0 {
            old_loop.turn(&mut old, None).unwrap();
        }
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut left: Vec<Detached> = Vec::new();
        let (http, app) = (&mut old.http, &mut old.app);
        http.hand_over(old_loop.context(), app, false, usize::MAX, |_, detached| {
            left.push(detached);
        });
        let detached = left.pop().unwrap();
        socket2::SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(client);
        let begun = Instant::now();
        while detached.stream.peer_address().is_ok() {
            assert!(begun.elapsed() < PATIENCE, "the reset has not come");
            std::thread::yield_now();
        }
        new.http
            .adopt_detached(new_loop.context(), detached, &mut new.app);
        assert_eq!(new.http.connections(), served);
    }
}

#[test]
fn a_connection_may_bring_more_than_a_loop_reads_at_once() {
    let input_bytes = 20_000;
    let mut old_loop = EventLoop::new().unwrap();
    let mut new_loop = EventLoop::with_input_bytes(input_bytes).unwrap();
    let (mut old, mut new) = (server("old"), server("new"));
    let any = ([127, 0, 0, 1], 0).into();
    let address = old.listen(old_loop.context(), any).unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    while old.http.connections() == 0 {
        old_loop.turn(&mut old, None).unwrap();
    }
    let requests = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    assert!(requests.len() > input_bytes);
    let (http, app) = (&mut old.http, &mut old.app);
    http.hand_over(
        old_loop.context(),
        app,
        false,
        usize::MAX,
        |_, mut detached| {
            detached.input = requests.clone().into_bytes();
            new.http
                .adopt_detached(new_loop.context(), detached, &mut new.app);
        },
    );
    client.shutdown(Shutdown::Write).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answers = String::new();
    beside(
        || client.read_to_string(&mut answers).unwrap(),
        || {
            let patience = Duration::from_millis(10);
            new_loop.turn(&mut new, Some(patience)).unwrap();
        },
    );
    assert_eq!(answers.matches("\r\n\r\nnew\n").count(), 1000);
}

#[test]
fn those_for_whom_there_is_no_room_wait_and_end_as_in_a_drain() {
    let mut event_loop = EventLoop::new().unwrap();
    let mut old = server("old");
    let any = ([127, 0, 0, 1], 0).into();
    let address = old.listen(event_loop.context(), any).unwrap();
    let mut clients: Vec<_> = (0..3)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for client in &mut clients {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"old\n") {
            let patience = Duration::from_millis(10);
            event_loop.turn(&mut old, Some(patience)).unwrap();
            let mut part = [0; 1000];
            client.set_nonblocking(true).unwrap();
            if let Ok(read) = client.read(&mut part) {
                answer.extend_from_slice(&part[..read]);
            }
        }
        client.set_nonblocking(false).unwrap();
    }
    let mut left: Vec<Detached> = Vec::new();
    for count_max in [0, 1] {
        let (http, app) = (&mut old.http, &mut old.app);
        let count = http.hand_over(
            event_loop.context(),
            app,
            false,
            count_max,
            |_, detached| {
                left.push(detached);
            },
        );
        assert_eq!((count, left.len()), (count_max, count_max));
    }
    assert_eq!(old.http.connections(), 2);
    // No request is begun while they wait.
    let gone = left[0].stream.peer_address().unwrap();
    clients.retain(|client| client.local_addr().ok() != gone);
    clients[0]
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    old.http.drain(event_loop.context(), &mut old.app);
    let mut answers = ["", ""].map(str::to_owned);
    for (client, answer) in clients.iter_mut().zip(&mut answers) {
        beside(
            || client.read_to_string(answer).unwrap(),
            || {
                let patience = Duration::from_millis(10);
                event_loop.turn(&mut old, Some(patience)).unwrap();
            },
        );
    }
    assert!(answers[0].ends_with("\r\n\r\nold\n"), "{answers:?}");
    assert!(answers[0].to_lowercase().contains("connection: close"));
    assert_eq!(answers[1], "");
    assert_eq!(old.http.connections(), 0);
}
