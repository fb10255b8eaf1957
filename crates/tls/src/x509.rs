//! Fields of X.509 certificates that `webpki` does not give (RFC 5280 section 4.1).

mod name;

/// The fields of a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fields {
    /// Unix time, seconds.
    pub(crate) not_before: i64,
    /// Unix time, seconds.
    pub(crate) not_after: i64,
    /// Host names for which it is, in lower case.
    pub(crate) hosts: Vec<String>,
    /// Number of IP addresses for which it is.
    pub(crate) addresses: usize,
    /// Basic constraints say that it is not that of an authority.
    pub(crate) is_end_entity: bool,
}

/// A kind of alternative name that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NameKind {
    Dns,
    Email,
    Uri,
}

/// The names of a certificate, as they are read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Names {
    /// The only common name of the subject; empty if there are several, or it is no text.
    pub(crate) common_name: String,
    /// Each alternative name of a kind that is kept; empty if it is no text.
    pub(crate) alternatives: Vec<(NameKind, String)>,
}

/// Reads the fields of a DER certificate; `None` for anything else.
pub(crate) fn fields(certificate: &[u8]) -> Option<Fields> {
    let mut body = body_of(certificate)?;
    // The algorithm and the issuer.
    body.expect(SEQUENCE)?;
    body.expect(SEQUENCE)?;
    let mut validity = Der(body.expect(SEQUENCE)?);
    let mut fields = Fields {
        not_before: time(validity.next()?)?,
        not_after: time(validity.next()?)?,
        ..Fields::default()
    };
    while let Some((tag, content)) = body.next() {
        if tag == EXTENSIONS {
            let mut extensions = Der(Der(content).expect(SEQUENCE)?);
            while let Some(extension) = extensions.next() {
                fields.add(extension)?;
            }
        }
    }
    Some(fields)
}

/// Reads the subject of a DER certificate as text; `None` for anything else.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    name::text_of(subject_of(&mut body_of(certificate)?)?)
}

/// Reads the names of a client's DER certificate; `None` for anything else.
pub(crate) fn names(certificate: &[u8]) -> Option<Names> {
    let mut body = body_of(certificate)?;
    let common_names = name::common_names_of(subject_of(&mut body)?)?;
    let mut alternatives = Vec::new();
    while let Some((tag, content)) = body.next() {
        if tag != EXTENSIONS {
            continue;
        }
        let mut extensions = Der(Der(content).expect(SEQUENCE)?);
        while let Some((_, extension)) = extensions.next() {
            let (id, mut content) = extension_of(extension)?;
            if id != SUBJECT_ALTERNATIVE_NAME {
                continue;
            }
            while let Some((tag, name)) = content.next() {
                let kind = match tag {
                    DNS_NAME => NameKind::Dns,
                    EMAIL => NameKind::Email,
                    URI => NameKind::Uri,
                    _ => continue,
                };
                // One that is no text still says that there are several.
                let text = str::from_utf8(name).ok().filter(|name| name.is_ascii());
                alternatives.push((kind, text.unwrap_or_default().to_owned()));
            }
        }
    }
    let [common_name] = <[_; 1]>::try_from(common_names).unwrap_or_default();
    Some(Names {
        common_name,
        alternatives,
    })
}

/// The elements of a certificate from its serial number on.
fn body_of(certificate: &[u8]) -> Option<Der<'_>> {
    let mut certificate = Der(Der(certificate).expect(SEQUENCE)?);
    let mut body = Der(certificate.expect(SEQUENCE)?);
    let mut next = body.next()?;
    if next.0 == VERSION {
        next = body.next()?;
    }
    (next.0 == INTEGER).then_some(body)
}

/// The subject, behind the algorithm, the issuer and the time.
fn subject_of<'a>(body: &mut Der<'a>) -> Option<&'a [u8]> {
    for _ in 0..3 {
        body.expect(SEQUENCE)?;
    }
    body.expect(SEQUENCE)
}

/// The identifier of an extension, and the elements of its value.
fn extension_of(extension: &[u8]) -> Option<(&[u8], Der<'_>)> {
    let mut extension = Der(extension);
    let id = extension.expect(OBJECT_ID)?;
    if ![SUBJECT_ALTERNATIVE_NAME, BASIC_CONSTRAINTS].contains(&id) {
        return Some((id, Der(&[])));
    }
    let mut value = extension.next()?;
    if value.0 == BOOLEAN {
        value = extension.next()?;
    }
    Some((id, Der(Der(value.1).expect(SEQUENCE)?)))
}

