//! Everything but `get` and `version`.

use dwell_memcache::on_loop::{Error, Failure, MetaCommand, Version};
use dwell_proto::memcache::encode::request::{MetaLine, StoreOptions};
use dwell_proto::memcache::{ArithmeticMode, StoreVerb};
use dwell_testkit::Memcached;

use crate::harness::{End, Harness, hit, options, patient};

fn said(text: &str) -> End {
    End::Answer(text.to_owned())
}

#[test]
fn are_done_in_the_order_in_which_they_were_asked_for() {
    let memcached = Memcached::start();
    let mut harness = Harness::new(&[memcached.address()], patient());
    harness.set("a", "1", 0);
    harness.get("a", 1);
    harness.store(StoreVerb::Append, "a", "0", 2);
    let client = &mut harness.app.client;
    client
        .arithmetic(ArithmeticMode::Increment, b"a", 5, 3)
        .unwrap();
    client.get(b"a", 4).unwrap();
    client.touch(b"a", 100, 5).unwrap();
    client.touch(b"none", 100, 6).unwrap();
    client
        .arithmetic(ArithmeticMode::Decrement, b"none", 5, 7)
        .unwrap();
    client.delete(b"a", 8).unwrap();
    client.delete(b"a", 9).unwrap();
    client.get(b"a", 10).unwrap();
    harness.store(StoreVerb::Replace, "a", "x", 11);
    harness.store(StoreVerb::Cas(7), "a", "x", 12);
    harness.store(StoreVerb::Add, "a", "x", 13);
    harness.store(StoreVerb::Cas(u64::MAX), "a", "x", 14);
    let ended = harness.wait_for(15);
    assert!(ended.iter().map(|ended| ended.tag).eq(0..15));
    let ends: Vec<_> = ended.into_iter().map(|ended| ended.end).collect();
    let values: Vec<_> = ends
        .iter()
        .filter_map(|end| match end {
            End::Hit(value, ..) => Some(&**value),
            _ => None,
        })
        .collect();
    assert_eq!(values, [&b"1"[..], b"15"]);
    assert_eq!(ends[0], said("Stored(Stored)"));
    assert_eq!(ends[3], said("Number(15)"));
    assert_eq!((&ends[5], &ends[6]), (&said("Touched"), &End::Miss));
    assert_eq!(ends[7], End::Miss);
    assert_eq!((&ends[8], &ends[9]), (&said("Deleted"), &End::Miss));
    assert_eq!(ends[11], said("Stored(NotStored)"));
    assert_eq!(ends[12], said("Stored(NotFound)"));
    assert_eq!(ends[13], said("Stored(Stored)"));
    assert_eq!(ends[14], said("Stored(Exists)"));
}

#[test]
fn a_version_is_replaced_and_deleted_once() {
    let memcached = Memcached::start();
    let mut harness = Harness::new(&[memcached.address()], patient());
    harness.set("a", "1", 0);
    harness.get("a", 1);
    let ended = harness.wait_for(2).remove(1);
    let End::Hit(_, _, cas_unique) = ended.end else {
        panic!("{ended:?}");
    };
    let version = Version {
        epoch: ended.epoch,
        cas_unique,
    };
    let client = &mut harness.app.client;
    for tag in [2, 3] {
        let options = StoreOptions::default();
        client.cas(b"a", b"2", version, options, tag).unwrap();
    }
    client.delete_version(b"a", version, 4).unwrap();
    client.get(b"a", 5).unwrap();
    let ended = harness.wait_for(4);
    assert_eq!(ended[0].end, said("Stored(Stored)"));
    assert_eq!(ended[1].end, said("Stored(Exists)"));
    let refused = format!("{:?}", ended[2].end);
    assert!(refused.contains("Exists"), "{refused}");
    let End::Hit(value, _, cas_unique) = &ended[3].end else {
        panic!("{ended:?}");
    };
    assert_eq!(value, b"2");
    let version = Version {
        cas_unique: *cas_unique,
        ..version
    };
    let client = &mut harness.app.client;
    client.delete_version(b"a", version, 6).unwrap();
    client.get(b"a", 7).unwrap();
    assert_eq!(harness.wait_for_ends(2)[1], End::Miss);
}

