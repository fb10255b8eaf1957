use super::*;
use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
use proptest::prelude::*;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

const MODIFIED: u64 = 784_111_777;
const MODIFIED_DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const LATER_DATE: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
const EARLIER_DATE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

/// A directory of files that have not changed for long.
struct Site {
    directory: TempDir,
    options: DirectoryOptions,
    /// How long after their change the files are asked for.
    age: Duration,
}

impl Site {
    fn new() -> Self {
        let site = Self {
            directory: tempfile::tempdir().unwrap(),
            options: DirectoryOptions::default(),
            age: Duration::from_secs(60),
        };
        site.put("hello.txt", b"0123456789");
        site
    }

    fn put(&self, name: &str, contents: &[u8]) {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(MODIFIED))
            .unwrap();
    }

    fn ask(&self, method: &str, target: &str, lines: &[&str]) -> FileAnswer {
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n");
        for line in lines {
            request.push_str(line);
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        let mut storage = FieldStorage::new();
        let limits = HeadLimits::default();
        let head = parse_request(request.as_bytes(), &mut storage, &limits).unwrap();
        let wall = UNIX_EPOCH + Duration::from_secs(MODIFIED) + self.age;
        serve_dir(&head, self.directory.path(), &self.options, wall)
    }

    fn get(&self, target: &str, lines: &[&str]) -> FileAnswer {
        self.ask("GET", target, lines)
    }

    fn status(&self, lines: &[&str]) -> u16 {
        self.get("/hello.txt", lines).status
    }
}

/// All bytes of a body, as they would be sent.
fn bytes(body: &FileBody) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let slice = |slice: &dwell_evloop::FileSlice| {
        let mut bytes = vec![0; slice.length as usize];
        slice.file.read_exact_at(&mut bytes, slice.offset).unwrap();
        bytes
    };
    match body {
        FileBody::Empty | FileBody::Absent(_) => Vec::new(),
        FileBody::Memory(bytes) => bytes.clone(),
        FileBody::File(file) => slice(file),
        FileBody::Parts(parts) => {
            let mut all = Vec::new();
            for (head, part) in &parts.parts {
                all.extend_from_slice(head);
                all.extend(slice(part));
            }
            all.extend_from_slice(&parts.end);
            all
        }
    }
}

