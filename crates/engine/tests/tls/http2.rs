//! HTTP/2 that was agreed on in the handshake.

use super::{Client, Echo, Rig};
use dwell_engine::{Http, HttpDriver, Kinds, Limits};
use dwell_evloop::sim::SimStream;
use dwell_proto::http2::{
    BlockLimits, ErrorCode, FieldSection, Frame, FrameDecoder, HpackDecoder, PREFACE,
    SectionLimits, encode, encode_field,
};
use rustls::{SupportedProtocolVersion, version};
use std::io::Write;

const KINDS: Kinds = Kinds {
    listener: 0,
    connection: 1,
};
const STREAM_KIND: u8 = 2;
const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

/// A server that offers HTTP/2.
fn offering(seed: u64) -> Rig {
    let mut driver = HttpDriver::new(Limits::default(), Echo::default());
    driver.http = Http::new(KINDS, Limits::default()).speak_http2(STREAM_KIND);
    Rig::with(seed, driver, |acceptor| acceptor.with_http2())
}

fn client(
    rig: &mut Rig,
    version: &'static SupportedProtocolVersion,
    protocols: &[&[u8]],
) -> Client {
    Client::offering(rig.network.connect(rig.address), version, protocols)
}

fn preface() -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    encode::settings(&[], &mut out);
    out
}

fn get(stream: u32, path: &str) -> Vec<u8> {
    let (mut block, mut out) = (Vec::new(), Vec::new());
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "dwell.test"),
        (":path", path),
    ] {
        encode_field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    encode::block(stream, &block, true, 16_384, &mut out);
    out
}

/// The frames that have come, in words.
fn frames(received: &[u8]) -> Vec<String> {
    let mut frames = FrameDecoder::of_server(BlockLimits::default());
    let mut fields = HpackDecoder::new(4096);
    let mut section = FieldSection::new(SectionLimits::default());
    let (mut used, mut told) = (0, Vec::new());
    loop {
        let step = frames.decode(&received[used..]).unwrap();
        used += step.consumed;
        match step.frame {
            None => return told,
            Some(Frame::Block {
                stream,
                fragment,
                ends_block,
                ..
            }) => {
                fields.decode(fragment, ends_block, &mut section).unwrap();
                if ends_block {
                    let status = section.lines().next().unwrap().1;
                    told.push(format!("{stream} {}", String::from_utf8_lossy(status)));
                    section.clear();
                }
            }
            Some(Frame::Data { stream, data, .. }) if !data.is_empty() => {
                told.push(format!("{stream} {:?}", String::from_utf8_lossy(data)));
            }
            Some(Frame::GoAway { last_stream, code }) => {
                told.push(format!("end {last_stream} {code:?}"));
            }
            Some(_) => {}
        }
    }
}

/// Turns until the server has ended the connection; returns what has come.
fn end(rig: &mut Rig, client: &mut Client<SimStream>) -> Vec<u8> {
    for _ in 0..5_000 {
        client.exchange().unwrap();
        if client.has_ended {
            assert!(client.tls.process_new_packets().unwrap().peer_has_closed());
            return std::mem::take(&mut client.read);
        }
        rig.turn();
    }
    panic!("{:?}", frames(&client.read));
}

/// Turns until that has come.
fn until(rig: &mut Rig, client: &mut Client<SimStream>, wanted: &str) {
    for _ in 0..5_000 {
        client.exchange().unwrap();
        if frames(&client.read).iter().any(|told| told == wanted) {
            return;
        }
        rig.turn();
    }
    panic!("{:?}", frames(&client.read));
}

#[test]
fn requests_are_answered_however_they_come_behind_the_handshake() {
    for seed in 0..24 {
        let mut rig = offering(seed);
        let version = VERSIONS[seed as usize % 2];
        let mut client = client(&mut rig, version, &[b"h2", b"http/1.1"]);
        let opening = [preface(), get(1, "/first"), get(3, "/second")].concat();
        // All at once is glued to the last record of the handshake.
        let piece = [opening.len(), 7, 1][seed as usize % 3];
        for part in opening.chunks(piece) {
            client.tls.writer().write_all(part).unwrap();
            client.exchange().unwrap();
            rig.turn();
        }
        until(&mut rig, &mut client, "1 \"/first\\n\"");
        until(&mut rig, &mut client, "3 \"/second\\n\"");
        assert_eq!(client.tls.alpn_protocol(), Some(&b"h2"[..]));
        let agreed = &rig.driver.app.agreed;
        assert!(agreed.len() == 1 && agreed[0].is_http2, "{agreed:?}");
    }
}

#[test]
fn who_waits_is_answered_and_may_change_its_keys_meanwhile() {
    let mut rig = offering(5);
    let mut client = client(&mut rig, &version::TLS13, &[b"h2"]);
    client.write(&[preface(), get(1, "/held"), get(3, "/held")].concat());
    while rig.driver.app.held.len() < 2 {
        rig.turn();
        client.exchange().unwrap();
    }
    client.tls.refresh_traffic_keys().unwrap();
    for _ in 0..5 {
        client.exchange().unwrap();
        rig.turn();
    }
    for (exchange, stream) in std::mem::take(&mut rig.driver.app.held)
        .into_iter()
        .zip([1, 3])
    {
        let context = rig.event_loop.context();
        rig.driver
            .http
            .with_reply(context, exchange, |reply| reply.text(200, "news"));
        until(&mut rig, &mut client, &format!("{stream} \"news\\n\""));
    }
}

