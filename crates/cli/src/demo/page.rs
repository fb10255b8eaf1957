//! The page, and the requests that it sends.

use super::director::{FIGURES_KEY, Orders};
use super::gate::{Action, Refusal};
use super::room::CLIENTS_MAX;
use super::transport::KEY;
use dwell_edge::{MakePages, Page, PageRequest, Pages};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Makes the page of each loop; without `orders` it is that without clients.
#[derive(Debug)]
pub(super) struct Maker {
    pub(super) orders: Option<Orders>,
    /// Requests under any name of the host are served.
    pub(super) is_remote: bool,
}

impl MakePages for Maker {
    fn make(&self, store: SocketAddr) -> Box<dyn Pages> {
        let store = reachable(store);
        if let Some(orders) = &self.orders {
            // Each loop sends the same address, of which the first is enough.
            orders.store(store);
        }
        Box::new(Demo {
            is_remote: self.is_remote,
            ..Demo::new(store, self.orders.clone())
        })
    }
}

/// The address of a listener for connections from this machine: an unspecified address cannot be
/// connected to.
fn reachable(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(host, address.port())
}

/// The page and its application.
#[derive(Clone, Debug)]
struct Demo {
    page: String,
    orders: Option<Orders>,
    is_remote: bool,
}

impl Demo {
    /// Makes the page; its commands contain the address of the store.
    fn new(store: SocketAddr, orders: Option<Orders>) -> Self {
        let page = match &orders {
            Some(_) => CLIENTS_PAGE,
            None => PAGE,
        };
        let page = page
            .replace("{{HEAD}}", HEAD)
            .replace("{{STYLE}}", STYLE)
            .replace("{{KEY}}", KEY)
            .replace("{{FIGURES_KEY}}", FIGURES_KEY)
            .replace("{{ELSEWHERE}}", ELSEWHERE.trim_end())
            .replace("{{STORE_ADDRESS}}", &store.to_string())
            .replace("{{STORE_HOST}}", &store.ip().to_string())
            .replace("{{STORE_PORT}}", &store.port().to_string());
        Self {
            page,
            orders,
            is_remote: false,
        }
    }

    /// Sets the key to the body.
    fn set<'a>(&self, value: &'a [u8]) -> Page<'a> {
        if value.len() > VALUE_BYTES_MAX {
            let length = value.len();
            return text(
                413,
                format!("value exceeds {VALUE_BYTES_MAX} bytes: {length}\n"),
            );
        }
        if let Some(orders) = &self.orders {
            // The thread looks at the key now and then, with and without this.
            orders.look();
        }
        Page {
            set: Some((KEY, value)),
            ..text(200, "STORED\n".to_owned())
        }
    }

    /// Has as many clients started as the body says, or as fit, or those there are ended.
    fn clients(orders: &Orders, body: &[u8]) -> Page<'static> {
        let body = String::from_utf8_lossy(body);
        let clients = match body.trim() {
            // The number is cut, and the page gets the reason.
            FIT => Some(usize::MAX),
            number => number.parse().ok().filter(|number| *number <= CLIENTS_MAX),
        };
        match clients {
            Some(clients) => Self::act(orders, Action::Clients(clients)),
            None => text(400, format!("a number from 0 to {CLIENTS_MAX}, or {FIT}\n")),
        }
    }

    /// Has the server of the transport that the body names killed and started again.
    fn kill(orders: &Orders, body: &[u8]) -> Page<'static> {
        let name = String::from_utf8_lossy(body);
        match name.trim().parse() {
            Ok(transport) => Self::act(orders, Action::Kill(transport)),
            Err(_) => text(400, "long-poll, event-stream or websocket\n".to_owned()),
        }
    }

    fn act(orders: &Orders, action: Action) -> Page<'static> {
        let (status, answer) = match orders.act(action) {
            Ok(()) => (202, "ORDERED\n"),
            Err(Refusal::Busy) => (409, "another action is in progress\n"),
            Err(Refusal::NoClients) => (409, "no clients wait\n"),
            Err(Refusal::Unavailable) => (503, "too many orders wait\n"),
        };
        text(status, answer.to_owned())
    }
}

impl Pages for Demo {
    fn has(&self, path: &str) -> bool {
        match path {
            "/" | "/demo/set" => true,
            "/demo/clients" | "/demo/kill" | "/demo/reload" => self.orders.is_some(),
            _ => false,
        }
    }

