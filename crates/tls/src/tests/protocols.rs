//! The application protocols that clients and acceptors agree on (ALPN).

use super::handshakes::{certificate, client, config, give, sent};
use crate::{Acceptor, Handshake, HandshakeFault};
use rustls::crypto::aws_lc_rs as provider;
use rustls::{AlertDescription, ClientConfig, SupportedCipherSuite, SupportedProtocolVersion};
use rustls::{ClientConnection, version};
use std::sync::Arc;

const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

fn offering(version: &'static SupportedProtocolVersion, offered: &[&str]) -> ClientConfig {
    let mut config = config(&[version]);
    config.alpn_protocols = offered
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    config
}

/// Brings a handshake to its end, or to the alert that ends it.
fn meet(
    acceptor: &Acceptor,
    client: &mut ClientConnection,
) -> Result<Handshake, (HandshakeFault, AlertDescription)> {
    let mut handshake = acceptor.begin().unwrap();
    for _ in 0..9 {
        let input = sent(client);
        let received = handshake.receive(&input);
        let mut out = Vec::new();
        handshake.transmit(&mut out);
        let given = give(client, &out);
        if let Err(error) = received {
            let Err(rustls::Error::AlertReceived(alert)) = given else {
                panic!("{given:?}");
            };
            return Err((error.fault(), alert));
        }
    }
    assert!(handshake.is_done());
    Ok(handshake)
}

/// The result of an offer.
#[derive(Clone, Copy, Debug)]
enum Agreed {
    On(&'static str),
    OnNothing,
    Never,
}

#[test]
fn each_offer_has_its_result() {
    let http1 = Acceptor::new(vec![certificate()], 1);
    let http2 = http1.with_http2();
    let (with, without) = (Agreed::On("h2"), Agreed::On("http/1.1"));
    let table: [(&[&str], Agreed, Agreed); 7] = [
        (&[], Agreed::OnNothing, Agreed::OnNothing),
        (&["http/1.1"], without, without),
        (&["h2"], Agreed::Never, with),
        (&["h2", "http/1.1"], without, with),
        // The server chooses, whatever the client prefers.
        (&["http/1.1", "h2"], without, with),
        (&["h3", "http/1.1"], without, without),
        (&["h3", "spdy/3"], Agreed::Never, Agreed::Never),
    ];
    for version in VERSIONS {
        for (offered, plain, both) in table {
            for (acceptor, wanted) in [(&http1, plain), (&http2, both)] {
                let config = Arc::new(offering(version, offered));
                let mut client = client(&config, "localhost");
                let met = meet(acceptor, &mut client);
                let chosen = client.alpn_protocol().map(<[u8]>::to_vec);
                let (wanted, met) = match (wanted, met) {
                    (Agreed::Never, Err(refused)) => {
                        let alert = AlertDescription::NoApplicationProtocol;
                        assert_eq!(refused, (HandshakeFault::Incompatible, alert));
                        continue;
                    }
                    (Agreed::OnNothing, Ok(met)) => (None, met),
                    (Agreed::On(name), Ok(met)) => (Some(name), met),
                    (_, met) => panic!("{offered:?}: {met:?}"),
                };
                assert_eq!(chosen.as_deref(), wanted.map(str::as_bytes));
                assert_eq!(met.has_protocol(), wanted.is_some());
                assert_eq!(met.is_http2(), wanted == Some("h2"), "{offered:?}");
            }
        }
    }
}

#[test]
fn a_session_that_goes_on_agrees_anew() {
    for version in VERSIONS {
        let http1 = Acceptor::new(vec![certificate()], 1);
        let http2 = http1.with_http2();
        let mut config = offering(version, &["h2", "http/1.1"]);
        let mut again = |acceptor: &Acceptor, offered: &[&str]| {
            config.alpn_protocols = offered
                .iter()
                .map(|name| name.as_bytes().to_vec())
                .collect();
            // A clone has the tickets of all.
            let mut client = client(&Arc::new(config.clone()), "localhost");
            let met = meet(acceptor, &mut client);
            met.map(|met| (met.is_resumed(), met.is_http2())).ok()
        };
        assert_eq!(again(&http2, &["h2", "http/1.1"]), Some((false, true)));
        assert_eq!(again(&http2, &["http/1.1"]), Some((true, false)));
        assert_eq!(again(&http2, &["h2"]), Some((true, true)));
        assert_eq!(again(&http2, &[]), Some((true, false)));
        assert_eq!(again(&http1, &["h2", "http/1.1"]), Some((true, false)));
        assert_eq!(again(&http1, &["h2"]), None);
        assert_eq!(again(&http2, &["h3"]), None);
    }
}

/// Source: RFC 9113 section 9.2.2 and appendix A: suites of TLS 1.2 without ephemeral keys, or
/// with a cipher that is not an AEAD.
#[test]
fn no_suite_is_one_that_http2_forbids() {
    for suite in provider::default_provider().cipher_suites {
        if let SupportedCipherSuite::Tls12(suite) = suite {
            let name = format!("{:?}", suite.common.suite);
            let is_ephemeral = name.starts_with("TLS_ECDHE_");
            let is_aead = name.contains("_GCM_") || name.contains("_CHACHA20_POLY1305_");
            assert!(is_ephemeral && is_aead, "{name}");
        }
    }
}

#[test]
fn what_is_set_later_is_set_for_both() {
    let http1 = Acceptor::new(Vec::new(), 7);
    let http2 = http1.with_http2();
    assert_eq!(http2.handshakes_max(), 7);
    http1.set_certificates(vec![certificate()]);
    http2.keep(crate::KeptOfClient::Names);
    assert_eq!(http1.keeps(), crate::KeptOfClient::Names);
    let config = Arc::new(offering(&version::TLS13, &["h2"]));
    assert!(meet(&http2, &mut client(&config, "localhost")).is_ok());
}
