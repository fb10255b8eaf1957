//! The names of a client that shows a certificate.

use crate::x509::{self, NameKind, Names};
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::sync::Arc;

/// The names in the certificate of a client, which was verified in its handshake, and that
/// certificate where it is kept; or that the client has shown none.
///
/// Shape: one allocation of about the size of its parts, cloned freely. Names of more than 1,024
/// bytes together are not kept: such a certificate has none. Nor is a certificate of more than
/// [`CERTIFICATE_BYTES_MAX`](Self::CERTIFICATE_BYTES_MAX).
///
/// Source: RFC 5280 sections 4.1.2.6 and 4.2.1.6.
///
/// ```
/// use dwell_tls::ClientNames;
///
/// let client = ClientNames::named(Some("alice"), &["Laptop.Example.org"]);
/// assert_eq!(client.common_name(), Some("alice"));
/// assert_eq!(client.alternative_name(), Some("laptop.example.org"));
/// assert!(client.has_alternative_name("LAPTOP.example.org"));
///
/// let several = ClientNames::named(None, &["a.example.org", "alice@example.org"]);
/// assert_eq!((several.common_name(), several.alternative_name()), (None, None));
/// assert!(several.has_alternative_name("alice@example.org"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ClientNames(Arc<[u8]>);

/// The form in memory and on the way to another process: nothing where the client has shown no
/// certificate; else [`SHOWN`], and elements of a tag, a length (2 bytes, big-endian) and a value.
const SHOWN: u8 = 1;
const COMMON_NAME: u8 = 1;
const DNS: u8 = 2;
const EMAIL: u8 = 3;
const URI: u8 = 4;
/// The certificate in DER; nothing for one that is too long.
const CERTIFICATE: u8 = 5;

/// Bytes of all names of one certificate. X.520 allows for 64 characters of a common name.
const NAMES_BYTES_MAX: usize = 1024;

impl ClientNames {
    /// Bytes of a certificate that is kept, at most. In base64 it has a third more, which common
    /// servers take as one field of a request: they bound it by 8 KiB or more.
    pub const CERTIFICATE_BYTES_MAX: usize = 6000;

