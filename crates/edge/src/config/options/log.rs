//! Options of `[log]`.

use crate::config::codec::{AccessLogTarget, Choice};
use crate::config::{Config, LogFormat, LogLevel};

options! {
    OPTIONS for Config:
    "log".log.level ["--log-level"] = Choice(LEVELS);
    "The least severe events written to standard error."
    "log".log.format ["--log-format"] = Choice(FORMATS);
    "Format of events: `text` for people, or `json` with one JSON object a line."
    "log".log.access ["--access-log"] = AccessLogTarget;
    "File, or standard output, for one JSON line per request. Dwell appends to a file."
}

const LEVELS: &[(&str, LogLevel)] = &[
    ("off", LogLevel::Off),
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];
const FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];
