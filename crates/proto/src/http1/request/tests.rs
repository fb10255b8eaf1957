use proptest::prelude::*;

use super::*;
use crate::http1::list_tokens;

/// The status that a head is refused with; 0 if it is accepted. Goes the way a server does:
/// finds the end first, and parses what is before it.
fn refusal(input: &[u8]) -> u16 {
    let end = head_end(input, &mut 0).expect("the head has an end");
    let mut storage = FieldStorage::new();
    let parsed = parse_request(&input[..end], &mut storage, &HeadLimits::default());
    parsed.map_or_else(HeadError::status, |_| 0)
}

#[track_caller]
fn check_refused(cases: &[(&str, u16)]) {
    for (input, status) in cases {
        assert_eq!(refusal(input.as_bytes()), *status, "{input:?}");
    }
}

#[track_caller]
fn accept<R>(input: &str, look: impl FnOnce(&RequestHead<'_, '_>) -> R) -> R {
    let mut storage = FieldStorage::new();
    let parsed = parse_request(input.as_bytes(), &mut storage, &HeadLimits::default());
    look(&parsed.unwrap_or_else(|error| panic!("{input:?}: {error}")))
}

#[test]
fn a_later_minor_version_is_read_as_the_one_that_is_known() {
    for input in [
        "GET /a?b HTTP/1.2\r\nHost: a\r\n\r\n",
        "\r\nPUT / HTTP/1.9\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\n",
    ] {
        let known = input
            .replace("HTTP/1.2", "HTTP/1.1")
            .replace("HTTP/1.9", "HTTP/1.1");
        let limits = HeadLimits::default();
        let (mut storage, mut expected) = (FieldStorage::new(), FieldStorage::new());
        let head = parse_request(input.as_bytes(), &mut storage, &limits).unwrap();
        let twin = parse_request(known.as_bytes(), &mut expected, &limits).unwrap();
        assert_eq!(format!("{head:?}"), format!("{twin:?}"));
        // In two pieces, as it may come.
        for split in 0..input.len() {
            let mut scanned = 0;
            let mut storage = FieldStorage::new();
            let first = next_request(
                &input.as_bytes()[..split],
                &mut scanned,
                &mut storage,
                &limits,
            );
            assert!(first.unwrap().is_none(), "{split}");
            let mut storage = FieldStorage::new();
            let head = next_request(input.as_bytes(), &mut scanned, &mut storage, &limits);
            assert_eq!(format!("{:?}", head.unwrap().unwrap()), format!("{twin:?}"));
        }
    }
}

#[test]
fn lines_that_parsers_disagree_about_are_refused() {
    check_refused(&[
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \nY: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX:\nY: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b \t\nY: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\rHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nX: b\rContent-Length: 5\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tfolded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (
            "\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
        ),
    ]);
}

#[test]
fn malformed_fields_are_refused() {
    check_refused(&[
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost\t: a\r\n\r\n", 400),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\u{b}: chunked\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent\0-Length: 5\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX(y): b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\u{e9}: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\u{1}b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\u{b}b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\u{7f}b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", 417),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nExpect: x\r\n\r\n",
            417,
        ),
    ]);
}

#[test]
fn ambiguous_framing_is_refused() {
    let with = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
    for (fields, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
        ("Transfer-Encoding: gzip\r\nContent-Length: 5", 400),
        ("Content-Length: 5\r\nContent-Length: 5", 400),
        ("Content-Length: 5\r\ncontent-length: 6", 400),
        ("Content-Length: 5, 5", 400),
        ("Content-Length: +2", 400),
        ("Content-Length: -1", 400),
        ("Content-Length:", 400),
        ("Content-Length:  \t ", 400),
        ("Content-Length: 0x5", 400),
        ("Content-Length: 5 5", 400),
        ("Content-Length: 5;", 400),
        ("Content-Length: 1e3", 400),
        ("Content-Length: 5_0", 400),
        ("Content-Length: 18446744073709551616", 400),
        ("Content-Length: 99999999999999999999999", 400),
        ("Content-Length: \u{665}", 400),
        ("Transfer-Encoding: xchunked", 501),
        ("Transfer-Encoding: chunkedx", 501),
        ("Transfer-Encoding: identity", 501),
        ("Transfer-Encoding: gzip", 501),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: \"chunked\"", 501),
        ("Transfer-Encoding: chunked;q=1", 501),
        ("Transfer-Encoding: \u{b}chunked", 400),
        ("Transfer-Encoding: chunked, gzip", 400),
        ("Transfer-Encoding: chunked, chunked", 400),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            400,
        ),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked,", 400),
        ("Transfer-Encoding: ,chunked", 400),
        ("Transfer-Encoding:", 400),
        ("Transfer-Encoding: ,", 400),
    ] {
        assert_eq!(refusal(with(fields).as_bytes()), status, "{fields:?}");
    }
    check_refused(&[
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            400,
        ),
    ]);
}

