//! The bounds of a server, as Python gives them.

use super::address::Trusted;
use super::log_format::LogFormat;
use super::mount::Mount;
use super::tls::Tls;
use super::wear::Wear;
use dwell_engine::websocket::{MessageLimits, WebSocketOptions};
use dwell_engine::{BodyPlan, Limits};
use dwell_proto::http1::{BodyFraming, RequestHead};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Duration;

/// Everything about a server but its app.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) limits: Limits,
    pub(crate) body_bytes_max: u64,
    pub(crate) queue_max: usize,
    /// Bytes of a body that WSGI gathers before a thread has its request.
    pub(crate) gathered_body_bytes: u64,
    /// The same, of all bodies together.
    pub(crate) gathered_bytes: u64,
    pub(crate) mount: Mount,
    pub(crate) half_close: bool,
    /// HTTP/2 is spoken without TLS, by prior knowledge.
    pub(crate) h2c: bool,
    /// HTTP/2 is offered under TLS.
    pub(crate) http2: bool,
    pub(crate) access_log: Option<LogFormat>,
    /// Requests that the app may have at once.
    pub(crate) concurrency_max: usize,
    pub(crate) wear: Wear,
    pub(crate) trusted: Trusted,
    pub(crate) web_socket: WebSocketOptions,
    pub(crate) tls: Option<Py<Tls>>,
}

/// The longest head: it must fit the loop's input buffer.
const HEAD_BYTES_MAX: usize = 65_535;
/// Output of one answer that waits in the engine for a slow reader.
const OUTPUT_BYTES: usize = 256 * 1024;
/// Bodies up to this size are gathered before the app gets the request.
const COLLECT_BYTES_MAX: u64 = 64 * 1024;

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits {
                output_bytes_max: OUTPUT_BYTES,
                ..Limits::default()
            },
            body_bytes_max: u64::MAX,
            queue_max: 1024,
            gathered_body_bytes: 1024 * 1024,
            gathered_bytes: 64 * 1024 * 1024,
            mount: Mount::default(),
            half_close: false,
            h2c: false,
            http2: false,
            access_log: None,
            concurrency_max: usize::MAX,
            wear: Wear::default(),
            trusted: Trusted::default(),
            web_socket: WebSocketOptions {
                output_bytes_max: OUTPUT_BYTES,
                ..WebSocketOptions::default()
            },
            tls: None,
        }
    }
}

impl Options {
    /// Reads the keyword arguments of a server.
    ///
    /// # Errors
    /// `TypeError` for a name that is unknown or a value of another type, `ValueError` for one out
    /// of range.
    pub(crate) fn of(given: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut options = Self::default();
        for (name, value) in given.into_iter().flatten() {
            let name: String = name.extract()?;
            options.set(&name, &value)?;
        }
        let text = match &options.tls {
            Some(_) if options.h2c => "h2c is HTTP/2 without TLS: give http2 instead",
            None if options.http2 => {
                "http2 is HTTP/2 under TLS: give ssl_certfile, or h2c for HTTP/2 without TLS"
            }
            _ => return Ok(options),
        };
        Err(PyValueError::new_err(text))
    }

    /// Returns how the body of a request reaches the app: whole if it is short and on its way
    /// already.
    pub(crate) fn body_plan(&self, head: &RequestHead<'_, '_>) -> BodyPlan {
        let bytes_max = self.body_bytes_max;
        match head.framing {
            BodyFraming::Length(length) if length <= COLLECT_BYTES_MAX && !head.expect_continue => {
                BodyPlan::Collect { bytes_max }
            }
            _ => BodyPlan::Stream { bytes_max },
        }
    }

    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let bounds = Bounds {
            limits: &mut self.limits,
            socket: &mut self.web_socket,
            body_bytes_max: &mut self.body_bytes_max,
        };
        if bounds.set(name, value)? {
            return Ok(());
        }
        match name {
            "max_queue" => self.queue_max = at_least_one(name, value)?,
            "max_gathered_body_bytes" => self.gathered_body_bytes = at_least_one(name, value)?,
            "max_gathered_bytes" => self.gathered_bytes = at_least_one(name, value)?,
            "root_path" => self.mount = Mount::new(value.extract()?)?,
            "half_close" => self.half_close = value.extract()?,
            "h2c" => self.h2c = value.extract()?,
            "http2" => self.http2 = value.extract()?,
            "access_log" => match (value.extract()?, &self.access_log) {
                (true, None) => self.access_log = Some(LogFormat::default()),
                (true, Some(_)) => {}
                (false, _) => self.access_log = None,
            },
            "access_log_format" => {
                let format: Option<String> = value.extract()?;
                if let Some(format) = format {
                    self.access_log = Some(LogFormat::parse(&format)?);
                }
            }
            "trusted_proxies" => self.trusted = Trusted::of(value.extract()?)?,
            "limit_concurrency" if value.is_none() => {}
            "limit_concurrency" => self.concurrency_max = at_least_one(name, value)?,
            "tls" => self.tls = value.extract()?,
            "wear" => self.wear = Wear::of(value.extract()?),
            _ => {
                return Err(PyTypeError::new_err(format!("unknown option: {name}")));
            }
        }
        Ok(())
    }
}

