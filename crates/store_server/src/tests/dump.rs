//! Listings of keys.

use std::collections::BTreeSet;

use super::*;
use crate::Allowed;
use crate::session::OUTPUT_BYTES_MAX;

/// The first word of each line of a listing, behind `before`, and the last line.
fn listed<'t>(text: &'t str, before: &str) -> (Vec<&'t str>, &'t str) {
    let mut lines: Vec<_> = text.lines().collect();
    let end = lines.pop().unwrap();
    let keys = lines.iter().map(|line| {
        let rest = line
            .strip_prefix(before)
            .unwrap_or_else(|| panic!("{line}"));
        rest.split(' ').next().unwrap()
    });
    (keys.collect(), end)
}

#[test]
fn metadump_shows_what_is_known_of_an_item() {
    let mut client = Client::new();
    client.text("set a/b%\u{e9} 0 100 3\r\nabc\r\nset plain-._~ 0 0 1\r\nv\r\nget plain-._~\r\n");
    client.now += 10;
    client.wall_offset = 3600;
    let size = |key: &str| {
        client
            .service
            .store
            .meta_debug(key.as_bytes(), NOW)
            .unwrap()
            .bytes
    };
    let (first, second) = (size("a/b%\u{e9}"), size("plain-._~"));
    let text = client.text("lru_crawler metadump all\r\n");
    let mut lines: Vec<_> = text.split('\n').collect();
    lines.sort_unstable();
    let unix = NOW + 3610;
    let expected = [
        String::new(),
        "END\r".to_owned(),
        format!(
            "key=a%2Fb%25%C3%A9 exp={} la={} cas=1 fetch=no cls=1 size={first}",
            unix + 90,
            unix - 10,
        ),
        format!(
            "key=plain-._~ exp=-1 la={} cas=2 fetch=yes cls=1 size={second}",
            unix - 10
        ),
    ];
    assert_eq!(lines, expected);
    for classes in ["hash", "1", "7,1"] {
        let again = client.text(&format!("lru_crawler metadump {classes}\r\n"));
        assert_eq!(again, text, "{classes}");
    }
    assert_eq!(client.text("lru_crawler metadump 2,3\r\n"), "END\r\n");
}

#[test]
fn a_long_listing_goes_on_over_many_turns_and_has_every_key_once() {
    let service = service_with(StoreServerLimits::default());
    fill(&service, 30_000, b"value");
    let mut client = Client::with(&service);
    let text = client.text("lru_crawler metadump all\r\nget key-7\r\nmn\r\n");
    let listing = text
        .strip_suffix("VALUE key-7 0 5\r\nvalue\r\nEND\r\nMN\r\n")
        .unwrap();
    let (keys, end) = listed(listing, "key=");
    assert_eq!((keys.len(), end), (30_000, "END"));
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 30_000);
    // A turn has work for 1024 keys, and what is collected before it is written has a bound.
    assert!(client.turns_over >= 30, "{}", client.turns_over);
    let most = OUTPUT_BYTES_MAX + 64 * (3 * 250 + 200);
    assert!(client.collected_max < most, "{}", client.collected_max);
}

#[test]
fn mgdump_is_commands_that_can_be_sent() {
    let mut client = Client::new();
    client.text("set plain 0 0 1\r\nv\r\nms YSBi 1 b\r\nw\r\n");
    let text = client.text("lru_crawler mgdump all\r\n");
    let mut lines: Vec<_> = text.split_inclusive('\n').collect();
    assert_eq!(lines.pop(), Some("EN\r\n"));
    lines.sort_unstable();
    assert_eq!(lines, ["mg YSBi b\r\n", "mg plain\r\n"]);
    assert_eq!(client.text("mg YSBi b v\r\n"), "VA 1\r\nw\r\n");
}

#[test]
fn cachedump_ends_at_its_limit_and_at_its_bytes() {
    let mut client = Client::new();
    assert_eq!(client.text("stats cachedump 1 0\r\n"), "END\r\n");
    client.text("set one 0 100 3\r\nabc\r\n");
    client.wall_offset = -50;
    let line = format!("ITEM one [3 b; {} s]\r\nEND\r\n", NOW + 50);
    assert_eq!(client.text("stats cachedump 1 10\r\n"), line);
    client.text("set two 0 0 0\r\n\r\nms YSBi 1 b\r\nw\r\n");
    let text = client.text("stats cachedump 1 0 0\r\n");
    assert!(text.contains("ITEM two [0 b; 0 s]\r\n"), "{text}");
    let (keys, end) = listed(&text, "ITEM ");
    assert_eq!(
        (keys.len(), end),
        (2, "END"),
        "a key with a space would break its line"
    );
    let text = client.text("stats cachedump 1 1\r\n");
    assert_eq!(listed(&text, "ITEM ").0.len(), 1);
    let long = "k".repeat(240);
    for number in 0..10_000 {
        let key = format!("{number:05}{long}");
        let store = &client.service.store;
        store.set(key.as_bytes(), 0, Expiry::NEVER, b"", NOW);
    }
    let text = client.text("stats cachedump 1 0\r\n");
    assert!(text.ends_with("\r\nEND\r\n"));
    assert!(
        (2 << 20) - 1000 < text.len() && text.len() <= 2 << 20,
        "{}",
        text.len()
    );
}

#[test]
fn listings_can_be_forbidden() {
    let mut client = Client::with(&service_with(StoreServerLimits {
        allowed: Allowed {
            dump: false,
            ..Allowed::default()
        },
        ..StoreServerLimits::default()
    }));
    for (line, reply) in [
        (
            "stats cachedump 1 0\r\n",
            "CLIENT_ERROR stats cachedump not allowed\r\n",
        ),
        (
            "lru_crawler metadump all\r\n",
            "ERROR metadump not allowed\r\n",
        ),
        (
            "lru_crawler mgdump all\r\n",
            "ERROR metadump not allowed\r\n",
        ),
    ] {
        assert_eq!(client.text(line), reply);
    }
    assert!(
        client
            .text("stats settings\r\n")
            .contains("STAT dump_enabled no\r\n")
    );
}

#[test]
fn a_session_lists_until_its_listing_is_over() {
    let service = service_with(StoreServerLimits::default());
    fill(&service, 5000, b"value");
    let mut session = Session::new(service.limits.request);
    let line = b"lru_crawler metadump all\r\n";
    let mut steps = 0;
    let mut input = &line[..];
    loop {
        let (served, _) = turn(&service, &mut session, input);
        input = &input[served.used..];
        steps += 1;
        if !session.is_listing() {
            break;
        }
        assert_eq!(served.stop, Stop::TurnOver);
        assert!(input.is_empty());
    }
    assert!(steps > 4, "{steps}");
}
