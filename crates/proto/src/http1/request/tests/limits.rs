//! Limits of a head, and heads of which only a part is there.

use super::*;

#[test]
fn limits_have_their_own_statuses() {
    let limits = HeadLimits {
        head_bytes_max: 200,
        target_bytes_max: 50,
        field_count_max: 3,
    };
    let status = |input: &str| {
        let mut storage = FieldStorage::new();
        let parsed = parse_request(input.as_bytes(), &mut storage, &limits);
        parsed.map_or_else(HeadError::status, |_| 0)
    };
    let with_target = |length: usize| {
        format!(
            "GET /{} HTTP/1.1\r\nHost: a\r\n\r\n",
            "a".repeat(length - 1)
        )
    };
    assert_eq!(status(&with_target(50)), 0);
    assert_eq!(status(&with_target(51)), 414);
    assert_eq!(status(&with_target(500)), 414);
    let with_field = |length: usize| {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n";
        head.replace("X: ", &format!("X: {}", "a".repeat(length - head.len())))
    };
    assert_eq!(status(&with_field(200)), 0);
    assert_eq!(status(&with_field(201)), 431);
    assert_eq!(
        status("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\n\r\n"),
        0
    );
    assert_eq!(
        status("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\nE: f\r\n\r\n"),
        431
    );

    let unfinished = |input: &str| oversized_head(input.as_bytes(), &limits).status();
    assert_eq!(unfinished(&format!("GET /{}", "a".repeat(300))), 414);
    assert_eq!(
        unfinished(&format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(300))),
        431
    );
    assert_eq!(unfinished(&"A".repeat(300)), 501);
    let long_method = format!("{} /{}", "A".repeat(65), "a".repeat(300));
    assert_eq!(unfinished(&long_method), 501);
    assert_eq!(unfinished(&format!("\r\n{long_method}")), 501);
    let with_method = |length: usize| {
        let method = "A".repeat(length);
        format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")
    };
    assert_eq!(status(&with_method(64)), 0);
    assert_eq!(status(&with_method(65)), 501);
    assert_eq!(status(&with_method(500)), 501);
    assert_eq!(status(&with_method(65).replace("1.1", "1.2")), 501);
}

#[test]
fn a_limit_beyond_the_storage_is_cut_to_it() {
    let limits = HeadLimits {
        field_count_max: usize::MAX,
        ..HeadLimits::default()
    };
    let head = |count: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "A: b\r\n".repeat(count));
    let mut storage = FieldStorage::new();
    let (full, over) = (head(128), head(129));
    let parsed = parse_request(full.as_bytes(), &mut storage, &limits);
    assert_eq!(parsed.map(|head| head.fields.len()), Ok(128));
    let mut storage = FieldStorage::new();
    let error = parse_request(over.as_bytes(), &mut storage, &limits).err();
    assert_eq!(error, Some(HeadError::TooManyFields { limit: 128 }));
}

#[test]
fn only_one_whole_head_is_parsed() {
    for input in [
        "",
        "GET",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "\r\n\r\n",
        "\r\n",
    ] {
        let mut storage = FieldStorage::new();
        let parsed = parse_request(input.as_bytes(), &mut storage, &HeadLimits::default());
        assert_eq!(parsed.err(), Some(HeadError::NotOneHead), "{input:?}");
    }
    let input = "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET";
    let mut storage = FieldStorage::new();
    let parsed = parse_request(input.as_bytes(), &mut storage, &HeadLimits::default());
    assert_eq!(parsed.err(), Some(HeadError::NotOneHead));
}

#[test]
fn an_unfinished_head_is_waited_for_or_refused_early() {
    let read = |input: &str| {
        let mut storage = FieldStorage::new();
        let limits = HeadLimits {
            head_bytes_max: 60,
            ..HeadLimits::default()
        };
        let next = next_request(input.as_bytes(), &mut 0, &mut storage, &limits);
        next.map(|head| head.map(|head| head.length))
    };
    for input in [
        "",
        "\r",
        "GE",
        "GET / HTTP/2.",
        "GET / HTTP/1.1\r\nHost: a\r\n",
    ] {
        assert_eq!(read(input), Ok(None), "{input:?}");
    }
    assert_eq!(read("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /"), Ok(Some(27)));
    assert_eq!(read("\u{16}\u{3}\u{1}"), Err(HeadError::RequestLine));
    assert_eq!(
        read("GET / HTTP/2.0\r\n"),
        Err(HeadError::VersionUnsupported)
    );
    assert_eq!(
        read("GET / HTTP/1.1\r\nHost : a"),
        Err(HeadError::FieldName)
    );
    assert_eq!(read(&"\r\n".repeat(10)), Err(HeadError::NotOneHead));
    let unclear = "\r\n".repeat(10) + "GET / htt";
    assert_eq!(read(&unclear), Err(HeadError::NotOneHead));
    let long = "GET / HTTP/1.1\r\nX: ".to_owned() + &"a".repeat(42);
    assert_eq!(
        read(&long),
        Err(HeadError::HeadTooLong {
            limit: 60,
            length: 61
        })
    );

    let mut scanned = 0;
    for (length, expected) in [(3, Ok(None)), (30, Ok(None)), (61, Err(431))] {
        let mut storage = FieldStorage::new();
        let limits = HeadLimits {
            head_bytes_max: 60,
            ..HeadLimits::default()
        };
        let next = next_request(
            &long.as_bytes()[..length],
            &mut scanned,
            &mut storage,
            &limits,
        );
        let next = next
            .map(|head| head.map(|head| head.length))
            .map_err(HeadError::status);
        assert_eq!(next, expected);
    }
}

#[test]
fn errors_name_the_limit_and_the_value() {
    let error = HeadError::HeadTooLong {
        limit: 16_384,
        length: 20_011,
    };
    assert_eq!(
        error.to_string(),
        "header section exceeds 16384 bytes: 20011"
    );
}
