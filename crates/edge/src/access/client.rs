//! The certificates of clients: what a connection knows of them, and whom a route admits by them.

use super::is_trusted;
use super::tokens::Bearer;
use crate::config::{ClientPart, Config, KeyTemplate, PublisherName};
use dwell_engine::ClientNames;
use std::net::SocketAddr;

/// The client of a connection, as its handshake has verified it.
#[derive(Clone, Debug)]
pub(crate) enum ShownClient {
    /// There was no handshake that could ask for a certificate.
    Plain,
    /// The certificate was not kept, or does not count here: the connection is older than the
    /// option that asks for it, or than this process. Another connection shows it.
    Unknown,
    /// The names of its certificate, or that it has none.
    Names(ClientNames),
}

/// Result of checking whether a request may publish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MayPublish {
    Yes,
    /// Its token is another one, or it has none.
    NoToken(Bearer),
    /// It has no token, and no certificate of a publisher.
    NoCertificate,
    /// The client has to connect again, so that its certificate is known.
    Unknown,
}

/// The reason why a client is not admitted by its certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CertificateRefusal {
    /// It has shown none.
    NoCertificate,
    /// The certificate has no name of this kind, or several.
    NoName(ClientPart),
    /// The client has to connect again.
    Unknown,
}

/// The certificate in DER that goes to the application with a request of a client; `None` where the
/// configuration does not ask for it, where the connection does not keep it, or for a trusted
/// proxy, whose certificate is that of no client. If there are such proxies, a connection that was
/// reset and has no address any more may be one of theirs.
pub(crate) fn sent_certificate<'c>(
    config: &Config,
    client: Option<&'c ClientNames>,
    peer: impl FnOnce() -> Option<SocketAddr>,
) -> Option<&'c [u8]> {
    let is_on = config.tls.client_cert_field;
    let certificate = client.filter(|_| is_on)?.certificate()?;
    let trusted = &config.server.trusted_proxies;
    let is_of_client = |peer| !is_trusted(Some(peer), trusted);
    (trusted.is_empty() || peer().is_some_and(is_of_client)).then_some(certificate)
}

/// Returns true for a client whose certificate would go to the application, but is too long.
pub(crate) fn is_certificate_left_out(config: &Config, client: Option<&ClientNames>) -> bool {
    config.tls.client_cert_field && client.is_some_and(ClientNames::is_certificate_too_long)
}

impl ShownClient {
    /// The client of a request, by what its connection keeps.
    pub(crate) fn of(is_secure: bool, names: Option<ClientNames>) -> Self {
        match names {
            Some(names) => Self::Names(names),
            None if is_secure => Self::Unknown,
            None => Self::Plain,
        }
    }

    /// Returns whether its certificate is one of these publishers'; a client without a certificate
    /// `is_told` to show a token.
    pub(crate) fn may_publish(&self, publishers: &[PublisherName], is_told: bool) -> MayPublish {
        let names = match self {
            Self::Unknown => return MayPublish::Unknown,
            Self::Names(names) if names.has_certificate() => names,
            _ if is_told => return MayPublish::NoToken(Bearer::Missing),
            _ => return MayPublish::NoCertificate,
        };
        let is_it = |publisher: &PublisherName| match publisher {
            PublisherName::CommonName(name) => names.common_name() == Some(name),
            PublisherName::AlternativeName(name) => names.has_alternative_name(name),
        };
        if publishers.iter().any(is_it) {
            MayPublish::Yes
        } else {
            MayPublish::NoCertificate
        }
    }

    /// The names that a key takes.
    ///
    /// # Errors
    /// The reason why there is no key: nothing stands in for a name that is not there.
    pub(crate) fn names_for(self, key: &KeyTemplate) -> Result<ClientNames, CertificateRefusal> {
        let names = match self {
            Self::Plain => return Err(CertificateRefusal::NoCertificate),
            Self::Unknown => return Err(CertificateRefusal::Unknown),
            Self::Names(names) if !names.has_certificate() => {
                return Err(CertificateRefusal::NoCertificate);
            }
            Self::Names(names) => names,
        };
        let lacks = |part: &ClientPart| match part {
            ClientPart::CommonName => names.common_name().is_none(),
            ClientPart::AlternativeName => names.alternative_name().is_none(),
        };
        match key.client_parts().find(lacks) {
            Some(part) => Err(CertificateRefusal::NoName(part)),
            None => Ok(names),
        }
    }
}

