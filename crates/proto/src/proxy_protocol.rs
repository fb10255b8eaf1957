//! The header of the PROXY protocol, by which a balancer tells whose connection it passes on.
//!
//! Source: `HAProxy`, `doc/proxy-protocol.txt`, sections 2.1 and 2.2.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::fmt;

/// The header that a connection has begun with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyHeader {
    /// The client; `None` where the address of the connection itself stands: a check of the
    /// balancer (`LOCAL`), or a client without an address of TCP (`UNKNOWN`, `AF_UNSPEC`, others).
    pub source: Option<SocketAddr>,
    /// Bytes of the header, behind which the client's begin.
    pub bytes: usize,
}

/// Reason why a connection does not begin with a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ProxyHeaderError {
    /// It begins with something else.
    Missing,
    /// A line of version 1 has another form, or an impossible address or port.
    Line,
    /// A line of version 1 has more than 107 bytes.
    LongLine,
    /// A binary header has this version and command, of which one is unknown.
    Command(u8),
    /// It has this family and transport, of which one is unknown.
    Family(u8),
    /// It has so few bytes of addresses for its family.
    Short(usize),
    /// It has so many bytes behind its first 16.
    Long(usize),
}

/// Bytes of a header that [`parse`] takes, at most.
pub const HEADER_BYTES_MAX: usize = FIXED_BYTES + REST_BYTES_MAX;

/// Bytes of a line of version 1, at most, with its end.
const LINE_BYTES_MAX: usize = 107;
/// Bytes of a binary header that are always there.
const FIXED_BYTES: usize = 16;
/// Bytes of addresses and TLVs behind them, at most.
const REST_BYTES_MAX: usize = 512;
const LINE: &[u8] = b"PROXY ";
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Reads the header, of version 1 or 2, at the front of `input`.
///
/// Shape: `None` while it is not whole; what is no header is found at its first wrong byte, or at
/// the end of its line. TLVs are skipped. [`HEADER_BYTES_MAX`] bytes of input always decide.
///
/// # Errors
/// [`ProxyHeaderError`]; the connection is to be closed, as its client is unknown.
///
/// ```
/// use dwell_proto::proxy_protocol::{ProxyHeader, parse};
///
/// let input = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET / HTTP/1.1\r\n";
/// let source = "192.0.2.1:56324".parse().ok();
/// assert_eq!(parse(input), Ok(Some(ProxyHeader { source, bytes: 45 })));
/// assert_eq!(parse(&input[..44]), Ok(None));
/// assert!(parse(b"GET / HTTP/1.1\r\n").is_err());
/// ```
pub fn parse(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    if begins(input, LINE) {
        line(input)
    } else if begins(input, SIGNATURE) {
        binary(input)
    } else {
        Err(ProxyHeaderError::Missing)
    }
}

/// Returns true if `input` has this beginning, or is one of it.
fn begins(input: &[u8], with: &[u8]) -> bool {
    let length = input.len().min(with.len());
    input[..length] == with[..length]
}

/// Reads a header of version 1.
fn line(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let within = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', within) else {
        return match within.len() {
            LINE_BYTES_MAX => Err(ProxyHeaderError::LongLine),
            _ => Ok(None),
        };
    };
    let text = within[..end].strip_suffix(b"\r");
    let text = text.and_then(|text| text.strip_prefix(LINE));
    let text = text.and_then(|text| str::from_utf8(text).ok());
    let source = text.and_then(line_source).ok_or(ProxyHeaderError::Line)?;
    let bytes = end + 1;
    Ok(Some(ProxyHeader { source, bytes }))
}

/// The source in a line behind its first word; the outer `None` for another form.
#[expect(
    clippy::option_option,
    reason = "a line without a source is not one of another form"
)]
fn line_source(text: &str) -> Option<Option<SocketAddr>> {
    let mut words = text.split(' ');
    let is_v4 = match words.next()? {
        // What follows, if anything, is to be ignored.
        "UNKNOWN" => return Some(None),
        "TCP4" => true,
        "TCP6" => false,
        _ => return None,
    };
    let mut address = || -> Option<IpAddr> {
        let word = words.next()?;
        if is_v4 {
            word.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
        } else {
            word.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
        }
    };
    let (source, _) = (address()?, address()?);
    let mut port = || -> Option<u16> {
        let word = words.next()?;
        let is_plain = word.bytes().all(|byte| byte.is_ascii_digit());
        let is_plain = is_plain && (word.len() == 1 || !word.starts_with('0'));
        is_plain.then_some(())?;
        word.parse().ok()
    };
    let (source_port, _) = (port()?, port()?);
    words
        .next()
        .is_none()
        .then(|| Some(SocketAddr::new(source, source_port)))
}

