//! Clients that show certificates.

use crate::support::{CERTIFICATE, KEY, OTHER, OTHER_KEY, Shown, data, get, try_ask};
use axum::Router;
use axum::extract::Extension;
use axum::routing;
use dwell_engine::handler::tower::service;
use dwell_engine::handler::{Answer, Exchange, handler_fn};
use dwell_engine::manager::{Event, Manager};
use dwell_engine::tls::{ClientCertificates, Tls, TlsBuilder, TlsError};
use dwell_engine::{PeerCertificates, Request, Running, Server};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::net::SocketAddr;
use std::time::Duration;

const ALICE: &[u8] = include_bytes!("../../../tls/tests/data/client.pem");
const EXPIRED: &[u8] = include_bytes!("../../../tls/tests/data/client_expired.pem");
const CLIENT_KEY: &[u8] = include_bytes!("../../../tls/tests/data/client_key.pem");

const SUBJECT: &str = "CN=alice,O=Example\\, Inc.";

const BOTH: [ClientCertificates; 2] = [ClientCertificates::Required, ClientCertificates::Optional];

fn builder() -> TlsBuilder {
    Tls::builder().certificate_pem(CERTIFICATE, KEY)
}

fn tls(clients: ClientCertificates) -> Tls {
    let builder = builder().client_ca_file(clients, data("client_ca.pem"));
    builder.build().unwrap()
}

/// Says who the client is, and how many certificates it has shown.
fn who(shown: Option<&PeerCertificates>) -> String {
    let Some(shown) = shown else {
        return "nobody".to_owned();
    };
    let own = CertificateDer::from_pem_slice(ALICE).unwrap();
    assert_eq!(shown.chain().next(), Some(&*own));
    format!("{} of {}", shown.subject().unwrap(), shown.chain().len())
}

fn answer(request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
    if request.head.path == "/thread" {
        let owned = exchange.owned(request);
        let responder = exchange.responder();
        std::thread::spawn(move || {
            responder.send(Answer::text(200, who(owned.peer_certificates.as_ref())))
        });
    } else {
        let text = who(exchange.peer_certificates());
        exchange.text(200, &text);
    }
}

fn serve(clients: ClientCertificates) -> Running {
    Server::builder()
        .tls(&tls(clients))
        .listen(([127, 0, 0, 1], 0).into())
        .serve(handler_fn(answer))
        .unwrap()
}

/// The end of the answer; `None` for a client that is refused.
fn asked(address: SocketAddr, path: &str, shown: &Shown) -> Option<String> {
    let answer = try_ask(address, get(path), shown).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.trim_end().to_owned())
}

#[test]
fn handlers_see_the_certificates_of_clients() {
    let expected = format!("{SUBJECT} of 1");
    for clients in BOTH {
        let running = serve(clients);
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            let alice = Shown::new(ALICE, CLIENT_KEY).by(version);
            for path in ["/", "/thread"] {
                let answer = asked(running.addresses()[0], path, &alice);
                assert_eq!(answer.as_ref(), Some(&expected), "{path} {version:?}");
            }
        }
    }
}

#[test]
fn clients_without_a_certificate_are_served_where_it_is_optional() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let none = Shown::nothing().by(version);
        let optional = serve(ClientCertificates::Optional);
        let answer = asked(optional.addresses()[0], "/thread", &none);
        assert_eq!(answer.as_deref(), Some("nobody"));
        let required = serve(ClientCertificates::Required);
        assert_eq!(asked(required.addresses()[0], "/", &none), None);
    }
}

#[test]
fn other_certificates_are_refused() {
    for clients in BOTH {
        let running = serve(clients);
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            for (certificate, key) in [(EXPIRED, CLIENT_KEY), (OTHER, OTHER_KEY)] {
                let shown = Shown::new(certificate, key).by(version);
                assert_eq!(asked(running.addresses()[0], "/", &shown), None);
            }
        }
    }
}

#[test]
fn a_router_sees_the_certificates() {
    async fn of(shown: Option<Extension<PeerCertificates>>) -> String {
        who(shown.as_deref())
    }
    let running = Server::builder()
        .tls(&tls(ClientCertificates::Optional))
        .listen(([127, 0, 0, 1], 0).into())
        .serve(service(Router::new().route("/", routing::get(of))))
        .unwrap();
    let alice = Shown::new(ALICE, CLIENT_KEY);
    let address = running.addresses()[0];
    assert_eq!(asked(address, "/", &alice), Some(format!("{SUBJECT} of 1")));
    assert_eq!(
        asked(address, "/", &Shown::nothing()),
        Some("nobody".into())
    );
}

#[test]
fn a_manager_sees_the_certificates() {
    let mut manager = Manager::new(|conn, event| {
        if let Event::HttpMessage(_) = event {
            let text = who(conn.peer_certificates().as_ref());
            conn.reply(200, &[], text.as_bytes()).unwrap();
        }
    })
    .unwrap();
    let tls = tls(ClientCertificates::Optional);
    let id = manager.listen_tls("https://127.0.0.1:0", &tls).unwrap();
    let address = manager.conn(id).unwrap().local_address().unwrap();
    let client = std::thread::spawn(move || {
        let alice = Shown::new(ALICE, CLIENT_KEY);
        [alice, Shown::nothing()].map(|shown| asked(address, "/", &shown))
    });
    while !client.is_finished() {
        manager.poll(Duration::from_millis(20)).unwrap();
    }
    let answers = client.join().unwrap();
    let expected = [format!("{SUBJECT} of 1"), "nobody".to_owned()];
    assert_eq!(answers, expected.map(Some));
}

#[test]
fn authorities_that_cannot_be_read_are_named() {
    let of = |path| builder().client_ca_file(ClientCertificates::Required, path);
    let error = of(data("key.pem")).build().unwrap_err();
    assert!(error.to_string().contains("key.pem: "), "{error}");
    let error = of(data("none.pem")).build().unwrap_err();
    assert!(matches!(error, TlsError::Read { .. }), "{error}");
}

/// The answers to a client that nobody has verified but the program, which says who it is.
fn unverified(clients: ClientCertificates, shown: &Shown) -> Option<String> {
    let tls = builder().unverified_clients(clients).build().unwrap();
    let running = Server::builder()
        .tls(&tls)
        .listen(([127, 0, 0, 1], 0).into())
        .serve(handler_fn(|_, exchange| {
            let shown = exchange.peer_certificates();
            assert!(shown.is_none_or(|shown| !shown.are_verified()));
            let subject = shown.map(|shown| shown.subject().unwrap_or_default());
            exchange.text(200, &subject.unwrap_or("nobody".to_owned()));
        }));
    asked(running.unwrap().addresses()[0], "/", shown)
}

#[test]
fn whoever_has_issued_it_a_client_has_the_key_of_its_certificate() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        for clients in BOTH {
            for (certificate, key) in [(EXPIRED, CLIENT_KEY), (OTHER, OTHER_KEY)] {
                let shown = Shown::new(certificate, key).by(version);
                assert!(unverified(clients, &shown).is_some(), "{version:?}");
            }
            for (certificate, key) in [(ALICE, OTHER_KEY), (OTHER, CLIENT_KEY)] {
                let shown = Shown::new(certificate, key).by(version);
                assert_eq!(unverified(clients, &shown), None, "{version:?}");
            }
        }
        let nothing = Shown::nothing().by(version);
        assert_eq!(unverified(ClientCertificates::Required, &nothing), None);
        let answer = unverified(ClientCertificates::Optional, &nothing);
        assert_eq!(answer.as_deref(), Some("nobody"));
    }
}
