use std::net::Ipv4Addr;

use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

use super::*;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));

fn encode_from(peer: Option<IpAddr>, head: &str, body: &[u8]) -> String {
    let forwarded = ForwardedFor {
        peer,
        proto: "http",
        is_trusted: false,
        certificate: None,
    };
    encode_of(forwarded, head, body)
}

fn encode_of(forwarded: ForwardedFor<'_>, head: &str, body: &[u8]) -> String {
    let mut storage = FieldStorage::new();
    let head = parse_request(head.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
    let bytes = encode_request(
        &head,
        body,
        "default",
        forwarded,
        Sharing::Own,
        Wants::AsAsked,
    );
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_plain_request_keeps_everything_that_is_its_own() {
    let head =
        "GET /a%20b/../c?d=e HTTP/1.1\r\nHost: example\r\nAccept: */*\r\ncookie: a=b\r\n\r\n";
    let expected = "GET /a%20b/../c?d=e HTTP/1.1\r\nHost: example\r\nAccept: */*\r\ncookie: a=b\r\n\
        X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: example\r\n\
        Via: 1.1 dwell\r\nConnection: keep-alive\r\n\r\n";
    assert_eq!(encode_from(Some(CLIENT), head, b""), expected);
}

#[test]
fn fields_of_the_connection_stay_behind() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\n\
        Connection: close, X-Private, Host\r\nX-Private: 1\r\n\
        Keep-Alive: 5\r\nTE: trailers\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\
        Proxy-Authorization: x\r\nProxy-Connection: x\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n\
        Content_Length: 3\r\nX-Kept: 1\r\n\r\n";
    let expected = "POST / HTTP/1.1\r\nHost: a\r\nX-Kept: 1\r\nX-Forwarded-For: 203.0.113.7\r\n\
        X-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 dwell\r\nContent-Length: 5\r\n\
        Connection: keep-alive\r\n\r\nhello";
    assert_eq!(encode_from(Some(CLIENT), head, b"hello"), expected);
}

#[test]
fn an_empty_body_keeps_its_length_if_it_had_one() {
    let lengths = |head: &str| {
        encode_from(None, head, b"")
            .matches("Content-Length")
            .count()
    };
    assert_eq!(lengths("GET / HTTP/1.0\r\n\r\n"), 0);
    assert_eq!(lengths("POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\n"), 1);
}

#[test]
fn the_host_is_that_of_the_target_or_the_field_or_the_default() {
    let host = |head: &str| {
        let text = encode_from(Some(CLIENT), head, b"");
        let mut lines = text.lines();
        let start = lines.next().unwrap().to_owned();
        (start, lines.next().unwrap().to_owned())
    };
    let (start, named) = host("GET http://b:80?q HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((&start[..], &named[..]), ("GET /?q HTTP/1.1", "Host: b:80"));
    let (start, named) = host("GET /x HTTP/1.0\r\n\r\n");
    assert_eq!(
        (&start[..], &named[..]),
        ("GET /x HTTP/1.1", "Host: default")
    );
    // No client has named it.
    let text = encode_from(Some(CLIENT), "GET /x HTTP/1.0\r\n\r\n", b"");
    assert!(!text.contains("X-Forwarded-Host"), "{text}");
    let (start, _) = host("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(start, "OPTIONS * HTTP/1.1");
}

#[test]
fn the_chain_of_addresses_grows_at_its_end() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\n\
        X-Forwarded-For: 1.1.1.1\r\nx-forwarded-for: 2.2.2.2, 3.3.3.3\r\n\r\n";
    let chain = |peer| {
        let text = encode_from(peer, head, b"");
        let line = text
            .lines()
            .find(|line| line.starts_with("X-Forwarded-For"))
            .unwrap();
        assert_eq!(text.to_lowercase().matches("x-forwarded-for").count(), 1);
        line.to_owned()
    };
    let before = "X-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3";
    assert_eq!(chain(None), before);
    assert_eq!(chain(Some(CLIENT)), format!("{before}, 203.0.113.7"));
    let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
    assert_eq!(
        chain(Some(IpAddr::V6(mapped))),
        format!("{before}, 10.0.0.1")
    );
}

#[test]
fn only_a_trusted_proxy_speaks_for_a_client() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\nx-forwarded-HOST: b\r\n\
        X-Forwarded-Port: 443\r\nForwarded: for=1.1.1.1\r\nX-Real-IP: 1.1.1.1\r\n\
        Client-Cert: :MIIB:\r\nclient-cert-chain: :MIIC:\r\n\r\n";
    let sent = |peer, is_trusted| {
        let proto = "http";
        let forwarded = ForwardedFor {
            peer,
            proto,
            is_trusted,
            certificate: None,
        };
        encode_of(forwarded, head, b"").to_ascii_lowercase()
    };
    let ours = "x-forwarded-for: {}\r\nx-forwarded-proto: http\r\nx-forwarded-host: a\r\nvia";
    for peer in ["203.0.113.7", "127.0.0.1", "192.168.1.1", "::1", "fd00::1"] {
        let text = sent(Some(peer.parse().unwrap()), false);
        assert!(text.contains(&ours.replace("{}", peer)), "{text}");
        for theirs in ["https", ": b", "port", "1.1.1.1", "client-cert"] {
            assert!(!text.contains(theirs), "{theirs} in {text}");
        }
    }
    let text = sent(Some(CLIENT), true);
    for theirs in [
        "x-forwarded-proto: https\r\n",
        "x-forwarded-host: b\r\n",
        "client-cert: :miib:\r\nclient-cert-chain: :miic:\r\n",
        "x-forwarded-port: 443\r\n",
        "forwarded: for=1.1.1.1\r\n",
        "x-real-ip: 1.1.1.1\r\n",
    ] {
        assert_eq!(text.matches(theirs).count(), 1, "{theirs} in {text}");
    }
    assert_eq!(text.matches("x-forwarded-proto").count(), 1);
    assert_eq!(text.matches("x-forwarded-host").count(), 1);
}

#[test]
fn the_certificate_of_a_client_takes_the_place_of_what_it_says() {
    let text =
        "GET / HTTP/1.1\r\nHost: a\r\nClient-Cert: :MIIB:\r\nclient-cert-chain: :MIIC:\r\n\r\n";
    let mut storage = FieldStorage::new();
    let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
    let forwarded = |is_trusted, certificate| ForwardedFor {
        peer: Some(CLIENT),
        proto: "https",
        is_trusted,
        certificate,
    };
    let of = |bytes: Bytes| {
        let sent = String::from_utf8(bytes.to_vec()).unwrap();
        let is_of_cert = |line: &&str| line.to_ascii_lowercase().starts_with("client-cert");
        let lines = sent.lines().filter(is_of_cert).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let der = Some(&b"\x00\xff\xfe?>"[..]);
    let sent = |is_trusted, certificate| {
        let forwarded = forwarded(is_trusted, certificate);
        let (own, wants) = (Sharing::Own, Wants::AsAsked);
        let poll = of(encode_request(&head, b"", "app", forwarded, own, wants));
        let body = RequestBody::Whole(b"");
        let other = of(encode_forward(&head, body, &[], "app", forwarded));
        assert_eq!(poll, other);
        poll
    };
    assert_eq!(sent(false, der), ["Client-Cert: :AP/+Pz4=:"]);
    assert!(sent(false, None).is_empty());
    let theirs = ["Client-Cert: :MIIB:", "client-cert-chain: :MIIC:"];
    assert_eq!(
        sent(true, der),
        theirs,
        "a trusted proxy tells of its own clients"
    );
    let passes: &dyn Fn(&str) -> bool = &|_| true;
    let sharing = Sharing::Shared {
        passes,
        client: Some(CLIENT),
    };
    let (forwarded, wants) = (forwarded(false, der), Wants::AsAsked);
    let shared = of(encode_request(&head, b"", "app", forwarded, sharing, wants));
    assert!(shared.is_empty(), "others get the answer too: {shared:?}");
}

#[test]
fn what_is_sent_parses_as_one_request() {
    let head = "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: \u{e9}\t.\r\n\r\n";
    let text = encode_from(Some(CLIENT), head, b"hello");
    let end = text.len() - 5;
    let mut storage = FieldStorage::new();
    let sent = parse_request(
        &text.as_bytes()[..end],
        &mut storage,
        &HeadLimits::default(),
    );
    assert_eq!(sent.map(|head| head.framing), Ok(BodyFraming::Length(5)));
}

#[test]
fn a_shared_request_leaves_out_what_fits_one_client_only() {
    let text = "GET /poll/a HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"x\"\r\nRange: bytes=0-1\r\n\
        Accept-Encoding: gzip\r\nAccept: text/html\r\nCookie: a=1\r\n\
        X-Forwarded-For: <x>\r\nX-Forwarded-Host: evil\r\nVia: 1.1 x\r\nX-Bad: 1\r\n\r\n";
    let mut storage = FieldStorage::new();
    let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
    let forwarded = ForwardedFor {
        peer: None,
        proto: "http",
        is_trusted: false,
        certificate: None,
    };
    let client = Some(CLIENT);
    let passes = |name: &str| name.eq_ignore_ascii_case("accept");
    let passes: &dyn Fn(&str) -> bool = &passes;
    let sharing = Sharing::Shared { passes, client };
    let shared = encode_request(&head, b"", "app", forwarded, sharing, Wants::AsAsked);
    let shared = String::from_utf8(shared.to_vec()).unwrap();
    let expected = "GET /poll/a HTTP/1.1\r\nHost: app\r\nAccept: text/html\r\n\
        X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: http\r\n\
        Via: 1.1 dwell\r\nUser-Agent: dwell\r\nConnection: keep-alive\r\n\r\n";
    assert_eq!(shared, expected);
    // What is only one client's goes along with no shared request.
    let passes: &dyn Fn(&str) -> bool = &|_| true;
    let sharing = Sharing::Shared { passes, client };
    let shared = encode_request(&head, b"", "app", forwarded, sharing, Wants::AsAsked);
    let shared = String::from_utf8(shared.to_vec()).unwrap();
    assert!(shared.contains("Host: a\r\n") && shared.contains("Cookie: a=1\r\n"));
    for own in ["If-None-Match", "Range", "Accept-Encoding"] {
        assert!(!shared.contains(own), "{own} in {shared}");
    }
    let alone = encode_request(&head, b"", "app", forwarded, Sharing::Own, Wants::AsAsked);
    assert!(String::from_utf8(alone.to_vec()).unwrap().contains("Range"));
}

#[test]
fn for_a_stream_of_the_edges_own_one_value_is_asked() {
    let text = "GET /p HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\nLast-Event-ID: 7\r\n\
                Cookie: a=1\r\n\r\n";
    let mut storage = FieldStorage::new();
    let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
    let forwarded = ForwardedFor {
        peer: None,
        proto: "http",
        is_trusted: false,
        certificate: None,
    };
    let sent = |wants| {
        let bytes = encode_request(&head, b"", "app", forwarded, Sharing::Own, wants);
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    let asked = sent(Wants::AsAsked);
    assert!(asked.contains("Accept: text/event-stream\r\nLast-Event-ID: 7\r\n"));
    let one = sent(Wants::OneValue);
    assert!(
        !one.contains("Accept") && !one.contains("Last-Event-ID"),
        "{one}"
    );
    assert!(one.contains("Cookie: a=1"));
}

fn forward_with(head: &str, body: RequestBody<'_>, trailers: &[(&str, &[u8])]) -> String {
    let mut storage = FieldStorage::new();
    let head = parse_request(head.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
    let forwarded = ForwardedFor {
        peer: None,
        proto: "http",
        is_trusted: false,
        certificate: None,
    };
    let bytes = encode_forward(&head, body, trailers, "default", forwarded);
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn forward(head: &str) -> String {
    forward_with(head, RequestBody::Begins(&[]), &[])
}

#[test]
fn a_body_that_follows_keeps_its_framing() {
    let chunked = forward(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\nTrailer: Digest\r\n\
         Expect: 100-continue\r\nTE: trailers, deflate\r\nConnection: TE\r\n\r\n",
    );
    assert_eq!(
        chunked,
        "POST / HTTP/1.1\r\nHost: a\r\nTrailer: Digest\r\nX-Forwarded-Proto: http\r\n\
         X-Forwarded-Host: a\r\nVia: 1.1 dwell\r\nTransfer-Encoding: chunked\r\n\
         Expect: 100-continue\r\nTE: trailers\r\nConnection: keep-alive, TE\r\n\r\n"
    );
    let long = forward("PUT / HTTP/1.0\r\nHost: a\r\nContent-Length: 00100000\r\n\r\n");
    assert!(long.contains("Via: 1.0 dwell\r\nContent-Length: 100000\r\nConnection: keep-alive"));
}

#[test]
fn what_was_gathered_of_a_body_goes_with_its_head() {
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
         Expect: 100-continue\r\n\r\n";
    let begun = forward_with(chunked, RequestBody::Begins(b"hello"), &[]);
    assert!(begun.contains("\r\nTransfer-Encoding: chunked\r\n") && !begun.contains("Expect"));
    assert!(begun.ends_with("\r\n\r\n5\r\nhello\r\n"), "{begun}");
    let whole = forward_with(chunked, RequestBody::Whole(b"hello"), &[("Digest", b"x")]);
    assert!(
        whole.ends_with("\r\n\r\n5\r\nhello\r\n0\r\nDigest: x\r\n\r\n"),
        "{whole}"
    );
    let empty = forward_with(chunked, RequestBody::Whole(b""), &[]);
    assert!(empty.ends_with("\r\n\r\n0\r\n\r\n"), "{empty}");
    let long = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n";
    let begun = forward_with(long, RequestBody::Begins(b"hello"), &[]);
    assert!(begun.contains("\r\nContent-Length: 10\r\n") && begun.ends_with("\r\n\r\nhello"));
    assert!(!begun.contains("Expect"));
}

#[test]
fn only_a_protocol_that_can_follow_is_asked_for() {
    let upgrade = |fields: &str| {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
        let mut storage = FieldStorage::new();
        let parsed = parse_request(head.as_bytes(), &mut storage, &HeadLimits::default());
        upgrade_of(&parsed.unwrap()).map(<[u8]>::to_vec)
    };
    let websocket = upgrade("Connection: Upgrade\r\nUpgrade: websocket");
    assert_eq!(websocket.as_deref(), Some(&b"websocket"[..]));
    for fields in [
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Connection: Upgrade\r\nUpgrade: h2c",
        "Connection: Upgrade\r\nUpgrade: websocket, HTTP/2.0",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 5",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked",
    ] {
        assert_eq!(upgrade(fields), None, "{fields}");
    }
}

#[test]
fn who_has_passed_it_on_before_is_still_named() {
    let head = "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 one\r\nvia: 1.1 two\r\n\r\n";
    assert!(encode_from(None, head, b"").contains("Via: 1.0 one, 1.1 two, 1.1 dwell\r\n"));
}
