//! Options of `[log]`.

use crate::config::codec::{AccessLogTarget, Choice};
use crate::config::{Config, LogFormat, LogLevel};

options! {
    OPTIONS for Config:
    "log".log.level ["--log-level"] = Choice(LEVELS);
    "The least severe events written to standard error."
    "log".log.format ["--log-format"] = Choice(FORMATS);
    "How an event is written: for people, or one JSON object a line."
    "log".log.access ["--access-log"] = AccessLogTarget;
    "Where one JSON line per request goes. A file is appended to."
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