/// The bounds that servers and managers have in common.
pub(crate) struct Bounds<'o> {
    pub(crate) limits: &'o mut Limits,
    pub(crate) socket: &'o mut WebSocketOptions,
    pub(crate) body_bytes_max: &'o mut u64,
}

impl Bounds<'_> {
    /// Sets the bound of that name; false if there is none.
    ///
    /// # Errors
    /// `TypeError` for a value of another type, `ValueError` for one out of range.
    pub(crate) fn set(self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Self { limits, socket, .. } = self;
        match name {
            "max_connections" => {
                limits.connections_max = at_least_one(name, value)?;
                socket.connections_max = limits.connections_max;
            }
            "max_requests_per_connection" => {
                limits.requests_per_connection_max = at_least_one(name, value)?;
            }
            "max_header_bytes" => {
                let bytes = at_least_one(name, value)?;
                if bytes > HEAD_BYTES_MAX {
                    return Err(PyValueError::new_err(format!(
                        "{name} exceeds {HEAD_BYTES_MAX}: {bytes}"
                    )));
                }
                limits.head.head_bytes_max = bytes;
            }
            "max_header_fields" => limits.head.field_count_max = at_least_one(name, value)?,
            "max_target_bytes" => limits.head.target_bytes_max = at_least_one(name, value)?,
            "max_body_bytes" => {
                let bytes: Option<u64> = value.extract()?;
                *self.body_bytes_max = bytes.unwrap_or(u64::MAX);
            }
            "header_timeout" => limits.header_timeout = seconds(name, value)?,
            "read_timeout" => limits.body_timeout = seconds(name, value)?,
            "min_body_rate" => limits.body_rate_min = at_least(0, name, value)?,
            "write_timeout" => {
                limits.write_timeout = seconds(name, value)?;
                socket.write_timeout = limits.write_timeout;
            }
            "keep_alive_timeout" => limits.idle_timeout = seconds(name, value)?,
            "max_message_bytes" => {
                let bytes = at_least_one(name, value)?;
                socket.messages = MessageLimits {
                    message_bytes_max: bytes,
                    ..socket.messages
                };
            }
            "ping_interval" => {
                socket.ping_interval = if value.is_none() {
                    None
                } else {
                    Some(seconds(name, value)?)
                }
            }
            "ping_timeout" => socket.pong_timeout = seconds(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn at_least_one<'py, T>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: FromPyObjectOwned<'py> + PartialOrd + From<u8>,
{
    at_least(1, name, value)
}

fn at_least<'py, T>(minimum: u8, name: &str, value: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: FromPyObjectOwned<'py> + PartialOrd + From<u8>,
{
    if value
        .extract::<i64>()
        .is_err_and(|error| error.is_instance_of::<PyTypeError>(value.py()))
    {
        return Err(wrong_type(name, "an integer", value));
    }
    let number = value
        .extract::<T>()
        .ok()
        .filter(|number| *number >= T::from(minimum));
    number.ok_or_else(|| PyValueError::new_err(format!("{name} is out of range: {value}")))
}

fn wrong_type(name: &str, expected: &str, value: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("{name} must be {expected}: {value}"))
}

/// A time in seconds, above zero.
pub(crate) fn seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds: f64 = value
        .extract()
        .map_err(|_| wrong_type(name, "a number of seconds", value))?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| PyValueError::new_err(format!("{name} is out of range: {seconds}")))
}
