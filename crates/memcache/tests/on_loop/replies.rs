use dwell_memcache::on_loop::{Failure, State};

use crate::harness::{End, Ended, Harness, Peer, hit, listen, patient, status};

#[test]
fn a_turn_is_one_request_and_each_operation_gets_its_answer() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    harness.get("a", 10);
    harness.version("v", 20);
    harness.get("b", 11);
    harness.version("w", 21);
    harness.get("c", 12);
    harness.turn();
    peer.expect("gets a b c\r\nmg v c k q\r\nmg w c k q\r\nmn\r\n");
    peer.send("VALUE b 32 5 77\r\nhello\r\nEND\r\nHD c88 kw\r\nMN\r\n");
    let ended = harness.wait_for(5);
    let expected = [
        (10, End::Miss),
        (11, hit(b"hello", 32, 77)),
        (12, End::Miss),
        (20, End::Miss),
        (21, End::Version(88)),
    ];
    let expected = expected.map(|(tag, end)| Ended {
        tag,
        server: 0,
        epoch: 1,
        end,
    });
    assert_eq!(ended, expected);
    assert_eq!(harness.app.client.operations(), 0);
    let statistics = harness.status().statistics;
    assert_eq!(
        (statistics.operations, statistics.hits, statistics.misses),
        (5, 2, 3)
    );
}

#[test]
fn turns_are_pipelined_without_waiting_for_answers() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    for (tag, key) in ["a", "b", "c"].into_iter().enumerate() {
        harness.get(key, tag as u64);
        harness.turn();
    }
    peer.expect("gets a\r\ngets b\r\ngets c\r\n");
    peer.send("END\r\nVALUE b 0 1 1\r\nx\r\nEND\r\nEND\r\n");
    assert_eq!(
        harness.wait_for_ends(3),
        [End::Miss, hit(b"x", 0, 1), End::Miss]
    );
}

#[test]
fn operations_wait_for_the_connection() {
    let (listener, address) = listen();
    let mut harness = Harness::new(&[address], patient());
    assert_eq!(harness.status().state, State::Connecting);
    harness.get("a", 1);
    harness
        .app
        .client
        .flush(harness.event_loop.context(), &mut |_, _| {
            panic!("too early")
        });
    let mut peer = Peer::accept(&listener);
    harness.turn_until(|app| status(app).state == State::Up);
    peer.expect("version\r\ngets a\r\n");
    peer.send("VERSION x\r\nEND\r\n");
    assert_eq!(harness.wait_for_ends(1), [End::Miss]);
}

#[test]
fn empty_values_and_values_with_line_ends_are_values() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    harness.get("a", 0);
    harness.get("b", 1);
    harness.turn();
    peer.expect("gets a b\r\n");
    peer.send("VALUE a 0 0 1\r\n\r\nVALUE b 0 9 2\r\n\r\nEND\r\n\r\n\r\nEND\r\n");
    assert_eq!(
        harness.wait_for_ends(2),
        [hit(b"", 0, 1), hit(b"\r\nEND\r\n\r\n", 0, 2)]
    );
}

/// The same replies, cut in two at every place, and a byte at a time.
#[test]
fn replies_may_come_in_any_pieces() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    let replies = b"VALUE b 7 4 5\r\nbb\r\n\r\nEND\r\nHD c9 kv\r\nMN\r\n";
    let expected = [End::Miss, hit(b"bb\r\n", 7, 5), End::Version(9), End::Miss];
    let cuts = (0..replies.len()).map(|cut| vec![&replies[..cut], &replies[cut..]]);
    for pieces in cuts.chain([replies.chunks(1).collect()]) {
        harness.get("a", 0);
        harness.get("b", 1);
        harness.version("v", 2);
        harness.version("w", 3);
        harness.turn();
        peer.expect("gets a b\r\nmg v c k q\r\nmg w c k q\r\nmn\r\n");
        for piece in pieces {
            peer.send(piece);
            harness.turn();
        }
        assert_eq!(harness.wait_for_ends(4), expected);
    }
}

#[test]
fn a_large_value_arrives_whole() {
    let (mut harness, _listener, peer) = Harness::connected(patient());
    let value: Vec<u8> = (0..1 << 20)
        .map(|index: u32| ((index * 31) >> 3) as u8)
        .collect();
    harness.get("big", 0);
    harness.get("small", 1);
    harness.turn();
    let sent = value.clone();
    let server = std::thread::spawn(move || {
        let mut peer = peer;
        peer.expect("gets big small\r\n");
        peer.send(format!("VALUE big 0 {} 1\r\n", sent.len()));
        peer.send(sent);
        peer.send("\r\nVALUE small 0 1 2\r\ns\r\nEND\r\n");
        peer
    });
    assert_eq!(
        harness.wait_for_ends(2),
        [hit(&value, 0, 1), hit(b"s", 0, 2)]
    );
    let mut peer = server.join().unwrap();
    harness.get("again", 0);
    harness.turn();
    peer.expect("gets again\r\n");
    peer.send("END\r\n");
    assert_eq!(harness.wait_for_ends(1), [End::Miss]);
}

