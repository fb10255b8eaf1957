//! The page that lists a directory.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use rustix::fs::{Dir, FileType};
use std::borrow::Cow;
use std::fmt::Write;
use std::fs::File;
use std::io;

/// Names on one page; it ends with a remark if there are more.
const NAMES_MAX: usize = 10_000;

/// Characters that are encoded in the links: all but the unreserved ones (RFC 3986 section 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Writes the page of `directory`, which `path` names as it came in the request.
///
/// Shape: directories first, then by name; names that begin with a full stop only where `hidden`.
pub(super) fn page(directory: &File, path: &str, hidden: bool) -> io::Result<String> {
    let mut names = Vec::new();
    let mut is_cut = false;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || (!hidden && name.starts_with(b".")) {
            continue;
        }
        if names.len() == NAMES_MAX {
            is_cut = true;
            break;
        }
        let is_file = entry.file_type() != FileType::Directory;
        names.push((is_file, name.to_vec()));
    }
    names.sort_unstable();
    let title = percent_decode_str(path).decode_utf8_lossy();
    let title = escape(&title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n<ul>\n"
    );
    for (is_file, name) in &names {
        let slash = if *is_file { "" } else { "/" };
        let link = percent_encode(name, ENCODED);
        let name = String::from_utf8_lossy(name);
        let name = escape(&name);
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "<li><a href=\"./{link}{slash}\">{name}{slash}</a></li>"
        );
    }
    page.push_str("</ul>\n");
    if is_cut {
        let _ = writeln!(page, "<p>There are more than {NAMES_MAX} names.</p>");
    }
    Ok(page)
}

/// Text as HTML shows it.
fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_page_shows_names_as_they_are_and_links_them_so_that_they_are_found() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["<b>&\"'.txt", "a:b", "\u{fc} %2f", ".hidden"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        fs::write(directory.path().join(OsStr::from_bytes(b"\xff")), "").unwrap();
        fs::create_dir(directory.path().join("sub")).unwrap();
        let open = File::open(directory.path()).unwrap();
        let shown = page(&open, "/%3Cx%3E/", false).unwrap();
        let list = shown.split_once("<ul>\n").unwrap().1;
        assert_eq!(
            list,
            "<li><a href=\"./sub/\">sub/</a></li>\n\
             <li><a href=\"./%3Cb%3E%26%22%27.txt\">&lt;b&gt;&amp;&quot;&#39;.txt</a></li>\n\
             <li><a href=\"./a%3Ab\">a:b</a></li>\n\
             <li><a href=\"./%C3%BC%20%252f\">\u{fc} %2f</a></li>\n\
             <li><a href=\"./%FF\">\u{fffd}</a></li>\n\
             </ul>\n"
        );
        assert!(shown.contains("<title>/&lt;x&gt;/</title>"));
        assert!(page(&open, "/", true).unwrap().contains(".hidden"));
    }
}
