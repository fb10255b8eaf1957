//! Requests before a gate, at times that the tests choose; no connection is opened.

use super::super::jwt::signed;
use super::super::{KeyInputs, ShownClient};
use super::*;
use crate::config;
use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
use std::fs;

/// A route of `options`, at its gate; requests come at `start` and later.
struct Fixture {
    gate: Gate,
    config: Arc<Config>,
    start: Instant,
}

/// The time of the requests, in seconds of Unix time.
const NOW: u64 = 1_300_819_000;
const SECRET: &str = "0123456789abcdef0123456789abcdef";

impl Fixture {
    fn new(options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, SECRET).unwrap();
        let text = format!(
            "[server]\ntrusted_proxies = [\"10.0.0.0/8\"]\n\
             [jwt]\nsecret_file = \"{}\"\nleeway = \"5s\"\n\
             [upstream]\nurl = \"http://127.0.0.1:1\"\n\
             [[route]]\nprefix = \"/p/\"\n{options}\n",
            secret.display()
        );
        let config = Arc::new(config::parse("test.toml", &text, &[]).unwrap());
        let access = Arc::new(Access::load(&config, None).unwrap());
        let subrequests = AuthSubrequests::new(4);
        Self {
            gate: Gate::new(Arc::clone(&config), access, subrequests),
            config,
            start: Instant::now(),
        }
    }

    fn rules(&self) -> &RouteConfig {
        &self.config.routes[0]
    }

    fn after(&self, milliseconds: u64) -> Instant {
        self.start + Duration::from_millis(milliseconds)
    }

    /// Admits a request of `peer` with these fields, so many milliseconds after the start.
    fn admit(&mut self, peer: &str, fields: &str, after: u64) -> Result<Identity, Denial> {
        let peer = || Some(SocketAddr::new(peer.parse().unwrap(), 1));
        self.admit_from(peer, fields, after)
    }

    /// As [`admit`](Self::admit), of a client whose address is asked for where it is needed.
    fn admit_from(
        &mut self,
        peer: impl FnOnce() -> Option<SocketAddr>,
        fields: &str,
        after: u64,
    ) -> Result<Identity, Denial> {
        let asked = RequestTime {
            at: self.after(after),
            unix_seconds: NOW + after / 1000,
        };
        let config = Arc::clone(&self.config);
        let (rules, client) = (&config.routes[0], || ShownClient::Plain);
        let mut identity = Identity::default();
        with_head(fields, |head| {
            self.gate
                .admit(rules, head, peer, asked, client, &mut identity)
        })?;
        Ok(identity)
    }

    /// Counts the keys of a request that was admitted at the start.
    fn ask_for_keys(&self, peer: &str, keys: usize) {
        let peer = || Some(SocketAddr::new(peer.parse().unwrap(), 1));
        with_head("", |head| {
            let gate = &self.gate;
            gate.count_further_keys(self.start, self.rules(), head, peer, keys);
        });
    }

    /// The time that a request has to wait for its share.
    fn wait(&mut self, peer: &str, fields: &str, after: u64) -> Option<Duration> {
        match self.admit(peer, fields, after) {
            Ok(_) => None,
            Err(Denial::Limited(limited)) => Some(limited.wait),
            Err(denial) => panic!("{denial:?}"),
        }
    }
}

