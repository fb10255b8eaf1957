//! Handlers on the loop, on the pool, and from anywhere.

use crate::support::{Client, End, get, post, serve, until};
use dwell_engine::handler::{
    Answer, BodyError, BodyWriter, Exchange, OwnedRequest, Responder, TryWriteError, blocking,
};
use dwell_engine::{Body, Request, Response};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;

#[test]
fn a_panic_costs_one_connection() {
    let handler = |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        match request.head.path {
            "/begun" => exchange.send(&Response {
                status: 200,
                fields: &[],
                body: Body::Stream(None),
            }),
            "/held" => drop(exchange.responder()),
            "/fine" => return exchange.text(200, "fine"),
            _ => {}
        }
        panic!("as the test wants it");
    };
    let running = serve(|options| options, handler);
    let mut witness = Client::connect(&running);
    assert_eq!(witness.get("/fine").status, 200);
    for target in ["/", "/held"] {
        let mut client = Client::connect(&running);
        let answer = client.get(target);
        assert_eq!(
            (answer.status, answer.field("connection")),
            (500, Some("close"))
        );
        assert_eq!(client.end(), End::InOrder);
    }
    let mut client = Client::connect(&running);
    assert!(client.send(get("/begun")).try_answer_to("GET").is_err());
    assert_eq!(witness.get("/fine").status, 200);
    assert_eq!(running.statistics().panics, 3);
}

#[test]
fn a_panic_on_the_pool_or_in_a_future_is_500() {
    let handler = |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        if request.head.path == "/pool" {
            let responder = exchange.responder();
            let panics = move || {
                let _kept = responder;
                panic!("as the test wants it");
            };
            exchange.offload(panics).unwrap();
        } else {
            exchange.spawn(|responder| async move {
                let _kept = responder;
                panic!("as the test wants it");
            });
        }
    };
    let running = serve(|options| options, handler);
    for target in ["/pool", "/future"] {
        let answer = Client::connect(&running).get(target);
        assert_eq!(
            (answer.status, answer.field("connection")),
            (500, Some("close"))
        );
    }
    until(&running, |figures| figures.panics == 2);
}

#[test]
fn a_handler_that_gives_no_answer_has_answered_500() {
    let running = serve(
        |options| options,
        |_: &Request<'_>, _: &mut Exchange<'_, '_>| {},
    );
    assert_eq!(Client::connect(&running).get("/").status, 500);
    let dropped = |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let responder = exchange.responder();
        thread::spawn(move || drop(responder));
    };
    let running = serve(|options| options, dropped);
    assert_eq!(Client::connect(&running).get("/").status, 500);
}

#[test]
fn answers_of_many_threads_reach_their_own_clients() {
    let handler = |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let (target, responder) = (request.head.target.to_owned(), exchange.responder());
        thread::spawn(move || {
            let link = ("Link".into(), "</a>; rel=preload".into());
            responder.informational(103, vec![link]).unwrap();
            responder.send(Answer::text(200, target)).unwrap();
        });
    };
    let running = serve(|options| options.pollers(2), handler);
    let mut clients: Vec<_> = (0..50).map(|_| Client::connect(&running)).collect();
    for round in 0..4 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(get(&format!("/{round}/{number}")));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.answer().status, 103);
            assert_eq!(client.answer().text(), format!("/{round}/{number}"));
        }
    }
    until(&running, |figures| figures.in_flight == 0);
}

#[test]
fn a_handler_learns_that_its_client_has_left() {
    let (to, responders) = channel::<Responder>();
    let to = Mutex::new(to);
    let handler = move |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        to.lock().unwrap().send(exchange.responder()).unwrap();
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    client.send(get("/"));
    let responder = responders.recv().unwrap();
    assert!(!responder.is_cancelled());
    drop(client);
    block_on(responder.cancelled());
    assert!(responder.is_cancelled());
    assert!(responder.send(Answer::new(200)).is_err());
    until(&running, |figures| figures.connections == 0);
}

/// Polls on the calling thread, which rests until it is woken.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        let polled = future
            .as_mut()
            .poll(&mut std::task::Context::from_waker(&waker));
        if let Poll::Ready(value) = polled {
            return value;
        }
        thread::park();
    }
}

