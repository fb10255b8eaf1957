//! Every operation that has a text form, in both protocols.

use std::time::Duration;

use dwell_memcache::{Client, Culprit, Error, Exptime, Response, StoreOptions, StoreOutcome};
use dwell_testkit::{Memcached, wait_until};

use crate::support::{client, patient, patient_meta};

fn in_both(work: impl Fn(&Client)) {
    let memcached = Memcached::start();
    work(&client(&[memcached.address()], patient()));
    let _ = client(&[memcached.address()], patient()).flush_all(Duration::ZERO);
    work(&client(&[memcached.address()], patient_meta()));
}

fn data(client: &Client, key: &str) -> Option<Vec<u8>> {
    client.get(key).unwrap().map(|value| value.data)
}

#[test]
fn values_are_stored_and_found() {
    in_both(|client| {
        assert_eq!(client.get("a").unwrap(), None);
        let options = StoreOptions {
            flags: u32::MAX,
            exptime: Exptime::Never,
        };
        client.set("a", "1", options).unwrap();
        let value = client.get("a").unwrap().unwrap();
        assert_eq!((&*value.data, value.flags), (&b"1"[..], u32::MAX));
        client.set("empty", "", Exptime::Never).unwrap();
        assert_eq!(data(client, "empty"), Some(Vec::new()));
        let odd = b"\r\nEND\r\nVALUE a 0 1\r\n\0";
        client.set("odd", odd, Exptime::Never).unwrap();
        assert_eq!(data(client, "odd"), Some(odd.to_vec()));
    });
}

#[test]
fn conditions_are_kept() {
    in_both(|client| {
        let never = Exptime::Never;
        assert!(!client.replace("a", "0", never).unwrap());
        assert!(!client.append("a", "0").unwrap());
        assert!(!client.prepend("a", "0").unwrap());
        assert!(client.add("a", "b", never).unwrap());
        assert!(!client.add("a", "x", never).unwrap());
        assert!(client.append("a", "c").unwrap());
        assert!(client.prepend("a", "a").unwrap());
        assert_eq!(data(client, "a"), Some(b"abc".to_vec()));
        assert!(client.replace("a", "z", never).unwrap());
        assert_eq!(data(client, "a"), Some(b"z".to_vec()));
    });
}

#[test]
fn cas_tells_three_ends_apart() {
    in_both(|client| {
        let never = Exptime::Never;
        assert_eq!(client.get("a").unwrap(), None);
        assert_eq!(
            client.cas("a", "1", 1, never).unwrap(),
            StoreOutcome::NotFound
        );
        client.set("a", "1", never).unwrap();
        let unique = client.gets("a").unwrap().unwrap().cas_unique.unwrap();
        assert_eq!(
            client.cas("a", "2", unique, never).unwrap(),
            StoreOutcome::Stored
        );
        assert_eq!(
            client.cas("a", "3", unique, never).unwrap(),
            StoreOutcome::Exists
        );
        assert_eq!(data(client, "a"), Some(b"2".to_vec()));
        assert_eq!(client.get("a").unwrap().unwrap().cas_unique, None);
    });
}

#[test]
fn numbers_are_counted() {
    in_both(|client| {
        assert_eq!(client.incr("n", 1).unwrap(), None);
        assert_eq!(client.decr("n", 1).unwrap(), None);
        client.set("n", "10", Exptime::Never).unwrap();
        assert_eq!(client.decr("n", 1).unwrap(), Some(9));
        assert_eq!(client.decr("n", 100).unwrap(), Some(0));
        assert_eq!(client.incr("n", u64::MAX).unwrap(), Some(u64::MAX));
        assert_eq!(client.incr("n", 2).unwrap(), Some(1));
        client.set("n", "none", Exptime::Never).unwrap();
        let error = client.incr("n", 1).unwrap_err();
        assert!(matches!(error, Error::ErrorLine { .. }), "{error}");
        assert_eq!(error.fault(), Culprit::Caller);
        assert!(error.to_string().contains("non-numeric value"), "{error}");
        assert_eq!(data(client, "n"), Some(b"none".to_vec()));
    });
}

#[test]
fn items_are_deleted_touched_and_forgotten() {
    in_both(|client| {
        assert!(!client.delete("a").unwrap());
        assert!(!client.touch("a", Duration::from_secs(9)).unwrap());
        assert_eq!(client.get_and_touch("a", Exptime::Never).unwrap(), None);
        client.set("a", "1", Exptime::Never).unwrap();
        assert!(client.touch("a", Duration::from_secs(1000)).unwrap());
        let touched = client.get_and_touch("a", Duration::from_secs(9)).unwrap();
        assert_eq!(touched.unwrap().data, b"1");
        assert!(client.delete("a").unwrap());
        assert_eq!(data(client, "a"), None);
        client.set("gone", "1", Exptime::Immediately).unwrap();
        assert_eq!(data(client, "gone"), None);
        client.set("soon", "1", Duration::from_secs(1)).unwrap();
        assert!(wait_until(|| data(client, "soon").is_none()));
        let year = Duration::from_secs(365 * 24 * 3600);
        client.set("late", "1", year).unwrap();
        assert_eq!(data(client, "late"), Some(b"1".to_vec()));
    });
}

#[test]
fn servers_tell_of_themselves() {
    in_both(|client| {
        let versions = client.version();
        let (server, version) = &versions[0];
        assert_eq!(**server, *client.statuses()[0].server);
        assert!(version.as_ref().unwrap().starts_with("1."), "{versions:?}");
        let general = client.stats(None).unwrap().remove(0).1.unwrap();
        assert!(general.iter().any(|(name, _)| name == "curr_connections"));
        let settings = client.stats(Some("settings")).unwrap().remove(0).1.unwrap();
        assert!(settings.iter().any(|(name, _)| name == "maxconns"));
        assert!(client.stats(Some("reset")).unwrap()[0].1.is_ok());
        assert!(client.stats(Some("a b")).is_err());
        let unknown = client.stats(Some("nonsense")).unwrap().remove(0).1;
        assert!(
            matches!(unknown, Err(Error::ErrorLine { .. })),
            "{unknown:?}"
        );
    });
}

