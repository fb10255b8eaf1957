//! The part of a representation that a request asks for.

use dwell_proto::http1::list_tokens;
use std::ops::Range;

/// The meaning of a `Range` field for a representation of a certain length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Selection {
    /// The field is to be ignored: everything is sent.
    Whole,
    /// These bytes, in the order asked for; at least one range, and each has at least one byte.
    Parts(Vec<Range<u64>>),
    /// No range touches the representation.
    Unsatisfiable,
}

/// One specification of a range, before the length is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Specification {
    /// From here to there, both inclusive.
    Between(u64, u64),
    /// A number of bytes at the end.
    Last(u64),
}

/// Selects the ranges of a `Range` field from `length` bytes.
///
/// Shape: what is not a valid set of byte ranges is ignored, and so is one of more than
/// `ranges_max`, or one that asks for more bytes in all than there are, which only overlapping
/// ranges do. Ranges that lie beyond the end are left out.
///
/// Source: RFC 9110 sections 14.1.1, 14.1.2 and 14.2.
pub(super) fn select(value: &[u8], length: u64, ranges_max: usize) -> Selection {
    let Some(specifications) = parse(value, ranges_max) else {
        return Selection::Whole;
    };
    let mut parts = Vec::with_capacity(specifications.len());
    for specification in specifications {
        match specification {
            // It asks for all of nothing, which no Content-Range can tell.
            Specification::Last(count) if count > 0 && length == 0 => return Selection::Whole,
            Specification::Last(0) => {}
            Specification::Last(count) => parts.push(length.saturating_sub(count)..length),
            Specification::Between(first, last) if first < length => {
                parts.push(first..last.saturating_add(1).min(length));
            }
            Specification::Between(..) => {}
        }
    }
    let sum = parts
        .iter()
        .fold(0_u64, |sum, part| sum.saturating_add(part.end - part.start));
    match parts.len() {
        0 => Selection::Unsatisfiable,
        _ if sum > length => Selection::Whole,
        _ => Selection::Parts(parts),
    }
}

/// The ranges of a field value; `None` where it is not valid, has none, or too many.
fn parse(value: &[u8], ranges_max: usize) -> Option<Vec<Specification>> {
    let equals = value.iter().position(|byte| *byte == b'=')?;
    if !value[..equals].eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut specifications = Vec::new();
    for specification in list_tokens(&value[equals + 1..]) {
        if specifications.len() == ranges_max {
            return None;
        }
        specifications.push(parse_one(specification)?);
    }
    Some(specifications).filter(|specifications| !specifications.is_empty())
}

fn parse_one(text: &[u8]) -> Option<Specification> {
    let dash = text.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&text[..dash], &text[dash + 1..]);
    if first.is_empty() {
        return Some(Specification::Last(position(last)?));
    }
    let first = position(first)?;
    let last = if last.is_empty() {
        u64::MAX
    } else {
        position(last)?
    };
    (first <= last).then_some(Specification::Between(first, last))
}

