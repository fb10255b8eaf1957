//! A file as it is presented to one client.

use super::coding::{Coding, acceptable};
use super::conditions::{Precondition, Validators, evaluate, range_applies};
use super::multipart::{FileParts, boundary, content_range};
use super::range::{Selection, select};
use super::{FileAnswer, FileBody, FileError, FileOptions};
use dwell_evloop::FileSlice;
use dwell_proto::http1::RequestHead;
use std::borrow::Cow;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file, or anything else that can be opened, that was found under a name.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    metadata: Metadata,
}

/// Opens a file by its name, or one beside it.
pub(super) type Open<'a> = &'a dyn Fn(&Path) -> io::Result<Opened>;

/// An open file in the chosen coding, with the metadata of its response.
#[derive(Debug)]
pub(super) struct Representation {
    whole: FileSlice,
    content_type: Cow<'static, str>,
    coding: Option<Coding>,
    validators: Option<Validators>,
}

impl Opened {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { file, metadata })
    }

    /// The directory, if it is one.
    pub(super) fn directory(&self) -> Option<&File> {
        self.metadata.is_dir().then_some(&self.file)
    }
}

impl Representation {
    /// Chooses between `found`, whose name `path` ends in, and the encoded files beside it.
    pub(super) fn of(
        head: &RequestHead<'_, '_>,
        path: &Path,
        found: Opened,
        open: Open<'_>,
        options: &FileOptions,
        wall: SystemTime,
    ) -> Result<Self, FileError> {
        if !found.metadata.is_file() {
            return Err(FileError::NotFound);
        }
        let prepared = if options.precompressed {
            acceptable(head.fields).find_map(|coding| prepared(path, coding, open))
        } else {
            None
        };
        let (Opened { file, metadata }, coding) = match prepared {
            Some((prepared, coding)) => (prepared, Some(coding)),
            None => (found, None),
        };
        let content_type = match &options.content_type {
            Some(content_type) => Cow::Owned(content_type.clone()),
            None => content_type(path),
        };
        Ok(Self {
            content_type,
            coding,
            validators: Validators::of(&metadata, coding.map(Coding::name), wall),
            whole: FileSlice {
                file: file.into(),
                offset: 0,
                length: metadata.len(),
            },
        })
    }

    /// The answer to a GET or HEAD.
    pub(super) fn answer(
        self,
        head: &RequestHead<'_, '_>,
        options: &FileOptions,
    ) -> Result<FileAnswer, FileError> {
        let validators = self.validators.as_ref();
        match evaluate(head.fields, validators) {
            Precondition::Failed => return Ok(FileAnswer::of_status(412)),
            Precondition::NotModified => {
                return Ok(FileAnswer {
                    status: 304,
                    fields: self.fields_of_any(options),
                    body: FileBody::Empty,
                    error: None,
                });
            }
            Precondition::Met => {}
        }
        let length = self.whole.length;
        match self.selection(head, options) {
            Selection::Whole => self.full(head, options),
            Selection::Unsatisfiable => {
                let mut answer = FileAnswer::of_status(416);
                let unsatisfied = format!("bytes */{length}");
                answer.fields.push(("Content-Range", unsatisfied.into()));
                Ok(answer)
            }
            Selection::Parts(ranges) => match &ranges[..] {
                [range] => self.partial(range, options),
                _ => self.multipart(ranges, options),
            },
        }
    }

    /// Returns the selection of the request. Only a GET can select less than everything.
    fn selection(&self, head: &RequestHead<'_, '_>, options: &FileOptions) -> Selection {
        let mut values = head.fields.all("Range");
        match (values.next(), values.next()) {
            (Some(value), None)
                if head.method == "GET" && range_applies(head.fields, self.validators.as_ref()) =>
            {
                select(value, self.whole.length, options.ranges_max)
            }
            _ => Selection::Whole,
        }
    }

    fn full(
        self,
        head: &RequestHead<'_, '_>,
        options: &FileOptions,
    ) -> Result<FileAnswer, FileError> {
        let body = if head.method == "HEAD" {
            FileBody::Absent(self.whole.length)
        } else {
            body(self.whole.clone(), options)?
        };
        Ok(FileAnswer {
            status: 200,
            fields: self.fields(options),
            body,
            error: None,
        })
    }

