//! The answers a poll can get.

use super::ask::Ask;
use super::decide::{Content, Decision};
use super::tables::Poll;
use crate::access::CorsGrant;
use crate::config::{EmptyAnswer, RouteConfig, RouteId};
pub(crate) use crate::constant_fields::{EXPOSED, HIT, NOSNIFF};
use crate::constant_fields::{HELD, NOT_HELD, Usual};
use crate::cursor::{Condition, Cursor, CursorText};
use crate::metrics::PollOutcome;
use crate::responder::Responder;
use bytes::Bytes;
use dwell_engine::{Body, Response, SharedFields};
use dwell_evloop::Context;
use dwell_store::Item;

/// A value as the cache gave it.
pub(crate) struct Found<'a> {
    pub(crate) content: Content,
    body: Value<'a>,
}

enum Value<'a> {
    Borrowed(&'a [u8]),
    Stored(&'a Item),
    /// One reference-counted allocation for all its responses.
    Shared(Bytes),
}

/// A value of this size is worth sharing instead of copying.
const SHARE_BYTES_MIN: usize = 16 * 1024;

impl<'a> Found<'a> {
    pub(crate) fn borrowed(value: &'a [u8], flags: u32) -> Self {
        Self {
            content: content(value, flags),
            body: Value::Borrowed(value),
        }
    }

    /// A value that is shared already.
    pub(crate) fn remembered(value: Bytes, flags: u32) -> Self {
        Self {
            content: content(&value, flags),
            body: Value::Shared(value),
        }
    }

    pub(crate) fn stored(item: &'a Item) -> Self {
        Self {
            content: content(&item.value, item.flags),
            body: Value::Stored(item),
        }
    }

    /// A value that was kept.
    pub(crate) fn shared(content: Content, value: &Bytes) -> Self {
        Self {
            content,
            body: Value::Shared(value.clone()),
        }
    }

    /// The value, to be kept: a large one of the store is shared with it.
    pub(crate) fn to_bytes(&self) -> Bytes {
        match self.body() {
            Body::Shared(bytes) => bytes,
            _ => Bytes::copy_from_slice(self.bytes()),
        }
    }

    /// Returns true if the value is worth sharing instead of copying.
    pub(super) fn is_large(&self) -> bool {
        self.bytes().len() >= SHARE_BYTES_MIN
    }

    /// Returns true if the value is shared, so that a reference to it is not a copy.
    pub(super) fn is_owned(&self) -> bool {
        !matches!(self.body, Value::Borrowed(_))
    }

    /// Makes it one that any number of answers share, by these bytes, which are the same.
    pub(super) fn share_as(&mut self, shared: Bytes) {
        self.body = Value::Shared(shared);
    }

    /// Makes a large value one that any number of answers share.
    pub(crate) fn share(&mut self) {
        let shared = match self.body {
            Value::Borrowed(value) if value.len() >= SHARE_BYTES_MIN => {
                Bytes::copy_from_slice(value)
            }
            Value::Stored(item) if item.value.len() >= SHARE_BYTES_MIN => {
                Bytes::from_owner(item.value.clone())
            }
            _ => return,
        };
        self.body = Value::Shared(shared);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.body {
            Value::Borrowed(value) => value,
            Value::Stored(item) => &item.value,
            Value::Shared(bytes) => bytes,
        }
    }

    /// Returns true if its answers have no content.
    fn is_no_content(&self, route: &RouteConfig) -> bool {
        self.content.is_empty && route.empty == EmptyAnswer::NoContent
    }

    fn status_and_body(&self, route: &RouteConfig) -> (u16, Body<'_>) {
        if self.is_no_content(route) {
            (204, Body::Empty)
        } else {
            (200, self.body())
        }
    }

    /// A large value of the store is shared with it and never copied.
    fn body(&self) -> Body<'_> {
        match &self.body {
            Value::Borrowed(value) => Body::Slice(value),
            Value::Stored(item) if item.value.len() < SHARE_BYTES_MIN => Body::Slice(&item.value),
            Value::Stored(item) => Body::Shared(Bytes::from_owner(item.value.clone())),
            Value::Shared(bytes) => Body::Shared(bytes.clone()),
        }
    }
}

/// The identity of a value: its cursor, and if it is empty.
pub(super) fn content(value: &[u8], flags: u32) -> Content {
    Content {
        cursor: Cursor::of(value, flags),
        is_empty: value.is_empty(),
    }
}

