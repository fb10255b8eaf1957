//! Validators of a representation, and the conditions that requests set on them.

use dwell_proto::http1::Fields;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Validators of a file (RFC 9110 section 8.8): they differ between two states of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Validators {
    pub(super) entity_tag: EntityTag,
    /// The time of the last change, in whole seconds since 1970.
    pub(super) last_modified: u64,
}

/// An entity tag; weak where the file may change once more without a new tag.
///
/// Source: RFC 9110 section 8.8.3.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EntityTag {
    is_weak: bool,
    opaque: String,
}

/// The outcome of the conditions of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Precondition {
    /// The request is to be answered.
    Met,
    /// The client has what it would be sent: 304.
    NotModified,
    /// The representation is not what the client takes it for: 412.
    Failed,
}

/// A file changed this recently may change again within the resolution of its time.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// The last second of modification times without meaning: they were set so that builds are the same
/// every time.
const MEANINGLESS_SECOND_MAX: u64 = 1;
/// The last second of the year 9999; sums with later ones may overflow.
const SECOND_MAX: u64 = 253_402_300_799;

impl Validators {
    /// Returns the validators of a file as `coding` presents it; `None` if its modification time is
    /// unusable.
    pub(super) fn of(
        metadata: &Metadata,
        coding: Option<&'static str>,
        wall: SystemTime,
    ) -> Option<Self> {
        let second = u64::try_from(metadata.mtime()).ok()?;
        if second <= MEANINGLESS_SECOND_MAX {
            return None;
        }
        let modified = UNIX_EPOCH
            + Duration::from_secs(second.min(SECOND_MAX))
            + Duration::from_nanos(metadata.mtime_nsec().unsigned_abs());
        let is_weak = modified + SETTLED_AFTER > wall;
        let nanoseconds = modified.duration_since(UNIX_EPOCH).ok()?.as_nanos();
        let mut opaque = format!("{nanoseconds:x}-{:x}", metadata.len());
        if let Some(coding) = coding {
            opaque.push('-');
            opaque.push_str(coding);
        }
        // No later than the date of the answer (RFC 9110 section 8.8.2.1).
        let last_modified = modified.min(wall).duration_since(UNIX_EPOCH).ok()?;
        Some(Self {
            entity_tag: EntityTag { is_weak, opaque },
            last_modified: last_modified.as_secs(),
        })
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_weak { "W/" } else { "" };
        write!(f, "{prefix}\"{}\"", self.opaque)
    }
}

impl EntityTag {
    fn equals_weakly(&self, other: ReceivedTag<'_>) -> bool {
        self.opaque.as_bytes() == other.opaque
    }

    fn equals_strongly(&self, other: ReceivedTag<'_>) -> bool {
        !self.is_weak && !other.is_weak && self.equals_weakly(other)
    }
}

/// Evaluates the conditions of a GET or HEAD for a representation that exists.
///
/// Source: RFC 9110 section 13.2.2.
pub(super) fn evaluate(fields: Fields<'_, '_>, validators: Option<&Validators>) -> Precondition {
    if fields.find("If-Match").is_some() {
        if !any_matches(fields, "If-Match", validators, EntityTag::equals_strongly) {
            return Precondition::Failed;
        }
    } else if let (Some(date), Some(validators)) =
        (date_of(fields, "If-Unmodified-Since"), validators)
        && validators.last_modified > date
    {
        return Precondition::Failed;
    }
    if fields.find("If-None-Match").is_some() {
        if any_matches(
            fields,
            "If-None-Match",
            validators,
            EntityTag::equals_weakly,
        ) {
            return Precondition::NotModified;
        }
    } else if let (Some(date), Some(validators)) =
        (date_of(fields, "If-Modified-Since"), validators)
        && validators.last_modified <= date
    {
        return Precondition::NotModified;
    }
    Precondition::Met
}

