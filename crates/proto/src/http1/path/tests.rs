use super::readings::Oddities;
use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

fn leads_to_me(path: &str) -> bool {
    any_reading(path, |reading| reading.starts_with(b"/me/"))
}

#[test]
fn whatever_a_program_does_with_a_path_it_is_among_the_readings() {
    for path in [
        "/me/x",
        "/%6de/x",
        "/%6De/x",
        "/me%2fx",
        "/me%2Fx",
        "/m%65/x",
        "/%6d%65%2f",
        "//me/x",
        "/./me/x",
        "/x/../me/x",
        "/poll/../me/x",
        "/poll/%2e%2e/me/x",
        "/poll/%2E./me/x",
        "/poll/..%2fme/x",
        "/poll/a/../../me/x",
        "/../../me/x",
        "/x//../me/x",
        "/x//..//me/x",
        // Backslashes, in either form.
        "/me\\x",
        "/poll\\..\\me\\x",
        "/poll/..%5cme/x",
        "\\me/x",
        // Parameters.
        "/me;a=b/x",
        "/;/me/x",
        "/poll/..;/me/x",
        "/poll/..;a=b/me/x",
        "/poll/%2e%2e;/me/x",
        // A host.
        "//host/me/x",
        "/\\host/me/x",
        "/%2fhost/me/x",
        "//host//me/x",
        // UTF-8 that is longer than it has to be.
        "/poll/..%c0%afme/x",
        "/poll/%c0%ae%c0%ae/me/x",
        "/%c1%ade/x",
        "/poll/..%e0%80%afme/x",
        "/poll/..%f0%80%80%afme/x",
        // Each of them is no other's.
        "/%6de/x/../../pub",
        "/x/../%6de/a%2f..%2f..%2fpub",
        "/x/../me/%2e%2e/pub",
        "/me/%00",
        "/poll/x%00",
    ] {
        assert!(leads_to_me(path), "{path}");
    }
}

#[test]
fn what_no_program_takes_for_it_is_not() {
    for path in [
        "/",
        "/poll/x",
        "/ME/x",
        "/me",
        "/%256de/x",
        "/poll/me%2fx",
        "/poll/me/x",
        "/x/me/../me/x",
        "/poll/%zz/me/x",
        "/poll/%2/%",
        "/poll/...%2fme/x",
        "/poll/.me/x",
        "/poll/caf%c3%a9;v=1/a//b",
        "/x;/me/x",
        "*",
    ] {
        assert!(!leads_to_me(path), "{path}");
    }
}

#[test]
fn only_what_is_read_differently_is_not_plain() {
    for path in [
        "/",
        "*",
        "",
        "/poll/alice",
        "/a.b/c..d/e",
        "/a/b/",
        "/a?b",
        "/~a/$&'()",
    ] {
        assert!(is_plain_path(path), "{path}");
    }
    for path in [
        "%",
        "/a%41",
        "/;",
        "/a\\",
        "//",
        "/a//b",
        "/.",
        "/a/..",
        "/.well-known/",
    ] {
        assert!(!is_plain_path(path), "{path}");
    }
}

#[test]
fn readings_are_bounded() {
    let rich = "/;a\\%2e.%2f%5c%c0//..";
    let most = Oddities::of(rich.as_bytes()).readings();
    assert!(most > 60 && most < 200, "{most}");
    // One of a kind may be as long as a target may be.
    for one in ["/..", "//", "/%41", "/;a", "/\\"] {
        let long = one.repeat(8192 / one.len());
        assert!(!any_reading(&long, |_| false), "{one}");
    }
    assert!(!any_reading(&rich.repeat(20), |_| false));
    assert!(any_reading(&rich.repeat(300), |_| false));
}

