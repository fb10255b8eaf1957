//! The framings of a response, and interim responses.

use super::*;

/// Method, input, body, how many bytes are not of the response, and whether the connection lasts.
const FRAMINGS: &[(&str, &str, &str, usize, bool)] = &[
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello+",
        "hello",
        1,
        true,
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
        "hello",
        0,
        true,
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5 ,5\r\n\r\nhello",
        "hello",
        0,
        true,
    ),
    (
        "HEAD",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP",
        "",
        4,
        true,
    ),
    ("HEAD", CHUNKED, "", 0, true),
    (
        "GET",
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
        "",
        5,
        true,
    ),
    (
        "GET",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        "",
        0,
        true,
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\n\r\nto the end",
        "to the end",
        0,
        false,
    ),
    (
        "GET",
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
        "a",
        0,
        false,
    ),
    (
        "GET",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na",
        "a",
        0,
        true,
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 0\r\n\r\n",
        "",
        0,
        false,
    ),
    (
        "GET",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n\x01\x02",
        "",
        2,
        false,
    ),
    (
        "CONNECT",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "",
        5,
        false,
    ),
    (
        "CONNECT",
        "HTTP/1.1 403 No\r\nContent-Length: 5\r\n\r\nhello",
        "hello",
        0,
        true,
    ),
];

#[test]
fn every_framing_has_its_end() {
    for &(method, input, body, left, keep_alive) in FRAMINGS {
        for step in 1..=input.len() {
            let cuts: Vec<usize> = (0..input.len()).step_by(step).collect();
            let seen = read(method, input.as_bytes(), &cuts).unwrap();
            let is_switching = method == "CONNECT" && !keep_alive || input.contains(" 101 ");
            assert_eq!(seen.body, body.as_bytes(), "{input:?}");
            assert_eq!(seen.end, Some(input.len() - left), "{input:?}");
            assert_eq!(
                (seen.keep_alive, seen.is_switching),
                (keep_alive, is_switching)
            );
        }
    }
}

#[test]
fn interim_responses_come_before_the_final_one_and_are_counted() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let seen = whole("GET", &[&interim.repeat(3), last].concat()).unwrap();
    assert_eq!(seen.heads, [(103, 1), (103, 1), (103, 1), (200, 1)]);
    assert!(seen.keep_alive);
    let limit = 3;
    assert_eq!(
        whole("GET", &interim.repeat(4)),
        Err(ResponseError::TooManyInterim { limit })
    );
}