/// Returns the value, and makes an item where there is none.
fn lease(line: MetaLine<'_>) -> MetaLine<'_> {
    line.flag(b'v').number(b'N', 30)
}

#[test]
fn meta_commands_take_every_flag() {
    let memcached = Memcached::start();
    let mut harness = Harness::new(&[memcached.address()], patient());
    let client = &mut harness.app.client;
    client
        .meta(MetaCommand::Get, b"a", 0, |line| line.flag(b'v'))
        .unwrap();
    client.meta(MetaCommand::Get, b"a", 1, lease).unwrap();
    client.meta(MetaCommand::Get, b"a", 2, lease).unwrap();
    client
        .meta(MetaCommand::Set(b"7"), b"a", 3, |line| {
            line.number(b'T', 60)
        })
        .unwrap();
    client
        .meta(MetaCommand::Arithmetic, b"a", 4, |line| line.flag(b'v'))
        .unwrap();
    client
        .meta(MetaCommand::Delete, b"a", 5, |line| line)
        .unwrap();
    client
        .meta(MetaCommand::Delete, b"a", 6, |line| line)
        .unwrap();
    let ends = harness.wait_for_ends(7);
    assert_eq!(ends[0], End::Miss);
    assert_eq!(ends[1], said("Header OW Some(\"\")"));
    assert_eq!(ends[2], said("Header OZ Some(\"\")"));
    assert_eq!(ends[3], said("Header O None"));
    assert_eq!(ends[4], said("Header O Some(\"8\")"));
    assert_eq!((&ends[5], &ends[6]), (&said("Header O None"), &End::Miss));
}

#[test]
fn an_answer_with_the_opaque_of_another_ends_the_connection() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    let client = &mut harness.app.client;
    client.meta(MetaCommand::Get, b"a", 0, |line| line).unwrap();
    client.meta(MetaCommand::Get, b"b", 1, |line| line).unwrap();
    peer.expect_while("mg a O0\r\nmg b O1\r\n", &mut harness);
    peer.send("HD O0\r\nHD O0\r\n");
    let ends = harness.wait_for_ends(2);
    assert_eq!(
        ends,
        [said("Header O None"), End::Failed(Failure::Protocol)]
    );
}

#[test]
fn an_error_line_ends_one_command_and_refused_data_the_connection() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    harness.set("a", "1", 0);
    let client = &mut harness.app.client;
    client
        .arithmetic(ArithmeticMode::Increment, b"b", 1, 1)
        .unwrap();
    client.delete(b"c", 2).unwrap();
    harness.set("d", "1", 3);
    harness.set("e", "1", 4);
    let request = "set a 0 0 1\r\n1\r\nincr b 1\r\ndelete c\r\n\
                   set d 0 0 1\r\n1\r\nset e 0 0 1\r\n1\r\n";
    peer.expect_while(request, &mut harness);
    peer.send(
        "SERVER_ERROR out of memory storing object\r\n\
         CLIENT_ERROR cannot increment or decrement non-numeric value\r\n\
         NOT_FOUND\r\nCLIENT_ERROR bad data chunk\r\n",
    );
    let failed = End::Failed(Failure::ErrorLine);
    let ends = harness.wait_for_ends(5);
    assert_eq!(ends[..3], [failed.clone(), failed.clone(), End::Miss]);
    assert_eq!(ends[3..], [failed.clone(), failed]);
    peer.expect_end();
}

#[test]
fn one_that_is_not_answered_in_time_fails_with_those_behind_it() {
    let (mut harness, _listener, mut peer) = Harness::connected(options());
    harness.set("a", "1", 0);
    harness.get("a", 1);
    peer.expect_while("set a 0 0 1\r\n1\r\ngets a\r\n", &mut harness);
    let timeout = End::Failed(Failure::Timeout);
    assert_eq!(harness.wait_for_ends(2), [timeout.clone(), timeout]);
    peer.expect_end();
}

#[test]
fn values_count_against_the_bound_of_requests() {
    let (mut harness, _listener, _peer) = Harness::connected(patient());
    let value = vec![b'v'; 1 << 20];
    let options = StoreOptions::default();
    let client = &mut harness.app.client;
    let refused = client.store(StoreVerb::Set, b"a", &value, options, 0);
    assert!(matches!(refused, Err(Error::TooManyRequestBytes { .. })));
    let refused = client.store(StoreVerb::Set, b"a b", b"", options, 0);
    assert!(matches!(refused, Err(Error::Key(_))));
    assert_eq!(client.operations(), 0);
}

#[test]
fn values_are_found_by_other_operations() {
    let memcached = Memcached::start();
    let mut harness = Harness::new(&[memcached.address()], patient());
    harness.set("a", "1", 0);
    harness.wait_for(1);
    harness.get("a", 1);
    let ends = harness.wait_for_ends(1);
    assert!(matches!(&ends[0], End::Hit(value, 0, unique) if
        ends[0] == hit(value, 0, *unique) && value == b"1"));
}
