//! The opening handshake: whatever the fields hold, they are refused or answered without a panic
//! and without a word that was not offered.
#![no_main]

use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request, parse_response};
use dwell_proto::websocket::{ClientHandshake, DeflateOptions, UpgradeRequest, extensions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for (count, member) in extensions([input].into_iter()).enumerate() {
        assert!(count <= input.len());
        let Ok(member) = member else { continue };
        for parameter in member.parameters() {
            let value = parameter.value.map(|value| value.bytes().count());
            assert!(!parameter.name.is_empty() && value != Some(0));
        }
    }
    request(input);
    answer(input);
});

fn request(lines: &[u8]) {
    let start = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let head = [start, lines, b"\r\n\r\n"].concat();
    let mut storage = FieldStorage::new();
    let Ok(head) = parse_request(&head, &mut storage, &HeadLimits::default()) else {
        return;
    };
    let Ok(request) = UpgradeRequest::check(&head) else {
        return;
    };
    let mut acceptance = request.accept();
    acceptance.subprotocol = request.subprotocols().last();
    acceptance.deflate = request.negotiate_deflate(&DeflateOptions::default());
    let mut out = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
    acceptance.encode_fields(&mut out);
    out.extend_from_slice(b"\r\n");
    let mut storage = FieldStorage::new();
    parse_response(&out, &mut storage, &HeadLimits::default(), "GET").expect("a clean answer");
}

fn answer(lines: &[u8]) {
    let start = b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    let head = [start, lines, b"\r\n\r\n"].concat();
    let mut storage = FieldStorage::new();
    let parsed = parse_response(&head, &mut storage, &HeadLimits::default(), "GET");
    let Ok(head) = parsed else { return };
    let client = ClientHandshake {
        subprotocols: &["chat"],
        deflate: Some(DeflateOptions::default()),
        ..ClientHandshake::new(*b"the sample nonce")
    };
    if let Ok(agreement) = client.check(&head) {
        assert!(matches!(agreement.subprotocol, None | Some("chat")));
        let deflate = agreement.deflate;
        assert!(deflate.is_none_or(|agreed| agreed.server_no_context_takeover));
    }
}
