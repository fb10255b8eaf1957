use super::*;
use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

fn ask(request_line: &str, fields: &str) -> Result<Ask, AskError> {
    let text = format!("{request_line} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    let mut storage = FieldStorage::new();
    let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
    Ask::of(&head, &RouteConfig::default(), None)
}

#[test]
fn a_plain_poll_asks_for_the_value_now() {
    let plain = ask("GET /poll/a?x=1", "").unwrap();
    assert_eq!((plain.condition, plain.waits()), (Condition::None, false));
}

#[test]
fn a_wait_comes_from_the_query_or_from_prefer_and_is_cut() {
    let seconds = |line: &str, fields: &str| ask(line, fields).unwrap().wait().as_millis();
    assert_eq!(seconds("GET /p?wait=25", ""), 25_000);
    assert_eq!(seconds("GET /p?wait=25s", ""), 25_000);
    assert_eq!(seconds("GET /p?wait=250ms", ""), 250);
    assert_eq!(seconds("GET /p?wait=99999", ""), 55_000);
    assert_eq!(seconds("GET /p?wait=0&wait=9", ""), 0);
    assert_eq!(seconds("GET /p", "Prefer: wait=7\r\n"), 7_000);
    assert_eq!(
        seconds("GET /p", "Prefer: respond-async, wait=7;foo\r\n"),
        7_000
    );
    assert_eq!(seconds("GET /p", "Prefer: wait=soon\r\n"), 0);
    let lines = "Prefer: respond-async\r\nPrefer: wait=7\r\n";
    assert_eq!(seconds("GET /p", lines), 7_000);
    assert!(ask("GET /p", "Prefer: wait=7\r\n").unwrap().form.prefers());
}

#[test]
fn a_wait_that_is_no_duration_is_an_error() {
    for wait in ["soon", "-1", "+1", "", "1.5", "99999999999999999999"] {
        assert!(ask(&format!("GET /p?wait={wait}"), "").is_err(), "{wait}");
    }
    let error = ask("GET /p?wait=soon", "").unwrap_err();
    assert_eq!(error.to_string(), "wait is not a number of seconds: soon");
}

#[test]
fn a_post_has_a_cursor_only_by_since() {
    let cursor = Cursor::of(b"v", 0);
    let text = String::from_utf8(cursor.text().bare().to_vec()).unwrap();
    let field = format!("If-None-Match: \"{text}\"\r\n");
    assert_eq!(ask("POST /p", &field).unwrap().condition, Condition::None);
    for method in ["GET", "HEAD", "QUERY"] {
        let asked = ask(&format!("{method} /p"), &field).unwrap();
        assert_eq!(asked.condition, Condition::IfNoneMatch(cursor), "{method}");
    }
    let field = format!("If-None-Match: \"something-else\" , W/\"{text}\"\r\n");
    let among_others = ask("GET /p", &field).unwrap().condition;
    assert_eq!(among_others, Condition::IfNoneMatch(cursor));
    let line = format!("POST /p?since={text}");
    assert_eq!(ask(&line, "").unwrap().condition, Condition::Since(cursor));
}

#[test]
fn a_stream_goes_on_behind_its_last_event() {
    let [a, b, c] = [b"a", b"b", b"c"].map(|value| Cursor::of(value, 0));
    let text = |cursor: Cursor| String::from_utf8(cursor.text().bare().to_vec()).unwrap();
    let line = format!("GET /p?since={}&last_event_id={}", text(a), text(b));
    let events = "Accept: text/event-stream\r\n";
    let of = |line: &str, fields: &str| ask(line, fields).unwrap().condition;
    let newest = format!("{events}Last-Event-ID: {}\r\n", text(c));
    assert_eq!(of(&line, &newest), Condition::Since(c));
    assert_eq!(of(&line, events), Condition::Since(b));
    let first = format!("GET /p?since={}", text(a));
    assert_eq!(of(&first, events), Condition::Since(a));
    let foreign = format!("{events}Last-Event-ID: 7\r\n");
    assert_eq!(of(&line, &foreign), Condition::Foreign);
    let taken_back = format!("{events}Last-Event-ID: \r\n");
    assert_eq!(of("GET /p", &taken_back), Condition::None);
    assert!(ask("GET /p", events).unwrap().is_stream);
    assert!(!ask("HEAD /p", events).unwrap().is_stream);
    assert_eq!(of("GET /p", &newest.replace(events, "")), Condition::None);
}

#[test]
fn an_unknown_cursor_differs_from_every_value() {
    let foreign = ask("GET /p?since=42", "").unwrap();
    assert_eq!(foreign.condition, Condition::Foreign);
    assert!(!foreign.condition.has(Cursor::of(b"v", 0)));
    let any = ask("GET /p", "If-None-Match: *\r\n").unwrap();
    assert!(any.condition.has(Cursor::of(b"v", 0)));
}

/// Milliseconds that are left of a wait of 25 seconds or of a stream, with so many to go.
fn cut(left_ms: Option<u64>, is_stream: bool) -> u32 {
    let mut ask = Ask {
        method: Method::Get,
        condition: Condition::None,
        wait_ms: 25_000,
        form: Form::default(),
        shareable: false,
        is_stream,
    };
    ask.cut(left_ms.map(Duration::from_millis));
    ask.wait_ms
}

#[test]
fn a_wait_ends_with_the_token_however_it_is_spread() {
    assert_eq!(cut(None, false), 25_000);
    assert_eq!(cut(Some(1_000_000), false), 25_000);
    for left in [17, 1000, 2000, 17_000, 26_000] {
        let wait = cut(Some(left), false);
        assert!(wait > 0 && u64::from(wait + wait / 16) <= left, "{left}");
    }
    assert_eq!(cut(Some(0), false), 0);
}

#[test]
fn a_stream_lasts_until_the_token_ends() {
    assert_eq!(cut(None, true), u32::MAX);
    assert_eq!(cut(Some(17_000), true), 17_000);
    assert_eq!(cut(Some(u64::MAX), true), u32::MAX - 1);
}

fn wants(fields: &str) -> bool {
    let text = format!("GET /p HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    let mut storage = FieldStorage::new();
    let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
    wants_events(&head)
}

#[test]
fn a_stream_has_to_be_named() {
    for fields in [
        "",
        "Accept: */*\r\n",
        "Accept: text/*\r\n",
        "Accept: text/html, text/event-stream-like\r\n",
        "Accept: text/event-stream;q=0\r\n",
        "Accept: text/event-stream; q=0.000\r\n",
    ] {
        assert!(!wants(fields), "{fields}");
    }
    for fields in [
        "Accept: text/event-stream\r\n",
        "Accept: Text/Event-Stream; charset=utf-8\r\n",
        "Accept: text/event-stream, */*;q=0.1\r\n",
        "Accept: text/event-stream, text/plain\r\n",
        "Accept: text/event-stream;q=never\r\n",
        "Accept: text/html;q=0.2\r\nAccept: text/event-stream;q=0.3\r\n",
    ] {
        assert!(wants(fields), "{fields}");
    }
}

#[test]
fn what_the_client_would_rather_have_wins() {
    assert!(!wants("Accept: text/event-stream;q=0.5, text/plain\r\n"));
    assert!(!wants(
        "Accept: text/event-stream ; q = 0.59 , */* ; q = 0.6\r\n"
    ));
    assert!(wants(
        "Accept: text/event-stream;q=1.000, text/plain;Q=0.999\r\n"
    ));
}