    fn partial(self, range: &Range<u64>, options: &FileOptions) -> Result<FileAnswer, FileError> {
        let mut fields = self.fields(options);
        let told = content_range(range, self.whole.length);
        fields.push(("Content-Range", told.into()));
        let slice = FileSlice {
            file: self.whole.file,
            offset: range.start,
            length: range.end - range.start,
        };
        Ok(FileAnswer {
            status: 206,
            fields,
            body: body(slice, options)?,
            error: None,
        })
    }

    fn multipart(
        self,
        ranges: Vec<Range<u64>>,
        options: &FileOptions,
    ) -> Result<FileAnswer, FileError> {
        let boundary = boundary();
        let parts = FileParts::new(&self.whole, ranges, &self.content_type, &boundary);
        let mut fields = self.fields(options);
        for (name, value) in &mut fields {
            if *name == "Content-Type" {
                *value = format!("multipart/byteranges; boundary={boundary}").into();
            }
        }
        let body = if parts.length() > options.read_bytes_max {
            FileBody::Parts(parts)
        } else {
            let mut bytes = Vec::with_capacity(parts.length() as usize);
            for (head, slice) in &parts.parts {
                bytes.extend_from_slice(head);
                read(slice, &mut bytes)?;
            }
            bytes.extend_from_slice(&parts.end);
            FileBody::Memory(bytes)
        };
        Ok(FileAnswer {
            status: 206,
            fields,
            body,
            error: None,
        })
    }

    /// The fields of an answer that brings the file, or a part of it.
    fn fields(&self, options: &FileOptions) -> Vec<(&'static str, Cow<'static, str>)> {
        let mut fields = self.fields_of_any(options);
        fields.push(("Content-Type", self.content_type.clone()));
        if let Some(coding) = self.coding {
            fields.push(("Content-Encoding", coding.name().into()));
        }
        if let Some(validators) = &self.validators {
            let date = UNIX_EPOCH + Duration::from_secs(validators.last_modified);
            fields.push(("Last-Modified", httpdate::fmt_http_date(date).into()));
        }
        fields.push(("Accept-Ranges", "bytes".into()));
        fields
    }

    /// The fields that a 304 has as well (RFC 9110 section 15.4.5).
    fn fields_of_any(&self, options: &FileOptions) -> Vec<(&'static str, Cow<'static, str>)> {
        let mut fields = Vec::with_capacity(8);
        if let Some(validators) = &self.validators {
            fields.push(("ETag", validators.entity_tag.to_string().into()));
        }
        if options.precompressed {
            fields.push(("Vary", "Accept-Encoding".into()));
        }
        if let Some(value) = &options.cache_control {
            fields.push(("Cache-Control", value.clone().into()));
        }
        fields
    }
}

/// The file beside `path` that holds it in `coding`, if there is one that can be read.
fn prepared(path: &Path, coding: Coding, open: Open<'_>) -> Option<(Opened, Coding)> {
    let mut name = path.as_os_str().to_owned();
    name.push(coding.suffix());
    let found = open(&PathBuf::from(name)).ok()?;
    found.metadata.is_file().then_some((found, coding))
}

fn content_type(path: &Path) -> Cow<'static, str> {
    match mime_guess::from_path(path).first_raw() {
        None => "application/octet-stream".into(),
        Some(text) if text.starts_with("text/") => format!("{text}; charset=utf-8").into(),
        Some(other) => other.into(),
    }
}

/// A slice as a body: read where it is small.
fn body(slice: FileSlice, options: &FileOptions) -> Result<FileBody, FileError> {
    if slice.length > options.read_bytes_max {
        return Ok(FileBody::File(slice));
    }
    let mut bytes = Vec::with_capacity(slice.length as usize);
    read(&slice, &mut bytes)?;
    Ok(FileBody::Memory(bytes))
}

/// Appends the bytes of a slice.
fn read(slice: &FileSlice, bytes: &mut Vec<u8>) -> io::Result<()> {
    let start = bytes.len();
    bytes.resize(start + slice.length as usize, 0);
    slice.file.read_exact_at(&mut bytes[start..], slice.offset)
}