    /// GET `/` is the page; POST `/demo/set` sets the key to the body, of at most 4 KiB, POST
    /// `/demo/clients` the number of clients. POST `/demo/kill` kills the server of the transport
    /// that the body names, and POST `/demo/reload` has all servers read their configuration again.
    fn respond<'a>(&'a self, request: &PageRequest<'a>) -> Option<Page<'a>> {
        let path = request.path;
        if !self.has(path) {
            return None;
        }
        let changes = !matches!(request.method, "GET" | "HEAD");
        let answer = match (request.method, path, &self.orders) {
            _ if request.is_for_a_name && !self.is_remote => text(
                421,
                "the page is at localhost or an address; --remote allows names\n".to_owned(),
            ),
            _ if changes && request.is_of_another_site => text(
                403,
                "a page of another site may change nothing here\n".to_owned(),
            ),
            ("GET" | "HEAD", "/", _) => Page {
                status: 200,
                content_type: "text/html; charset=utf-8",
                body: Cow::Borrowed(self.page.as_bytes()),
                set: None,
            },
            ("POST", "/demo/set", _) => self.set(request.body),
            ("POST", "/demo/clients", Some(orders)) => Self::clients(orders, request.body),
            ("POST", "/demo/kill", Some(orders)) => Self::kill(orders, request.body),
            ("POST", "/demo/reload", Some(orders)) => Self::act(orders, Action::Reload),
            (method, ..) => text(405, format!("{path} does not answer {method}\n")),
        };
        Some(answer)
    }
}

fn text(status: u16, text: String) -> Page<'static> {
    Page {
        status,
        content_type: "text/plain; charset=utf-8",
        body: Cow::Owned(text.into_bytes()),
        set: None,
    }
}

/// The page with the clients, and the one of a single poll.
const CLIENTS_PAGE: &str = include_str!("clients.html");
const PAGE: &str = include_str!("index.html");

const HEAD: &str = include_str!("head.html");
const STYLE: &str = include_str!("style.css");

/// Figures of other servers, which `bench/targets --write` takes from the newest results.
const ELSEWHERE: &str = include_str!("elsewhere.json");

const VALUE_BYTES_MAX: usize = 4096;

