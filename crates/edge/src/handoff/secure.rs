//! Connections under TLS on their way to a successor, and what of TLS it takes.

use super::channel::Frame;
use super::connections::HandedConnection;
use super::listeners::Role;
use dwell_evloop::{Acceptor, KeptOfClient};
use zeroize::Zeroizing;

/// The parts of TLS that a successor takes, as the bytes of its `Ready` say.
///
/// Shape: nothing from a successor of an earlier version; else the version of what is frozen and,
/// where clients are asked for a certificate, the digest of the authorities. The version is another
/// one where they may show none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TakesTls {
    /// Nothing that this process could freeze.
    Nothing,
    /// Connections and keys of tickets of this version.
    Frozen {
        /// The authorities that vouch for clients, if these are asked for certificates.
        authorities: Option<Digest>,
        /// Connections of clients are taken that these authorities have verified alone.
        is_required: bool,
    },
}

type Digest = [u8; 32];

/// The version of frozen streams, sessions and keys of tickets together.
const VERSION: u8 = 1;
/// The same, from a process in which clients may show a certificate or none.
const VERSION_OPTIONAL: u8 = 2;

impl TakesTls {
    /// The parts that a successor takes which accepts connections by `acceptor`.
    pub(crate) fn of(acceptor: &Acceptor) -> Self {
        Self::Frozen {
            authorities: acceptor.authorities(),
            is_required: acceptor.client_authorities().is_some(),
        }
    }

    /// Encodes it for the predecessor.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Frozen {
                authorities,
                is_required,
            } => {
                let is_optional = authorities.is_some() && !is_required;
                let version = if is_optional {
                    VERSION_OPTIONAL
                } else {
                    VERSION
                };
                let digest = authorities.iter().flatten();
                [version].iter().chain(digest).copied().collect()
            }
        }
    }

    /// Decodes the output of [`to_bytes`](Self::to_bytes); what is unknown is taken for nothing.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let (is_required, digest) = match bytes {
            [VERSION] => {
                return Self::Frozen {
                    authorities: None,
                    is_required: false,
                };
            }
            [VERSION, digest @ ..] => (true, digest),
            [VERSION_OPTIONAL, digest @ ..] => (false, digest),
            _ => return Self::Nothing,
        };
        match digest.try_into() {
            Ok(digest) => Self::Frozen {
                authorities: Some(digest),
                is_required,
            },
            Err(_) => Self::Nothing,
        }
    }

    /// Returns true if keys of tickets are taken.
    pub(crate) fn takes_ticket_keys(self) -> bool {
        self != Self::Nothing
    }

    /// Returns true if connections are taken whose clients were verified by the authorities of
    /// `verified`, or by none. No client gets past a verification that it would meet if it
    /// connected again.
    pub(crate) fn takes_connections(self, verified: Option<Digest>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Frozen {
                authorities,
                is_required,
            } => !is_required || authorities == verified,
        }
    }

    /// Returns true if the names of clients mean the same there, which these authorities have
    /// vouched for here. Elsewhere another client may have them.
    pub(crate) fn takes_names(self, vouched: Option<Digest>) -> bool {
        matches!(self, Self::Frozen { authorities: Some(of), .. } if Some(of) == vouched)
    }
}

/// The part of a client that a successor reads beside its session, as the mark of its `Serving`
/// says: nothing where it is of an earlier version, which would drop a connection that has more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadsClient(KeptOfClient);

impl ReadsClient {
    /// The part that a successor reads which accepts connections by `acceptor`: names always, and
    /// certificates where it keeps them.
    pub(crate) fn of(acceptor: &Acceptor) -> Self {
        Self(
            acceptor
                .keeps()
                .clamp(KeptOfClient::Names, KeptOfClient::Certificate),
        )
    }

    /// Encodes it for the predecessor.
    pub(crate) fn to_mark(self) -> u8 {
        self.0 as u8
    }

    /// Decodes the output of [`to_mark`](Self::to_mark); a later version reads as much as this one.
    pub(crate) fn from_mark(mark: u8) -> Self {
        Self(match mark {
            0 => KeptOfClient::Nothing,
            1 => KeptOfClient::Names,
            _ => KeptOfClient::Certificate,
        })
    }

