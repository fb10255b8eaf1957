//! The `scope` of ASGI, built from a request head.

use super::face::Arrival;
use crate::web::address::AddressText;
use crate::web::head::Head;
use crate::web::mount::Mount;
use crate::web::tls::{Secure, ShownTexts};
use dwell_proto::http1::{Version, list_tokens, percent_decoded};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::collections::HashMap;

/// Objects kept for building scopes.
#[derive(Debug)]
pub(super) struct Scopes {
    http: Py<PyDict>,
    web_socket: Py<PyDict>,
    /// The state of the app's lifespan; each request gets a copy.
    state: Option<Py<PyDict>>,
    names: HashMap<Box<[u8]>, Py<PyBytes>>,
    client: AddressText,
    shown: ShownTexts,
    mount: Mount,
}

/// Names of fields that are remembered; clients may invent any number of them.
const NAMES_MAX: usize = 512;
/// The longest name that is remembered.
const NAME_BYTES_MAX: usize = 64;

impl Scopes {
    pub(super) fn new(
        http: Py<PyDict>,
        web_socket: Py<PyDict>,
        state: Option<Py<PyDict>>,
        mount: Mount,
    ) -> Self {
        Self {
            http,
            web_socket,
            state,
            names: HashMap::new(),
            client: AddressText::default(),
            shown: ShownTexts::default(),
            mount,
        }
    }

    /// The scope of a request or of a WebSocket.
    pub(super) fn build<'py>(
        &mut self,
        py: Python<'py>,
        arrival: &Arrival,
        is_web_socket: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let head = &*arrival.head;
        let base = if is_web_socket {
            &self.web_socket
        } else {
            &self.http
        };
        let scope = base.bind(py).copy()?;
        if !is_web_socket {
            scope.set_item(intern!(py, "method"), text(py, head.method()))?;
        }
        let version = match head.version() {
            Version::Http10 => Some(intern!(py, "1.0")),
            Version::Http11 => None,
            Version::Http2 => Some(intern!(py, "2")),
        };
        if let Some(version) = version {
            scope.set_item(intern!(py, "http_version"), version)?;
        }
        if arrival.origin.is_https {
            let scheme = if is_web_socket {
                intern!(py, "wss")
            } else {
                intern!(py, "https")
            };
            scope.set_item(intern!(py, "scheme"), scheme)?;
        }
        if let Some(secure) = &arrival.secure {
            add_tls(py, &scope, secure, &mut self.shown)?;
        }
        let (path, raw_path) = self.mount.seen(percent_decoded(head.path()), head.path());
        let path = match str::from_utf8(&path) {
            Ok(path) => PyString::new(py, path),
            Err(_) => PyString::new(py, &String::from_utf8_lossy(&path)),
        };
        scope.set_item(intern!(py, "path"), path)?;
        scope.set_item(intern!(py, "raw_path"), PyBytes::new(py, &raw_path))?;
        scope.set_item(intern!(py, "query_string"), PyBytes::new(py, head.query()))?;
        scope.set_item(intern!(py, "headers"), self.headers(py, head)?)?;
        if let Some((address, port)) = arrival.origin.client {
            let client = (self.client.of(py, address), port);
            scope.set_item(intern!(py, "client"), client)?;
        }
        if is_web_socket {
            scope.set_item(intern!(py, "subprotocols"), subprotocols(py, head)?)?;
        }
        if let Some(state) = &self.state {
            scope.set_item(intern!(py, "state"), state.bind(py).copy()?)?;
        }
        Ok(scope)
    }

    fn headers<'py>(&mut self, py: Python<'py>, head: &Head) -> PyResult<Bound<'py, PyList>> {
        let headers = PyList::empty(py);
        for (name, value) in head.fields() {
            let value = PyBytes::new(py, value);
            let pair = match self.names.get(name) {
                Some(name) => PyTuple::new(py, [name.bind(py), &value])?,
                None => PyTuple::new(py, [&self.learn(py, name), &value])?,
            };
            headers.append(pair)?;
        }
        Ok(headers)
    }

    /// The name of a field in lower case, which is remembered.
    fn learn<'py>(&mut self, py: Python<'py>, name: &[u8]) -> Bound<'py, PyBytes> {
        let lower = PyBytes::new(py, &name.to_ascii_lowercase());
        if self.names.len() < NAMES_MAX && name.len() <= NAME_BYTES_MAX {
            self.names.insert(name.into(), lower.clone().unbind());
        }
        lower
    }
}

/// The extension `tls` of ASGI.
///
/// Source: <https://asgi.readthedocs.io/en/latest/specs/tls.html>
fn add_tls(
    py: Python<'_>,
    scope: &Bound<'_, PyDict>,
    secure: &Secure,
    texts: &mut ShownTexts,
) -> PyResult<()> {
    let tls = PyDict::new(py);
    // The certificate that was offered is not kept for each connection.
    tls.set_item(intern!(py, "server_cert"), py.None())?;
    let shown = match &secure.certificates {
        Some(certificates) => Some(texts.of(py, certificates)?),
        None => None,
    };
    let chain = match shown {
        Some(shown) => shown.chain.bind(py),
        None => &PyTuple::empty(py),
    };
    tls.set_item(intern!(py, "client_cert_chain"), chain)?;
    let subject = shown.and_then(|shown| shown.subject.as_ref());
    tls.set_item(intern!(py, "client_cert_name"), subject)?;
    // A client with a certificate that is refused never gets as far as a request.
    tls.set_item(intern!(py, "client_cert_error"), py.None())?;
    let version = if secure.is_tls13() { 0x0304 } else { 0x0303 };
    tls.set_item(intern!(py, "tls_version"), version)?;
    tls.set_item(intern!(py, "cipher_suite"), secure.suite)?;
    // Those of the base are shared by all scopes.
    let name = intern!(py, "extensions");
    let extensions = scope
        .as_any()
        .get_item(name)?
        .cast_into::<PyDict>()?
        .copy()?;
    extensions.set_item(intern!(py, "tls"), tls)?;
    scope.set_item(name, extensions)
}

/// The subprotocols that the client offers, in its order.
fn subprotocols<'py>(py: Python<'py>, head: &Head) -> PyResult<Bound<'py, PyList>> {
    let offered = head
        .fields()
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"sec-websocket-protocol"))
        .flat_map(|(_, value)| list_tokens(value))
        .map(|protocol| text(py, protocol));
    PyList::new(py, offered.collect::<Vec<_>>())
}

fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    match bytes {
        b"GET" => intern!(py, "GET").clone(),
        b"POST" => intern!(py, "POST").clone(),
        bytes => PyString::new(py, &String::from_utf8_lossy(bytes)),
    }
}