/// The body of a request for as many clients as there is room for.
const FIT: &str = "fit";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::director;
    use crate::demo::gate::Occupation;
    use crate::demo::transport::Transport;
    use serde_json::Value;

    fn demo(store: &str, orders: Option<Orders>) -> Demo {
        Demo::new(store.parse().expect("an address"), orders)
    }

    fn both() -> [Demo; 2] {
        let orders = director::start(1).expect("a thread");
        [None, Some(orders)].map(|orders| demo("127.0.0.1:11311", orders))
    }

    fn request<'a>(method: &'a str, path: &'a str, body: &'a [u8]) -> PageRequest<'a> {
        PageRequest {
            method,
            path,
            body,
            is_of_another_site: false,
            is_for_a_name: false,
        }
    }

    #[test]
    fn the_pages_name_the_store() {
        for (demo, command) in both()
            .iter()
            .zip(["nc 127.0.0.1 11311", "-s 127.0.0.1:11311"])
        {
            let answer = demo.respond(&request("GET", "/", b"")).expect("the page");
            assert_eq!((answer.status, answer.set), (200, None));
            let page = std::str::from_utf8(&answer.body).expect("the page is text");
            assert!(page.contains(command));
            assert!(page.contains(KEY));
            assert!(!page.contains("{{"), "a placeholder is left");
            assert_eq!(demo.respond(&request("HEAD", "/", b"")), Some(answer));
        }
    }

    #[test]
    fn a_store_on_every_address_is_reached_on_the_loopback_one() {
        let anywhere = "0.0.0.0:11211".parse().expect("an address");
        assert_eq!(reachable(anywhere).to_string(), "127.0.0.1:11211");
        let page = Maker {
            orders: None,
            is_remote: false,
        }
        .make(anywhere);
        let answer = page.respond(&request("GET", "/", b"")).expect("the page");
        assert!(String::from_utf8_lossy(&answer.body).contains("nc 127.0.0.1 11211"));
    }

    #[test]
    fn a_write_sets_the_key_to_the_body() {
        for demo in both() {
            for body in [&b"hello"[..], b"", &[0xff; VALUE_BYTES_MAX]] {
                let answer = demo.respond(&request("POST", "/demo/set", body));
                let answer = answer.expect("the app");
                assert_eq!((answer.status, answer.set), (200, Some((KEY, body))));
            }
            let long = [b'x'; VALUE_BYTES_MAX + 1];
            let answer = demo.respond(&request("POST", "/demo/set", &long));
            let answer = answer.expect("the app");
            assert_eq!((answer.status, answer.set), (413, None));
            assert_eq!(&*answer.body, b"value exceeds 4096 bytes: 4097\n");
        }
    }

    /// The status of a POST to a demonstration that is at this, and the action that it orders.
    fn acted(is_at: Occupation, path: &str, body: &str) -> (u16, Option<Action>) {
        let (orders, sent) = director::idle(is_at);
        let demo = demo("127.0.0.1:11311", Some(orders));
        let answer = demo.respond(&request("POST", path, body.as_bytes()));
        let answer = answer.expect("the app");
        assert_eq!(answer.set, None, "{body}");
        (answer.status, director::next_action(&sent))
    }

    #[test]
    fn the_number_of_clients_has_a_bound() {
        let most = CLIENTS_MAX.to_string();
        let beyond = (CLIENTS_MAX + 1).to_string();
        for (body, ordered) in [
            ("0", Some(0)),
            (&*most, Some(CLIENTS_MAX)),
            ("fit", Some(usize::MAX)),
            (&*beyond, None),
            ("-1", None),
            ("many", None),
            ("", None),
        ] {
            let expected = match ordered {
                Some(clients) => (202, Some(Action::Clients(clients))),
                None => (400, None),
            };
            for is_at in [Occupation::Idle, Occupation::Waiting] {
                assert_eq!(acted(is_at, "/demo/clients", body), expected, "{body}");
            }
        }
    }

    #[test]
    fn servers_are_killed_by_name_and_reloaded_together() {
        for (path, body, expected) in [
            (
                "/demo/kill",
                "websocket",
                (202, Some(Action::Kill(Transport::WebSocket))),
            ),
            (
                "/demo/kill",
                "long-poll\n",
                (202, Some(Action::Kill(Transport::LongPoll))),
            ),
            ("/demo/kill", "server", (400, None)),
            ("/demo/kill", "", (400, None)),
            ("/demo/reload", "", (202, Some(Action::Reload))),
        ] {
            assert_eq!(acted(Occupation::Waiting, path, body), expected, "{body}");
        }
    }

    #[test]
    fn an_action_is_refused_while_it_is_not_possible() {
        for (path, body) in [("/demo/kill", "websocket"), ("/demo/reload", "")] {
            for is_at in [Occupation::Idle, Occupation::Busy] {
                assert_eq!(acted(is_at, path, body), (409, None), "{path} {is_at:?}");
            }
        }
        let clients = |body| acted(Occupation::Busy, "/demo/clients", body);
        assert_eq!(clients("5"), (409, None));
        assert_eq!(clients("0"), (202, Some(Action::Clients(0))));
    }

    #[test]
    fn a_page_without_clients_has_no_actions() {
        let [alone, _] = both();
        for path in ["/demo/clients", "/demo/kill", "/demo/reload"] {
            assert_eq!(alone.respond(&request("POST", path, b"0")), None);
        }
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        let [_, demo] = both();
        for (method, path, status) in [
            ("POST", "/demo/set", 403),
            ("POST", "/demo/clients", 403),
            ("POST", "/demo/kill", 403),
            ("POST", "/demo/reload", 403),
            ("GET", "/", 200),
        ] {
            let asked = PageRequest {
                is_of_another_site: true,
                ..request(method, path, b"1")
            };
            let answer = demo.respond(&asked).expect("the app");
            assert_eq!((answer.status, answer.set), (status, None), "{path}");
        }
    }

    #[test]
    fn another_name_of_this_machine_is_refused() {
        let [_, demo] = both();
        let remote = Demo {
            is_remote: true,
            ..demo.clone()
        };
        for (method, path, status) in [("POST", "/demo/set", 200), ("GET", "/", 200)] {
            let asked = PageRequest {
                is_for_a_name: true,
                ..request(method, path, b"1")
            };
            let of = |demo: &Demo| {
                let answer = demo.respond(&asked).expect("the app");
                (answer.status, answer.set.is_some())
            };
            assert_eq!(of(&demo), (421, false), "{path}");
            assert_eq!(of(&remote), (status, method == "POST"), "{path}");
        }
    }

    #[test]
    fn other_requests_are_not_the_demonstrations() {
        for demo in both() {
            assert_eq!(demo.respond(&request("GET", KEY, b"")), None);
            assert_eq!(demo.respond(&request("POST", "/demo", b"")), None);
            let status = |method, path| {
                let answer = demo.respond(&request(method, path, b""));
                answer.map(|answer| answer.status)
            };
            assert_eq!(status("GET", "/demo/set"), Some(405));
            assert_eq!(status("POST", "/"), Some(405));
        }
    }

    #[test]
    fn each_bar_of_another_server_was_measured() {
        let document: Value = serde_json::from_str(ELSEWHERE).expect("it is JSON");
        let groups = document["groups"].as_array().expect("groups");
        assert!(!groups.is_empty());
        for group in groups {
            assert_eq!(
                group["date"].as_str().map(str::len),
                Some("2026-01-01".len())
            );
            let bars = group["bars"].as_array().expect("bars");
            assert!(bars.len() > 1, "{group}");
            let is_own = |bar: &Value| {
                bar["server"]
                    .as_str()
                    .is_some_and(|it| it.contains("Dwell"))
            };
            assert!(is_own(&bars[0]), "{group}");
            for bar in bars {
                assert!(
                    bar["bytes"].as_u64().is_some_and(|bytes| bytes > 0),
                    "{bar}"
                );
                assert!(
                    bar["version"].as_str().is_some_and(|text| text.len() > 4),
                    "{bar}"
                );
            }
        }
        // It stands in a script.
        assert!(!ELSEWHERE.contains(['<', '\u{2028}', '\u{2029}']));
    }

    #[test]
    fn the_pages_are_small_and_fetch_nothing_from_elsewhere() {
        for demo in both() {
            assert!(demo.page.len() < 32_000, "{}", demo.page.len());
            for part in [
                "http://",
                "https://",
                "//cdn",
                "@import",
                "<script src",
                "<link rel=\"style",
            ] {
                assert!(!demo.page.contains(part), "the page has `{part}`");
            }
        }
    }
}