/// The `Cache-Status` of responses that the application has given (RFC 9211).
pub(super) const FETCHED: &[u8] = b"dwell; fwd=miss";

/// Sends the answer that `decision` names; a miss is not one of them.
pub(super) fn conclude(
    to: &mut Responder<'_, '_>,
    context: &mut Context,
    route: &RouteConfig,
    ask: &Ask,
    decision: Decision,
    found: Option<&Found<'_>>,
) {
    match (decision, found) {
        (Decision::Value, Some(found)) => {
            to.ends(if found.content.is_empty {
                PollOutcome::Empty
            } else {
                PollOutcome::Hit
            });
            value(to, context, route, ask, found);
        }
        (Decision::NotModified(status), _) => {
            to.ends(PollOutcome::NotModified);
            let current = found.map(|found| found.content.cursor);
            not_modified(to, context, ask, current, status);
        }
        _ => {
            to.ends(PollOutcome::NotFound);
            to.text(context, 404, "no such key");
        }
    }
}

/// Sends the value.
fn value(
    to: &mut Responder<'_, '_>,
    context: &mut Context,
    route: &RouteConfig,
    ask: &Ask,
    found: &Found<'_>,
) {
    value_by(to, context, route, ask, found, HIT);
}

/// Sends a value that is there by `cache_status`.
pub(super) fn value_by(
    to: &mut Responder<'_, '_>,
    context: &mut Context,
    route: &RouteConfig,
    ask: &Ask,
    found: &Found<'_>,
    cache_status: &[u8],
) {
    send_value(to, context, route, ask, found, (control(ask), cache_status));
}

/// Sends the value to a poll that was held, to this poll alone.
pub(super) fn value_held(
    to: &mut Responder<'_, '_>,
    context: &mut Context,
    route: &RouteConfig,
    ask: &Ask,
    found: &Found<'_>,
) {
    send_value(to, context, route, ask, found, (HELD, HIT));
}

/// Sends the value with this `Cache-Control` and `Cache-Status`.
fn send_value(
    to: &mut Responder<'_, '_>,
    context: &mut Context,
    route: &RouteConfig,
    ask: &Ask,
    found: &Found<'_>,
    (control, cache_status): (&[u8], &[u8]),
) {
    let texts = Texts::of(ask, found.content.cursor);
    let (status, body) = found.status_and_body(route);
    let is_usual = cache_status == HIT && status == 200 && !ask.form.prefers();
    if is_usual {
        let content_type = Some(&*route.content_type);
        let usual = Usual {
            content_type,
            control,
        };
        if to.send_usual(context, &texts.of_cursor(), &usual, &body) {
            return;
        }
    }
    let fields = Fields::of_value(ask, &texts, control, route, found, cache_status);
    to.send(
        context,
        &Response {
            status,
            fields: fields.as_slice(),
            body,
        },
    );
}

/// The answers to polls that ask alike, of which the fields are encoded for the first of them.
#[derive(Debug)]
pub(super) struct Alike {
    asks: Asks,
    fields: SharedFields,
}

/// The properties of a held poll that the fields of its answer depend on.
#[derive(PartialEq, Eq, Debug)]
struct Asks {
    route: RouteId,
    origin: Option<CorsGrant>,
    /// The wait that its answer repeats.
    preferred: Option<u32>,
}

impl Asks {
    fn of(poll: &Poll) -> Self {
        Self {
            route: poll.route,
            origin: poll.origin,
            preferred: poll.ask.form.prefers().then_some(poll.ask.wait_ms),
        }
    }
}

/// Sends the value to one of many polls that get it.
pub(super) fn value_alike(
    to: &mut Responder<'_, '_>,
    context: &mut Context,
    route: &RouteConfig,
    poll: &Poll,
    found: &Found<'_>,
    alike: &mut Option<Alike>,
) {
    let asks = Asks::of(poll);
    let (status, body) = found.status_and_body(route);
    let known = match alike {
        Some(known) if known.asks == asks => known,
        _ => {
            let texts = Texts::of(&poll.ask, found.content.cursor);
            let fields = Fields::of_value(&poll.ask, &texts, HELD, route, found, HIT);
            let fields = to.share(status, fields.as_slice());
            alike.insert(Alike { asks, fields })
        }
    };
    to.send_shared(context, &known.fields, &body);
}