#[test]
fn the_normal_path_is_that_of_nginx() {
    let normal = |path: &str| normal_path(path).map(|path| String::from_utf8(path).unwrap());
    for (path, expected) in [
        ("/Poll/alice", "/Poll/alice"),
        ("/Poll/a%20b", "/Poll/a b"),
        ("/Poll/%E4%BD%A0", "/Poll/\u{4f60}"),
        ("/Poll//a/b", "/Poll/a/b"),
        ("/Poll/c%2Cd", "/Poll/c,d"),
        ("/Poll/x/../alice", "/Poll/alice"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/a%2F%2e%2e%2Fb", "/b"),
        ("/%2541", "/%41"),
        ("/a;b=c/d", "/a;b=c/d"),
        ("//", "/"),
    ] {
        assert_eq!(normal(path).as_deref(), Ok(expected), "{path}");
    }
    for path in ["/%", "/%4", "/%4g", "/%+1"] {
        assert_eq!(normal(path), Err(PathError::Escape), "{path}");
    }
    assert_eq!(normal("/a%00"), Err(PathError::Nul));
    assert_eq!(normal("/a/../.."), Err(PathError::AboveRoot));
    assert_eq!(normal("/%2e%2e/a"), Err(PathError::AboveRoot));
}

/// A path, with each of its bytes written as it is or escaped, and with segments between its
/// own that lead nowhere.
fn disguised() -> impl Strategy<Value = (String, String)> {
    let detour = prop::sample::select(vec!["", "/.", "/%2e", "/x/..", "/x/y/../..", "/"]);
    let segment = "[a-z.%]{1,4}".prop_filter("no dots", |s| *s != "." && *s != "..");
    let part = (detour, segment, prop::collection::vec(any::<bool>(), 4));
    prop::collection::vec(part, 1..5).prop_map(|parts| {
        let (mut path, mut written) = (String::new(), String::new());
        for (detour, segment, escapes) in parts {
            path.push('/');
            path.push_str(&segment);
            written.push_str(detour);
            written.push('/');
            for (byte, is_escaped) in segment.bytes().zip(escapes) {
                if is_escaped || byte == b'%' {
                    write!(written, "%{byte:02x}").unwrap();
                } else {
                    written.push(char::from(byte));
                }
            }
        }
        (path, written)
    })
}

proptest! {
    #[test]
    fn a_disguised_path_is_found((path, written) in disguised()) {
        prop_assert!(any_reading(&written, |reading| reading == path.as_bytes()));
        prop_assert_eq!(normal_path(&written), Ok(path.into_bytes()));
    }

    #[test]
    fn a_plain_path_is_its_own_and_only_reading(path in "/[a-z./]{0,20}") {
        let mut readings = Vec::new();
        let is_none = !any_reading(&path, |reading| {
            readings.push(reading.to_vec());
            false
        });
        prop_assert!(is_none);
        if is_plain_path(&path) {
            prop_assert_eq!(readings, [path.as_bytes()]);
            prop_assert_eq!(normal_path(&path), Ok(path.into_bytes()));
        }
    }

    #[test]
    fn what_is_normal_stays_so(path in "/[a-z.%2e5/]{0,20}") {
        if let Ok(normal) = normal_path(&path)
            && let Ok(text) = String::from_utf8(normal.clone())
            && !text.contains('%')
        {
            prop_assert_eq!(normal_path(&text), Ok(normal));
        }
    }

    #[test]
    fn an_escape_is_decoded_once(path in "/[a-z]{0,9}(%25[0-9a-f]{2}){1,3}") {
        let once = path.replace("%25", "%");
        prop_assert_eq!(normal_path(&path), Ok(once.clone().into_bytes()));
        prop_assert!(any_reading(&path, |reading| reading == once.as_bytes()));
        let twice = normal_path(&once);
        let is_twice = |reading: &[u8]| Ok(reading) == twice.as_deref();
        prop_assert!(once.contains("%00") || !any_reading(&path, is_twice));
    }

    #[test]
    fn no_path_panics(path in ".*", odd in "(/|\\.|%2[ef]|%5c|%c0%a[ef]|;|\\\\|a){0,40}") {
        any_reading(&path, |_| false);
        let _ = normal_path(&path);
        any_reading(&odd, |_| false);
        let _ = normal_path(&odd);
    }
}
