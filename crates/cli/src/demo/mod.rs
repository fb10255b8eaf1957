//! The demonstration: a page that sets a key and polls it, and the application behind it.
//!
//! The page shows in one window that a write on one side answers the poll that is held on the
//! other. [`run_once`] lets thousands of clients wait, on servers that are processes of their own.

mod crowd;
mod lane;
mod measure;
mod once;
mod part;
mod room;
mod show;
mod transport;
mod wave;

use dwell_edge::config::FlagValue;
use dwell_edge::{Page, Pages};
pub(crate) use part::PartName;
use room::Room;
use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use transport::{KEY, Transport};

/// The page and its application.
#[derive(Clone, Debug)]
pub(crate) struct Demo {
    page: String,
}

impl Demo {
    /// Makes the page; its commands contain the address of the store.
    pub(crate) fn new(store: SocketAddr) -> Self {
        // An unspecified address cannot be connected to.
        let host = match store.ip() {
            ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            ip => ip,
        };
        let page = PAGE
            .replace(
                "{{STORE_ADDRESS}}",
                &SocketAddr::new(host, store.port()).to_string(),
            )
            .replace("{{STORE_HOST}}", &host.to_string())
            .replace("{{STORE_PORT}}", &store.port().to_string());
        Self { page }
    }
}

impl Pages for Demo {
    /// GET `/` is the page; POST `/demo/set` sets the key to the body, of at most 4 KiB.
    fn respond<'a>(&'a self, method: &str, path: &str, body: &'a [u8]) -> Option<Page<'a>> {
        let answer = match (method, path) {
            ("GET" | "HEAD", "/") => Page {
                status: 200,
                content_type: "text/html; charset=utf-8",
                body: Cow::Borrowed(self.page.as_bytes()),
                set: None,
            },
            ("POST", "/demo/set") if body.len() <= VALUE_BYTES_MAX => Page {
                set: Some((KEY, body)),
                ..text(200, "STORED\n".to_owned())
            },
            ("POST", "/demo/set") => text(
                413,
                format!("value exceeds {VALUE_BYTES_MAX} bytes: {}\n", body.len()),
            ),
            (_, "/" | "/demo/set") => text(405, format!("{path} does not answer {method}\n")),
            _ => return None,
        };
        Some(answer)
    }
}

/// Runs `dwell demo --once`. Returns the text to print, and false if a client was not answered.
///
/// # Errors
/// The reason why the demonstration could not be run.
pub(crate) fn run_once(clients: usize, is_json: bool) -> Result<(String, bool), String> {
    let granted = Room::measure().grant(clients);
    if granted.clients == 0 {
        let limit = granted.limit.unwrap_or_else(|| "none is wanted".to_owned());
        return Err(format!("no clients can be started: {limit}"));
    }
    let run = once::run(granted).map_err(|fault| fault.to_string())?;
    let text = if is_json {
        format!("{}\n", run.document)
    } else {
        once::table(&run.document)
    };
    Ok((text, run.is_complete))
}

/// Runs the clients of one transport, in a process that the demonstration has started.
///
/// # Errors
/// The reason why they could not go on.
pub(crate) fn run_clients(transport: Transport, server: SocketAddr) -> Result<(), String> {
    crowd::run(transport, server)
}

/// Ends the process, a server that the demonstration has started, when its parent ends.
///
/// # Errors
/// When the system has no thread left.
pub(crate) fn end_with_parent() -> io::Result<()> {
    part::obey_parent(|_| {})
}

/// The options of a server of the demonstration: the defaults, but for ports of the system's
/// choice and a single loop.
pub(crate) fn server_flags() -> Vec<FlagValue> {
    let flag = |(option, value): (&str, &str)| FlagValue {
        flag: "--part".to_owned(),
        option: option.to_owned(),
        values: vec![value.to_owned()],
    };
    SERVER_OPTIONS.into_iter().map(flag).collect()
}

const SERVER_OPTIONS: [(&str, &str); 6] = [
    ("server.listen", "127.0.0.1:0"),
    ("server.admin", "off"),
    ("server.pollers", "1"),
    ("store.listen", "127.0.0.1:0"),
    ("store.connections_max", "16"),
    ("log.format", "json"),
];

fn text(status: u16, text: String) -> Page<'static> {
    Page {
        status,
        content_type: "text/plain; charset=utf-8",
        body: Cow::Owned(text.into_bytes()),
        set: None,
    }
}

const PAGE: &str = include_str!("index.html");

const VALUE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn demo(store: &str) -> Demo {
        Demo::new(store.parse().expect("an address"))
    }

    #[test]
    fn the_page_names_the_store() {
        let demo = demo("127.0.0.1:11311");
        let answer = demo.respond("GET", "/", b"").expect("the page");
        assert_eq!((answer.status, answer.set), (200, None));
        let page = std::str::from_utf8(&answer.body).expect("the page is text");
        assert!(page.contains("nc 127.0.0.1 11311"));
        assert!(page.contains("Client(&#39;127.0.0.1:11311&#39;)"));
        assert!(!page.contains("{{"), "a placeholder is left");
        assert_eq!(demo.respond("HEAD", "/", b""), Some(answer));
    }

    #[test]
    fn a_store_on_every_address_is_reached_on_the_loopback_one() {
        let demo = demo("0.0.0.0:11211");
        let answer = demo.respond("GET", "/", b"").expect("the page");
        assert!(String::from_utf8_lossy(&answer.body).contains("nc 127.0.0.1 11211"));
    }

    #[test]
    fn a_write_sets_the_key_to_the_body() {
        let demo = demo("127.0.0.1:11211");
        for body in [&b"hello"[..], b"", &[0xff; VALUE_BYTES_MAX]] {
            let answer = demo.respond("POST", "/demo/set", body).expect("the app");
            assert_eq!((answer.status, answer.set), (200, Some((KEY, body))));
        }
        let answer = demo.respond("POST", "/demo/set", &[b'x'; VALUE_BYTES_MAX + 1]);
        let answer = answer.expect("the app");
        assert_eq!((answer.status, answer.set), (413, None));
        assert_eq!(&*answer.body, b"value exceeds 4096 bytes: 4097\n");
    }

    #[test]
    fn other_requests_are_not_the_demonstrations() {
        let demo = demo("127.0.0.1:11211");
        assert_eq!(demo.respond("GET", KEY, b""), None);
        assert_eq!(demo.respond("POST", "/demo", b""), None);
        let status = |method, path| demo.respond(method, path, b"").map(|answer| answer.status);
        assert_eq!(status("GET", "/demo/set"), Some(405));
        assert_eq!(status("POST", "/"), Some(405));
    }

    #[test]
    fn the_page_is_small_and_fetches_nothing_from_elsewhere() {
        assert!(PAGE.len() < 20_000, "{}", PAGE.len());
        for part in [
            "http://",
            "https://",
            "//cdn",
            "@import",
            "<script src",
            "<link rel=\"style",
        ] {
            assert!(!PAGE.contains(part), "the page has `{part}`");
        }
        assert!(PAGE.contains(KEY));
    }
}
