//! Memory that streams hold, and the turns that their requests wait for, over loopback.

use crate::support::{Client, Fixture, Server, rejected};
use dwell_engine::{Budget, Http, Limits};
use dwell_evloop::{LoopOutput, OutputLedger};
use dwell_proto::http2::{
    BlockLimits, ErrorCode, FieldSection, Frame, FrameDecoder, HpackDecoder, PREFACE,
    SectionLimits, encode, encode_field, settings,
};
use dwell_testkit::Rig;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kind of streams, which the rig does not use.
const STREAM: u8 = 9;

/// A part of what a client is sent.
#[derive(PartialEq, Eq, Debug)]
enum Seen {
    Status(u32, String),
    Reset(u32, ErrorCode),
}

fn fixture(limits: Limits) -> Fixture {
    let mut fixture = Fixture::new(limits);
    let none = Http::new(Server::KINDS, Limits::default());
    let http = std::mem::replace(&mut fixture.server.http, none);
    fixture.server.http = http.speak_h2c(STREAM);
    fixture
}

/// The preface of a client whose streams take so many bytes.
fn preface(window: u32) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    encode::settings(&[(settings::INITIAL_WINDOW_SIZE, window)], &mut out);
    out
}

fn request(stream: u32, method: &str, target: &str, body: &[u8], ends: bool) -> Vec<u8> {
    let lines = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", target),
    ];
    let (mut block, mut out) = (Vec::new(), Vec::new());
    for (name, value) in lines {
        encode_field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    encode::block(stream, &block, ends && body.is_empty(), 16_384, &mut out);
    if !body.is_empty() {
        encode::data_header(stream, body.len(), ends, &mut out);
        out.extend_from_slice(body);
    }
    out
}

/// All that a client was sent since it connected.
fn seen(client: &Client) -> Vec<Seen> {
    let mut frames = FrameDecoder::of_server(BlockLimits::default());
    let mut fields = HpackDecoder::new(4096);
    let mut section = FieldSection::new(SectionLimits::default());
    let (mut at, mut seen) = (0, Vec::new());
    loop {
        let step = frames.decode(&client.received[at..]).unwrap();
        at += step.consumed;
        match step.frame {
            None => return seen,
            Some(Frame::Reset { stream, code }) => seen.push(Seen::Reset(stream, code)),
            Some(Frame::Block {
                stream,
                fragment,
                ends_block,
                ..
            }) => {
                fields.decode(fragment, ends_block, &mut section).unwrap();
                if ends_block {
                    let (_, status) = section.lines().next().unwrap();
                    let status = String::from_utf8(status.to_vec()).unwrap();
                    seen.push(Seen::Status(stream, status));
                    section.clear();
                }
            }
            Some(_) => {}
        }
    }
}

fn wait_for(fixture: &mut Fixture, client: &mut Client, wanted: &Seen) {
    fixture.turn_for_client("a frame comes", || {
        client.receive();
        seen(client).contains(wanted).then_some(())
    });
}

#[test]
fn a_request_that_is_put_off_keeps_its_place() {
    let mut fixture = fixture(Limits::default());
    fixture.server.app.puts_off = 3;
    let mut client = fixture.connect();
    let mut all = preface(65_535);
    all.extend(request(1, "GET", "/first", b"", true));
    all.extend(request(3, "POST", "/second", b"body", true));
    fixture.send(&mut client, all);
    assert!(fixture.server.app.seen.is_empty());
    wait_for(&mut fixture, &mut client, &Seen::Status(3, "200".into()));
    assert_eq!(fixture.server.app.seen, ["GET /first", "POST /second"]);
    assert_eq!(fixture.server.app.puts_off, 0);
    // One that is gone when its turn comes is not served.
    fixture.server.app.puts_off = 1;
    client.send(&request(5, "GET", "/third", b"", true));
    fixture.turn();
    client.reset();
    assert_eq!(fixture.connections_left(), 0);
    assert_eq!(fixture.server.app.seen.len(), 2);
}