    /// Reads the names of the first certificate of a chain, of which no certificate may be there,
    /// and keeps that certificate too if `keeps_certificate`.
    pub(crate) fn of_chain(chain: &[CertificateDer<'_>], keeps_certificate: bool) -> Self {
        let Some(certificate) = chain.first() else {
            return Self(Arc::from([]));
        };
        let names = x509::names(certificate).unwrap_or_default();
        Self::encode(names, keeps_certificate.then_some(&**certificate))
    }

    /// The names of a client that has no certificate, such as one in a test: a URI has a colon, an
    /// address of e-mail has an `@`, and all others are host names.
    pub fn named(common_name: Option<&str>, alternatives: &[&str]) -> Self {
        let kind = |name: &str| match name {
            uri if uri.contains(':') => NameKind::Uri,
            email if email.contains('@') => NameKind::Email,
            _ => NameKind::Dns,
        };
        let alternatives = alternatives.iter();
        let names = Names {
            common_name: common_name.unwrap_or_default().to_owned(),
            alternatives: alternatives
                .map(|name| (kind(name), (*name).to_owned()))
                .collect(),
        };
        Self::encode(names, None)
    }

    /// These names without the certificate, as for a reader that keeps none.
    #[must_use]
    pub fn without_certificate(self) -> Self {
        let Some(at) = self.certificate_at() else {
            return self;
        };
        Self(self.0[..at].into())
    }

    fn encode(names: Names, certificate: Option<&[u8]>) -> Self {
        let mut bytes = vec![SHOWN];
        if !names.common_name.is_empty() {
            push(&mut bytes, COMMON_NAME, names.common_name.as_bytes());
        }
        for (kind, mut name) in names.alternatives {
            let tag = match kind {
                NameKind::Dns => DNS,
                NameKind::Email => EMAIL,
                NameKind::Uri => URI,
            };
            if kind == NameKind::Dns {
                name.make_ascii_lowercase();
            }
            push(&mut bytes, tag, name.as_bytes());
        }
        if bytes.len() > NAMES_BYTES_MAX {
            bytes.truncate(1);
        }
        if let Some(certificate) = certificate {
            let is_kept = certificate.len() <= Self::CERTIFICATE_BYTES_MAX;
            let kept = if is_kept { certificate } else { &[] };
            push(&mut bytes, CERTIFICATE, kept);
        }
        Self(bytes.into())
    }

    /// Returns true if the client has shown a certificate, with or without names.
    pub fn has_certificate(&self) -> bool {
        !self.0.is_empty()
    }

    /// The common name (CN) of the subject, if it has exactly one, which is text and not empty.
    pub fn common_name(&self) -> Option<&str> {
        self.elements()
            .find(|(tag, _)| *tag == COMMON_NAME)
            .and_then(|(_, name)| str::from_utf8(name).ok())
    }

    /// The alternative name (SAN), if there is exactly one among the host names, addresses of
    /// e-mail and URIs, and it is no wildcard. Host names are in lower case.
    pub fn alternative_name(&self) -> Option<&str> {
        let mut names = self.alternatives();
        let (tag, name) = names.next()?;
        let is_name = !name.is_empty() && (tag != DNS || !name.contains('*'));
        (is_name && names.all(|other| other == (tag, name))).then_some(name)
    }

    /// Returns true if this is one of the alternative names: the same bytes, or the same host name
    /// in any case. A wildcard stands for no name.
    pub fn has_alternative_name(&self, name: &str) -> bool {
        let is_it = |(tag, known): (u8, &str)| match tag {
            DNS => known.eq_ignore_ascii_case(name) && !name.contains('*'),
            _ => known == name,
        };
        !name.is_empty() && self.alternatives().any(is_it)
    }

    /// The certificate in DER, if it is kept.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.kept_certificate().filter(|der| !der.is_empty())
    }

    /// Returns true if the certificate would be kept, but is longer than
    /// [`CERTIFICATE_BYTES_MAX`](Self::CERTIFICATE_BYTES_MAX).
    pub fn is_certificate_too_long(&self) -> bool {
        self.kept_certificate().is_some_and(<[u8]>::is_empty)
    }

    fn kept_certificate(&self) -> Option<&[u8]> {
        let mut elements = self.elements();
        let found = elements.find(|(tag, _)| *tag == CERTIFICATE);
        found.map(|(_, der)| der)
    }

    /// The place of the certificate, which is the last element.
    fn certificate_at(&self) -> Option<usize> {
        let der = self.kept_certificate()?;
        Some(self.0.len() - der.len() - ELEMENT_HEAD_BYTES)
    }

    /// The same in bytes, for another process.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Decodes what [`as_bytes`](Self::as_bytes) gives; `None` where it cannot be that.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let names = Self(bytes.into());
        let mut length = 1;
        let mut is_last = false;
        for (tag, value) in names.elements() {
            let is_good = match tag {
                _ if is_last => false,
                COMMON_NAME..=URI => str::from_utf8(value).is_ok(),
                CERTIFICATE => value.len() <= Self::CERTIFICATE_BYTES_MAX,
                _ => false,
            };
            is_good.then_some(())?;
            is_last = tag == CERTIFICATE;
            length += ELEMENT_HEAD_BYTES + value.len();
        }
        let is_whole = matches!(bytes.first(), Some(&SHOWN)) && length == bytes.len();
        (bytes.is_empty() || is_whole).then_some(names)
    }

    fn alternatives(&self) -> impl Iterator<Item = (u8, &str)> {
        let names = self.elements().filter(|(tag, _)| matches!(*tag, DNS..=URI));
        names.filter_map(|(tag, name)| Some((tag, str::from_utf8(name).ok()?)))
    }

    fn elements(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = self.0.get(1..).unwrap_or_default();
        std::iter::from_fn(move || {
            let [tag, high, low, behind @ ..] = rest else {
                return None;
            };
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            let (value, behind) = behind.split_at_checked(length)?;
            rest = behind;
            Some((*tag, value))
        })
    }
}