/// Reads a header of version 2.
fn binary(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let Some(fixed) = input.get(SIGNATURE.len()..) else {
        return Ok(None);
    };
    let command = match fixed.first() {
        None => return Ok(None),
        Some(0x20) => Command::Local,
        Some(0x21) => Command::Proxy,
        Some(other) => return Err(ProxyHeaderError::Command(*other)),
    };
    let family = match fixed.get(1) {
        None => return Ok(None),
        Some(0x11) => Family::Tcp4,
        Some(0x21) => Family::Tcp6,
        // Unspecified, datagrams, and unix sockets, which have no address of TCP.
        Some(0x00 | 0x12 | 0x22 | 0x31 | 0x32) => Family::Other,
        Some(other) => return Err(ProxyHeaderError::Family(*other)),
    };
    let [_, _, high, low, rest @ ..] = fixed else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length > REST_BYTES_MAX {
        return Err(ProxyHeaderError::Long(length));
    }
    let family = match command {
        Command::Local => Family::Other,
        Command::Proxy => family,
    };
    if length < family.bytes() {
        return Err(ProxyHeaderError::Short(length));
    }
    let Some(rest) = rest.get(..length) else {
        return Ok(None);
    };
    Ok(Some(ProxyHeader {
        source: family.source(rest),
        bytes: FIXED_BYTES + length,
    }))
}

enum Command {
    Local,
    Proxy,
}

enum Family {
    Tcp4,
    Tcp6,
    Other,
}

impl Family {
    /// Bytes of two addresses and two ports.
    fn bytes(&self) -> usize {
        match self {
            Self::Tcp4 => 12,
            Self::Tcp6 => 36,
            Self::Other => 0,
        }
    }

    /// The source in what is behind the fixed bytes: both addresses, then both ports.
    fn source(&self, rest: &[u8]) -> Option<SocketAddr> {
        let (ip, port) = match self {
            Self::Tcp4 => {
                let ip: [u8; 4] = rest.get(..4)?.try_into().ok()?;
                (IpAddr::from(ip), rest.get(8..10)?)
            }
            Self::Tcp6 => {
                let ip: [u8; 16] = rest.get(..16)?.try_into().ok()?;
                (IpAddr::from(ip), rest.get(32..34)?)
            }
            Self::Other => return None,
        };
        let port = u16::from_be_bytes(port.try_into().ok()?);
        Some(SocketAddr::new(ip, port))
    }
}

impl fmt::Display for ProxyHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no header of the PROXY protocol"),
            Self::Line => f.write_str("the line of the PROXY protocol is malformed"),
            Self::LongLine => write!(f, "the line exceeds {LINE_BYTES_MAX} bytes"),
            Self::Command(byte) => write!(f, "unknown version or command: 0x{byte:02x}"),
            Self::Family(byte) => write!(f, "unknown address family: 0x{byte:02x}"),
            Self::Short(bytes) => write!(f, "too few bytes for the addresses: {bytes}"),
            Self::Long(bytes) => {
                write!(
                    f,
                    "addresses and TLVs exceed {REST_BYTES_MAX} bytes: {bytes}"
                )
            }
        }
    }
}