/// Lets a body wait for seconds while another needs its room, and returns what its client sees.
fn shed(method: &str, target: &str) -> (Fixture, Vec<Seen>) {
    let mut fixture = fixture(Limits {
        gathered_bytes_max: 10_000,
        // An eighth of it is what a body has in any case.
        body_timeout: Duration::from_secs(16),
        ..Limits::default()
    });
    let gathered = Budget::default();
    fixture.server.http.share_gathered(gathered.clone());
    let mut slow = fixture.connect();
    let mut all = preface(65_535);
    all.extend(request(1, method, target, &[b'b'; 9000], false));
    fixture.send(&mut slow, all);
    assert!((9000..10_000).contains(&gathered.bytes()));
    let begun = Instant::now();
    let mut young = fixture.connect();
    let mut all = preface(65_535);
    all.extend(request(1, "POST", "/", &[b'b'; 1000], false));
    fixture.send(&mut young, all);
    wait_for(&mut fixture, &mut young, &Seen::Status(1, "503".into()));
    assert!(begun.elapsed() < Duration::from_secs(2), "too late to tell");
    while begun.elapsed() < Duration::from_secs(2) {
        fixture.turn_for(Duration::from_millis(100));
    }
    fixture.send(&mut young, request(3, "POST", "/", &[b'b'; 1000], true));
    fixture.turn();
    slow.receive();
    wait_for(&mut fixture, &mut young, &Seen::Status(3, "200".into()));
    assert_eq!(gathered.bytes(), 0);
    (fixture, seen(&slow))
}

#[test]
fn old_bodies_make_room_for_others() {
    let (fixture, seen) = shed("POST", "/");
    let expected = [
        Seen::Status(1, "503".into()),
        Seen::Reset(1, ErrorCode::NO_ERROR),
    ];
    assert_eq!(seen, expected);
    assert_eq!(fixture.server.app.count(rejected(503)), 2);
}

#[test]
fn bodies_that_nobody_reads_make_room_for_others() {
    let (fixture, seen) = shed("PUT", "/upload");
    assert_eq!(seen, [Seen::Reset(1, ErrorCode::ENHANCE_YOUR_CALM)]);
    assert_eq!(fixture.server.app.abandoned, [0]);
}

#[test]
fn what_was_read_of_a_body_counts_no_more() {
    let mut fixture = fixture(Limits::default());
    let gathered = Budget::default();
    fixture.server.http.share_gathered(gathered.clone());
    let mut client = fixture.connect();
    let mut all = preface(65_535);
    let target = "/upload?grant=1000&once=1";
    all.extend(request(1, "PUT", target, &[b'b'; 4000], false));
    fixture.send(&mut client, all);
    fixture.turn_until("a piece is read", |server| !server.app.uploaded.is_empty());
    assert_eq!(fixture.server.app.uploaded.len(), 1000);
    assert_eq!(gathered.bytes(), 3000);
}

#[test]
fn output_of_streams_is_accounted_for_and_cut_one_by_one() {
    let mut fixture = fixture(Limits::default());
    let large = vec![b'l'; 1 << 20];
    fixture.server.app.large = large.into();
    let ledger = Arc::new(OutputLedger::default());
    let output = LoopOutput::new(Arc::clone(&ledger), 0);
    fixture.server.http.account(output);
    let mut client = fixture.connect();
    let mut all = preface(0);
    for stream in [1, 3] {
        all.extend(request(stream, "GET", "/large", b"", true));
    }
    fixture.send(&mut client, all);
    // Both wait for the same bytes, which are there once.
    assert_eq!(ledger.bytes(), 1 << 20);
    let now = fixture.event_loop.context().tick();
    let readers = ledger.slowest(0, now);
    assert_eq!(readers.len(), 2);
    for (reader, left) in readers.iter().zip([1 << 20, 0]) {
        assert_eq!(reader.token.kind(), STREAM);
        let http = &mut fixture.server.http;
        assert_eq!(http.queued_bytes(reader.token), 1 << 20);
        let context = fixture.event_loop.context();
        assert!(http.cut(context, reader.token, &mut fixture.server.app));
        assert!(!http.cut(context, reader.token, &mut fixture.server.app));
        assert_eq!(ledger.bytes(), left);
    }
    for stream in [1, 3] {
        let reset = Seen::Reset(stream, ErrorCode::ENHANCE_YOUR_CALM);
        wait_for(&mut fixture, &mut client, &reset);
    }
    // The connection goes on.
    fixture.send(&mut client, request(5, "HEAD", "/last", b"", true));
    wait_for(&mut fixture, &mut client, &Seen::Status(5, "200".into()));
}