    /// The part that is sent where clients were verified by the authorities of `vouched`.
    pub(super) fn part_for(self, takes: TakesTls, vouched: Option<Digest>) -> KeptOfClient {
        if takes.takes_names(vouched) {
            self.0
        } else {
            KeptOfClient::Nothing
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
    /// The connection of a frame that was made by [`to_bytes`]; `None` for other frames.
    pub(crate) fn secure(frame: Frame) -> Option<Self> {
        let (length, rest) = frame.bytes.split_first_chunk()?;
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
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_successor_takes_what_it_says() {
        let frozen = |authorities, is_required| TakesTls::Frozen {
            authorities,
            is_required,
        };
        let digest = Some([7; 32]);
        for takes in [
            TakesTls::Nothing,
            frozen(None, false),
            frozen(digest, true),
            frozen(digest, false),
        ] {
            assert_eq!(TakesTls::from_bytes(&takes.to_bytes()), takes);
        }
        // As processes before this version say it.
        assert_eq!(frozen(None, false).to_bytes(), [VERSION]);
        assert_eq!(frozen(digest, true).to_bytes()[..2], [VERSION, 7]);
        let unknown: [&[u8]; 5] = [&[], &[2], &[3], &[VERSION, 0], &[VERSION; 34]];
        for bytes in unknown {
            assert_eq!(TakesTls::from_bytes(bytes), TakesTls::Nothing);
        }
    }

    #[test]
    fn no_client_gets_past_a_verification() {
        let (one, other) = (Some([1; 32]), Some([2; 32]));
        let frozen = |authorities, is_required| TakesTls::Frozen {
            authorities,
            is_required,
        };
        let takes = |wanted: Option<_>, verified| {
            frozen(wanted, wanted.is_some()).takes_connections(verified)
        };
        assert!(takes(None, None) && takes(None, one) && takes(one, one));
        assert!(!takes(one, None) && !takes(one, other));
        assert!(
            frozen(one, false).takes_connections(other),
            "they may have none"
        );
        let nothing = TakesTls::Nothing;
        assert!(!nothing.takes_connections(None) && !nothing.takes_ticket_keys());
    }

    #[test]
    fn a_name_goes_only_where_the_same_authorities_give_it() {
        let (one, other) = (Some([1; 32]), Some([2; 32]));
        for is_required in [false, true] {
            let takes = |authorities, vouched| {
                TakesTls::Frozen {
                    authorities,
                    is_required,
                }
                .takes_names(vouched)
            };
            assert!(takes(one, one));
            assert!(!takes(one, other) && !takes(one, None) && !takes(None, one));
            assert!(!takes(None, None));
        }
        assert!(!TakesTls::Nothing.takes_names(None));
    }

    #[test]
    fn no_more_of_a_client_goes_than_the_successor_reads() {
        use KeptOfClient::{Certificate, Names, Nothing};
        for part in [Nothing, Names, Certificate] {
            let reads = ReadsClient(part);
            assert_eq!(ReadsClient::from_mark(reads.to_mark()), reads);
        }
        assert_eq!(ReadsClient::from_mark(9), ReadsClient(Certificate));
        let acceptor = Acceptor::new(Vec::new(), 1);
        for (keeps, read) in [(Nothing, 1), (Names, 1), (Certificate, 2)] {
            acceptor.keep(keeps);
            assert_eq!(ReadsClient::of(&acceptor).to_mark(), read, "{keeps:?}");
        }
        let (one, other) = (Some([1; 32]), Some([2; 32]));
        let takes = TakesTls::Frozen {
            authorities: one,
            is_required: true,
        };
        assert_eq!(ReadsClient(Certificate).part_for(takes, one), Certificate);
        assert_eq!(ReadsClient(Nothing).part_for(takes, one), Nothing);
        assert_eq!(ReadsClient(Certificate).part_for(takes, other), Nothing);
    }

    fn frame(mark: u8, bytes: &[u8]) -> Frame {
        Frame {
            kind: FrameKind::SecureConnection,
            mark,
            bytes: Zeroizing::new(bytes.to_vec()),
            descriptor: Some(OwnedFd::from(UnixStream::pair().unwrap().0).into()),
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