/// Returns true if the ranges of the request apply by `If-Range`; without that field they do.
///
/// Source: RFC 9110 section 13.1.5.
pub(super) fn range_applies(fields: Fields<'_, '_>, validators: Option<&Validators>) -> bool {
    let Some(value) = fields.find("If-Range") else {
        return true;
    };
    let Some(validators) = validators else {
        return false;
    };
    let mut tags = tags(value);
    if let Some(tag) = tags.next() {
        return validators.entity_tag.equals_strongly(tag);
    }
    // A date is a strong validator only of a file that has settled.
    !validators.entity_tag.is_weak && parse_date(value) == Some(validators.last_modified)
}

/// Returns true if a list of entity tags contains ours, or is `*`, which matches any
/// representation.
fn any_matches(
    fields: Fields<'_, '_>,
    name: &str,
    validators: Option<&Validators>,
    equals: impl Fn(&EntityTag, ReceivedTag<'_>) -> bool,
) -> bool {
    fields.all(name).any(|value| {
        value.trim_ascii() == b"*"
            || validators.is_some_and(|own| tags(value).any(|tag| equals(&own.entity_tag, tag)))
    })
}

/// An entity tag that came in a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ReceivedTag<'a> {
    is_weak: bool,
    opaque: &'a [u8],
}

/// The entity tags of a list, up to the first element that is malformed.
fn tags(mut value: &[u8]) -> impl Iterator<Item = ReceivedTag<'_>> {
    std::iter::from_fn(move || {
        while let [b',' | b' ' | b'\t', rest @ ..] = value {
            value = rest;
        }
        let is_weak = value.starts_with(b"W/");
        let quoted = &value[if is_weak { 2 } else { 0 }..];
        let inside = quoted.strip_prefix(b"\"")?;
        let end = inside.iter().position(|byte| *byte == b'"')?;
        value = &inside[end + 1..];
        Some(ReceivedTag {
            is_weak,
            opaque: &inside[..end],
        })
    })
}

/// The date in a field; `None` where it is absent, sent twice or not a date, which is to be
/// ignored.
fn date_of(fields: Fields<'_, '_>, name: &str) -> Option<u64> {
    let mut values = fields.all(name);
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    parse_date(value)
}

fn parse_date(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_tags_ends_where_it_is_none() {
        let found = |value: &'static str| -> Vec<_> {
            tags(value.as_bytes())
                .map(|tag| (tag.is_weak, std::str::from_utf8(tag.opaque).unwrap()))
                .collect()
        };
        assert_eq!(
            found(r#""a", W/"b,c" ,,"""#),
            [(false, "a"), (true, "b,c"), (false, "")]
        );
        assert_eq!(found(r#""a", b, "c""#), [(false, "a")]);
        assert_eq!(found(r#""a"#), []);
        assert_eq!(found("w/\"a\""), []);
        assert_eq!(found("W/"), []);
    }

    #[test]
    fn a_file_that_may_change_unseen_has_a_weak_tag() {
        let file = tempfile::tempfile().unwrap();
        let modified = UNIX_EPOCH + Duration::from_millis(1_000_500);
        file.set_modified(modified).unwrap();
        let metadata = file.metadata().unwrap();
        let at = |wall| Validators::of(&metadata, None, wall).unwrap();
        let fresh = at(modified + Duration::from_secs(1));
        let settled = at(modified + Duration::from_secs(2));
        assert_eq!(fresh.entity_tag.to_string(), "W/\"e8f2727500-0\"");
        assert!(!settled.entity_tag.is_weak);
        assert_eq!(settled.entity_tag.opaque, fresh.entity_tag.opaque);
        assert_eq!(settled.last_modified, 1000);
        let ahead = at(UNIX_EPOCH + Duration::from_secs(900));
        assert_eq!(ahead.last_modified, 900, "not later than now");
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1 << 40))
            .unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(
            Validators::of(&metadata, None, modified)
                .unwrap()
                .last_modified,
            1000
        );
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1))
            .unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(Validators::of(&metadata, None, modified), None);
    }
}
