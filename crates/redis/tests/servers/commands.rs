//! Reads and writes.

use crate::harness::{Harness, Server, options, with_each};
use dwell_redis::{ClientOptions, SetCondition, SetOptions};
use std::time::Duration;

#[test]
fn values_are_written_read_and_deleted() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let mut harness = Harness::new(&server, options());
        assert_eq!(harness.get("a"), "Missing");
        let set = |harness: &mut Harness, value: &str, condition| {
            let options = SetOptions {
                condition,
                ..SetOptions::default()
            };
            harness.end_of(2, |client, context| {
                client
                    .set(context, b"a", value.as_bytes(), options, 2)
                    .unwrap();
            })
        };
        assert_eq!(set(&mut harness, "1", SetCondition::Present), "Unmet");
        assert_eq!(set(&mut harness, "1", SetCondition::Absent), "Done");
        assert_eq!(set(&mut harness, "2", SetCondition::Absent), "Unmet");
        assert_eq!(harness.get("a"), "1");
        assert_eq!(set(&mut harness, "3", SetCondition::None), "Done");
        assert_eq!(harness.get("a"), "3");
        let delete = |harness: &mut Harness| {
            harness.end_of(3, |client, context| {
                client.delete(context, b"a", 3).unwrap();
            })
        };
        assert_eq!(delete(&mut harness), "Done");
        assert_eq!(delete(&mut harness), "Unmet");
    });
}

#[test]
fn lifetimes_are_given_in_milliseconds() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let mut harness = Harness::new(&server, options());
        let options = SetOptions {
            lifetime: Some(Duration::from_secs(100)),
            condition: SetCondition::None,
        };
        harness.end_of(2, |client, context| {
            client.set(context, b"a", b"1", options, 2).unwrap();
        });
        let left: u64 = server.other().ask("PTTL a").parse().unwrap();
        assert!((50_000..=100_000).contains(&left), "{left}");
    });
}

#[test]
fn a_value_is_replaced_or_deleted_if_it_is_the_expected_one() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let mut other = server.other();
        let mut harness = Harness::new(&server, options());
        other.ask("SET a 1");
        let mut replace = |expected: &str, lifetime| {
            let values = (expected.as_bytes(), &b"2"[..]);
            harness.end_of(2, |client, context| {
                client.replace(context, b"a", values, lifetime, 2).unwrap();
            })
        };
        assert_eq!(replace("0", None), "Unmet");
        assert_eq!(other.ask("GET a"), "1");
        assert_eq!(replace("1", None), "Done");
        assert_eq!(
            (other.ask("GET a"), other.ask("PTTL a")),
            ("2".into(), "-1".into())
        );
        assert_eq!(replace("2", Some(Duration::from_secs(9))), "Done");
        assert_ne!(other.ask("PTTL a"), "-1");
        let mut delete = |expected: &[u8]| {
            harness.end_of(3, |client, context| {
                client.delete_value(context, b"a", expected, 3).unwrap();
            })
        };
        assert_eq!(delete(b"1"), "Unmet");
        assert_eq!(delete(b"2"), "Done");
        assert_eq!(delete(b"2"), "Unmet");
    });
}

#[test]
fn many_reads_of_a_turn_are_answered_in_order() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let mut harness = Harness::new(&server, options());
        let context = harness.event_loop.context();
        for number in 0..500_u64 {
            let key = format!("k{number}");
            let client = &mut harness.app.client;
            let set = SetOptions::default();
            client
                .set(context, key.as_bytes(), key.as_bytes(), set, 10_000)
                .unwrap();
            client.get(context, key.as_bytes(), number).unwrap();
        }
        harness.turn_until(|app| (0..500).all(|number| app.count(number) == 1));
        for number in 0..500 {
            assert_eq!(harness.app.last(number), Some(&*format!("k{number}")));
        }
        assert_eq!(harness.app.count(10_000), 500);
    });
}

#[test]
fn too_many_operations_are_refused_and_the_others_answered() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let options = ClientOptions {
            operations_max: 10,
            ..options()
        };
        let mut harness = Harness::new(&server, options);
        let context = harness.event_loop.context();
        let client = &mut harness.app.client;
        let taken = (0..20)
            .filter(|tag| client.get(context, b"a", *tag).is_ok())
            .count();
        assert_eq!(taken, 10);
        let error = client.get(context, b"a", 99).unwrap_err().to_string();
        assert_eq!(error, "operations without a reply exceed 10");
        harness.turn_until(|app| app.ended.len() == 10);
    });
}

#[test]
fn a_value_is_stored_in_one_round_trip_that_says_if_there_was_one() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let options = ClientOptions {
            value_bytes_max: 1000,
            ..options()
        };
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options));
        let swap = |harness: &mut Harness, value: &str, lifetime| {
            harness.end_of(2, |client, context| {
                let value = value.as_bytes();
                client.swap(context, b"a", value, lifetime, 2).unwrap();
            })
        };
        assert_eq!(swap(&mut harness, "1", None), "Missing");
        let long = "x".repeat(5000);
        assert_eq!(swap(&mut harness, &long, None), "Done");
        let minute = Some(Duration::from_secs(60));
        assert_eq!(
            swap(&mut harness, "3", minute),
            "Done",
            "it replaces what is too large"
        );
        assert_eq!(other.ask("GET a"), "3");
        assert_ne!(other.ask("PTTL a"), "-1");
        assert!(
            other
                .ask("INFO commandstats")
                .contains("cmdstat_set:calls=3,")
        );
        other.ask("DEL a");
        other.ask("LPUSH a x");
        assert_eq!(swap(&mut harness, "4", None), "Unmet");
        assert_eq!(other.ask("TYPE a"), "list");
    });
}