impl CertificateRefusal {
    /// The line of text for the client.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NoCertificate => "this takes a client certificate",
            Self::NoName(ClientPart::CommonName) => {
                "the client certificate has no common name, or several"
            }
            Self::NoName(ClientPart::AlternativeName) => {
                "the client certificate has no alternative name, or several"
            }
            Self::Unknown => "connect again: the client certificate is asked for now",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_sent_where_that_is_asked_for_and_for_no_trusted_proxy() {
        let named = ClientNames::named(Some("alice"), &[]);
        let of_parts = |element: &[u8]| {
            let bytes = [named.as_bytes(), element].concat();
            ClientNames::from_bytes(&bytes).unwrap()
        };
        let whole = of_parts(&[5, 0, 3, 1, 2, 3]);
        let (client, proxy) = (([192, 0, 2, 1], 1).into(), ([192, 0, 2, 9], 1).into());
        let mut config = Config::default();
        let sent = |config: &Config, names, peer| {
            sent_certificate(config, names, || peer).map(<[u8]>::to_vec)
        };
        assert_eq!(sent(&config, Some(&whole), Some(client)), None, "it is off");
        config.tls.client_cert_field = true;
        assert_eq!(sent(&config, Some(&whole), None), Some(vec![1, 2, 3]));
        config.server.trusted_proxies = vec!["192.0.2.9".parse().unwrap()];
        for (names, peer, expected) in [
            (Some(&whole), Some(client), Some(vec![1, 2, 3])),
            // It was reset, and may be the proxy's.
            (Some(&whole), None, None),
            (Some(&whole), Some(proxy), None),
            (Some(&named), Some(client), None),
            (Some(&of_parts(&[5, 0, 0])), Some(client), None),
            (None, Some(client), None),
        ] {
            assert_eq!(sent(&config, names, peer), expected, "{names:?} {peer:?}");
        }
    }

    #[test]
    fn a_publisher_is_known_by_any_of_its_names() {
        let publishers = ["cn:app", "san:App.test"].map(|name| name.parse().unwrap());
        let may = |cn, sans: &[&str]| {
            let client = ShownClient::of(true, Some(ClientNames::named(cn, sans)));
            client.may_publish(&publishers, true)
        };
        assert_eq!(may(Some("app"), &[]), MayPublish::Yes);
        assert_eq!(may(None, &["a.test", "app.TEST"]), MayPublish::Yes);
        for (cn, sans) in [
            (None, &[][..]),
            (Some("App"), &[]),
            (Some("app.test"), &["app"]),
            (None, &["*.test"]),
        ] {
            assert_eq!(may(cn, sans), MayPublish::NoCertificate, "{cn:?} {sans:?}");
        }
        let nobody = ShownClient::of(true, ClientNames::from_bytes(&[]));
        for client in [nobody, ShownClient::Plain] {
            let no_token = MayPublish::NoToken(Bearer::Missing);
            assert_eq!(client.may_publish(&publishers, true), no_token);
            let refused = client.may_publish(&publishers, false);
            assert_eq!(refused, MayPublish::NoCertificate);
        }
        let unknown = ShownClient::Unknown.may_publish(&publishers, true);
        assert_eq!(unknown, MayPublish::Unknown);
    }

    #[test]
    fn a_key_has_the_names_of_a_verified_certificate_or_none() {
        let refusal = |template: &str, client: ShownClient| {
            let key: KeyTemplate = template.parse().unwrap();
            client.names_for(&key).err()
        };
        let (cn, san) = ("in:{tls.client.cn}", "in:{tls.client.san}");
        let named = |cn, sans: &[&str]| ShownClient::of(true, Some(ClientNames::named(cn, sans)));
        assert_eq!(refusal(cn, named(Some("alice"), &[])), None);
        assert_eq!(refusal(san, named(None, &["a.example"])), None);
        let none = CertificateRefusal::NoName(ClientPart::CommonName);
        assert_eq!(refusal(cn, named(None, &["a.example"])), Some(none));
        let none = CertificateRefusal::NoName(ClientPart::AlternativeName);
        for sans in [&[][..], &["a.example", "b.example"], &["*.a.example"]] {
            assert_eq!(
                refusal(san, named(Some("alice"), sans)),
                Some(none),
                "{sans:?}"
            );
        }
        assert_eq!(
            refusal("{tls.client.cn}:{tls.client.san}", named(Some("a"), &[])),
            Some(none)
        );
        let nobody = ClientNames::from_bytes(&[]);
        let of = |is_secure, names| refusal(cn, ShownClient::of(is_secure, names));
        assert_eq!(of(true, nobody), Some(CertificateRefusal::NoCertificate));
        assert_eq!(of(false, None), Some(CertificateRefusal::NoCertificate));
        assert_eq!(of(true, None), Some(CertificateRefusal::Unknown));
    }
}
