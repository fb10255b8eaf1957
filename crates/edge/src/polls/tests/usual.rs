//! Answers whose fields were encoded before: they are those of any other answer.

use super::harness::{Edge, cursor};
use std::fmt::Write;
use std::io::Read;

/// The answer to a request, without its date.
fn answer(edge: &mut Edge, request: &str) -> String {
    let mut client = edge.ask(request);
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    edge.turn_until(|_| {
        if let Ok(length) = client.socket.read(&mut buffer) {
            text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        }
        text.contains("\r\n\r\n")
    });
    let lines = text
        .split("\r\n")
        .filter(|line| !line.starts_with("Date: "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn each_route_has_its_content_type_however_many_there_are() {
    let mut routes = String::new();
    for number in 0..12 {
        let (prefix, content_type) = (format!("/{number}/"), format!("text/x-{}", number / 2 * 2));
        let route = format!("prefix = \"{prefix}\"\ncontent_type = \"{content_type}\"");
        writeln!(routes, "[[route]]\n{route}").unwrap();
        if number % 2 == 0 {
            continue;
        }
        writeln!(routes, "[[route]]\nprefix = \"/one{number}/\"").unwrap();
        writeln!(routes, "content_type = \"text/x-one-{number}\"").unwrap();
    }
    let mut edge = Edge::new(&routes);
    for number in 0..12 {
        let own = format!("/one{number}/a");
        let of_two = (format!("/{number}/a"), format!("text/x-{}", number / 2 * 2));
        let of_one = (own, format!("text/x-one-{number}"));
        let both = [Some(of_two), (number % 2 == 1).then_some(of_one)];
        for (key, content_type) in both.into_iter().flatten() {
            edge.set(&key, "one");
            let told = answer(&mut edge, &format!("GET {key}"));
            let line = format!("\nContent-Type: {content_type}\n");
            assert!(told.contains(&line), "{key}: {told}");
        }
    }
}

#[test]
fn the_fields_are_those_that_the_request_asks_for() {
    let mut edge = Edge::new(
        "[[route]]\nprefix = \"/poll/\"\nempty = \"204\"\n\
         [[route]]\nprefix = \"/page/\"\ncors_origins = [\"https://a.example\"]",
    );
    edge.set("/poll/a", "one");
    edge.set("/page/a", "one");
    edge.set("/poll/empty", "");
    let (since, empty) = (cursor("one"), cursor(""));
    let cursor_of = |of: &str| {
        format!(
            "ETag: \"{of}\"\nPoll-Cursor: {of}\nAccess-Control-Expose-Headers: ETag, Poll-Cursor\n"
        )
    };
    let value = "Content-Type: text/plain; charset=utf-8\nX-Content-Type-Options: nosniff\n";
    let status = "Cache-Status: dwell; hit\n";
    let ok = |control: &str, more: &str| {
        let cursor = cursor_of(&since);
        let fields = format!("{cursor}Cache-Control: {control}\n{more}{value}{status}");
        format!("HTTP/1.1 200 OK\n{fields}Content-Length: 3\n\none")
    };
    let same = |control: &str, more: &str| {
        let cursor = cursor_of(&since);
        format!("HTTP/1.1 304 Not Modified\n{cursor}Cache-Control: {control}\n{more}{status}\n")
    };
    let (held, not_held) = ("no-store", "private, no-cache");
    let tag = format!("If-None-Match: \"{since}\"\r\n");
    for (request, expected) in [
        ("GET /poll/a".to_owned(), ok(not_held, "")),
        ("GET /poll/a?wait=5".to_owned(), ok(held, "")),
        (
            "GET /poll/a\nPrefer: wait=5\r\n".to_owned(),
            ok(held, "Preference-Applied: wait=5\n"),
        ),
        (format!("GET /poll/a\n{tag}"), same(not_held, "")),
        (
            format!("GET /poll/a\n{tag}Prefer: wait=0\r\n"),
            same(not_held, "Preference-Applied: wait=0\n"),
        ),
    ] {
        assert_eq!(answer(&mut edge, &request), expected, "{request}");
    }
    let none = answer(&mut edge, "GET /poll/empty");
    let cursor = cursor_of(&empty);
    let fields = format!("{cursor}Cache-Control: {not_held}\n{status}");
    assert_eq!(none, format!("HTTP/1.1 204 No Content\n{fields}\n"));
    for request in ["GET /page/a\n", &format!("GET /page/a\n{tag}")] {
        let page = answer(
            &mut edge,
            &format!("{request}Origin: https://a.example\r\n"),
        );
        let origin = "\nAccess-Control-Allow-Origin: https://a.example\n";
        assert!(page.contains(origin), "{page}");
    }
    let last = answer(&mut edge, "GET /poll/a\nConnection: close\r\n");
    assert!(last.contains("\nConnection: close\n"), "{last}");
}
