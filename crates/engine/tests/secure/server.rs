//! `Server` with clients under TLS.

use crate::support::{
    CERTIFICATE, KEY, OTHER, OTHER_KEY, PATIENCE, Shown, TlsStream, ask, connect, connect_with,
    data, get,
};
use axum::Router;
use axum::http::Extensions;
use axum::routing;
use dwell_engine::files::serve_dir;
use dwell_engine::handler::http::Secure;
use dwell_engine::handler::tower::service;
use dwell_engine::handler::{Answer, Exchange, Handler, blocking, handler_fn, web_socket_fn};
use dwell_engine::tls::{Tls, TlsError};
use dwell_engine::websocket::UpgradeOptions;
use dwell_engine::{Request, Running, Server};
use dwell_proto::http2::{PREFACE, encode, encode_field};
use std::fs;
use std::io::{Read, Write};
use std::time::SystemTime;
use tungstenite::Message;

fn tls() -> Tls {
    let builder = Tls::builder().certificate_files(data("certificate.pem"), data("key.pem"));
    builder.build().unwrap()
}

fn serve(tls: &Tls, handler: impl Handler) -> Running {
    Server::builder()
        .tls(tls)
        .pollers(2)
        .listen(([127, 0, 0, 1], 0).into())
        .serve(handler)
        .unwrap()
}

fn scheme(is_secure: bool) -> &'static str {
    if is_secure { "https" } else { "http" }
}

fn answer(request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
    match request.head.path {
        "/scheme" => exchange.text(200, scheme(request.is_secure)),
        "/length" => exchange.text(200, &request.body.len().to_string()),
        "/much" => exchange.text(200, &"much".repeat(1_000_000)),
        "/thread" => {
            let owned = exchange.owned(request);
            let responder = exchange.responder();
            std::thread::spawn(move || responder.send(Answer::text(200, scheme(owned.is_secure))));
        }
        "/socket" => {
            let echo = web_socket_fn(|socket, message| {
                socket.send(message.kind, &message.payload).unwrap();
            });
            exchange.web_socket(request, &UpgradeOptions::default(), echo);
        }
        _ => exchange.text(404, "not here"),
    }
}

#[test]
fn handlers_see_the_scheme_and_all_sizes_arrive() {
    let running = serve(&tls(), handler_fn(answer));
    let address = running.addresses()[0];
    assert!(ask(address, get("/scheme")).ends_with("\r\n\r\nhttps\n"));
    assert!(ask(address, get("/thread")).ends_with("\r\n\r\nhttps"));
    let much = ask(address, get("/much"));
    let (_, body) = much.split_once("\r\n\r\n").unwrap();
    assert!(body == "much".repeat(1_000_000) + "\n");
    let head = "POST /length HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 700000";
    let upload = format!("{head}\r\n\r\n{}", "x".repeat(700_000));
    assert!(ask(address, upload).ends_with("\r\n\r\n700000\n"));
    // Some of these are handed from one loop to the other.
    let mut clients: Vec<TlsStream> = (0..40).map(|_| connect(address)).collect();
    for client in &mut clients {
        client.write_all(get("/scheme").as_bytes()).unwrap();
    }
    for client in &mut clients {
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("\r\n\r\nhttps\n"), "{text}");
    }
}

#[test]
fn http2_is_offered_where_it_is_switched_on() {
    for is_on in [false, true] {
        let builder = Server::builder().tls(&tls()).http2(is_on);
        let running = builder.listen(([127, 0, 0, 1], 0).into());
        let running = running.serve(handler_fn(answer)).unwrap();
        let address = running.addresses()[0];
        let mut client = connect_with(address, &Shown::offering(&[b"h2", b"http/1.1"]));
        let mut opening = PREFACE.to_vec();
        encode::settings(&[], &mut opening);
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "dwell.test"),
            (":path", "/scheme"),
        ] {
            encode_field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        encode::block(1, &block, true, 16_384, &mut opening);
        client.write_all(&opening).unwrap();
        let mut answer = Vec::new();
        let mut part = [0; 1024];
        while !answer.ends_with(b"https\n") {
            match client.read(&mut part) {
                Ok(1..) if !is_on && part.starts_with(b"HTTP/1.1 ") => break,
                Ok(read @ 1..) => answer.extend_from_slice(&part[..read]),
                other => panic!("{other:?} behind {answer:?}"),
            }
        }
        let chosen: &[u8] = if is_on { b"h2" } else { b"http/1.1" };
        assert_eq!(client.conn.alpn_protocol(), Some(chosen));
        // Others speak HTTP/1.1 there.
        assert!(ask(address, get("/scheme")).ends_with("\r\n\r\nhttps\n"));
    }
}