#[test]
fn an_answer_of_many_records_arrives_whole() {
    for version in VERSIONS {
        let mut rig = offering(6);
        let mut client = client(&mut rig, version, &[b"h2"]);
        let mut opening = preface();
        encode::settings(&[(4, 1 << 30)], &mut opening);
        encode::window_update(0, 1 << 30, &mut opening);
        client.write(&[opening, get(1, "/much")].concat());
        let size = |client: &Client| {
            let told = frames(&client.read);
            let data = told.iter().filter(|told| told.starts_with("1 \""));
            data.map(|told| told.matches("much").count()).sum::<usize>()
        };
        let mut turns = 0;
        while size(&client) < 499_000 {
            for _ in 0..50 {
                rig.turn();
                client.exchange().unwrap();
            }
            turns += 50;
            assert!(turns < 20_000, "{}", size(&client));
        }
    }
}

#[test]
fn http1_behind_an_agreement_on_http2_is_refused() {
    for version in VERSIONS {
        let mut rig = offering(1);
        let mut client = client(&mut rig, version, &[b"h2"]);
        client.write(b"GET / HTTP/1.1\r\nHost: dwell.test\r\n\r\n");
        let received = end(&mut rig, &mut client);
        let code = ErrorCode::PROTOCOL_ERROR;
        assert_eq!(frames(&received), [format!("end 0 {code:?}")]);
        drop(client);
        rig.turns_with(&mut []);
        assert_eq!(rig.driver.app.closed, 1);
    }
}

/// The status line of the answer to a client that begins with the preface.
fn answer_to_preface(rig: &mut Rig, protocols: &[&[u8]]) -> String {
    let mut client = client(rig, &version::TLS13, protocols);
    client.write(&preface());
    let received = end(rig, &mut client);
    let text = String::from_utf8(received).unwrap();
    text.lines().next().unwrap().to_owned()
}

#[test]
fn the_preface_is_no_request_of_http1() {
    let plain = answer_to_preface(&mut Rig::new(2), &[b"http/1.1"]);
    assert!(plain.starts_with("HTTP/1.1 "), "{plain}");
    assert_eq!(answer_to_preface(&mut offering(2), &[b"http/1.1"]), plain);
    // Without ALPN, HTTP/1.1 is spoken.
    assert_eq!(answer_to_preface(&mut offering(2), &[]), plain);
    // A component that does not speak it is no worse off where its listener offers it.
    let driver = HttpDriver::new(Limits::default(), Echo::default());
    let mut rig = Rig::with(2, driver, |acceptor| acceptor.with_http2());
    assert_eq!(answer_to_preface(&mut rig, &[b"h2"]), plain);
}

#[test]
fn clients_of_both_protocols_share_a_listener() {
    let mut rig = offering(3);
    let mut second = client(&mut rig, &version::TLS13, &[b"h2", b"http/1.1"]);
    second.write(&[preface(), get(1, "/two")].concat());
    until(&mut rig, &mut second, "1 \"/two\\n\"");
    for protocols in [&[&b"http/1.1"[..]][..], &[]] {
        let mut first = client(&mut rig, &version::TLS12, protocols);
        first.write(&super::get("/one"));
        rig.until(&mut first, b"\r\n\r\n/one\n");
    }
    second.write(&get(3, "/three"));
    until(&mut rig, &mut second, "3 \"/three\\n\"");
}

#[test]
fn a_server_that_ends_tells_a_handshake_that_is_under_way() {
    let mut rig = offering(4);
    let mut client = client(&mut rig, &version::TLS13, &[b"h2"]);
    while rig.driver.http.connections() == 0 {
        rig.turn();
    }
    let context = rig.event_loop.context();
    rig.driver.http.drain(context, &mut rig.driver.app);
    client.write(&[preface(), get(1, "/last")].concat());
    let received = end(&mut rig, &mut client);
    let code = ErrorCode::NO_ERROR;
    let told = [
        format!("end {} {code:?}", u32::MAX >> 1),
        "1 200".to_owned(),
        "1 \"/last\\n\"".to_owned(),
        format!("end 1 {code:?}"),
    ];
    assert_eq!(frames(&received), told);
}

#[test]
fn nothing_stays_of_a_client_that_leaves_in_the_handshake() {
    for turns in 0..12 {
        let mut rig = offering(turns);
        let mut client = client(&mut rig, &version::TLS13, &[b"h2"]);
        client.tls.writer().write_all(&preface()).unwrap();
        for _ in 0..turns {
            client.exchange().unwrap();
            rig.turn();
        }
        drop(client);
        rig.turns_with(&mut []);
        assert_eq!(rig.driver.http.connections(), 0);
        assert_eq!(rig.driver.app.closed, 1);
    }
}
