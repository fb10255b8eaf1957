//! Heads that are accepted, and the values read from them.

use super::*;
use crate::http1::list_tokens;

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