/// What fails in the middle of a pipeline fails everything that waits, and nothing before it.
fn assert_fails(reply: &str, failure: Failure) {
    let (mut harness, listener, mut peer) = Harness::connected(patient());
    harness.get("a", 0);
    harness.get("b", 1);
    harness.turn();
    harness.get("c", 2);
    harness.version("d", 3);
    harness.turn();
    peer.expect("gets a b\r\ngets c\r\nmg d c k q\r\nmn\r\n");
    peer.send(format!("VALUE a 0 1 1\r\nx\r\n{reply}"));
    let failed = End::Failed(failure);
    let expected = [hit(b"x", 0, 1), failed.clone(), failed.clone(), failed];
    assert_eq!(harness.wait_for_ends(4), expected, "{reply:?}");
    peer.expect_end();
    let after = harness.status();
    assert_eq!(
        (after.failures_in_row, after.last_failure),
        (1, Some(failure)),
        "{reply:?}"
    );
    assert_eq!(after.operations, 0);
    let mut peer = Peer::accept_while(&listener, &mut harness);
    harness.turn_until(|app| status(app).epoch == 2);
    peer.answer_probe();
}

#[test]
fn a_reply_that_does_not_belong_there_ends_the_connection() {
    for reply in [
        "\0\x01garbage that is no reply\r\n",
        "VALUE other 0 1 1\r\nx\r\n",
        "VALUE a 0 1 1\r\nx\r\n",
        "VALUE b 0 1\r\nx\r\n",
        "VALUE b 0 1 1\r\nxyz",
        "VALUE b 0 99999999 1\r\n",
        "VALUE b 0 -1 1\r\n",
        "STORED\r\n",
        "HD c1 kb\r\n",
    ] {
        assert_fails(reply, Failure::Protocol);
    }
    assert_fails("ERROR\r\n", Failure::ErrorLine);
    assert_fails("CLIENT_ERROR line too long\r\n", Failure::ErrorLine);
    assert_fails(
        "ERROR Too many open connections\r\n",
        Failure::TooManyConnections,
    );
    assert_fails(&"V".repeat(3000), Failure::Protocol);
}

#[test]
fn a_server_error_fails_its_own_request_only() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    harness.get("a", 0);
    harness.turn();
    harness.get("b", 1);
    harness.turn();
    peer.send("SERVER_ERROR out of memory writing get response\r\nVALUE b 0 1 1\r\nx\r\nEND\r\n");
    let expected = [End::Failed(Failure::ErrorLine), hit(b"x", 0, 1)];
    assert_eq!(harness.wait_for_ends(2), expected);
    assert_eq!(harness.status().failures_in_row, 0);
}

#[test]
fn a_reply_nobody_asked_for_ends_the_connection() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    peer.send("END\r\n");
    harness.turn_until(|app| status(app).last_failure == Some(Failure::Protocol));
    peer.expect_end();
}

#[test]
fn a_server_without_meta_commands_is_asked_with_gets_from_then_on() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    harness.version("v", 0);
    harness.get("a", 1);
    harness.turn();
    peer.expect("gets a\r\nmg v c k q\r\nmn\r\n");
    peer.send("END\r\nERROR\r\nERROR\r\n");
    assert_eq!(
        harness.wait_for_ends(2),
        [End::Miss, End::Failed(Failure::Unsupported)]
    );
    harness.version("v", 0);
    harness.get("a", 1);
    harness.turn();
    peer.expect("gets v a\r\n");
    peer.send("VALUE v 0 1 42\r\nx\r\nEND\r\n");
    assert_eq!(harness.wait_for_ends(2), [End::Version(42), End::Miss]);
    assert_eq!(harness.status().epoch, 1);
}

#[test]
fn an_end_in_the_middle_of_a_value_fails_what_waits() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    harness.get("a", 0);
    harness.get("b", 1);
    harness.turn();
    peer.expect("gets a b\r\n");
    peer.send("VALUE a 0 1 1\r\nx\r\nVALUE b 0 100 1\r\nhalf");
    drop(peer);
    let expected = [hit(b"x", 0, 1), End::Failed(Failure::Closed)];
    assert_eq!(harness.wait_for_ends(2), expected);
    assert_eq!(harness.status().statistics.errors, 1);
}

/// The last reply and the end of the stream may be told by one readiness.
#[test]
fn a_reply_right_before_the_end_counts() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    harness.get("a", 0);
    harness.turn();
    peer.expect("gets a\r\n");
    peer.send("END\r\n");
    drop(peer);
    assert_eq!(harness.wait_for_ends(1), [End::Miss]);
    harness.turn_until(|app| status(app).state != State::Up);
    assert_eq!(
        harness.status().failures_in_row,
        0,
        "an end when nothing is owed is no failure"
    );
}