const ELEMENT_HEAD_BYTES: usize = 3;

/// Appends an element. An element that is too long to have a length is left out: the certificates
/// of a client have 16 KiB together.
fn push(bytes: &mut Vec<u8>, tag: u8, value: &[u8]) {
    if let Ok(length) = u16::try_from(value.len()) {
        bytes.push(tag);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(value);
    }
}

/// Says that there are names, and not whose.
impl fmt::Debug for ClientNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientNames({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustls::pki_types::pem::PemObject;

    fn with(common_name: Option<&str>, alternatives: &[(NameKind, &str)]) -> ClientNames {
        let own = |(kind, name): &(NameKind, &str)| (*kind, (*name).to_owned());
        let names = Names {
            common_name: common_name.unwrap_or_default().to_owned(),
            alternatives: alternatives.iter().map(own).collect(),
        };
        ClientNames::encode(names, None)
    }

    #[test]
    fn a_certificate_is_kept_behind_its_names_up_to_a_bound() {
        let client = include_bytes!("../tests/data/client.pem");
        let chain = [CertificateDer::from_pem_slice(client).unwrap()];
        let whole = ClientNames::of_chain(&chain, true);
        assert_eq!(whole.common_name(), Some("alice"));
        assert_eq!(whole.certificate(), Some(&*chain[0]));
        assert!(!whole.is_certificate_too_long());
        assert_eq!(
            ClientNames::from_bytes(whole.as_bytes()).as_ref(),
            Some(&whole)
        );
        let names = ClientNames::of_chain(&chain, false);
        assert_eq!(whole.without_certificate(), names);
        assert!(names.certificate().is_none() && !names.is_certificate_too_long());
        assert_eq!(names.clone().without_certificate(), names);
        let nobody = ClientNames::of_chain(&[], true);
        assert!(!nobody.has_certificate() && nobody.certificate().is_none());
        let of_bytes = |bytes| {
            let chain = [CertificateDer::from(vec![0x30; bytes])];
            ClientNames::of_chain(&chain, true)
        };
        let longest = of_bytes(ClientNames::CERTIFICATE_BYTES_MAX);
        assert_eq!(longest.certificate().map(<[u8]>::len), Some(6000));
        let longer = of_bytes(ClientNames::CERTIFICATE_BYTES_MAX + 1);
        assert!(longer.is_certificate_too_long() && longer.certificate().is_none());
        assert!(longer.has_certificate() && longer.as_bytes().len() < 8);
        assert!(!longer.without_certificate().is_certificate_too_long());
    }

    #[test]
    fn a_certificate_from_another_process_is_the_last_element_and_within_the_bound() {
        let element = |tag: u8, bytes: usize| {
            let mut element = vec![SHOWN];
            push(&mut element, tag, &vec![b'a'; bytes]);
            element
        };
        let decoded = |bytes: &[u8]| ClientNames::from_bytes(bytes).is_some();
        assert!(decoded(&element(CERTIFICATE, 6000)));
        assert!(!decoded(&element(CERTIFICATE, 6001)));
        let certificate = element(CERTIFICATE, 1);
        assert!(decoded(
            &[element(DNS, 1), certificate[1..].to_vec()].concat()
        ));
        for behind in [&certificate[1..], &element(DNS, 1)[1..]] {
            assert!(!decoded(&[&certificate, behind].concat()));
        }
    }

    #[test]
    fn the_names_of_a_certificate_are_kept() {
        let client = include_bytes!("../tests/data/client.pem");
        let chain = [CertificateDer::from_pem_slice(client).unwrap()];
        let names = ClientNames::of_chain(&chain, false);
        assert_eq!(names.common_name(), Some("alice"));
        assert_eq!(names.alternative_name(), None);
        assert!(names.has_certificate() && names.as_bytes().len() < 64);
        let nobody = ClientNames::of_chain(&[], false);
        assert!(!nobody.has_certificate());
        assert_eq!(
            (nobody.common_name(), nobody.alternative_name()),
            (None, None)
        );
        let unreadable = [CertificateDer::from(vec![0x30, 0x80])];
        let unreadable = ClientNames::of_chain(&unreadable, false);
        assert!(unreadable.has_certificate() && unreadable.common_name().is_none());
    }

    #[test]
    fn of_several_alternative_names_there_is_not_one() {
        use NameKind::{Dns, Email, Uri};
        for (names, expected) in [
            (&[][..], None),
            (&[(Dns, "A.example")][..], Some("a.example")),
            (&[(Email, "A@example")], Some("A@example")),
            (&[(Uri, "spiffe://a/B")], Some("spiffe://a/B")),
            (&[(Dns, "a"), (Dns, "A")], Some("a")),
            (&[(Dns, "a"), (Dns, "b")], None),
            (&[(Dns, "a"), (Uri, "a")], None),
            (&[(Dns, "a"), (Dns, "")], None),
            (&[(Dns, "*.a.example")], None),
            (&[(Dns, "")], None),
        ] {
            assert_eq!(with(None, names).alternative_name(), expected, "{names:?}");
        }
    }

    #[test]
    fn any_alternative_name_is_found_and_none_by_a_wildcard() {
        use NameKind::{Dns, Email};
        let names = with(
            None,
            &[(Dns, "*.b.example"), (Dns, "a"), (Email, "A@b"), (Dns, "")],
        );
        for name in ["a", "A", "A@b"] {
            assert!(names.has_alternative_name(name), "{name}");
        }
        for name in ["", "a@b", "c.b.example", "*.b.example", "*"] {
            assert!(!names.has_alternative_name(name), "{name}");
        }
    }

    #[test]
    fn names_that_are_too_many_are_none() {
        let long = "a".repeat(NAMES_BYTES_MAX - 1 - ELEMENT_HEAD_BYTES);
        assert_eq!(with(Some(&long), &[]).common_name(), Some(&*long));
        let longer = with(Some(&format!("{long}a")), &[]);
        assert!(longer.common_name().is_none() && longer.has_certificate());
        assert_eq!(with(Some(""), &[]).common_name(), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_and_nothing_else_panics(
            name in ".{0,9}",
            other in ".{0,9}",
            at: usize,
            byte: u8,
            cut: usize,
        ) {
            let names = with(Some(&name), &[(NameKind::Uri, &other)]);
            prop_assert_eq!(ClientNames::from_bytes(names.as_bytes()), Some(names.clone()));
            let mut bytes = names.as_bytes().to_vec();
            let length = bytes.len();
            bytes[at % length] = byte;
            bytes.truncate(cut % (length + 1));
            if let Some(names) = ClientNames::from_bytes(&bytes) {
                let _ = (names.common_name(), names.alternative_name(), names.certificate());
                let _ = names.without_certificate();
            }
        }
    }

    #[test]
    fn bytes_that_are_no_names_are_refused() {
        let names = ClientNames::named(Some("alice"), &["a.example"]);
        let bytes = names.as_bytes();
        for end in 1..bytes.len() {
            let is_element_border = end == 1 || end == 1 + ELEMENT_HEAD_BYTES + "alice".len();
            let decoded = ClientNames::from_bytes(&bytes[..end]);
            assert_eq!(decoded.is_some(), is_element_border, "{end}");
        }
        for wrong in [&[2][..], &[SHOWN, 9, 0, 0], &[SHOWN, DNS, 0, 1, 0xff], &[0]] {
            assert!(ClientNames::from_bytes(wrong).is_none(), "{wrong:?}");
        }
        assert!(ClientNames::from_bytes(&[]).is_some_and(|nobody| !nobody.has_certificate()));
    }
}
