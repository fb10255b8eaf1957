use super::*;
use crate::http1::{FieldStorage, HeadLimits, parse_request, parse_response};
use proptest::prelude::*;

const KEY_LINE: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const VERSION_LINE: &str = "Sec-WebSocket-Version: 13\r\n";
const UPGRADE_LINES: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\n";

/// What becomes of a request with these lines after its `Host`: its answer's fields.
fn answer_to(lines: &str) -> Result<String, HandshakeError> {
    answer(&format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"))
}

fn answer(head: &str) -> Result<String, HandshakeError> {
    let mut storage = FieldStorage::new();
    let head = parse_request(head.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
    let request = UpgradeRequest::check(&head)?;
    let mut acceptance = request.accept();
    acceptance.subprotocol = request.subprotocols().next();
    acceptance.deflate = request.negotiate_deflate(&DeflateOptions::default());
    let mut out = Vec::new();
    acceptance.encode_fields(&mut out);
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn the_example_of_the_standard_is_accepted() {
    let lines = format!("{UPGRADE_LINES}{KEY_LINE}{VERSION_LINE}Origin: http://example.com\r\n");
    let expected = "Upgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    assert_eq!(answer_to(&lines).as_deref(), Ok(expected));
}

#[test]
fn lists_and_cases_are_read_as_http_writes_them() {
    let lines = format!(
        "UPGRADE: h2c\r\nupgrade: , WebSocket\r\nConnection: keep-alive, UPGRADE\r\n\
         {KEY_LINE}{VERSION_LINE}Content-Length: 0\r\n\
         Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: b, c\r\n\
         Sec-WebSocket-Extensions: x\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"
    );
    let answer = answer_to(&lines).unwrap();
    assert!(answer.contains("Sec-WebSocket-Protocol: a\r\n"));
    assert!(answer.contains("Sec-WebSocket-Extensions: permessage-deflate; server_no"));
}

#[test]
fn each_fault_is_refused_with_its_status() {
    let good = format!("{UPGRADE_LINES}{KEY_LINE}{VERSION_LINE}");
    let with = |more: &str| format!("{good}{more}");
    let without = |line: &str| good.replace(line, "");
    let instead = |line: &str, other: &str| good.replace(line, other);
    let unpadded = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n";
    let short = "Sec-WebSocket-Key: SGVsbG8sIHdvcmxkIQ==\r\n";
    let foreign = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZ*==\r\n";
    for (lines, error) in [
        (without("Upgrade: websocket\r\n"), HandshakeError::Upgrade),
        (instead("websocket", "websockets"), HandshakeError::Upgrade),
        (without("Connection: Upgrade\r\n"), HandshakeError::Upgrade),
        (without(VERSION_LINE), HandshakeError::Version),
        (instead("13", "8"), HandshakeError::Version),
        (with(VERSION_LINE), HandshakeError::Version),
        (without(KEY_LINE), HandshakeError::Key),
        (with(KEY_LINE), HandshakeError::Key),
        (instead(KEY_LINE, unpadded), HandshakeError::Key),
        (instead(KEY_LINE, short), HandshakeError::Key),
        (instead(KEY_LINE, foreign), HandshakeError::Key),
        (with("Content-Length: 1\r\n"), HandshakeError::Body),
        (with("Transfer-Encoding: chunked\r\n"), HandshakeError::Body),
        (
            with("Sec-WebSocket-Protocol: a b\r\n"),
            HandshakeError::Subprotocols,
        ),
        (
            with("Sec-WebSocket-Extensions: a;\r\n"),
            HandshakeError::Extensions,
        ),
    ] {
        assert_eq!(answer_to(&lines), Err(error), "{lines}");
        let status = if error == HandshakeError::Version {
            426
        } else {
            400
        };
        assert_eq!(error.status(), status);
    }
    for (head, error) in [
        (
            format!("POST / HTTP/1.1\r\nHost: a\r\n{good}\r\n"),
            HandshakeError::Method,
        ),
        (
            format!("GET / HTTP/1.0\r\nHost: a\r\n{good}\r\n"),
            HandshakeError::Method,
        ),
    ] {
        assert_eq!(answer(&head), Err(error), "{head}");
    }
}

#[test]
fn only_the_wrong_version_is_told_the_right_one() {
    let mut out = Vec::new();
    HandshakeError::Key.encode_fields(&mut out);
    assert_eq!(out, b"");
    HandshakeError::Version.encode_fields(&mut out);
    let expected = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n";
    assert_eq!(out, expected);
}

#[test]
fn the_origin_is_there_to_be_judged() {
    let head = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nOrigin: null\r\n{UPGRADE_LINES}{KEY_LINE}{VERSION_LINE}\r\n"
    );
    let mut storage = FieldStorage::new();
    let head = parse_request(head.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
    assert_eq!(
        UpgradeRequest::check(&head).unwrap().origin(),
        Some(&b"null"[..])
    );
}

fn client() -> ClientHandshake<'static> {
    ClientHandshake {
        subprotocols: &["chat", "superchat"],
        deflate: Some(DeflateOptions::default()),
        ..ClientHandshake::new(*b"the sample nonce")
    }
}

/// What a client makes of an answer with this status and these lines.
fn checked(
    client: &ClientHandshake<'static>,
    status: &str,
    lines: &str,
) -> Result<Agreement<'static>, HandshakeError> {
    let head = format!("HTTP/1.1 {status}\r\n{lines}\r\n");
    let mut storage = FieldStorage::new();
    let limits = HeadLimits::default();
    let head = parse_response(head.as_bytes(), &mut storage, &limits, "GET").unwrap();
    client.check(&head)
}

#[test]
fn a_client_asks_as_the_standard_says() {
    let mut out = Vec::new();
    client().encode_fields(&mut out);
    let expected = format!(
        "{UPGRADE_LINES}{KEY_LINE}{VERSION_LINE}Sec-WebSocket-Protocol: chat, superchat\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; \
         client_no_context_takeover; client_max_window_bits\r\n"
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn a_client_takes_only_an_answer_to_its_own_question() {
    let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    let good = format!("{UPGRADE_LINES}{accept}");
    let with = |more: &str| format!("{good}{more}\r\n");
    let plain = ClientHandshake::new(*b"the sample nonce");
    let nothing = Agreement {
        subprotocol: None,
        deflate: None,
    };
    assert_eq!(
        checked(&plain, "101 Switching Protocols", &good),
        Ok(nothing)
    );
    let chosen = checked(
        &client(),
        "101 x",
        &with("Sec-WebSocket-Protocol: superchat"),
    )
    .unwrap();
    assert_eq!(chosen.subprotocol, Some("superchat"));

    let status = HandshakeError::Status { status: 403 };
    assert_eq!(checked(&client(), "403 Forbidden", &good), Err(status));
    let answer = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover";
    for (lines, error) in [
        (accept.to_owned(), HandshakeError::Upgrade),
        (UPGRADE_LINES.to_owned(), HandshakeError::Accept),
        (good.replace("s3p", "S3p"), HandshakeError::Accept),
        (
            with("Sec-WebSocket-Protocol: other"),
            HandshakeError::Subprotocols,
        ),
        (
            with("Sec-WebSocket-Protocol: chat, superchat"),
            HandshakeError::Subprotocols,
        ),
        (
            with("Sec-WebSocket-Extensions: other"),
            HandshakeError::Extensions,
        ),
        (
            with(&format!("{answer}\r\n{answer}")),
            HandshakeError::Extensions,
        ),
    ] {
        assert_eq!(checked(&client(), "101 x", &lines), Err(error), "{lines}");
    }
    assert!(
        checked(&client(), "101 x", &with(answer))
            .unwrap()
            .deflate
            .is_some()
    );
    assert_eq!(
        checked(&plain, "101 x", &with(answer)),
        Err(HandshakeError::Extensions)
    );
}

proptest! {
    #[test]
    fn a_client_and_a_server_agree(
        nonce: [u8; 16],
        subprotocols in proptest::collection::vec("[a-z]{1,5}", 0..3),
        deflate: bool,
    ) {
        let names: Vec<&str> = subprotocols.iter().map(String::as_str).collect();
        let client = ClientHandshake {
            nonce,
            subprotocols: &names,
            deflate: deflate.then(DeflateOptions::default),
        };
        let mut request = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
        client.encode_fields(&mut request);
        request.extend_from_slice(b"\r\n");
        let fields = answer(std::str::from_utf8(&request).unwrap()).unwrap();
        let answer = format!("HTTP/1.1 101 x\r\n{fields}\r\n");
        let mut storage = FieldStorage::new();
        let limits = HeadLimits::default();
        let head = parse_response(answer.as_bytes(), &mut storage, &limits, "GET").unwrap();
        let agreement = client.check(&head).unwrap();
        prop_assert_eq!(agreement.subprotocol, names.first().copied());
        prop_assert_eq!(agreement.deflate.is_some(), deflate);
    }
}