#[test]
fn malformed_request_lines_are_refused() {
    check_refused(&[
        ("GET /\r\n\r\n", 400),
        ("GET\r\n\r\n", 400),
        ("\r\nGET\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a\u{7f}b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /\"a\" HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /<a> HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("OPTIONS *a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://me@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://a:x/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("G\u{e9}T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/1.2 \r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.2\nHost: a\r\n\r\n", 400),
        (
            "GET / HTTP/1.2\r\nHost: a\r\nContent-Length: 1, 2\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.9\r\n\r\n", 400),
        ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/11\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTPS/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1x\r\nHost: a\r\n\r\n", 400),
    ]);
}

#[test]
fn wrong_hosts_are_refused() {
    check_refused(&[
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a?b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: me@a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: []\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: [z]\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: \u{e9}\r\n\r\n", 400),
        ("GET http://a/ HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: \t\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nHost:\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: :80\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: :\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET http://:80/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ]);
}

#[test]
fn unusual_but_valid_heads_are_accepted() {
    for input in [
        "GET / HTTP/1.1\r\nHost: a:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a_b.example:8080\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "get / HTTP/1.1\r\nhOsT: a\r\n\r\n",
        "FOO-BAR /a|b[c]{d}\\^`?'x=(1) HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET //a//b/../c?d?e HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \u{e9}\r\nY:\r\nZ:\t b\tc \t\r\n\r\n",
        "GET / HTTP/1.0\r\nExpect: something\r\n\r\n",
    ] {
        assert_eq!(
            head_end(input.as_bytes(), &mut 0),
            Some(input.len()),
            "{input:?}"
        );
        accept(input, |_| ());
    }
}

#[test]
fn a_target_is_taken_apart() {
    let parts = |input: &str| {
        let head = format!("OPTIONS {input} HTTP/1.1\r\nHost: field\r\n\r\n");
        accept(&head, |head| {
            let query = head.query.map(str::to_owned);
            let host = String::from_utf8(head.host.unwrap().to_vec()).unwrap();
            (head.path.to_owned(), query, host)
        })
    };
    let expect = |path: &str, query: Option<&str>, host: &str| {
        (path.to_owned(), query.map(str::to_owned), host.to_owned())
    };
    assert_eq!(parts("/a/b"), expect("/a/b", None, "field"));
    assert_eq!(parts("/a?"), expect("/a", Some(""), "field"));
    assert_eq!(parts("/a?b=c?d"), expect("/a", Some("b=c?d"), "field"));
    assert_eq!(parts("*"), expect("*", None, "field"));
    assert_eq!(parts("http://b:80/c?d"), expect("/c", Some("d"), "b:80"));
    assert_eq!(parts("HTTPS://b"), expect("/", None, "b"));
    assert_eq!(parts("http://b?d/e"), expect("/", Some("d/e"), "b"));
}

#[test]
fn framing_is_read_from_the_fields() {
    let framing = |fields: &str| {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        accept(&head, |head| head.framing)
    };
    assert_eq!(framing(""), BodyFraming::None);
    assert_eq!(framing("Content-Length: 0\r\n"), BodyFraming::Length(0));
    assert_eq!(
        framing("content-LENGTH:\t00042 \r\n"),
        BodyFraming::Length(42)
    );
    let most = 9_999_999_999_999_999_999;
    assert_eq!(
        framing("Content-Length: 9999999999999999999\r\n"),
        BodyFraming::Length(most)
    );
    assert_eq!(
        framing("Transfer-Encoding: Chunked \r\n"),
        BodyFraming::Chunked
    );
}

#[test]
fn connection_options_decide_persistence_and_upgrade() {
    let keep_alive = |version: &str, fields: &str| {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        accept(&head, |head| head.keep_alive)
    };
    assert!(keep_alive("1.1", ""));
    assert!(!keep_alive("1.1", "Connection: foo , CLOSE\r\n"));
    assert!(!keep_alive(
        "1.1",
        "Connection: keep-alive\r\nConnection: close\r\n"
    ));
    assert!(keep_alive("1.1", "Connection: closed\r\n"));
    assert!(!keep_alive("1.0", ""));
    assert!(keep_alive("1.0", "Connection: Keep-Alive\r\n"));
    assert!(!keep_alive("1.0", "Connection: keep-alive, close\r\n"));

    let upgrade = |version: &str, fields: &str| {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        accept(&head, |head| head.upgrade.map(<[u8]>::to_vec))
    };
    let both = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(upgrade("1.1", both), Some(b"websocket".to_vec()));
    assert_eq!(upgrade("1.0", both), None);
    assert_eq!(upgrade("1.1", "Upgrade: websocket\r\n"), None);
}

#[test]
fn an_expectation_counts_in_http_1_1_only() {
    let expects = |version: &str| {
        let head = format!("PUT / HTTP/{version}\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n");
        accept(&head, |head| head.expect_continue)
    };
    assert!(expects("1.1"));
    assert!(!expects("1.0"));
}

#[test]
fn fields_can_be_searched() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nVia: b, c\r\nvia: \td ,,e \r\n\r\n";
    accept(head, |head| {
        assert_eq!(head.fields.len(), 3);
        assert_eq!(head.fields.find("VIA"), Some(&b"b, c"[..]));
        assert_eq!(head.fields.find("vi"), None);
        assert_eq!(head.fields.all("via").count(), 2);
        assert!(head.fields.has_token("via", "E"));
        assert!(!head.fields.has_token("via", ""));
        let names: Vec<_> = head.fields.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["Host", "Via", "via"]);
    });
    let members: Vec<_> = list_tokens(b" ,a\t, b c,").collect();
    assert_eq!(members, [&b"a"[..], b"b c"]);
}

#[test]
fn limits_have_their_own_statuses() {
    let limits = HeadLimits {
        head_bytes_max: 200,
        target_bytes_max: 50,
        field_count_max: 3,
    };
    let status = |input: &str| {
        let mut storage = FieldStorage::new();
        let parsed = parse_request(input.as_bytes(), &mut storage, &limits);
        parsed.map_or_else(HeadError::status, |_| 0)
    };
    let with_target = |length: usize| {
        format!(
            "GET /{} HTTP/1.1\r\nHost: a\r\n\r\n",
            "a".repeat(length - 1)
        )
    };
    assert_eq!(status(&with_target(50)), 0);
    assert_eq!(status(&with_target(51)), 414);
    assert_eq!(status(&with_target(500)), 414);
    let with_field = |length: usize| {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n";
        head.replace("X: ", &format!("X: {}", "a".repeat(length - head.len())))
    };
    assert_eq!(status(&with_field(200)), 0);
    assert_eq!(status(&with_field(201)), 431);
    assert_eq!(
        status("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\n\r\n"),
        0
    );
    assert_eq!(
        status("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\nE: f\r\n\r\n"),
        431
    );

    let unfinished = |input: &str| oversized_head(input.as_bytes(), &limits).status();
    assert_eq!(unfinished(&format!("GET /{}", "a".repeat(300))), 414);
    assert_eq!(
        unfinished(&format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(300))),
        431
    );
    assert_eq!(unfinished(&"A".repeat(300)), 501);
    let long_method = format!("{} /{}", "A".repeat(65), "a".repeat(300));
    assert_eq!(unfinished(&long_method), 501);
    assert_eq!(unfinished(&format!("\r\n{long_method}")), 501);
    let with_method = |length: usize| {
        let method = "A".repeat(length);
        format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")
    };
    assert_eq!(status(&with_method(64)), 0);
    assert_eq!(status(&with_method(65)), 501);
    assert_eq!(status(&with_method(500)), 501);
    assert_eq!(status(&with_method(65).replace("1.1", "1.2")), 501);
}

#[test]
fn a_limit_beyond_the_storage_is_cut_to_it() {
    let limits = HeadLimits {
        field_count_max: usize::MAX,
        ..HeadLimits::default()
    };
    let head = |count: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "A: b\r\n".repeat(count));
    let mut storage = FieldStorage::new();
    let (full, over) = (head(128), head(129));
    let parsed = parse_request(full.as_bytes(), &mut storage, &limits);
    assert_eq!(parsed.map(|head| head.fields.len()), Ok(128));
    let mut storage = FieldStorage::new();
    let error = parse_request(over.as_bytes(), &mut storage, &limits).err();
    assert_eq!(error, Some(HeadError::TooManyFields { limit: 128 }));
}