/// Sends that nothing has changed; the cursor is repeated.
pub(crate) fn not_modified(
    to: &mut Responder<'_, '_>,
    context: &mut Context,
    ask: &Ask,
    current: Option<Cursor>,
    status: u16,
) {
    not_modified_by(to, context, ask, current, status, HIT);
}

/// Sends that nothing has changed, as is known by `cache_status`.
pub(super) fn not_modified_by(
    to: &mut Responder<'_, '_>,
    context: &mut Context,
    ask: &Ask,
    current: Option<Cursor>,
    status: u16,
    cache_status: &[u8],
) {
    let known = match ask.condition {
        Condition::IfNoneMatch(cursor) | Condition::Since(cursor) => Some(cursor),
        Condition::None | Condition::Foreign | Condition::Any => None,
    };
    let Some(cursor) = current.or(known) else {
        return to.send(
            context,
            &Response {
                status,
                fields: &[("Cache-Control", b"no-store")],
                body: Body::Empty,
            },
        );
    };
    let texts = Texts::of(ask, cursor);
    if status == 304 && cache_status == HIT && !ask.form.prefers() {
        let usual = Usual {
            content_type: None,
            control: control(ask),
        };
        if to.send_usual(context, &texts.of_cursor(), &usual, &Body::Empty) {
            return;
        }
    }
    let mut fields = Fields::new(ask, &texts, control(ask));
    fields.push(("Cache-Status", cache_status));
    to.send(
        context,
        &Response {
            status,
            fields: fields.as_slice(),
            body: Body::Empty,
        },
    );
}

/// The `Cache-Control` of the answer to a poll.
pub(super) fn control(ask: &Ask) -> &'static [u8] {
    if ask.waits() { HELD } else { NOT_HELD }
}

/// The texts of the fields of one response.
struct Texts {
    cursor: CursorText,
    /// Empty, and free, unless the client asked with `Prefer`.
    preference: String,
}

impl Texts {
    fn of(ask: &Ask, cursor: Cursor) -> Self {
        let preference = if ask.form.prefers() {
            format!("wait={}", ask.wait().as_secs())
        } else {
            String::new()
        };
        Self {
            cursor: cursor.text(),
            preference,
        }
    }

    /// The fields of the cursor.
    fn of_cursor(&self) -> [(&'static str, &[u8]); 2] {
        [
            ("ETag", self.cursor.entity_tag()),
            // Proxies that compress drop or weaken ETag; this one they leave alone.
            ("Poll-Cursor", self.cursor.bare()),
        ]
    }
}

/// Fields that an answer has at most.
const FIELDS_MAX: usize = 8;

/// A fixed place for the fields of an answer.
struct Fields<'a> {
    list: [(&'a str, &'a [u8]); FIELDS_MAX],
    length: usize,
}

impl<'a> Fields<'a> {
    /// The fields of every answer that has a cursor.
    fn new(ask: &Ask, texts: &'a Texts, control: &'a [u8]) -> Self {
        let mut fields = Self {
            list: [("", b""); FIELDS_MAX],
            length: 0,
        };
        for field in texts.of_cursor() {
            fields.push(field);
        }
        fields.push(EXPOSED);
        fields.push(("Cache-Control", control));
        if ask.form.prefers() {
            fields.push(("Preference-Applied", texts.preference.as_bytes()));
        }
        fields
    }

    /// The fields of an answer with a value.
    fn of_value(
        ask: &Ask,
        texts: &'a Texts,
        control: &'a [u8],
        route: &'a RouteConfig,
        found: &Found<'_>,
        cache_status: &'a [u8],
    ) -> Self {
        let mut fields = Self::new(ask, texts, control);
        if !found.is_no_content(route) {
            fields.push(("Content-Type", route.content_type.as_bytes()));
            fields.push(NOSNIFF);
        }
        fields.push(("Cache-Status", cache_status));
        fields
    }

    fn push(&mut self, field: (&'a str, &'a [u8])) {
        let has_room = self.length < FIELDS_MAX;
        debug_assert!(has_room, "FIELDS_MAX leaves no place for {}", field.0);
        if let Some(place) = self.list.get_mut(self.length) {
            *place = field;
            self.length += 1;
        }
    }

    fn as_slice(&self) -> &[(&'a str, &'a [u8])] {
        &self.list[..self.length]
    }
}