fn with_head<T>(fields: &str, with: impl FnOnce(&RequestHead<'_, '_>) -> T) -> T {
    let text = format!("GET /p/a HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    let mut storage = FieldStorage::new();
    with(&parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap())
}

/// The field with a token of `subject`, which is good until `ends`.
fn authorization(subject: &str, ends: u64) -> String {
    let claims = format!("{{\"sub\":\"{subject}\",\"exp\":{ends}}}");
    let token = signed(&claims, SECRET.as_bytes());
    format!("Authorization: Bearer {token}\r\n")
}

fn subject(identity: &Identity) -> Option<String> {
    use crate::config::Requested;
    with_head("", |head| {
        let inputs = KeyInputs {
            fields: head.fields,
            scheme: "http",
            identity: Some(identity),
        };
        inputs.claim("sub").map(str::to_owned)
    })
}

#[test]
fn an_address_has_its_rate_again_when_it_was_told() {
    let mut of = Fixture::new("rate_per_address = \"2/s\"");
    assert_eq!(of.wait("1.2.3.4", "", 0), None);
    assert_eq!(of.wait("1.2.3.4", "", 0), None);
    assert_eq!(of.wait("1.2.3.4", "", 0), Some(Duration::from_millis(500)));
    assert_eq!(of.wait("5.6.7.8", "", 0), None, "another address");
    assert!(of.wait("1.2.3.4", "", 499).is_some());
    assert_eq!(of.wait("1.2.3.4", "", 500), None);
}

#[test]
fn clients_behind_a_trusted_proxy_have_a_rate_each() {
    let mut of = Fixture::new("rate_per_address = \"1/h\"");
    let forwarded = |client: &str| format!("X-Forwarded-For: {client}\r\n");
    assert_eq!(of.wait("10.1.1.1", &forwarded("1.2.3.4"), 0), None);
    assert_eq!(of.wait("10.1.1.1", &forwarded("5.6.7.8"), 0), None);
    assert!(of.wait("10.2.2.2", &forwarded("1.2.3.4"), 0).is_some());
    let claimed = of.wait("1.2.3.4", &forwarded("9.9.9.9"), 0);
    assert!(claimed.is_some(), "no proxy, whatever it claims");
}

#[test]
fn further_keys_of_a_request_are_paid_for_by_the_next() {
    let mut of = Fixture::new("rate_per_address = \"4/4s\"");
    assert_eq!(of.wait("1.2.3.4", "", 0), None);
    of.ask_for_keys("1.2.3.4", 1);
    assert_eq!(
        of.wait("1.2.3.4", "", 0),
        None,
        "one key is counted already"
    );
    of.ask_for_keys("1.2.3.4", 4);
    assert_eq!(of.wait("1.2.3.4", "", 0), Some(Duration::from_secs(2)));
    assert_eq!(of.wait("1.2.3.4", "", 2000), None);
}

#[test]
fn further_keys_ask_for_no_address_where_none_is_counted() {
    let of = Fixture::new("rate_per_key = \"1/h\"");
    let peer = || panic!("a system call for nothing");
    with_head("", |head| {
        of.gate
            .count_further_keys(of.start, of.rules(), head, peer, 4);
    });
}

#[test]
fn a_key_has_a_rate_for_all_clients() {
    let of = Fixture::new("rate_per_key = \"1/h\"");
    let count = |name: &[u8]| of.gate.count_key(of.start, of.rules(), name);
    assert_eq!(count(b"/p/a"), Ok(()));
    let limited = count(b"/p/a").unwrap_err();
    assert_eq!(Some(limited.rate), of.rules().access.rate_per_key);
    assert_eq!(limited.wait, Duration::from_secs(3600));
    assert_eq!(count(b"/p/b"), Ok(()));
}

#[test]
fn a_connected_client_is_counted_unless_a_proxy_has_brought_it() {
    let of = Fixture::new("rate_per_address = \"1/h\"\nrate_per_key = \"2/h\"");
    let count = |name: &[u8], peer: &str| {
        let peer = Some(SocketAddr::new(peer.parse().unwrap(), 1));
        let counted = of.gate.count_key_of(of.start, of.rules(), name, peer);
        counted.map_err(|limited| limited.rate.count)
    };
    assert_eq!(count(b"/p/a", "1.2.3.4"), Ok(()));
    assert_eq!(count(b"/p/b", "1.2.3.4"), Err(1));
    assert_eq!(count(b"/p/b", "::ffff:1.2.3.4"), Err(1));
    assert_eq!(count(b"/p/b", "10.1.1.1"), Ok(()));
    assert_eq!(count(b"/p/b", "10.1.1.1"), Ok(()), "a proxy is not counted");
    assert_eq!(count(b"/p/b", "10.1.1.1"), Err(2));
}

#[test]
fn an_identity_is_that_of_its_own_request() {
    let mut of = Fixture::new("jwt = true");
    let alice = of.admit("1.2.3.4", &authorization("alice", NOW + 100), 0);
    let bob = of.admit("1.2.3.4", &authorization("bob", NOW + 100), 0);
    let (alice, bob) = (alice.unwrap(), bob.unwrap());
    assert_eq!(subject(&alice).as_deref(), Some("alice"));
    assert_eq!(subject(&bob).as_deref(), Some("bob"));
    let next = of.admit("1.2.3.4", "", 0);
    assert!(
        matches!(next, Err(Denial::Token(TokenRefusal::NoToken))),
        "a connection that had a token needs one again: {next:?}"
    );
}

#[test]
fn a_token_ends_with_its_time() {
    let mut of = Fixture::new("jwt = true");
    let ends = NOW + 100;
    let fields = authorization("alice", ends);
    let leeway = of.config.jwt.leeway;
    let identity = of.admit("1.2.3.4", &fields, 0).unwrap();
    let left = Duration::from_secs(100) + leeway;
    assert_eq!(identity.time_left(NOW), Some(left));
    assert_eq!(identity.time_left(ends), Some(leeway));
    let over = left + Duration::from_secs(1);
    assert_eq!(
        identity.time_left(NOW + over.as_secs()),
        Some(Duration::ZERO)
    );
    let late = of.admit("1.2.3.4", &fields, over.as_secs() * 1000);
    assert!(
        matches!(late, Err(Denial::Token(TokenRefusal::Token(_)))),
        "{late:?}"
    );
    assert_eq!(Identity::default().time_left(NOW), None);
}

#[test]
fn an_open_route_asks_for_nothing_and_identifies_nothing() {
    let mut of = Fixture::new("");
    let peer = || panic!("a system call for nothing");
    let fields = authorization("alice", NOW + 100);
    let identity = of.admit_from(peer, &fields, 0).unwrap();
    assert_eq!(subject(&identity), None);
}

#[test]
fn a_decision_completes_an_identity_or_is_a_denial() {
    use super::super::Granted;
    let mut identity = Identity::default();
    let granted = AuthDecision::Granted(Arc::new(Granted::default()));
    assert!(identity.decided(granted).is_ok());
    assert!(identity.granted.is_some());
    let refused = Refused {
        status: 403,
        fields: Vec::new(),
        body: bytes::Bytes::new(),
    };
    let mut identity = Identity::default();
    let denial = identity.decided(AuthDecision::Refused(Arc::new(refused)));
    assert!(matches!(denial, Err(Denial::Refused(refused)) if refused.status == 403));
    assert!(identity.granted.is_none());
}

#[test]
fn other_rates_and_keys_are_taken_at_once() {
    let mut of = Fixture::new("rate_per_address = \"1/h\"\njwt = true");
    let fields = authorization("alice", NOW + 100);
    assert!(of.admit("1.2.3.4", &fields, 0).is_ok());
    let other = Fixture::new("rate_per_address = \"2/h\"");
    of.gate.reconfigure(&other.config, 4);
    of.gate.change_access(&other.gate.access);
    of.config = Arc::clone(&other.config);
    assert_eq!(
        of.wait("1.2.3.4", "", 0),
        None,
        "no token is needed any more"
    );
    assert_eq!(of.wait("1.2.3.4", "", 0), None);
    assert!(of.wait("1.2.3.4", "", 0).is_some());
}
