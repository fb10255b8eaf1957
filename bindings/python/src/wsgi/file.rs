//! `wsgi.file_wrapper`: files that the kernel sends.

use dwell_evloop::FileSlice;
use pyo3::intern;
use pyo3::prelude::*;
use std::fs::File;
use std::os::fd::{BorrowedFd, RawFd};

/// A file as the iterable of an answer.
///
/// Returned by an app as it is, a regular file is sent by the kernel from where it stands;
/// anything else with `read` is sent block by block.
#[pyclass(frozen, module = "dwell.wsgi")]
#[derive(Debug)]
pub(super) struct FileWrapper {
    file: Py<PyAny>,
    block_size: usize,
}

#[pymethods]
impl FileWrapper {
    #[new]
    #[pyo3(signature = (filelike, block_size=65536, /))]
    fn new(filelike: Py<PyAny>, block_size: usize) -> Self {
        Self {
            file: filelike,
            block_size: block_size.max(1),
        }
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let file = self.file.bind(py);
        let block = file.call_method1(intern!(py, "read"), (self.block_size,))?;
        Ok(Some(block).filter(|block| block.is_truthy().unwrap_or(true)))
    }

    /// Closes the file, if it can be closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.file.bind(py).getattr_opt(intern!(py, "close"))? {
            Some(close) => close.call0().map(|_| ()),
            None => Ok(()),
        }
    }
}

impl FileWrapper {
    /// The rest of the file, if it is one that the kernel can send.
    #[expect(unsafe_code, reason = "a descriptor comes from Python as a number")]
    pub(super) fn slice(&self, py: Python<'_>) -> Option<FileSlice> {
        let file = self.file.bind(py);
        let descriptor: RawFd = file
            .call_method0(intern!(py, "fileno"))
            .ok()?
            .extract()
            .ok()?;
        if descriptor < 0 {
            return None;
        }
        let offset: u64 = file
            .call_method0(intern!(py, "tell"))
            .ok()?
            .extract()
            .ok()?;
        // SAFETY: the Python file that gave the descriptor is alive, and open as it told its
        // position; it is used for the length of this call only, to make a descriptor of our own.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let own = File::from(borrowed.try_clone_to_owned().ok()?);
        let metadata = own.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(FileSlice {
            length: metadata.len().saturating_sub(offset),
            offset,
            file: own.into(),
        })
    }
}