#[test]
fn a_pool_handler_reads_a_body_as_it_comes() {
    let count = blocking(|mut request: OwnedRequest, responder: Responder| {
        let (mut bytes, mut piece) = (0, [0; 5000]);
        loop {
            match request.body.read(&mut piece).unwrap() {
                0 => break,
                read => bytes += read,
            }
        }
        let digest = request.body.trailers();
        let text = format!("{bytes} bytes, {digest:?}, {:?}", request.field("host"));
        responder.send(Answer::text(200, text)).unwrap();
    });
    let running = serve(|options| options.max_body_bytes(10_000_000), count);
    let mut client = Client::connect(&running);
    for _ in 0..2 {
        client
            .send(post("/", 3_000_000))
            .send(vec![b'x'; 3_000_000]);
        assert_eq!(client.answer().text(), "3000000 bytes, [], Some([97])");
    }
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(head);
    for _ in 0..100 {
        client.send(format!("3e8\r\n{}\r\n", "y".repeat(1000)));
    }
    let answer = client.send("0\r\nDigest: z\r\n\r\n").answer();
    assert_eq!(
        answer.text(),
        "100000 bytes, [(\"Digest\", [122])], Some([97])"
    );
}

#[test]
fn a_body_that_breaks_off_or_is_too_long_ends_its_reader() {
    let (told, heard) = channel();
    let told = Mutex::new(told);
    let reader = blocking(move |mut request: OwnedRequest, _: Responder| {
        let end = request.body.read_all(1 << 20).unwrap_err();
        told.lock().unwrap().send(end).unwrap();
    });
    let running = serve(|options| options.max_body_bytes(1000), reader);
    let mut client = Client::connect(&running);
    client.send(post("/", 10)).send("half");
    drop(client);
    assert_eq!(heard.recv().unwrap(), BodyError::Gone);
    let mut client = Client::connect(&running);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let answer = client.send(format!("7d0\r\n{}", "x".repeat(2000))).answer();
    assert_eq!(answer.status, 413);
    assert_eq!(heard.recv().unwrap(), BodyError::Gone);
}

#[test]
fn waiting_calls_on_the_loop_itself_are_refused() {
    let handler = |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let mut writer = exchange.responder().stream(Answer::new(200), None).unwrap();
        while writer.try_write(vec![0; 100_000]).is_ok() {}
        assert!(matches!(
            writer.write_blocking("more"),
            Err(TryWriteError::Full(_))
        ));
        writer.finish(Vec::new()).unwrap();
    };
    let running = serve(|options| options, handler);
    assert_eq!(Client::connect(&running).get("/").body.len(), 1_100_000);
}

#[test]
fn a_writer_is_held_up_by_a_slow_reader_and_loses_nothing() {
    const PIECES: usize = 200;
    let (to, writers) = channel::<BodyWriter>();
    let to = Mutex::new(to);
    let handler = move |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let head = Answer::new(200).field("Trailer", "Sum");
        let writer = exchange.responder().stream(head, None).unwrap();
        to.lock().unwrap().send(writer).unwrap();
    };
    let running = serve(|options| options.output_bytes(200_000), handler);
    let mut client = Client::connect(&running);
    client.send(get("/"));
    let mut writer = writers.recv().unwrap();
    let mut refused = 0;
    let writing = thread::spawn(move || {
        for number in 0..PIECES {
            let piece = vec![number as u8; 100_000];
            if let Err(TryWriteError::Full(piece)) = writer.try_write(piece) {
                refused += 1;
                writer.write_blocking(piece).unwrap();
            }
        }
        writer.finish(vec![("Sum".into(), "1".into())]).unwrap();
        refused
    });
    let answer = client.answer();
    assert!(writing.join().unwrap() > 0, "the queue was never full");
    assert_eq!(answer.body.len(), PIECES * 100_000);
    let pieces = answer.body.chunks(100_000);
    assert!(
        pieces
            .enumerate()
            .all(|(number, piece)| piece.iter().all(|b| *b == number as u8))
    );
    assert_eq!(answer.trailers, [("Sum".to_owned(), b"1".to_vec())]);
}

