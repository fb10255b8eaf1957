//! Certificates, as Python names their files.

use crate::manager::tls_refused as refused;
use dwell_engine::tls as engine;
use dwell_evloop::Listener;
use pyo3::prelude::*;
use std::path::PathBuf;

/// The certificates of a server under TLS. Processes that are forked later share its tickets.
#[pyclass(frozen, module = "dwell._native")]
#[derive(Debug)]
pub(crate) struct Tls(engine::Tls);

#[pymethods]
impl Tls {
    /// Reads PEM files; without `keyfile` the key is in `certfile`.
    #[new]
    #[pyo3(signature = (certfile, keyfile=None))]
    fn new(certfile: PathBuf, keyfile: Option<PathBuf>) -> PyResult<Self> {
        let keyfile = keyfile.unwrap_or_else(|| certfile.clone());
        let builder = engine::Tls::builder().certificate_files(certfile, keyfile);
        let tls = builder.build().map_err(|error| refused(&error))?;
        tls.make_ticket_keys();
        Ok(Self(tls))
    }

    /// Reads the files again, for clients that connect from now on.
    fn reload(&self) -> PyResult<()> {
        self.0.reload().map_err(|error| refused(&error))
    }
}

impl Tls {
    pub(crate) fn secure(&self, listener: &mut Listener) {
        self.0.secure(listener);
    }
}
