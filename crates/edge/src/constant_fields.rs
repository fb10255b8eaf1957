//! Fields that many answers have alike, encoded once.

use crate::config::Routes;
use dwell_engine::SharedFields;

/// A browser takes a value for what its `Content-Type` says, whatever it looks like: publishers
/// often store what their users write.
///
/// Source: Fetch Standard, "`X-Content-Type-Options` header".
pub(crate) const NOSNIFF: (&str, &[u8]) = ("X-Content-Type-Options", b"nosniff");
pub(crate) const EXPOSED: (&str, &[u8]) = ("Access-Control-Expose-Headers", b"ETag, Poll-Cursor");
/// The `Cache-Status` of values of the cache (RFC 9211).
pub(crate) const HIT: &[u8] = b"dwell; hit";

/// The `Cache-Control` of answers to polls that are held or may be: browsers serialise equal
/// cacheable requests, and two tabs may wait for one key.
pub(crate) const HELD: &[u8] = b"no-store";
/// The `Cache-Control` of answers to other polls.
pub(crate) const NOT_HELD: &[u8] = b"private, no-cache";

/// The fields behind the cursor of the answers that are given most often: by a hit, to a poll
/// without `Prefer` and without the origin of a page.
#[derive(Debug)]
pub(crate) struct ConstantFields {
    /// The fields of values, by the content types of the routes.
    values: Vec<(Box<str>, ByWait)>,
    unchanged: ByWait,
}

/// An answer whose fields are among them.
pub(crate) struct Usual<'a> {
    /// The type of the value; `None` is a 304.
    pub(crate) content_type: Option<&'a str>,
    pub(crate) control: &'a [u8],
}

/// Fields of answers to polls that may be held, and of those to others.
#[derive(Debug)]
struct ByWait {
    held: SharedFields,
    not_held: SharedFields,
}

impl ConstantFields {
    pub(crate) fn of(routes: &Routes) -> Self {
        let mut values = Vec::<(Box<str>, ByWait)>::new();
        for route in routes.by_id() {
            let content_type = &*route.content_type;
            let is_known = values.iter().any(|(known, _)| **known == *content_type);
            if !is_known && values.len() < CONTENT_TYPES_MAX {
                let own = [("Content-Type", content_type.as_bytes()), NOSNIFF];
                values.push((content_type.into(), ByWait::of(200, &own)));
            }
        }
        let unchanged = ByWait::of(304, &[]);
        Self { values, unchanged }
    }

    /// The fields of an answer; `None` where there are too many content types.
    pub(crate) fn find(&self, answer: &Usual<'_>) -> Option<&SharedFields> {
        let fields = if let Some(content_type) = answer.content_type {
            let mut values = self.values.iter();
            let (_, fields) = values.find(|(known, _)| **known == *content_type)?;
            fields
        } else {
            &self.unchanged
        };
        fields.by(answer.control)
    }
}

impl ByWait {
    fn of(status: u16, own: &[(&str, &[u8])]) -> Self {
        let with = |control| {
            let before = [EXPOSED, ("Cache-Control", control)];
            let fields = [&before, own, &[("Cache-Status", HIT)]].concat();
            SharedFields::new(status, &fields)
        };
        Self {
            held: with(HELD),
            not_held: with(NOT_HELD),
        }
    }

    fn by(&self, control: &[u8]) -> Option<&SharedFields> {
        match control {
            HELD => Some(&self.held),
            NOT_HELD => Some(&self.not_held),
            _ => None,
        }
    }
}

/// Content types of which fields are kept: each answer looks through them.
const CONTENT_TYPES_MAX: usize = 8;