impl Fields {
    /// Adds what an extension has, if it is one of those that are read.
    fn add(&mut self, (_, extension): Element<'_>) -> Option<()> {
        let (id, mut content) = extension_of(extension)?;
        if id == BASIC_CONSTRAINTS {
            // False is the default, which DER leaves out.
            self.is_end_entity = !matches!(content.next(), Some((BOOLEAN, [0xff])));
        } else if id == SUBJECT_ALTERNATIVE_NAME {
            self.add_names(content);
        }
        Some(())
    }

    fn add_names(&mut self, mut names: Der<'_>) {
        while let Some((tag, name)) = names.next() {
            let text = || str::from_utf8(name).ok().filter(|name| name.is_ascii());
            match tag {
                DNS_NAME => self.hosts.extend(text().map(str::to_ascii_lowercase)),
                ADDRESS => self.addresses += 1,
                _ => {}
            }
        }
    }
}

/// Seconds of Unix time; RFC 5280 section 4.1.2.5 has seconds and `Z` in both forms.
fn time((tag, text): Element<'_>) -> Option<i64> {
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    (rest.len() == 10 && rest.bytes().all(|byte| byte.is_ascii_digit())).then_some(())?;
    let part = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    let of_day = part(4)? * 3600 + part(6)? * 60 + part(8)?;
    (1..=12).contains(&month).then_some(())?;
    Some(days(year, month, day) * 86_400 + of_day)
}

/// Days from 1970-01-01 to a day of the Gregorian calendar. The year begins in March here, so that
/// the leap day is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let days_before_month = (153 * ((month + 9) % 12) + 2) / 5;
    365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + days_before_month
        + day
        - 719_469
}

/// A tag, and the content behind it.
type Element<'a> = (u8, &'a [u8]);

/// A reader of elements in DER, one after another.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element; `None` at the end, and if the bytes are no element.
    fn next(&mut self) -> Option<Element<'a>> {
        let [tag, length, rest @ ..] = self.0 else {
            return None;
        };
        let (length, rest) = match usize::from(*length) {
            short @ 0..=0x7f => (short, rest),
            long @ 0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(long - 0x80)?;
                let add = |length, byte: &u8| (length << 8) | usize::from(*byte);
                (bytes.iter().fold(0, add), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }

    /// The content of the next element, if it has this tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content) = self.next()?;
        (found == tag).then_some(content)
    }
}

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const EMAIL: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
const ADDRESS: u8 = 0x87;
/// 2.5.29.19
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
/// 2.5.29.17
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    fn certificate(pem: &[u8]) -> Vec<u8> {
        CertificateDer::from_pem_slice(pem).unwrap().to_vec()
    }

    fn example() -> Vec<u8> {
        certificate(include_bytes!("../tests/data/certificate.pem"))
    }

    #[test]
    fn the_fields_of_a_certificate_are_found() {
        let fields = fields(&example()).unwrap();
        assert_eq!(fields.hosts, ["dwell.test", "localhost"]);
        assert_eq!(fields.addresses, 1);
        assert!(fields.is_end_entity);
        let authority = certificate(include_bytes!("../tests/data/pinned.pem"));
        assert!(!self::fields(&authority).unwrap().is_end_entity);
        // Written as UTCTime and as GeneralizedTime.
        assert_eq!(
            (fields.not_before, fields.not_after),
            (1_795_534_331, 4_949_134_331)
        );
    }

    #[test]
    fn times_are_read_in_both_forms() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (GENERALIZED_TIME, "20240229120000Z", Some(1_709_208_000)),
            (GENERALIZED_TIME, "20501231235959Z", Some(2_556_143_999)),
            (GENERALIZED_TIME, "2024022912000Z", None),
            (GENERALIZED_TIME, "20241329120000Z", None),
            (UTC_TIME, "240229120000", None),
            (UTC_TIME, "2402291200+0Z", None),
            (SEQUENCE, "700101000000Z", None),
        ] {
            assert_eq!(time((tag, text.as_bytes())), expected, "{text}");
        }
    }

    proptest! {
        /// No content of a file may cause a panic.
        #[test]
        fn damage_is_no_panic(at: usize, byte: u8, cut: usize) {
            let mut bytes = example();
            let length = bytes.len();
            bytes[at % length] = byte;
            bytes.truncate(cut % (length + 1));
            let _ = fields(&bytes);
            let _ = subject(&bytes);
            let _ = names(&bytes);
        }
    }
}
