//! The form of a line in the access log.

use super::head::protocol;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dwell_proto::http1::{Fields, RequestHead};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::fmt::{self, Write as _};
use std::process;
use std::time::{Duration, SystemTime};

/// The parts of a line, as gunicorn's `access_log_format` names them.
///
/// Source: gunicorn, `docs/source/settings.rst`, "`access_log_format`".
#[derive(Clone, Debug)]
pub(crate) struct LogFormat {
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    /// Of the answer.
    Client,
    Status,
    /// The flag is true for a dash instead of 0.
    Bytes(bool),
    /// The time as HTTP has it.
    Date,
    /// The time as in logs of Apache.
    Time,
    Seconds,
    Milliseconds,
    Microseconds,
    DecimalSeconds,
    DecimalMilliseconds,
    Process,
    /// A word for a client that left before the end.
    Left,
    /// Of the request.
    Method,
    Target,
    Path,
    Query,
    Protocol,
    User,
    Field(Box<str>),
}

/// An answer for the log.
#[derive(Debug)]
pub(crate) struct Answered<'r> {
    /// The parts of the request, as [`LogFormat::capture`] gave them.
    pub(crate) request: &'r [String],
    pub(crate) client: &'r str,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    pub(crate) wall: SystemTime,
    pub(crate) elapsed: Duration,
    pub(crate) is_complete: bool,
}

impl Default for LogFormat {
    fn default() -> Self {
        let text = |text: &str| Part::Text(text.to_owned());
        let parts = vec![
            Part::Date,
            text("  "),
            Part::Client,
            text("  "),
            Part::Method,
            text(" "),
            Part::Target,
            text("  "),
            Part::Status,
            text("  "),
            Part::Bytes(false),
            text(" B  "),
            Part::DecimalMilliseconds,
            text(" ms"),
            Part::Left,
        ];
        Self { parts }
    }
}

impl LogFormat {
    /// Reads a format such as `%(h)s "%(r)s" %(s)s`.
    ///
    /// # Errors
    /// `ValueError` for a part that there is not.
    pub(crate) fn parse(format: &str) -> PyResult<Self> {
        let mut parts = Vec::new();
        let mut rest = format;
        while let Some((text, behind)) = rest.split_once('%') {
            parts.push(Part::Text(text.to_owned()));
            if let Some(behind) = behind.strip_prefix('%') {
                parts.push(Part::Text("%".to_owned()));
                rest = behind;
                continue;
            }
            let name = behind
                .strip_prefix('(')
                .and_then(|name| name.split_once(')'));
            let wrong = || {
                let text = format!("access_log_format has no such part: %{behind}");
                PyValueError::new_err(text)
            };
            let (name, behind) = name.ok_or_else(wrong)?;
            rest = behind.strip_prefix(['s', 'd']).ok_or_else(wrong)?;
            parts.extend(named(name).ok_or_else(wrong)?);
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self { parts })
    }

    /// The parts of a line that the request has, for its end.
    pub(crate) fn capture(&self, head: &RequestHead<'_, '_>) -> Vec<String> {
        let of_request = self.parts.iter().filter(|part| part.is_of_request());
        of_request.map(|part| part.of(head)).collect()
    }

    /// Writes a line.
    pub(crate) fn write(&self, line: &mut String, answered: &Answered<'_>) {
        let mut request = answered.request.iter();
        for part in &self.parts {
            // Writing to a string does not fail.
            let _ = if part.is_of_request() {
                line.write_str(request.next().map_or("-", String::as_str))
            } else {
                part.write(line, answered)
            };
        }
        line.push('\n');
    }
}

/// The parts that a name stands for.
fn named(name: &str) -> Option<Vec<Part>> {
    let space = || Part::Text(" ".to_owned());
    let field = |name: &str| Part::Field(name.into());
    Some(vec![match name {
        "h" => Part::Client,
        "l" => Part::Text("-".to_owned()),
        "u" => Part::User,
        "t" => Part::Time,
        "r" => {
            let line = [Part::Method, space(), Part::Target, space(), Part::Protocol];
            return Some(line.into());
        }
        "m" => Part::Method,
        "U" => Part::Path,
        "q" => Part::Query,
        "H" => Part::Protocol,
        "s" => Part::Status,
        "B" => Part::Bytes(false),
        "b" => Part::Bytes(true),
        "f" => field("Referer"),
        "a" => field("User-Agent"),
        "T" => Part::Seconds,
        "M" => Part::Milliseconds,
        "D" => Part::Microseconds,
        "L" => Part::DecimalSeconds,
        "p" => Part::Process,
        _ => {
            let name = name.strip_prefix('{')?.strip_suffix("}i")?;
            field(name)
        }
    }])
}

impl Part {
    fn is_of_request(&self) -> bool {
        matches!(
            self,
            Self::Method
                | Self::Target
                | Self::Path
                | Self::Query
                | Self::Protocol
                | Self::User
                | Self::Field(_)
        )
    }

    /// The text of a part that the request has; what clients choose cannot end the line.
    fn of(&self, head: &RequestHead<'_, '_>) -> String {
        let bytes = match self {
            Self::Method => head.method.as_bytes(),
            Self::Target => head.target.as_bytes(),
            Self::Path => head.path.as_bytes(),
            Self::Query => head.query.unwrap_or_default().as_bytes(),
            Self::Protocol => protocol(head.version).as_bytes(),
            Self::User => return user(head.fields).unwrap_or_else(|| "-".to_owned()),
            Self::Field(name) => head.fields.find(name).unwrap_or(b"-"),
            _ => b"",
        };
        bytes.escape_ascii().to_string()
    }

    fn write(&self, line: &mut String, answered: &Answered<'_>) -> fmt::Result {
        let elapsed = answered.elapsed;
        match self {
            Self::Text(text) => line.write_str(text),
            Self::Client => line.write_str(answered.client),
            Self::Status => write!(line, "{}", answered.status),
            Self::Bytes(true) if answered.bytes == 0 => line.write_str("-"),
            Self::Bytes(_) => write!(line, "{}", answered.bytes),
            Self::Date => line.write_str(&httpdate::fmt_http_date(answered.wall)),
            Self::Time => {
                // Such as `Tue, 15 Nov 1994 08:12:31 GMT`.
                let date = httpdate::fmt_http_date(answered.wall);
                let (day, month) = (&date[5..7], &date[8..11]);
                let (year, time) = (&date[12..16], &date[17..25]);
                write!(line, "[{day}/{month}/{year}:{time} +0000]")
            }
            Self::Seconds => write!(line, "{}", elapsed.as_secs()),
            Self::Milliseconds => write!(line, "{}", elapsed.as_millis()),
            Self::Microseconds => write!(line, "{}", elapsed.as_micros()),
            Self::DecimalSeconds => write!(line, "{:.6}", elapsed.as_secs_f64()),
            Self::DecimalMilliseconds => write!(line, "{:.1}", elapsed.as_secs_f64() * 1000.0),
            Self::Process => write!(line, "<{}>", process::id()),
            Self::Left if answered.is_complete => Ok(()),
            Self::Left => line.write_str(" (client left)"),
            _ => Ok(()),
        }
    }
}

/// The user of Basic authentication, if there is one.
fn user(fields: Fields<'_, '_>) -> Option<String> {
    let value = fields.find("authorization")?;
    let (scheme, encoded) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = BASE64.decode(encoded.trim_ascii()).ok()?;
    let name = decoded.split(|byte| *byte == b':').next()?;
    Some(name.escape_ascii().to_string()).filter(|name| !name.is_empty())
}
