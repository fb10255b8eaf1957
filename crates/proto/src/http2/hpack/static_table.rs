//! The static table.

/// Returns the field of an index from 1 on.
pub(super) fn entry(index: u32) -> Option<(&'static str, &'static str)> {
    let place = usize::try_from(index).ok()?.checked_sub(1)?;
    STATIC_TABLE.get(place).copied()
}

/// Returns the first index with this name in lower case.
pub(super) fn index_of_name(name: &[u8]) -> Option<u32> {
    let range = BY_LENGTH.get(name.len()..name.len() + 2)?;
    let places = &PLACES[usize::from(range[0])..usize::from(range[1])];
    let is_it = |place: &&u8| STATIC_TABLE[usize::from(**place)].0.as_bytes() == name;
    places.iter().find(is_it).map(|place| u32::from(*place) + 1)
}

/// Number of entries.
pub(super) const LEN: u32 = STATIC_TABLE.len() as u32;

/// Source: RFC 7541 appendix A.
const STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The longest name of the table, and two.
const LENGTHS: usize = 29;

/// Places in the table by the lengths of names; those of equal length in the table's order.
const PLACES: [u8; STATIC_TABLE.len()] = by_length().0;
/// For each length, where its places begin in [`PLACES`].
const BY_LENGTH: [u8; LENGTHS] = by_length().1;

const fn by_length() -> ([u8; STATIC_TABLE.len()], [u8; LENGTHS]) {
    let (mut places, mut starts) = ([0; STATIC_TABLE.len()], [0; LENGTHS]);
    let (mut length, mut filled) = (0, 0);
    while length < LENGTHS {
        starts[length] = filled as u8;
        let mut place = 0;
        while place < STATIC_TABLE.len() {
            if STATIC_TABLE[place].0.len() == length {
                places[filled] = place as u8;
                filled += 1;
            }
            place += 1;
        }
        length += 1;
    }
    assert!(filled == STATIC_TABLE.len(), "a name is longer than any");
    (places, starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_first_index() {
        assert_eq!(index_of_name(b":method"), Some(2));
        assert_eq!(index_of_name(b":status"), Some(8));
        assert_eq!(index_of_name(b"www-authenticate"), Some(61));
        assert_eq!(index_of_name(b"access-control-allow-origin"), Some(20));
        for other in [
            &b""[..],
            b"x",
            b"etags",
            b"Etag",
            &[b'a'; 27],
            &[b'a'; 28],
            &[b'a'; 99],
        ] {
            assert_eq!(index_of_name(other), None);
        }
        for index in 1..=LEN {
            let (name, _) = entry(index).expect("it is in the table");
            let first = index_of_name(name.as_bytes()).expect("it has a name");
            assert!(first <= index);
            assert_eq!(entry(first).map(|(name, _)| name), Some(name));
        }
        assert_eq!((entry(0), entry(62)), (None, None));
    }
}
