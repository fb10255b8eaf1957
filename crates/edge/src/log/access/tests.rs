use super::*;
use proptest::prelude::*;
use serde_json::Value;
use std::time::UNIX_EPOCH;

fn line<'a>(target: &'a str, outcome: &'a str) -> AccessLine<'a> {
    AccessLine {
        time: UNIX_EPOCH + Duration::from_millis(1_500),
        remote: SocketAddr::from(([127, 0, 0, 1], 4321)),
        method: "GET",
        target,
        protocol: "HTTP/2",
        fields: RequestFields::default(),
        route: None,
        key: None,
        status: 200,
        bytes: 5,
        duration: Duration::from_micros(42),
        outcome,
        upstream: None,
    }
}

fn appended(line: &AccessLine<'_>) -> String {
    let mut out = Vec::new();
    line.append_to(&mut out);
    String::from_utf8(out).expect("a line is text")
}

#[test]
fn a_line_is_one_json_object() {
    let expected = "{\"time\":\"1970-01-01T00:00:01.500Z\",\"level\":\"info\",\
                    \"message\":\"request\",\"remote\":\"127.0.0.1:4321\",\"method\":\"GET\",\
                    \"target\":\"/poll/a?x=1\",\"protocol\":\"HTTP/2\",\
                    \"status\":200,\"bytes\":5,\"duration_us\":42,\"outcome\":\"hit\"}\n";
    assert_eq!(appended(&line("/poll/a?x=1", "hit")), expected);
    let head = b"GET / HTTP/1.1\r\nhost: a\r\nuser-agent: b\x9b\"\r\nx-request-id: c\r\n\
                 traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n";
    let full = AccessLine {
        fields: RequestFields::of_head(head),
        route: Some("/poll/"),
        key: Some(b"/poll/a"),
        upstream: Some((([127, 0, 0, 1], 80).into(), Duration::from_micros(7))),
        ..line("/poll/a?x=1", "hit")
    };
    let value: Value = serde_json::from_str(&appended(&full)).expect("a line is JSON");
    let expected = serde_json::json!({
        "time": "1970-01-01T00:00:01.500Z", "level": "info", "message": "request",
        "remote": "127.0.0.1:4321", "method": "GET", "target": "/poll/a?x=1",
        "protocol": "HTTP/2", "host": "a", "route": "/poll/", "key": "/poll/a", "status": 200,
        "bytes": 5, "duration_us": 42, "outcome": "hit", "upstream": "127.0.0.1:80",
        "upstream_us": 7, "user_agent": "b\u{fffd}\"", "request_id": "c",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    });
    assert_eq!(value, expected);
}

proptest! {
    #[test]
    fn any_target_is_read_back(target in ".*", outcome in "\\PC*") {
        let text = appended(&line(&target, &outcome));
        prop_assert_eq!(text.matches('\n').count(), 1);
        let value: Value = serde_json::from_str(&text).expect("a line is JSON");
        prop_assert_eq!(value["target"].as_str(), Some(target.as_str()));
        prop_assert_eq!(value["outcome"].as_str(), Some(outcome.as_str()));
    }
}

#[test]
fn each_field_is_bounded() {
    let long = "\u{e9}".repeat(50_000);
    let head = format!("GET / HTTP/1.1\r\nhost: {long}\r\nuser-agent: {long}\r\n\r\n");
    let full = AccessLine {
        method: &long,
        fields: RequestFields::of_head(head.as_bytes()),
        route: Some(&long),
        key: Some(long.as_bytes()),
        ..line(&long, "hit")
    };
    let text = appended(&full);
    assert!(text.len() < 18_000, "{}", text.len());
    let value: Value = serde_json::from_str(&text).expect("a line is JSON");
    assert_eq!(value["target"].as_str().map(str::len), Some(8 << 10));
    assert_eq!(cut("a\u{e9}", 2), "a");
}

#[test]
fn a_file_is_appended_to() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let target = AccessTarget::File(folder.path().join("access.log"));
    for _ in 0..2 {
        let log = AccessLog::open(&target, 1, &ProcessMetrics::default()).expect("the file opens");
        log.expect("the log is on")
            .of_loop(0)
            .write(&line("/a", "hit"));
    }
    let text = std::fs::read_to_string(folder.path().join("access.log")).expect("the file");
    assert_eq!(text.lines().count(), 2);
    let nowhere = AccessTarget::File(folder.path().join("none/access.log"));
    assert!(AccessLog::open(&nowhere, 1, &ProcessMetrics::default()).is_err());
    assert!(
        AccessLog::open(&AccessTarget::Off, 1, &ProcessMetrics::default())
            .expect("nothing")
            .is_none()
    );
}

#[test]
fn a_fifo_waits_for_no_reader() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("fifo");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    let target = AccessTarget::File(path.clone());
    let log = AccessLog::open(&target, 1, &ProcessMetrics::default()).expect("it opens");
    let log = log.expect("the log is on");
    log.of_loop(0).write(&line("/before", "hit"));
    let reader = File::open(&path).expect("a reader comes");
    log.switch().switch_to(&target).expect("it opens again");
    log.of_loop(0).write(&line("/then", "hit"));
    drop(log);
    let mut lines = String::new();
    let mut reader = reader;
    io::Read::read_to_string(&mut reader, &mut lines).expect("the lines");
    assert_eq!(lines.lines().count(), 2, "{lines}");
}
