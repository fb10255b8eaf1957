//! The `environ` of PEP 3333, built from a request head with few allocations.

use super::meeting::Job;
use crate::web::address::AddressText;
use crate::web::head::protocol;
use crate::web::mount::Mount;
use crate::web::tls::{Secure, ShownTexts};
use dwell_proto::http1::{Version, percent_decoded};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::collections::HashMap;

/// Objects that a worker keeps to build environments from.
#[derive(Debug)]
pub(super) struct Environ {
    /// The entries that every request has.
    base: Py<PyDict>,
    /// The names of fields that came before, and their keys; `None` for those that are left out.
    keys: HashMap<Box<[u8]>, Option<Py<PyString>>>,
    mount: Mount,
    client: AddressText,
    shown: ShownTexts,
}

/// Names of fields that are remembered; clients may invent any number of them.
const KEYS_MAX: usize = 512;
/// The longest name that is remembered.
const KEY_BYTES_MAX: usize = 64;

impl Environ {
    pub(super) fn new(base: Py<PyDict>, mount: Mount) -> Self {
        Self {
            base,
            keys: HashMap::new(),
            mount,
            client: AddressText::default(),
            shown: ShownTexts::default(),
        }
    }

    /// The environment of one request, but for `wsgi.input`.
    pub(super) fn build<'py>(
        &mut self,
        py: Python<'py>,
        job: &Job,
    ) -> PyResult<Bound<'py, PyDict>> {
        let environ = self.base.bind(py).copy()?;
        let head = &job.head;
        environ.set_item(intern!(py, "REQUEST_METHOD"), method(py, head.method()))?;
        let path = percent_decoded(head.path());
        let path = self.mount.rest(&path);
        environ.set_item(intern!(py, "PATH_INFO"), latin1(py, path))?;
        environ.set_item(intern!(py, "QUERY_STRING"), latin1(py, head.query()))?;
        environ.set_item(intern!(py, "REQUEST_URI"), latin1(py, head.target()))?;
        environ.set_item(intern!(py, "RAW_URI"), latin1(py, head.target()))?;
        if head.version() != Version::Http11 {
            environ.set_item(intern!(py, "SERVER_PROTOCOL"), protocol(head.version()))?;
        }
        if job.origin.is_https {
            environ.set_item(intern!(py, "wsgi.url_scheme"), intern!(py, "https"))?;
            environ.set_item(intern!(py, "HTTPS"), intern!(py, "on"))?;
        }
        if let Some(secure) = &job.secure {
            add_tls(py, &environ, secure, &mut self.shown)?;
        }
        if let Some((address, port)) = job.origin.client {
            environ.set_item(intern!(py, "REMOTE_ADDR"), self.client.of(py, address))?;
            environ.set_item(intern!(py, "REMOTE_PORT"), itoa::Buffer::new().format(port))?;
        }
        self.fields(py, &environ, job)?;
        Ok(environ)
    }

    fn fields(&mut self, py: Python<'_>, environ: &Bound<'_, PyDict>, job: &Job) -> PyResult<()> {
        for (name, value) in job.head.fields() {
            let known = self
                .keys
                .get(name)
                .map(|key| key.as_ref().map(|key| key.bind(py)));
            let fresh;
            let key = match known {
                Some(Some(key)) => key,
                Some(None) => continue,
                None => match self.learn(py, name) {
                    Some(key) => {
                        fresh = key;
                        &fresh
                    }
                    None => continue,
                },
            };
            let value = latin1(py, value);
            // A field that comes again is a list; cookies are parted by semicolons.
            if let Some(before) = environ.get_item(key)? {
                let separator = if name.eq_ignore_ascii_case(b"cookie") {
                    "; "
                } else {
                    ","
                };
                let joined = before.add(separator)?.add(value)?;
                environ.set_item(key, joined)?;
            } else {
                environ.set_item(key, value)?;
            }
        }
        Ok(())
    }

    /// The key of a field, which is remembered.
    fn learn<'py>(&mut self, py: Python<'py>, name: &[u8]) -> Option<Bound<'py, PyString>> {
        let key = key_of(name).map(|key| PyString::intern(py, &key));
        if self.keys.len() < KEYS_MAX && name.len() <= KEY_BYTES_MAX {
            self.keys
                .insert(name.into(), key.clone().map(Bound::unbind));
        }
        key
    }
}

/// Adds what a client under TLS is known by, as Apache's `mod_ssl` names it. No field of a request
/// has such a key.
fn add_tls(
    py: Python<'_>,
    environ: &Bound<'_, PyDict>,
    secure: &Secure,
    texts: &mut ShownTexts,
) -> PyResult<()> {
    let version = if secure.is_tls13() {
        intern!(py, "TLSv1.3")
    } else {
        intern!(py, "TLSv1.2")
    };
    environ.set_item(intern!(py, "SSL_PROTOCOL"), version)?;
    let Some(certificates) = &secure.certificates else {
        return environ.set_item(intern!(py, "SSL_CLIENT_VERIFY"), intern!(py, "NONE"));
    };
    let shown = texts.of(py, certificates)?;
    environ.set_item(intern!(py, "SSL_CLIENT_VERIFY"), intern!(py, "SUCCESS"))?;
    let mut chain = shown.chain.bind(py).iter();
    environ.set_item(intern!(py, "SSL_CLIENT_CERT"), chain.next())?;
    for (number, certificate) in chain.enumerate() {
        environ.set_item(format!("SSL_CLIENT_CERT_CHAIN_{number}"), certificate)?;
    }
    if let Some(subject) = &shown.subject {
        let text = subject.bind(py).to_str()?;
        environ.set_item(intern!(py, "SSL_CLIENT_S_DN"), latin1(py, text.as_bytes()))?;
    }
    Ok(())
}

/// The key of a field; `None` for one that must not get into the environment: a name with an
/// underscore would pass for another one with a dash, and `Proxy` for a setting of the process.
fn key_of(name: &[u8]) -> Option<String> {
    if name.contains(&b'_') || name.eq_ignore_ascii_case(b"proxy") {
        return None;
    }
    let mut key = String::with_capacity(name.len() + 5);
    let is_bare =
        name.eq_ignore_ascii_case(b"content-type") || name.eq_ignore_ascii_case(b"content-length");
    if !is_bare {
        key.push_str("HTTP_");
    }
    key.extend(name.iter().map(|byte| match byte {
        b'-' => '_',
        byte => char::from(byte.to_ascii_uppercase()),
    }));
    Some(key)
}

/// The text of bytes, a character each (PEP 3333, "Unicode Issues").
pub(super) fn latin1<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    match str::from_utf8(bytes) {
        Ok(text) if bytes.is_ascii() => PyString::new(py, text),
        _ => {
            let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
            PyString::new(py, &text)
        }
    }
}

fn method<'py>(py: Python<'py>, method: &[u8]) -> Bound<'py, PyString> {
    match method {
        b"GET" => intern!(py, "GET").clone(),
        b"POST" => intern!(py, "POST").clone(),
        b"HEAD" => intern!(py, "HEAD").clone(),
        method => latin1(py, method),
    }
}
