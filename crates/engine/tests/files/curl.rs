//! What a person types.

use crate::server::{Site, contents};
use std::fs;
use std::path::Path;
use std::process::Command;

const SIZE: usize = 300_000;

fn site() -> Site {
    Site::start(|root| {
        fs::write(root.join("data"), contents(SIZE)).unwrap();
        fs::write(root.join("page.html"), "<p>hello").unwrap();
        // `<p>hello` as gzip writes it, without a name and a time.
        let compressed = [
            31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 179, 41, 176, 203, 72, 205, 201, 201, 7, 0, 54, 126,
            106, 149, 8, 0, 0, 0,
        ];
        fs::write(root.join("page.html.gz"), compressed).unwrap();
    })
}

/// Runs curl and returns what it wrote.
fn curl(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20"])
        .args(arguments)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {arguments:?}: {error}");
    output.stdout
}

fn code(arguments: &[&str]) -> String {
    let quiet = ["--output", "/dev/null", "--write-out", "%{http_code}"];
    String::from_utf8(curl(&[&quiet, arguments].concat())).unwrap()
}

#[test]
fn a_broken_download_is_taken_up_again() {
    let site = site();
    let part = site.directory.path().join("part");
    fs::write(&part, &contents(SIZE)[..123_456]).unwrap();
    let url = format!("http://{}/data", site.address);
    curl(&[
        "--continue-at",
        "-",
        "--output",
        part.to_str().unwrap(),
        &url,
    ]);
    assert!(fs::read(&part).unwrap() == contents(SIZE));
}

#[test]
fn ranges_are_what_was_asked_for() {
    let site = site();
    let url = format!("http://{}/data", site.address);
    let whole = contents(SIZE);
    assert!(curl(&["--range", "100-199", &url]) == whole[100..200]);
    assert!(curl(&["--range", "-70000", &url]) == whole[SIZE - 70_000..]);
    let several = curl(&["--range", "0-99999,200000-", &url]);
    assert!(several.windows(4).any(|bytes| bytes == b"\r\n\r\n"));
    assert!(several.len() > 200_000);
    assert_eq!(code(&["--range", "300000-", &url]), "416");
    assert_eq!(code(&["--range", "0-0", &url]), "206");
}

#[test]
fn what_has_not_changed_is_not_sent_again() {
    let site = site();
    let url = format!("http://{}/data", site.address);
    let (tag, copy) = (
        site.directory.path().join("tag"),
        site.directory.path().join("copy"),
    );
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    curl(&["--etag-save", &path(&tag), "--output", &path(&copy), &url]);
    assert_eq!(code(&["--etag-compare", &path(&tag), &url]), "304");
    assert_eq!(code(&["--time-cond", &path(&copy), &url]), "304");
    assert_eq!(code(&["--time-cond", "-19941106 08:49:37", &url]), "412");
}

#[test]
fn a_prepared_coding_is_undone_by_the_client() {
    let site = site();
    let url = format!("http://{}/page.html", site.address);
    let shown = curl(&["--compressed", "--include", &url]);
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("Content-Encoding: gzip\r\n"), "{shown}");
    assert!(shown.ends_with("<p>hello"), "{shown}");
    assert_eq!(curl(&[&url]), b"<p>hello");
}

#[test]
fn no_spelling_of_a_path_leaves_the_directory() {
    let site = site();
    fs::write(site.directory.path().join("secret"), "secret").unwrap();
    for path in [
        "../secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "x/../../secret",
        "/etc/passwd",
    ] {
        let url = format!("http://{}/{path}", site.address);
        assert_eq!(code(&["--path-as-is", &url]), "404", "{path}");
    }
}

#[test]
fn a_unix_socket_serves_the_same() {
    let site = site();
    let socket = site.socket();
    let whole = curl(&[
        "--unix-socket",
        socket.to_str().unwrap(),
        "http://localhost/data",
    ]);
    assert!(whole == contents(SIZE));
}