#[test]
fn the_smallest_queue_loses_no_wake_up() {
    let drip = blocking(|_: OwnedRequest, responder: Responder| {
        let mut writer = responder.stream(Answer::new(200), None).unwrap();
        for _ in 0..300 {
            writer.write_blocking("drop ").unwrap();
        }
        writer.finish(Vec::new()).unwrap();
    });
    let running = serve(|options| options.output_bytes(1).body_window(1), drip);
    assert_eq!(Client::connect(&running).get("/").body.len(), 1500);
}

#[test]
fn a_small_queue_that_answers_before_have_filled_is_no_end() {
    let handler = |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        if request.head.path == "/before" {
            return exchange.answer(Answer::text(200, vec![b'b'; 5000]));
        }
        let mut writer = exchange.responder().stream(Answer::new(200), None).unwrap();
        writer.try_write("behind it").unwrap();
        writer.finish(Vec::new()).unwrap();
    };
    let running = serve(|options| options.output_bytes(1000), handler);
    let mut client = Client::connect(&running);
    client.send(get("/before") + &get("/"));
    assert_eq!(client.answer().body.len(), 5000);
    assert_eq!(client.answer().text(), "behind it");
}

#[test]
fn an_announced_size_is_kept_to() {
    let (told, heard) = channel();
    let told = Mutex::new(told);
    let handler = move |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let mut writer = exchange
            .responder()
            .stream(Answer::new(200), Some(5))
            .unwrap();
        match request.head.path {
            "/long" => told
                .lock()
                .unwrap()
                .send(writer.try_write("123456"))
                .unwrap(),
            "/short" => writer.write_all(b"123").unwrap(),
            _ => writer.write_all(b"12345").unwrap(),
        }
        // A writer that is dropped cuts its answer off.
        if request.head.path != "/dropped" {
            writer.finish(Vec::new()).unwrap();
        }
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    assert_eq!(client.get("/").text(), "12345");
    for target in ["/long", "/short", "/dropped"] {
        let mut client = Client::connect(&running);
        let end = client.send(get(target)).try_answer_to("GET");
        assert!(
            target == "/dropped" && end.is_ok() || end.is_err(),
            "{target}: {end:?}"
        );
    }
    let error = heard.recv().unwrap().unwrap_err();
    assert_eq!(
        error,
        TryWriteError::TooLong {
            limit: 5,
            length: 6
        }
    );
    assert_eq!(client.get("/").text(), "12345", "others are not concerned");
}

#[test]
fn futures_are_woken_from_other_threads_and_dropped_with_their_client() {
    /// Wakers by target.
    type Board = Arc<Mutex<HashMap<String, Option<Waker>>>>;
    struct Dropped(Mutex<std::sync::mpsc::Sender<()>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.lock().unwrap().send(()).unwrap();
        }
    }
    let board = Board::default();
    let (told, heard) = channel();
    let (posted, told) = (Arc::clone(&board), Mutex::new(told));
    let handler = move |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let (target, board) = (request.head.target.to_owned(), Arc::clone(&posted));
        let dropped = Dropped(Mutex::new(told.lock().unwrap().clone()));
        exchange.spawn(|responder| async move {
            let _dropped = dropped;
            poll_fn(|task| {
                let mut board = board.lock().unwrap();
                if let Some(None) = board.get(&target) {
                    return Poll::Ready(());
                }
                board.insert(target.clone(), Some(task.waker().clone()));
                Poll::Pending
            })
            .await;
            responder.send(Answer::text(200, target)).unwrap();
        });
    };
    let running = serve(|options| options, handler);
    let mut clients: Vec<_> = (0..10).map(|_| Client::connect(&running)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(get(&format!("/{number}")));
    }
    until(&running, |figures| figures.in_flight == 10);
    let leaving = clients.split_off(5);
    drop(leaving);
    for _ in 0..5 {
        heard.recv().unwrap();
    }
    for number in 0..10 {
        let waker = board
            .lock()
            .unwrap()
            .insert(format!("/{number}"), None)
            .flatten();
        waker.unwrap().wake();
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.answer().text(), format!("/{number}"));
    }
    until(&running, |figures| figures.in_flight == 0);
}
