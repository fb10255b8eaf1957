//! The choice of a prepared content coding that the client accepts.

use dwell_proto::http1::{Fields, list_tokens};

/// A content coding that a file may be prepared in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coding {
    Brotli,
    Zstandard,
    Gzip,
}

/// Codings in the order in which they are tried for a client without a preference.
const CODINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstandard, Coding::Gzip];

impl Coding {
    /// The registered name (RFC 9110 section 8.4.1; RFC 7932; RFC 8878).
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstandard => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// The ending of the file's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstandard => ".zst",
            Self::Gzip => ".gz",
        }
    }
}

/// The codings that the client takes, the best first.
///
/// Source: RFC 9110 section 12.5.3.
pub(super) fn acceptable(fields: Fields<'_, '_>) -> impl Iterator<Item = Coding> {
    let mut weights: [Option<u16>; CODINGS.len()] = [None; CODINGS.len()];
    let mut any_other = 0;
    for element in fields.all("Accept-Encoding").flat_map(list_tokens) {
        let (name, weight) = weighted(element);
        if name == b"*" {
            any_other = weight;
        }
        for (coding, known) in CODINGS.iter().zip(&mut weights) {
            let is_named = name.eq_ignore_ascii_case(coding.name().as_bytes());
            let is_alias = *coding == Coding::Gzip && name.eq_ignore_ascii_case(b"x-gzip");
            if is_named || is_alias {
                *known = Some(weight);
            }
        }
    }
    let mut codings: Vec<_> = CODINGS
        .into_iter()
        .zip(weights.map(|weight| weight.unwrap_or(any_other)))
        .filter(|(_, weight)| *weight > 0)
        .collect();
    codings.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    codings.into_iter().map(|(coding, _)| coding)
}

/// A list element and its weight in thousandths; one that is not valid weighs nothing.
fn weighted(element: &[u8]) -> (&[u8], u16) {
    let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().unwrap_or_default();
    let weight = match parts.next() {
        None => Some(1000),
        Some([b'q' | b'Q', b'=', value @ ..]) => thousandths(value),
        Some(_) => None,
    };
    (name, weight.unwrap_or(0))
}

/// Source: RFC 9110 section 12.4.2.
fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, fraction) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    if !matches!(whole, b'0' | b'1') || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut weight = u16::from(whole - b'0');
    for place in 0..3 {
        let digit = fraction.get(place).map_or(0, |digit| digit - b'0');
        weight = weight * 10 + u16::from(digit);
    }
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

    fn taken(values: &[&str]) -> String {
        let mut head = "GET / HTTP/1.1\r\nHost: a\r\n".to_owned();
        for value in values {
            head.push_str("Accept-Encoding: ");
            head.push_str(value);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request(head.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
        acceptable(head.fields)
            .map(Coding::name)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_best_coding_that_the_client_takes_comes_first() {
        assert_eq!(taken(&[]), "");
        assert_eq!(taken(&[""]), "");
        assert_eq!(taken(&["gzip, deflate, br, zstd"]), "br zstd gzip");
        assert_eq!(taken(&["gzip;q=1.0, br;q=0.8"]), "gzip br");
        assert_eq!(taken(&["GZIP ; Q=0.001"]), "gzip");
        assert_eq!(taken(&["x-gzip"]), "gzip");
        assert_eq!(taken(&["*"]), "br zstd gzip");
        assert_eq!(taken(&["*;q=0.5, gzip, br;q=0"]), "gzip zstd");
        assert_eq!(taken(&["identity", "br;q=0.5", "zstd"]), "zstd br");
    }

    #[test]
    fn a_weight_that_is_none_takes_nothing() {
        for value in [
            "br;q=2",
            "br;q=1.001",
            "br;q=0.1234",
            "br;q=",
            "br;q=x",
            "br;a=1",
            "br;q=.5",
        ] {
            assert_eq!(taken(&[value]), "", "{value}");
        }
        assert_eq!(thousandths(b"0."), Some(0));
        assert_eq!(thousandths(b"1.000"), Some(1000));
        assert_eq!(thousandths(b"0.25"), Some(250));
    }
}