fn text(answer: &FileAnswer) -> String {
    let bytes = bytes(&answer.body);
    assert!(
        matches!(answer.body, FileBody::Absent(_)) || answer.body.length() == bytes.len() as u64
    );
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_file_comes_whole_with_what_is_told_of_it() {
    let answer = Site::new().get("/hello.txt", &[]);
    assert_eq!(answer.status, 200);
    assert_eq!(text(&answer), "0123456789");
    let fields: Vec<_> = answer
        .fields
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    assert_eq!(
        fields,
        [
            ("ETag", "\"ae1b981bc490a00-a\""),
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Last-Modified", MODIFIED_DATE),
            ("Accept-Ranges", "bytes"),
        ]
    );
    assert!(answer.error.is_none());
}

#[test]
fn head_gets_the_size_and_no_range() {
    let answer = Site::new().ask("HEAD", "/hello.txt", &["Range: bytes=0-1"]);
    assert_eq!(answer.status, 200);
    assert!(matches!(answer.body, FileBody::Absent(10)));
    assert_eq!(answer.field("content-range"), None);
}

#[test]
fn another_method_is_not_allowed() {
    for method in ["POST", "PUT", "DELETE", "get"] {
        let answer = Site::new().ask(method, "/hello.txt", &[]);
        assert_eq!(answer.status, 405);
        assert_eq!(answer.field("Allow"), Some("GET, HEAD"));
        assert_eq!(text(&answer), "Method Not Allowed\n");
    }
}

#[test]
fn what_is_not_a_readable_file_is_told_by_its_status() {
    let mut site = Site::new();
    site.put(".env", b"secret");
    site.put("sub/a", b"");
    symlink("/etc/passwd", site.directory.path().join("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        site.directory.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let long = format!("/{}", "a".repeat(300));
    for target in [
        "/none",
        "/hello.txt/",
        "/hello.txt/a",
        "/.env",
        "/link",
        "/pipe",
        "/sub/",
        "/",
        &long,
        "/%2e%2e/x",
        "/sub%2fa",
    ] {
        let answer = site.get(target, &[]);
        assert_eq!(answer.status, 404, "{target}");
        assert!(
            matches!(answer.error, Some(FileError::NotFound)),
            "{target}"
        );
    }
    assert_eq!(site.get("/a%00", &[]).status, 400);
    site.options.hidden = true;
    assert_eq!(site.get("/.env", &[]).status, 200);
    fs::remove_dir_all(site.directory.path()).unwrap();
    let answer = site.get("/hello.txt", &[]);
    assert_eq!(answer.status, 500);
    assert_eq!(text(&answer), "Internal Server Error\n");
    assert!(matches!(answer.error, Some(FileError::Root(_))));
}

#[test]
fn a_directory_leads_to_its_index_by_way_of_its_slash() {
    let mut site = Site::new();
    site.put("a:b/index.html", b"<p>index");
    let answer = site.get("/a:b?x=1", &[]);
    assert_eq!(answer.status, 301);
    assert_eq!(answer.field("Location"), Some("./a:b/?x=1"));
    let answer = site.get("/a:b/", &[]);
    assert_eq!(
        answer.field("Content-Type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(text(&answer), "<p>index");
    site.options.index = vec!["none".into(), "hello.txt".into()];
    assert_eq!(text(&site.get("/", &[])), "0123456789");
    site.options.prefix = "/static".into();
    assert_eq!(
        site.get("/static", &[]).field("Location"),
        Some("./static/")
    );
    assert_eq!(text(&site.get("/static/", &[])), "0123456789");
    assert_eq!(site.get("/hello.txt", &[]).status, 404);
}

#[test]
fn a_directory_is_listed_only_where_that_is_asked_for() {
    let mut site = Site::new();
    site.options.listing = true;
    let answer = site.get("/", &[]);
    assert_eq!(answer.status, 200);
    assert!(text(&answer).contains("<a href=\"./hello.txt\">hello.txt</a>"));
    assert_eq!(site.get("/none/", &[]).status, 404);
    assert_eq!(site.get("/hello.txt/", &[]).status, 404);
}

#[test]
fn an_entity_tag_decides_what_the_client_has() {
    let site = Site::new();
    let answer = site.get("/hello.txt", &[]);
    let tag = answer.field("ETag").unwrap();
    let none_match = |value: &str| site.get("/hello.txt", &[&format!("If-None-Match: {value}")]);
    for value in [tag, "*", &format!("W/{tag}"), &format!("\"x\", {tag}")] {
        let answer = none_match(value);
        assert_eq!(answer.status, 304, "{value}");
        assert!(matches!(answer.body, FileBody::Empty));
        assert_eq!(answer.fields.len(), 1);
        assert_eq!(answer.field("ETag"), Some(tag));
    }
    for value in ["\"x\"", "x", tag.trim_matches('"')] {
        assert_eq!(none_match(value).status, 200, "{value}");
    }
    assert_eq!(
        site.ask("HEAD", "/hello.txt", &[&format!("If-None-Match: {tag}")])
            .status,
        304
    );
    let matches = |value: &str| site.status(&[&format!("If-Match: {value}")]);
    assert_eq!(matches(tag), 200);
    assert_eq!(matches("*"), 200);
    assert_eq!(matches(&format!("W/{tag}")), 412);
    assert_eq!(matches("\"x\""), 412);
}

#[test]
fn a_date_decides_where_no_entity_tag_does() {
    let site = Site::new();
    let since = |name: &str, date: &str| site.status(&[&format!("{name}: {date}")]);
    assert_eq!(since("If-Modified-Since", MODIFIED_DATE), 304);
    assert_eq!(since("If-Modified-Since", LATER_DATE), 304);
    assert_eq!(since("If-Modified-Since", EARLIER_DATE), 200);
    assert_eq!(since("If-Modified-Since", "yesterday"), 200);
    assert_eq!(since("If-Unmodified-Since", MODIFIED_DATE), 200);
    assert_eq!(since("If-Unmodified-Since", EARLIER_DATE), 412);
    assert_eq!(since("If-Unmodified-Since", "tomorrow"), 200);
    let both = |tag: &str, date: &str| {
        site.status(&[
            &format!("If-None-Match: {tag}"),
            &format!("If-Modified-Since: {date}"),
        ])
    };
    assert_eq!(both("\"x\"", MODIFIED_DATE), 200);
    assert_eq!(both("*", EARLIER_DATE), 304);
}

#[test]
fn one_range_comes_alone() {
    let site = Site::new();
    for (asked, told, sent) in [
        ("0-0", "bytes 0-0/10", "0"),
        ("3-5", "bytes 3-5/10", "345"),
        ("8-", "bytes 8-9/10", "89"),
        ("-3", "bytes 7-9/10", "789"),
        ("20-30,4-4", "bytes 4-4/10", "4"),
    ] {
        let answer = site.get("/hello.txt", &[&format!("Range: bytes={asked}")]);
        assert_eq!(answer.status, 206, "{asked}");
        assert_eq!(answer.field("Content-Range"), Some(told));
        assert_eq!(text(&answer), sent);
    }
    let answer = site.get("/hello.txt", &["Range: bytes=10-"]);
    assert_eq!(answer.status, 416);
    assert_eq!(answer.field("Content-Range"), Some("bytes */10"));
    assert_eq!(site.status(&["Range: bytes=5-2"]), 200);
    assert_eq!(site.status(&["Range: bytes=1-2", "Range: bytes=3-4"]), 200);
}

#[test]
fn several_ranges_come_as_the_parts_of_one_body() {
    let mut site = Site::new();
    let get = |site: &Site| site.get("/hello.txt", &["Range: bytes=0-1, -2, 5-5"]);
    let in_memory = get(&site);
    assert!(matches!(in_memory.body, FileBody::Memory(_)));
    site.options.file.read_bytes_max = 4;
    let by_slices = get(&site);
    assert!(matches!(by_slices.body, FileBody::Parts(_)));
    for answer in [in_memory, by_slices] {
        assert_eq!(answer.status, 206);
        assert_eq!(answer.field("Content-Range"), None);
        let content_type = answer.field("Content-Type").unwrap();
        let boundary = content_type
            .strip_prefix("multipart/byteranges; boundary=")
            .unwrap();
        let head = format!("--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n");
        assert_eq!(
            text(&answer),
            format!(
                "{head}Content-Range: bytes 0-1/10\r\n\r\n01\r\n\
                 {head}Content-Range: bytes 8-9/10\r\n\r\n89\r\n\
                 {head}Content-Range: bytes 5-5/10\r\n\r\n5\r\n--{boundary}--\r\n"
            )
        );
    }
    site.options.file.ranges_max = 2;
    assert_eq!(get(&site).status, 200);
}

#[test]
fn a_range_of_what_has_changed_gets_everything() {
    let mut site = Site::new();
    let answer = site.get("/hello.txt", &[]);
    let tag = answer.field("ETag").unwrap();
    let range_if = |site: &Site, value: &str| {
        site.status(&["Range: bytes=0-1", &format!("If-Range: {value}")])
    };
    assert_eq!(range_if(&site, tag), 206);
    assert_eq!(range_if(&site, MODIFIED_DATE), 206);
    for value in [
        &format!("W/{tag}"),
        "\"x\"",
        LATER_DATE,
        EARLIER_DATE,
        "x",
        "*",
    ] {
        assert_eq!(range_if(&site, value), 200, "{value}");
    }
    // A file that has just changed may change again within the same second.
    site.age = Duration::from_secs(1);
    let answer = site.get("/hello.txt", &[]);
    assert_eq!(answer.field("ETag").unwrap(), format!("W/{tag}"));
    assert_eq!(range_if(&site, tag), 200);
    assert_eq!(range_if(&site, MODIFIED_DATE), 200);
}

#[test]
fn a_prepared_coding_is_sent_to_who_takes_it() {
    let mut site = Site::new();
    site.put("hello.txt.br", b"brotli");
    site.put("hello.txt.gz", b"gzip!");
    let get = |site: &Site, accept: &str| {
        site.get("/hello.txt", &[&format!("Accept-Encoding: {accept}")])
    };
    let answer = get(&site, "br");
    assert_eq!(
        (answer.field("Content-Encoding"), answer.field("Vary")),
        (None, None)
    );
    site.options.file.precompressed = true;
    for (accept, coding, sent) in [
        ("gzip, br", Some("br"), "brotli"),
        ("gzip, zstd", Some("gzip"), "gzip!"),
        ("zstd", None, "0123456789"),
        ("identity", None, "0123456789"),
    ] {
        let answer = get(&site, accept);
        assert_eq!(answer.field("Content-Encoding"), coding, "{accept}");
        assert_eq!(answer.field("Vary"), Some("Accept-Encoding"));
        assert_eq!(
            answer.field("Content-Type"),
            Some("text/plain; charset=utf-8")
        );
        assert_eq!(text(&answer), sent);
    }
    let tags = ["br", "gzip", "identity"].map(|accept| get(&site, accept).fields[0].1.clone());
    assert!(
        tags[0].ends_with("-br\"") && tags[1].ends_with("-gzip\""),
        "{tags:?}"
    );
    assert_eq!(
        text(&site.get("/hello.txt", &["Accept-Encoding: br", "Range: bytes=2-3"])),
        "ot"
    );
}

#[test]
fn options_of_presentation_are_told() {
    let mut site = Site::new();
    site.put("data.unknown", b"x");
    let get = |site: &Site, name: &str| {
        let answer = site.get(name, &[]);
        answer.field("Content-Type").unwrap().to_owned()
    };
    assert_eq!(get(&site, "/data.unknown"), "application/octet-stream");
    site.options.file.content_type = Some("text/x-own".into());
    site.options.file.cache_control = Some("max-age=60".into());
    assert_eq!(get(&site, "/data.unknown"), "text/x-own");
    let answer = site.get("/data.unknown", &["If-None-Match: *"]);
    assert_eq!(answer.status, 304);
    assert_eq!(answer.field("Cache-Control"), Some("max-age=60"));
}

#[test]
fn a_file_of_a_reproducible_build_has_no_validators() {
    let site = Site::new();
    let path = site.directory.path().join("hello.txt");
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1))
        .unwrap();
    let answer = site.get(
        "/hello.txt",
        &["If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"],
    );
    assert_eq!(answer.status, 200);
    assert_eq!(
        (answer.field("ETag"), answer.field("Last-Modified")),
        (None, None)
    );
    assert_eq!(site.status(&["If-None-Match: *"]), 304);
    assert_eq!(site.status(&["If-Match: \"a\""]), 412);
    assert_eq!(site.status(&["Range: bytes=0-1", "If-Range: \"a\""]), 200);
    assert_eq!(site.status(&["Range: bytes=0-1"]), 206);
}

#[test]
fn a_file_that_the_program_names_may_lie_anywhere() {
    let site = Site::new();
    let link = site.directory.path().join("link");
    symlink(site.directory.path().join("hello.txt"), &link).unwrap();
    let request = b"GET /whatever HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut storage = FieldStorage::new();
    let head = parse_request(request, &mut storage, &HeadLimits::default()).unwrap();
    let serve = |path: &Path| serve_file(&head, path, &FileOptions::default(), SystemTime::now());
    assert_eq!(text(&serve(&link)), "0123456789");
    assert_eq!(serve(&link.with_file_name("none")).status, 404);
    assert_eq!(serve(site.directory.path()).status, 404);
}

#[test]
fn a_large_file_is_not_read() {
    let site = Site::new();
    site.put("large", &vec![b'x'; 64 * 1024 + 1]);
    let answer = site.get("/large", &[]);
    let FileBody::File(slice) = &answer.body else {
        panic!("{answer:?}");
    };
    assert_eq!((slice.offset, slice.length), (0, 64 * 1024 + 1));
    let answer = site.get("/large", &["Range: bytes=-10"]);
    assert!(matches!(answer.body, FileBody::Memory(bytes) if bytes == [b'x'; 10]));
}

proptest! {
    #[test]
    fn any_request_gets_an_answer_that_fits_its_body(
        name in prop_oneof![Just("hello.txt".to_owned()), "[hx.%/~0-9-]{0,12}"],
        range in "[-0-9, ]{0,12}",
        lines in prop::collection::vec(
            (
                prop_oneof![
                    Just("If-Match"), Just("If-None-Match"), Just("If-Range"),
                    Just("If-Modified-Since"), Just("If-Unmodified-Since"),
                    Just("Accept-Encoding"), Just("Range"),
                ],
                "[ -~]{0,20}",
            ),
            0..4,
        ),
    ) {
        let mut site = Site::new();
        site.options.file.precompressed = true;
        let lines = lines.iter().map(|(name, value)| format!("{name}: {value}"));
        let mut fields: Vec<_> = lines.collect();
        fields.push(format!("Range: bytes={range}"));
        let fields: Vec<_> = fields.iter().map(|line| &**line).collect();
        let answer = site.get(&format!("/{name}"), &fields);
        prop_assert!(matches!(answer.status, 200 | 206 | 304 | 400 | 404 | 412 | 416));
        prop_assert_eq!(answer.body.length(), bytes(&answer.body).len() as u64);
    }
}
