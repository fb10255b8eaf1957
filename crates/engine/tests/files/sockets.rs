//! What clients of every pace see.

use crate::server::{Client, Site, contents};
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::os::unix::net::UnixStream;

const LARGE: usize = 48 << 20;

#[test]
fn a_large_file_and_what_was_asked_behind_it_come_in_order() {
    let site = Site::start(|root| {
        fs::write(root.join("large"), contents(LARGE)).unwrap();
        fs::write(root.join("small"), "small").unwrap();
    });
    let mut client = site.connect();
    client.ask("GET", "/large", "");
    client.ask("HEAD", "/large", "");
    client.ask("GET", "/small", "");
    let head = client.head();
    assert_eq!((head.status, head.length()), (200, LARGE));
    assert_eq!(head.field("X-Own"), Some("yes"));
    assert!(client.bytes(LARGE) == contents(LARGE));
    let head = client.head();
    assert_eq!((head.status, head.length()), (200, LARGE));
    let head = client.head();
    assert_eq!((head.status, head.length()), (200, 5));
    assert_eq!(client.text(5), "small");
}

#[test]
fn a_reader_that_stalls_holds_up_nobody_else() {
    let site = Site::start(|root| {
        fs::write(root.join("large"), contents(LARGE)).unwrap();
        fs::write(root.join("small"), "small").unwrap();
    });
    let mut slow = site.connect_narrow();
    slow.ask("GET", "/large", "");
    slow.head();
    for _ in 0..100 {
        let mut quick = site.connect();
        quick.ask("GET", "/small", "");
        quick.head();
        assert_eq!(quick.text(5), "small");
    }
    assert!(slow.bytes(LARGE) == contents(LARGE));
}

#[test]
fn a_file_that_shrinks_ends_the_connection_short() {
    let site = Site::start(|root| fs::write(root.join("large"), contents(LARGE)).unwrap());
    let mut client = site.connect_narrow();
    client.ask("GET", "/large", "");
    assert_eq!(client.head().length(), LARGE);
    let shrunk = File::options()
        .write(true)
        .open(site.path("large"))
        .unwrap();
    shrunk.set_len(10).unwrap();
    let mut seen = Vec::new();
    // In order or by a reset: what matters is that it ends, and short.
    let _ = client.0.read_to_end(&mut seen);
    assert!(seen.len() < LARGE);
    let mut client = site.connect();
    client.ask("GET", "/large", "");
    assert_eq!(client.head().length(), 10, "the server goes on");
}

#[test]
fn several_large_ranges_come_as_parts_and_the_connection_stays() {
    let site = Site::start(|root| fs::write(root.join("large"), contents(LARGE)).unwrap());
    let mut client = site.connect();
    client.ask(
        "GET",
        "/large",
        "Range: bytes=5000000-9999999, 100-299, -7000000\r\n",
    );
    let head = client.head();
    assert_eq!(head.status, 206);
    assert_eq!(head.field("Transfer-Encoding"), None);
    let content_type = head.field("Content-Type").unwrap();
    let boundary = content_type.split_once("boundary=").unwrap().1.to_owned();
    let body = client.bytes(head.length());
    let whole = contents(LARGE);
    let mut rest = &body[..];
    let last = LARGE - 7_000_000;
    for (first, length) in [(5_000_000, 5_000_000), (100, 200), (last, 7_000_000)] {
        let line_end = if first == 5_000_000 { "" } else { "\r\n" };
        let head = format!(
            "{line_end}--{boundary}\r\nContent-Type: application/octet-stream\r\n\
             Content-Range: bytes {first}-{}/{LARGE}\r\n\r\n",
            first + length - 1
        );
        rest = rest.strip_prefix(head.as_bytes()).unwrap();
        assert!(rest[..length] == whole[first..first + length]);
        rest = &rest[length..];
    }
    assert_eq!(rest, format!("\r\n--{boundary}--\r\n").as_bytes());
    client.ask("GET", "/large", "Range: bytes=0-0\r\n");
    assert_eq!(
        client.head().field("Content-Range"),
        Some("bytes 0-0/50331648")
    );
}

#[test]
fn a_client_that_leaves_lets_go_of_the_file() {
    let site = Site::start(|root| fs::write(root.join("large"), contents(LARGE)).unwrap());
    let held = || {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let files = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        files.filter(|file| *file == site.path("large")).count()
    };
    let mut client = site.connect_narrow();
    client.ask("GET", "/large", "");
    client.head();
    assert_eq!(held(), 1);
    drop(client);
    // Each answer to another client is a turn, and one of the next tells of the first one.
    let mut other = site.connect();
    let seen = (0..1000).any(|_| {
        other.ask("HEAD", "/none", "");
        other.head();
        held() == 0
    });
    assert!(seen, "the descriptor is still open");
}

#[test]
fn files_are_served_over_a_unix_socket() {
    let site = Site::start(|root| fs::write(root.join("large"), contents(LARGE)).unwrap());
    let mut client = Client(BufReader::new(UnixStream::connect(site.socket()).unwrap()));
    client.ask("GET", "/large", "");
    let head = client.head();
    assert_eq!(head.length(), LARGE);
    assert!(client.bytes(LARGE) == contents(LARGE));
}

#[test]
fn statuses_without_a_file_leave_the_connection_as_it_was() {
    let site = Site::start(|root| fs::create_dir(root.join("sub")).unwrap());
    let mut client = site.connect();
    for (method, target, status) in [
        ("GET", "/none", 404),
        ("HEAD", "/none", 404),
        ("POST", "/none", 405),
        ("GET", "/%zz", 400),
        ("GET", "/sub", 301),
        ("GET", "/../none", 404),
    ] {
        client.ask(method, target, "");
        let head = client.head();
        assert_eq!(head.status, status, "{method} {target}");
        if method != "HEAD" {
            client.bytes(head.length());
        }
    }
}
