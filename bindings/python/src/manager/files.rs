//! Files and directories as answers.

use super::act::{Fields, with_fields};
use super::view::View;
use dwell_engine::files::{DirectoryOptions, FileAnswer, FileOptions, serve_dir, serve_file};
use dwell_engine::manager::{Conn, ConnError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::Path;
use std::time::SystemTime;

/// Decides the answer that the request's path names beneath `root`; nothing where the message is
/// no request.
pub(super) fn directory(
    view: &View<'_>,
    root: &Path,
    mime_types: &str,
    page404: &str,
) -> Option<FileAnswer> {
    let View::Http(message) = view else {
        return None;
    };
    let head = message.request_head()?;
    let mut options = DirectoryOptions::default();
    options.listing = true;
    options.file = options_for(Path::new(head.path), mime_types);
    let answer = serve_dir(head, root, &options, SystemTime::now());
    if answer.status != 404 || page404.is_empty() {
        return Some(answer);
    }
    let mut page = file(view, Path::new(page404), mime_types)?;
    if page.status == 200 {
        page.status = 404;
    }
    Some(page)
}

/// Decides the answer that is the file at `path`.
pub(super) fn file(view: &View<'_>, path: &Path, mime_types: &str) -> Option<FileAnswer> {
    let View::Http(message) = view else {
        return None;
    };
    let options = options_for(path, mime_types);
    Some(serve_file(
        message.request_head()?,
        path,
        &options,
        SystemTime::now(),
    ))
}

pub(super) fn send(
    conn: &mut Conn<'_>,
    answer: Option<FileAnswer>,
    fields: &Fields,
) -> Result<(), ConnError> {
    let answer = answer.ok_or(ConnError::Protocol)?;
    with_fields(fields, |fields| conn.send_file_with(answer, fields))
}

/// The type of a file by its extension, in a list such as `foo=application/x-foo,txt=text/html`.
fn options_for(path: &Path, mime_types: &str) -> FileOptions {
    let mut options = FileOptions::default();
    let extension = path.extension().and_then(|extension| extension.to_str());
    options.content_type = mime_types
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .find(|(known, _)| Some(known.trim().trim_start_matches('.')) == extension)
        .map(|(_, kind)| kind.trim().to_owned());
    options
}

/// Fields as lines of text, each `Name: value` and its end.
pub(super) fn extra_fields(lines: &str) -> PyResult<Fields> {
    lines
        .split("\r\n")
        .filter(|line| !line.is_empty())
        .map(|line| {
            let field = line.split_once(':');
            let (name, value) = field.ok_or_else(|| {
                PyValueError::new_err(format!("extra header has no colon: {line:?}"))
            })?;
            Ok((name.trim().to_owned(), value.trim().as_bytes().to_vec()))
        })
        .collect()
}
