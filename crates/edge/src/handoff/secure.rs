//! Connections under TLS on their way to a successor, and what of TLS it takes.

use super::channel::Frame;
use super::connections::HandedConnection;
use super::listeners::Role;
use zeroize::Zeroizing;

/// The parts of TLS that a successor takes, as the bytes of its `Ready` say.
///
/// Shape: nothing from a successor of an earlier version; else the version of what is frozen and,
/// where clients have to show a certificate, the digest of the authorities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TakesTls {
    /// Nothing that this process could freeze.
    Nothing,
    /// Connections and keys of tickets of this version. With a digest, connections of clients that
    /// were verified by these authorities alone.
    Frozen { client_authorities: Option<Digest> },
}

type Digest = [u8; 32];

/// The version of frozen streams, sessions and keys of tickets together.
const VERSION: u8 = 1;

impl TakesTls {
    /// Encodes it for the predecessor.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Frozen { client_authorities } => {
                let digest = client_authorities.iter().flatten();
                [VERSION].iter().chain(digest).copied().collect()
            }
        }
    }

    /// Decodes the output of [`to_bytes`](Self::to_bytes); what is unknown is taken for nothing.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let client_authorities = match bytes {
            [VERSION] => None,
            [VERSION, digest @ ..] => match digest.try_into() {
                Ok(digest) => Some(digest),
                Err(_) => return Self::Nothing,
            },
            _ => return Self::Nothing,
        };
        Self::Frozen { client_authorities }
    }

    /// Returns true if keys of tickets are taken.
    pub(crate) fn takes_ticket_keys(self) -> bool {
        self != Self::Nothing
    }

    /// Returns true if connections are taken whose clients were verified by the authorities of
    /// `verified`, or by none. No client gets past a verification that it would meet if it
    /// connected anew.
    pub(crate) fn takes_connections(self, verified: Option<Digest>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Frozen { client_authorities } => {
                client_authorities.is_none() || client_authorities == verified
            }
        }
    }
}

/// Makes the bytes of the frame of a connection under TLS.
pub(super) fn to_bytes(frozen: &[u8], input: &[u8]) -> Zeroizing<Vec<u8>> {
    // All of its room at once, so that no copy of a secret is left behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(4 + frozen.len() + input.len()));
    bytes.extend_from_slice(&(frozen.len() as u32).to_le_bytes());
    bytes.extend_from_slice(frozen);
    bytes.extend_from_slice(input);
    bytes
}

impl HandedConnection {
    /// The connection of a frame that was made by [`to_bytes`]; `None` where it is none.
    pub(crate) fn secure(frame: Frame) -> Option<Self> {
        let bytes = Zeroizing::new(frame.bytes);
        let (length, rest) = bytes.split_first_chunk()?;
        let (frozen, input) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Self {
            role: Role::of(frame.mark)?,
            is_trusted: false,
            frozen: Some(Zeroizing::new(frozen.to_vec())),
            input: input.to_vec(),
            descriptor: frame.descriptor?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::channel::FrameKind;
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_successor_takes_what_it_says() {
        let frozen = |client_authorities| TakesTls::Frozen { client_authorities };
        for takes in [TakesTls::Nothing, frozen(None), frozen(Some([7; 32]))] {
            assert_eq!(TakesTls::from_bytes(&takes.to_bytes()), takes);
        }
        let unknown: [&[u8]; 4] = [&[], &[2], &[VERSION, 0], &[VERSION; 34]];
        for bytes in unknown {
            assert_eq!(TakesTls::from_bytes(bytes), TakesTls::Nothing);
        }
    }

    #[test]
    fn no_client_gets_past_a_verification() {
        let (one, other) = (Some([1; 32]), Some([2; 32]));
        let takes = |wanted, verified| {
            let client_authorities = wanted;
            TakesTls::Frozen { client_authorities }.takes_connections(verified)
        };
        assert!(takes(None, None) && takes(None, one) && takes(one, one));
        assert!(!takes(one, None) && !takes(one, other));
        let nothing = TakesTls::Nothing;
        assert!(!nothing.takes_connections(None) && !nothing.takes_ticket_keys());
    }

    fn frame(mark: u8, bytes: &[u8]) -> Frame {
        Frame {
            kind: FrameKind::SecureConnection,
            mark,
            bytes: bytes.to_vec(),
            descriptor: Some(UnixStream::pair().unwrap().0.into()),
        }
    }

    #[test]
    fn both_parts_of_a_frame_come_back_and_a_short_one_is_refused() {
        let bytes = to_bytes(b"frozen", b"GET");
        assert_eq!(bytes.len(), bytes.capacity());
        let came = frame(0, &bytes);
        assert_eq!(format!("{came:?}"), "Frame(SecureConnection, 13 bytes)");
        let handed = HandedConnection::secure(came).unwrap();
        let shown = "HandedConnection(Client, 3 bytes)";
        assert_eq!(format!("{handed:?}"), shown, "no secret is shown");
        assert_eq!(
            handed.frozen.as_deref().map(|frozen| &frozen[..]),
            Some(&b"frozen"[..])
        );
        assert_eq!((handed.role, &*handed.input), (Role::Client, &b"GET"[..]));
        for end in 0..bytes.len() - b"GET".len() {
            assert!(HandedConnection::secure(frame(0, &bytes[..end])).is_none());
        }
        assert!(HandedConnection::secure(frame(99, &bytes)).is_none());
    }
}