/// A decimal number; one that is larger than any file counts as the largest there is.
fn position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0_u64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts<const N: usize>(ranges: [(u64, u64); N]) -> Selection {
        Selection::Parts(ranges.map(|(start, end)| start..end).into())
    }

    #[test]
    fn the_examples_of_the_standard() {
        let ten_thousand = |value: &str| select(value.as_bytes(), 10_000, 8);
        assert_eq!(ten_thousand("bytes=0-499"), parts([(0, 500)]));
        assert_eq!(ten_thousand("bytes=500-999"), parts([(500, 1000)]));
        assert_eq!(ten_thousand("bytes=-500"), parts([(9500, 10_000)]));
        assert_eq!(ten_thousand("bytes=9500-"), parts([(9500, 10_000)]));
        assert_eq!(
            ten_thousand("bytes=0-0,-1"),
            parts([(0, 1), (9999, 10_000)])
        );
        assert_eq!(
            ten_thousand("bytes= 0-999, 4500-5499, -1000"),
            parts([(0, 1000), (4500, 5500), (9000, 10_000)])
        );
        assert_eq!(
            ten_thousand("bytes=500-600,601-999"),
            parts([(500, 601), (601, 1000)])
        );
        assert_eq!(
            ten_thousand("bytes=500-700,601-999"),
            parts([(500, 701), (601, 1000)])
        );
    }

    #[test]
    fn what_lies_beyond_the_end_is_cut_or_left_out() {
        let ten = |value: &str| select(value.as_bytes(), 10, 8);
        assert_eq!(ten("bytes=5-99999999999999999999999"), parts([(5, 10)]));
        assert_eq!(ten("bytes=-99999999999999999999999"), parts([(0, 10)]));
        assert_eq!(ten("bytes=10-"), Selection::Unsatisfiable);
        assert_eq!(ten("bytes=-0"), Selection::Unsatisfiable);
        assert_eq!(ten("bytes=10-,-0"), Selection::Unsatisfiable);
        assert_eq!(ten("bytes=10-,3-4"), parts([(3, 5)]));
        assert_eq!(select(b"bytes=0-", 0, 8), Selection::Unsatisfiable);
        assert_eq!(select(b"bytes=-1", 0, 8), Selection::Whole);
    }

    #[test]
    fn what_is_not_a_set_of_byte_ranges_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=1",
            "bytes=2-1",
            "bytes=1-2-3",
            "bytes=+1-2",
            "bytes=1-2,x",
            "bytes =1-2",
            "lines=1-2",
            "bytes=1 -2",
            "bytes=--1",
            "bytes=0-9,0-9",
            "bytes=0-0,1-1,2-2,3-3",
        ] {
            let selection = select(value.as_bytes(), 10, 3);
            assert_eq!(selection, Selection::Whole, "{value}");
        }
        assert_eq!(select(b"BYTES=,1-2,,", 10, 1), parts([(1, 3)]));
    }

    /// Selects place by place: a twin of the selection without arithmetic.
    fn twin(specifications: &[(Option<u64>, Option<u64>)], length: u64) -> Vec<Vec<u64>> {
        let places = |specification: &(Option<u64>, Option<u64>)| -> Vec<u64> {
            (0..length)
                .filter(|place| match *specification {
                    (Some(first), Some(last)) => first <= *place && *place <= last,
                    (Some(first), None) => first <= *place,
                    (None, Some(count)) => *place + count >= length,
                    (None, None) => false,
                })
                .collect()
        };
        specifications
            .iter()
            .map(places)
            .filter(|places| !places.is_empty())
            .collect()
    }

    proptest! {
        #[test]
        fn ranges_select_what_a_naive_twin_selects(
            specifications in prop::collection::vec(
                prop_oneof![
                    (0_u64..40, 0_u64..40).prop_map(|(a, b)| (Some(a.min(b)), Some(a.max(b)))),
                    (0_u64..40).prop_map(|first| (Some(first), None)),
                    (0_u64..40).prop_map(|count| (None, Some(count))),
                ],
                1..6,
            ),
            length in 1_u64..32,
        ) {
            let number = |number: Option<u64>| number.map_or(String::new(), |n| n.to_string());
            let set: Vec<_> = specifications
                .iter()
                .map(|(first, last)| format!("{}-{}", number(*first), number(*last)))
                .collect();
            let value = format!("bytes={}", set.join(", "));
            let expected = twin(&specifications, length);
            let sum: usize = expected.iter().map(Vec::len).sum();
            match select(value.as_bytes(), length, 5) {
                Selection::Whole => prop_assert!(sum as u64 > length),
                Selection::Unsatisfiable => prop_assert!(expected.is_empty()),
                Selection::Parts(parts) => {
                    prop_assert!(sum as u64 <= length);
                    let selected = parts.into_iter().map(Iterator::collect);
                    prop_assert_eq!(selected.collect::<Vec<Vec<u64>>>(), expected);
                }
            }
        }

        #[test]
        fn any_bytes_select_only_what_is_there(
            value in prop::collection::vec(any::<u8>(), 0..40),
            set in "[-0-9, ]{0,20}",
            length in any::<u64>(),
        ) {
            for value in [value, format!("bytes={set}").into_bytes()] {
                if let Selection::Parts(parts) = select(&value, length, 4) {
                    prop_assert!((1..=4).contains(&parts.len()));
                    prop_assert!(parts.iter().all(|part| part.start < part.end));
                    prop_assert!(parts.iter().all(|part| part.end <= length));
                }
            }
        }
    }
}
