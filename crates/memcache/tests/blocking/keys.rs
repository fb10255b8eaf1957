//! Keys that the protocol does not allow, and what can be done with them.

use dwell_memcache::{ClientOptions, Error, Exptime, KeyPolicy};
use dwell_testkit::Memcached;

use crate::support::{client, patient, patient_meta};

#[test]
fn are_refused_unless_told_otherwise() {
    let memcached = Memcached::start();
    for options in [patient(), patient_meta()] {
        let client = client(&[memcached.address()], options);
        for key in ["", "a b", "a\r\nflush_all", &"k".repeat(251)] {
            let error = client.set(key, "1", Exptime::Never).unwrap_err();
            assert!(matches!(error, Error::Key(_)), "{error}");
            assert!(client.get(key).is_err() && client.delete(key).is_err());
            assert!(client.get_multi(&[key])[0].is_err());
        }
    }
}

#[test]
fn travel_in_base64_with_meta_commands() {
    let memcached = Memcached::start();
    let options = ClientOptions {
        keys: KeyPolicy::Base64,
        ..patient_meta()
    };
    let client = client(&[memcached.address()], options);
    let keys: [&[u8]; 3] = [b"a b", b"\0\r\n", b"plain"];
    for key in keys {
        client.set(key, key, Exptime::Never).unwrap();
        assert_eq!(client.get(key).unwrap().unwrap().data, key);
        assert!(client.meta_debug(key).unwrap().is_some());
        assert!(client.append(key, "+").unwrap());
    }
    for (key, found) in keys.iter().zip(client.get_multi(&keys)) {
        assert_eq!(found.unwrap().unwrap().data, [key, &b"+"[..]].concat());
    }
    assert!(client.set_quietly(&[(b"a b", b"q")], Exptime::Never)[0].is_ok());
    assert_eq!(client.get(b"a b").unwrap().unwrap().data, b"q");
}

#[test]
fn or_are_hashed() {
    let memcached = Memcached::start();
    let options = ClientOptions {
        keys: KeyPolicy::Hash,
        ..patient()
    };
    let client = client(&[memcached.address()], options);
    let long = "k".repeat(1000);
    client.set(&long, "long", Exptime::Never).unwrap();
    client.set("a b", "space", Exptime::Never).unwrap();
    let found = client.get_multi(&[&*long, "a b", "c d"]);
    let data = |place: usize| found[place].as_ref().unwrap().as_ref().map(|v| &*v.data);
    assert_eq!(data(0), Some(&b"long"[..]));
    assert_eq!(data(1), Some(&b"space"[..]));
    assert_eq!(data(2), None);
}