#[test]
fn everything_is_flushed() {
    in_both(|client| {
        client.set("a", "1", Exptime::Never).unwrap();
        assert!(client.flush_all(Duration::from_secs(3600))[0].1.is_ok());
        assert_eq!(data(client, "a"), Some(b"1".to_vec()));
        assert!(client.flush_all(Duration::ZERO)[0].1.is_ok());
        assert_eq!(data(client, "a"), None);
    });
}

#[test]
fn a_value_that_is_too_large_is_an_error() {
    in_both(|client| {
        let large = vec![b'x'; 1 << 20];
        let error = client.set("a", &large, Exptime::Never).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("SERVER_ERROR object too large for cache"),
            "{text}"
        );
        assert_eq!(data(client, "a"), None);
        let larger = vec![b'x'; (1 << 20) + 1];
        let error = client.set("a", &larger, Exptime::Never).unwrap_err();
        assert_eq!(error.to_string(), "value exceeds 1048576 bytes: 1048577");
        assert_eq!(error.fault(), Culprit::Caller);
    });
}

#[test]
fn a_pipeline_answers_in_its_order() {
    in_both(|client| {
        let options = StoreOptions::default();
        let mut pipeline = client.pipeline();
        pipeline
            .set(b"a", b"1", options)
            .incr(b"a", 5)
            .get(b"a")
            .get(b"none")
            .get(b"a key that cannot be")
            .incr(b"none", 1)
            .set(b"text", b"t", options)
            .incr(b"text", 1)
            .touch(b"a", Exptime::Never)
            .delete(b"a")
            .delete(b"a");
        let results = pipeline.run();
        let oks: Vec<_> = results.iter().map(|result| result.as_ref().ok()).collect();
        let stored = Response::Stored(StoreOutcome::Stored);
        assert_eq!(oks[0], Some(&stored));
        assert_eq!(oks[1], Some(&Response::Number(Some(6))));
        let Some(Response::Value(Some(value))) = oks[2] else {
            panic!("{results:?}")
        };
        assert_eq!(value.data, b"6");
        assert_eq!(oks[3], Some(&Response::Value(None)));
        assert_eq!(oks[4], None);
        assert_eq!(oks[5], Some(&Response::Number(None)));
        assert_eq!((oks[6], oks[7]), (Some(&stored), None));
        assert_eq!(oks[8], Some(&Response::Touched(true)));
        assert_eq!(oks[9], Some(&Response::Deleted(true)));
        assert_eq!(oks[10], Some(&Response::Deleted(false)));
        assert!(client.pipeline().run().is_empty());
    });
}

#[test]
fn quiet_stores_swallow_no_error() {
    in_both(|client| {
        let items: Vec<_> = (0..200).map(|n| (format!("k{n}"), n.to_string())).collect();
        let results = client.set_quietly(&items, Exptime::Never);
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(data(client, "k199"), Some(b"199".to_vec()));

        let large = vec![b'x'; 1 << 20];
        let items = [("a", &b"1"[..]), ("b b", b"2"), ("c", &large), ("d", b"4")];
        let results = client.set_quietly(&items, Exptime::Never);
        let refused = results[1].as_ref().unwrap_err();
        assert!(matches!(**refused, Error::Key(_)), "{refused}");
        for result in [&results[0], &results[2], &results[3]] {
            let error = result.as_ref().unwrap_err().to_string();
            assert!(error.contains("too large"), "{error}");
        }
        // Whatever came behind the error line was read in step.
        assert_eq!(data(client, "d"), Some(b"4".to_vec()));
        assert_eq!(data(client, "c"), None);
    });
}

#[test]
fn many_keys_come_in_their_order() {
    in_both(|client| {
        client.set("a", "1", Exptime::Never).unwrap();
        client.set("c", "3", Exptime::Never).unwrap();
        let found = client.get_multi(&["c", "b", "a", "a", "no key"]);
        let data: Vec<_> = found
            .iter()
            .map(|lookup| {
                lookup
                    .as_ref()
                    .ok()
                    .map(|value| value.clone().map(|v| v.data))
            })
            .collect();
        let some = |text: &str| Some(Some(text.as_bytes().to_vec()));
        assert_eq!(data, [some("3"), Some(None), some("1"), some("1"), None]);
        assert!(
            client.gets_multi(&["a"])[0]
                .as_ref()
                .unwrap()
                .as_ref()
                .unwrap()
                .cas_unique
                .is_some()
        );
        assert!(client.get_multi(&[] as &[&str]).is_empty());
    });
}

#[test]
fn a_raw_command_is_answered_up_to_its_token() {
    let memcached = Memcached::start();
    let client = client(&[memcached.address()], patient());
    let raw = |command: &[u8], token: &[u8]| {
        let mut replies = client.raw_command(command, token).unwrap();
        assert_eq!(replies.len(), 1);
        replies.remove(0).1
    };
    assert_eq!(raw(b"set key 0 0 2\r\nhi", b"\r\n").unwrap(), b"STORED");
    assert_eq!(
        raw(b"get key", b"END\r\n").unwrap(),
        b"VALUE key 0 2\r\nhi\r\n"
    );
    assert!(matches!(
        raw(b"nonsense", b"END\r\n"),
        Err(Error::ErrorLine { .. })
    ));
    assert_eq!(raw(b"mn", b"\r\n").unwrap(), b"MN");
}
