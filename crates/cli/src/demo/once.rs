//! `dwell demo --once`: the demonstration without a page, and its figures at the end.

use super::lane::Fault;
use super::room::Granted;
use super::show::Show;
use serde_json::Value;
use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

/// The figures of one run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) document: Value,
    /// True if every client got the value.
    pub(super) is_complete: bool,
}

/// Starts everything, lets all clients wait for two seconds, and sets the key once.
///
/// # Errors
/// [`Fault`].
pub(super) fn run(granted: Granted) -> Result<Run, Fault> {
    let mut show = Show::start(granted, "first")?;
    let mut is_set = false;
    loop {
        let now = Instant::now();
        show.step(now)?;
        if !is_set && show.has_rested() {
            is_set = show.set("hello", now)?;
        } else if show.has_ended() {
            return Ok(Run {
                document: show.document(),
                is_complete: show.is_complete(),
            });
        }
        thread::sleep(STEP);
    }
}

/// The figures as a table for people.
pub(super) fn table(document: &Value) -> String {
    let mut text = String::new();
    let mut line = |name: &str, unit: &str, of: &dyn Fn(&Value) -> Value| {
        let cells = document["transports"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|lane| {
                let cell = match of(lane) {
                    Value::Null => "-".to_owned(),
                    Value::String(text) => text,
                    number => number.to_string(),
                };
                format!("{cell:>14}")
            });
        let cells: String = cells.collect();
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<26}{cells}", format!("{name}{unit}"));
    };
    line("", "", &|lane| lane["transport"].clone());
    line("clients waiting", "", &|lane| lane["waiting"].clone());
    line("memory per client", ", bytes", &|lane| {
        lane["bytes_per_client"].clone()
    });
    line("threads", "", &|lane| lane["threads"].clone());
    line("idle processor time", ", %", &|lane| {
        lane["cpu_idle_percent"].clone()
    });
    for (name, unit, field) in [
        ("waiting at the write", "", "expected"),
        ("answered", "", "answered"),
        ("wrong values", "", "wrong"),
        ("first client", ", ms", "first_ms"),
        ("median", ", ms", "p50_ms"),
        ("99 %", ", ms", "p99_ms"),
        ("last client", ", ms", "last_ms"),
        ("processor time", ", ms", "server_cpu_ms"),
    ] {
        line(name, unit, &|lane| lane["wave"][field].clone());
    }
    if let Some(limit) = document["limit"].as_str() {
        let _ = writeln!(
            text,
            "{} clients of each kind, because {limit}.",
            document["clients"]
        );
    }
    text.push_str(NOTE);
    text
}

const STEP: Duration = Duration::from_millis(10);

const NOTE: &str = "\
The memory is that of the process of the server. The kernel's sockets come on top.
The clients of this demonstration share the processors with the servers.
";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_has_a_column_for_each_transport() {
        let of = |name: &str| {
            json!({"transport": name, "waiting": 200, "bytes_per_client": null, "threads": 2,
                "cpu_idle_percent": 0.01, "wave": {"answered": 200, "wrong": 0, "first_ms": 0.5}})
        };
        let document = json!({"clients": 200, "limit": "of a reason",
            "transports": [of("long-poll"), of("websocket")]});
        let text = table(&document);
        let words = |start: &str| {
            let line = text
                .lines()
                .find(|line| line.starts_with(start))
                .expect("a line");
            line[26..]
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(" "), ["long-poll", "websocket"]);
        assert_eq!(words("answered"), ["200", "200"]);
        assert_eq!(words("memory per client"), ["-", "-"]);
        assert_eq!(words("first client, ms"), ["0.5", "0.5"]);
        assert!(text.contains("200 clients of each kind, because of a reason."));
    }
}