impl std::error::Error for ProxyHeaderError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(family: u8, command: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, family][..], &length, rest].concat()
    }

    fn source(input: &[u8]) -> Result<Option<String>, ProxyHeaderError> {
        let header = parse(input)?.expect("the header is whole");
        assert_eq!(header.bytes, input.len(), "{input:?}");
        Ok(header.source.map(|source| source.to_string()))
    }

    const V4: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 4, 1, 187];

    #[test]
    fn lines_name_the_client() {
        for (line, expected) in [
            (
                "TCP4 192.0.2.1 198.51.100.1 56324 443",
                Some("192.0.2.1:56324"),
            ),
            ("TCP6 2001:db8::7 ::1 1 65535", Some("[2001:db8::7]:1")),
            ("TCP6 ::ffff:1.2.3.4 ::1 0 443", Some("[::ffff:1.2.3.4]:0")),
            ("UNKNOWN", None),
            ("UNKNOWN ffff::1 what ever", None),
        ] {
            let found = source(format!("PROXY {line}\r\n").as_bytes());
            assert_eq!(found.unwrap().as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn lines_of_another_form_are_refused() {
        for line in [
            "TCP4 192.0.2.1 198.51.100.1 56324",
            "TCP4 192.0.2.1 198.51.100.1 56324 443 1",
            "TCP4  192.0.2.1 198.51.100.1 56324 443",
            "TCP4 192.0.2.1 198.51.100.1 056324 443",
            "TCP4 192.0.2.1 198.51.100.1 +5 443",
            "TCP4 192.0.2.1 198.51.100.1 65536 443",
            "TCP4 192.0.2.01 198.51.100.1 1 443",
            "TCP4 ::1 ::1 1 443",
            "TCP6 192.0.2.1 198.51.100.1 1 443",
            "TCP5 192.0.2.1 198.51.100.1 1 443",
            "UDP4 192.0.2.1 198.51.100.1 1 443",
            "",
            "\u{e9}",
        ] {
            let found = parse(format!("PROXY {line}\r\n").as_bytes());
            assert_eq!(found, Err(ProxyHeaderError::Line), "{line}");
        }
        let bare = parse(b"PROXY UNKNOWN\n");
        assert_eq!(bare, Err(ProxyHeaderError::Line), "a line ends with CRLF");
    }

    #[test]
    fn a_line_has_107_bytes_at_most() {
        let line = |bytes: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(bytes - 16));
        assert_eq!(source(line(107).as_bytes()), Ok(None));
        assert_eq!(parse(line(108).as_bytes()), Err(ProxyHeaderError::LongLine));
        assert_eq!(parse(&line(108).as_bytes()[..106]), Ok(None));
    }

    #[test]
    fn binary_headers_name_the_client() {
        let v6 = [&[0x20; 16][..], &[1; 16], &[0, 80], &[1, 187]].concat();
        let with_tlvs = [V4, &[4, 0, 2, 9, 9]].concat();
        for (family, command, rest, expected) in [
            (0x11, 0x21, V4, Some("192.0.2.1:56324")),
            (0x11, 0x21, &with_tlvs, Some("192.0.2.1:56324")),
            (
                0x21,
                0x21,
                &v6,
                Some("[2020:2020:2020:2020:2020:2020:2020:2020]:80"),
            ),
            (0x11, 0x20, V4, None),
            (0x00, 0x20, &[], None),
            (0x00, 0x21, &[4, 0, 1, 0], None),
            (0x12, 0x21, V4, None),
            (0x31, 0x21, &[0; 216], None),
        ] {
            let found = source(&header(family, command, rest));
            assert_eq!(
                found.unwrap().as_deref(),
                expected,
                "{family:x} {command:x}"
            );
        }
    }

    #[test]
    fn binary_headers_of_another_form_are_refused() {
        use ProxyHeaderError::{Command, Family, Long, Short};
        for (family, command, rest, expected) in [
            (0x11, 0x11, V4, Command(0x11)),
            (0x11, 0x22, V4, Command(0x22)),
            (0x13, 0x21, V4, Family(0x13)),
            (0x41, 0x21, V4, Family(0x41)),
            (0x11, 0x21, &V4[1..], Short(11)),
            (0x21, 0x21, &[0; 35], Short(35)),
            (0x11, 0x21, &[0; 513], Long(513)),
        ] {
            assert_eq!(parse(&header(family, command, rest)), Err(expected));
        }
        assert_eq!(source(&header(0x00, 0x20, &[0; 512])), Ok(None));
        assert_eq!(parse(b""), Ok(None));
        for other in ["G", "PROX GET", "\r\n\r\nGET", "\u{16}\u{3}\u{1}"] {
            assert_eq!(parse(other.as_bytes()), Err(ProxyHeaderError::Missing));
        }
    }

    fn any_header() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0x20u8), Just(0x21), Just(0x11), Just(0), any::<u8>()];
        let binary = (
            byte.clone(),
            byte,
            proptest::collection::vec(any::<u8>(), 0..60),
        )
            .prop_map(|(command, family, rest)| header(family, command, &rest));
        let line = "PROXY (TCP4 1.2.3.[0-9]{1,3} 1.1.1.1 [0-9]{1,5} 1|UNKNOWN[ -~]{0,95})\r?\n?";
        let line = line.prop_map(String::into_bytes);
        let other = proptest::collection::vec(any::<u8>(), 0..40);
        prop_oneof![binary, line, other]
    }

    proptest! {
        /// Pieces give what the whole gives, and nothing behind a header matters.
        #[test]
        fn a_byte_at_a_time_equals_the_whole(
            input in any_header(),
            behind in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            let whole = [input, behind].concat();
            let decided = (0..=whole.len()).map(|end| parse(&whole[..end]));
            let decided: Vec<_> = decided.collect();
            let first = decided.iter().position(|found| *found != Ok(None));
            let first = first.unwrap_or(whole.len());
            for later in &decided[first..] {
                prop_assert_eq!(later, &decided[first]);
            }
            prop_assert!(first <= HEADER_BYTES_MAX);
            if let Ok(Some(header)) = decided[first] {
                prop_assert_eq!(header.bytes, first);
            }
        }
    }
}