#[test]
fn a_file_goes_through_tls() {
    let directory = tempfile::tempdir().unwrap();
    let content: String = "a line of the file\n".repeat(150_000);
    fs::write(directory.path().join("big"), &content).unwrap();
    let root = directory.path().to_owned();
    let handler = move |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let options = dwell_engine::files::DirectoryOptions::default();
        serve_dir(request.head, &root, &options, SystemTime::now()).send(exchange, &[]);
    };
    let running = serve(&tls(), handler);
    let answer = ask(running.addresses()[0], get("/big"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(body == content);
}

#[test]
fn a_web_socket_goes_through_tls() {
    let running = serve(&tls(), handler_fn(answer));
    let stream = connect(running.addresses()[0]);
    let (mut client, _) = tungstenite::client("wss://dwell.test/socket", stream).unwrap();
    for size in [0, 1, 70_000, 500_000] {
        let message = Message::binary(vec![7; size]);
        client.send(message.clone()).unwrap();
        assert_eq!(client.read().unwrap(), message);
    }
    client.close(None).unwrap();
    assert!(client.read().unwrap().is_close());
}

#[test]
fn a_router_sees_the_scheme() {
    async fn of(extensions: Extensions) -> &'static str {
        scheme(extensions.get::<Secure>().is_some())
    }
    let router = || service(Router::new().route("/", routing::get(of)));
    let running = serve(&tls(), router());
    assert!(ask(running.addresses()[0], get("/")).ends_with("\r\n\r\nhttps"));
    let plain = Server::builder().listen(([127, 0, 0, 1], 0).into());
    let running = plain.serve(router()).unwrap();
    let answer = dwell_testkit::ask(running.addresses()[0], get("/"));
    assert!(answer.ends_with("\r\n\r\nhttp"), "{answer}");
}

#[test]
fn a_client_without_tls_is_told_so() {
    let running = serve(&tls(), handler_fn(answer));
    let answer = dwell_testkit::ask(running.addresses()[0], get("/scheme"));
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn a_connection_under_tls_is_not_given_to_a_thread() {
    let running = serve(
        &tls(),
        blocking(|_, responder| {
            let _ = responder.take_over_blocking(Answer::new(101), |_, _| unreachable!());
        }),
    );
    let answer = ask(running.addresses()[0], get("/"));
    assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
    assert_eq!(running.statistics().panics, 0);
}

#[test]
fn a_thread_is_refused_also_where_it_is_asked_for_at_once() {
    let running = serve(
        &tls(),
        handler_fn(|_, exchange| {
            let taken = exchange.responder();
            let _ = taken.take_over_blocking(Answer::new(101), |_, _| unreachable!());
        }),
    );
    let answer = ask(running.addresses()[0], get("/"));
    assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
    assert_eq!(running.statistics().panics, 0);
}

#[test]
fn certificates_are_replaced_while_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (chain, key) = (directory.path().join("chain"), directory.path().join("key"));
    fs::write(&chain, CERTIFICATE).unwrap();
    fs::write(&key, KEY).unwrap();
    let tls = Tls::builder().certificate_files(&chain, &key).build();
    let tls = tls.unwrap();
    let running = serve(&tls, handler_fn(answer));
    let address = running.addresses()[0];
    let offered = || {
        let mut client = connect(address);
        let complete = client.conn.complete_io(&mut client.sock);
        complete.map(|_| client.conn.peer_certificates().is_some())
    };
    assert!(offered().unwrap());
    // A key of another certificate changes nothing.
    fs::write(&chain, OTHER).unwrap();
    let error = tls.reload().unwrap_err();
    assert!(matches!(&error, TlsError::Certificate { path: Some(path), .. } if *path == key));
    assert!(offered().unwrap());
    fs::write(&key, OTHER_KEY).unwrap();
    tls.reload().unwrap();
    let error = offered().unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    fs::remove_file(&key).unwrap();
    let error = tls.reload().unwrap_err().to_string();
    assert!(error.starts_with("cannot read ") && error.contains("key: No such file"));
    let pem = Tls::builder().certificate_pem(CERTIFICATE, KEY);
    tls.replace(pem).unwrap();
    assert!(offered().unwrap());
    // What is in memory is read again too.
    tls.reload().unwrap();
    assert!(offered().unwrap());
    assert!(!format!("{tls:?}").contains("PRIVATE"));
    running.shutdown(PATIENCE);
}