#[test]
fn only_one_whole_head_is_parsed() {
    for input in [
        "",
        "GET",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "\r\n\r\n",
        "\r\n",
    ] {
        let mut storage = FieldStorage::new();
        let parsed = parse_request(input.as_bytes(), &mut storage, &HeadLimits::default());
        assert_eq!(parsed.err(), Some(HeadError::NotOneHead), "{input:?}");
    }
    let input = "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET";
    let mut storage = FieldStorage::new();
    let parsed = parse_request(input.as_bytes(), &mut storage, &HeadLimits::default());
    assert_eq!(parsed.err(), Some(HeadError::NotOneHead));
}

#[test]
fn an_unfinished_head_is_waited_for_or_refused_early() {
    let read = |input: &str| {
        let mut storage = FieldStorage::new();
        let limits = HeadLimits {
            head_bytes_max: 60,
            ..HeadLimits::default()
        };
        let next = next_request(input.as_bytes(), &mut 0, &mut storage, &limits);
        next.map(|head| head.map(|head| head.length))
    };
    for input in [
        "",
        "\r",
        "GE",
        "GET / HTTP/2.",
        "GET / HTTP/1.1\r\nHost: a\r\n",
    ] {
        assert_eq!(read(input), Ok(None), "{input:?}");
    }
    assert_eq!(read("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /"), Ok(Some(27)));
    assert_eq!(read("\u{16}\u{3}\u{1}"), Err(HeadError::RequestLine));
    assert_eq!(
        read("GET / HTTP/2.0\r\n"),
        Err(HeadError::VersionUnsupported)
    );
    assert_eq!(
        read("GET / HTTP/1.1\r\nHost : a"),
        Err(HeadError::FieldName)
    );
    assert_eq!(read(&"\r\n".repeat(10)), Err(HeadError::NotOneHead));
    let unclear = "\r\n".repeat(10) + "GET / htt";
    assert_eq!(read(&unclear), Err(HeadError::NotOneHead));
    let long = "GET / HTTP/1.1\r\nX: ".to_owned() + &"a".repeat(42);
    assert_eq!(
        read(&long),
        Err(HeadError::HeadTooLong {
            limit: 60,
            length: 61
        })
    );

    let mut scanned = 0;
    for (length, expected) in [(3, Ok(None)), (30, Ok(None)), (61, Err(431))] {
        let mut storage = FieldStorage::new();
        let limits = HeadLimits {
            head_bytes_max: 60,
            ..HeadLimits::default()
        };
        let next = next_request(
            &long.as_bytes()[..length],
            &mut scanned,
            &mut storage,
            &limits,
        );
        let next = next
            .map(|head| head.map(|head| head.length))
            .map_err(HeadError::status);
        assert_eq!(next, expected);
    }
}

