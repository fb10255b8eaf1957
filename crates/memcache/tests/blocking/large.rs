//! Much at once, in both directions.

use std::time::Duration;

use dwell_memcache::{Client, Exptime, StoreOptions};
use dwell_testkit::Memcached;

use crate::support::{client, patient, patient_meta};

/// Values of a mebibyte and its item's own needs.
fn large_memcached() -> Memcached {
    Memcached::start_with(&["-I", "4m", "-m", "512"])
}

#[test]
fn a_megabyte_goes_and_comes() {
    let memcached = large_memcached();
    for options in [patient(), patient_meta()] {
        let client = client(&[memcached.address()], options);
        let value: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
        for _ in 0..3 {
            client.set("large", &value, Exptime::Never).unwrap();
            assert!(client.get("large").unwrap().unwrap().data == value);
        }
        assert_eq!(client.statuses()[0].idle_connections, 1);
    }
}

fn fill(client: &Client, keys: &[String], value: &[u8]) {
    let items: Vec<_> = keys.iter().map(|key| (key, value)).collect();
    for chunk in items.chunks(1000) {
        let stored = client.set_quietly(chunk, Exptime::Never);
        assert!(stored.iter().all(Result::is_ok));
    }
}

#[test]
fn ten_thousand_keys_come_at_once() {
    let one = large_memcached();
    let two = large_memcached();
    let keys: Vec<_> = (0..10_000)
        .map(|n| format!("a key of some length {n}"))
        .collect();
    let keys: Vec<_> = keys.iter().map(|key| key.replace(' ', "-")).collect();
    for options in [patient(), patient_meta()] {
        let client = client(&[one.address(), two.address()], options);
        client.flush_all(Duration::ZERO);
        fill(&client, &keys[..5000], b"0123456789");
        let found = client.get_multi(&keys);
        let hits = found
            .iter()
            .filter(|found| found.as_ref().unwrap().is_some());
        assert_eq!(hits.count(), 5000);
        assert!(found[4999].as_ref().unwrap().is_some());
        assert!(found[5000].as_ref().unwrap().is_none());
    }
}

/// Both sides' buffers are full: the server does not read while it cannot write.
#[test]
fn a_multi_get_larger_than_all_buffers_does_not_block() {
    let one = large_memcached();
    let two = large_memcached();
    for servers in [vec![one.address()], vec![one.address(), two.address()]] {
        let client = client(&servers, patient());
        let value = vec![b'v'; 4000];
        // 2.4 MB of keys, and 40 MB of values.
        let keys: Vec<_> = (0..10_000).map(|n| format!("{n:0>240}")).collect();
        fill(&client, &keys, &value);
        let found = client.get_multi(&keys);
        assert!(found.iter().all(|found| {
            found
                .as_ref()
                .unwrap()
                .as_ref()
                .is_some_and(|found| found.data == value)
        }));
    }
}

#[test]
fn a_pipeline_larger_than_all_buffers_does_not_block() {
    let memcached = large_memcached();
    let client = client(&[memcached.address()], patient());
    let value = vec![b'v'; 100_000];
    client.set("large", &value, Exptime::Never).unwrap();
    let mut pipeline = client.pipeline();
    for _ in 0..200 {
        pipeline.set(b"other", &value, StoreOptions::default());
        pipeline.get(b"large");
    }
    assert!(pipeline.run().iter().all(Result::is_ok));
}