#[test]
fn errors_name_the_limit_and_the_value() {
    let error = HeadError::HeadTooLong {
        limit: 16_384,
        length: 20_011,
    };
    assert_eq!(
        error.to_string(),
        "header section exceeds 16384 bytes: 20011"
    );
}

/// Bytes that look enough like a head for the interesting paths to be taken.
fn head_like() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\n",
        b"POST /a?b HTTP/1.0\r\n",
        b"Host: a\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"X: y\r\n",
        b"X: y \n",
        b"X:\r\n",
        b"\0",
        b"\xff",
    ];
    let piece = proptest::sample::select(pieces);
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn byte_at_a_time_finds_the_same_end_as_whole(input in head_like()) {
        let whole = head_end(&input, &mut 0);
        let mut scanned = 0;
        let by_bytes =
            (1..=input.len()).find_map(|length| head_end(&input[..length], &mut scanned));
        prop_assert_eq!(by_bytes, whole);
        if whole.is_some() {
            prop_assert_eq!(scanned, 0);
        }
    }

    #[test]
    fn byte_at_a_time_is_read_like_the_whole(input in head_like()) {
        let read = |input: &[u8], scanned: &mut usize| {
            let mut storage = FieldStorage::new();
            let next = next_request(input, scanned, &mut storage, &HeadLimits::default());
            next.map(|head| head.map(|head| (head.length, head.framing, head.path.to_owned())))
        };
        let whole = read(&input, &mut 0);
        let mut scanned = 0;
        let mut by_bytes = (1..=input.len()).map(|length| read(&input[..length], &mut scanned));
        let by_bytes = by_bytes.find(|read| !matches!(read, Ok(None)));
        match by_bytes {
            Some(by_bytes) => prop_assert_eq!(by_bytes, whole),
            // A head can be known to be wrong before its end comes.
            None => prop_assert!(!matches!(whole, Ok(Some(_)))),
        }
        let Some(end) = head_end(&input, &mut 0) else { return Ok(()) };
        let mut storage = FieldStorage::new();
        let parsed = parse_request(&input[..end], &mut storage, &HeadLimits::default());
        let parsed = parsed.map(|head| Some((head.length, head.framing, head.path.to_owned())));
        prop_assert_eq!(read(&input, &mut 0), parsed);
    }

    #[test]
    fn what_is_accepted_has_only_whole_lines(input in head_like()) {
        let Some(end) = head_end(&input, &mut 0) else { return Ok(()) };
        let mut storage = FieldStorage::new();
        if parse_request(&input[..end], &mut storage, &HeadLimits::default()).is_ok() {
            let text = &input[..end];
            for (index, byte) in text.iter().enumerate() {
                match byte {
                    b'\n' => prop_assert_eq!(text[index - 1], b'\r'),
                    b'\r' => prop_assert_eq!(text[index + 1], b'\n'),
                    _ => prop_assert_ne!(*byte, 0),
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_answered(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut storage = FieldStorage::new();
        let _ = parse_request(&input, &mut storage, &HeadLimits::default());
    }
}
