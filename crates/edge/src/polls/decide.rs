//! The one table: what a poll gets for what the cache says.

use super::ask::{Ask, Method};
use crate::config::{OnDelete, Rules};
use crate::cursor::{Condition, Cursor};

/// The value of a key, as far as decisions need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) cursor: Cursor,
    pub(crate) is_empty: bool,
}

/// The moment of a poll at which the question is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The poll has just come.
    Arrived,
    /// It is held, and the key may have changed.
    Held,
    /// Its wait has ended, or the edge is draining.
    Ended,
}

/// The outcome of a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// The value, which is also what an empty value gets unless the route says 204.
    Value,
    /// No change, with this status: 304 or 204.
    NotModified(u16),
    /// It is held, or stays so.
    Wait,
    /// The app's answer, or 404 without an app.
    Miss,
    /// 404.
    NotFound,
}

/// Decides one poll.
///
/// Source: the response table of the edge's HTTP interface, `docs/polls.md`.
pub(crate) fn decide(ask: &Ask, found: Option<Content>, stage: Stage, rules: Rules) -> Decision {
    #[cfg(feature = "sim")]
    if dwell_evloop::sim::Planted::StaleCursor.is_in()
        && let (Condition::Since(_), Stage::Arrived, Some(_)) = (ask.condition, stage, found)
        && ask.waits()
    {
        return Decision::Wait;
    }
    match (found, stage) {
        (Some(content), _) if !ask.condition.has(content.cursor) => Decision::Value,
        (_, Stage::Ended) => Decision::NotModified(ended_status(ask)),
        (Some(_), Stage::Arrived) if !ask.waits() || ask.condition == Condition::Any => {
            Decision::NotModified(unchanged_status(ask))
        }
        (Some(_), Stage::Arrived | Stage::Held) => Decision::Wait,
        (None, Stage::Arrived) => match rules {
            Rules {
                has_upstream: true, ..
            } => Decision::Miss,
            // Nothing is there and the client has nothing: it waits for the first value.
            _ if ask.waits() && ask.condition == Condition::None => Decision::Wait,
            _ => Decision::NotFound,
        },
        (None, Stage::Held) => match rules.on_delete {
            OnDelete::KeepWaiting => Decision::Wait,
            _ if ask.condition == Condition::None => Decision::Wait,
            OnDelete::Origin if rules.has_upstream => Decision::Miss,
            OnDelete::Origin | OnDelete::NotFound => Decision::NotFound,
        },
    }
}

/// No change, at once: a POST has no 304 (RFC 9110 section 15.4.5).
fn unchanged_status(ask: &Ask) -> u16 {
    if ask.method == Method::Post { 204 } else { 304 }
}

/// A wait that ended: 304 only where the request was conditional in HTTP's own terms.
pub(super) fn ended_status(ask: &Ask) -> u16 {
    match ask.condition {
        Condition::IfNoneMatch(_) | Condition::Any => 304,
        _ => 204,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::polls::ask::Form;

    const RULES: Rules = Rules {
        on_delete: OnDelete::Origin,
        has_upstream: true,
    };

    fn ask(method: Method, condition: Condition, seconds: u32) -> Ask {
        Ask {
            method,
            condition,
            wait_ms: seconds * 1000,
            form: Form::default(),
            shareable: true,
            is_stream: false,
        }
    }

    fn content(value: &[u8]) -> Content {
        Content {
            cursor: Cursor::of(value, 0),
            is_empty: value.is_empty(),
        }
    }

    #[test]
    fn a_value_the_client_does_not_have_is_sent_at_every_stage() {
        let old = Condition::Since(Cursor::of(b"old", 0));
        for condition in [Condition::None, Condition::Foreign, old] {
            for stage in [Stage::Arrived, Stage::Held, Stage::Ended] {
                let decision = decide(
                    &ask(Method::Get, condition, 25),
                    Some(content(b"new")),
                    stage,
                    RULES,
                );
                assert_eq!(decision, Decision::Value, "{condition:?} {stage:?}");
            }
        }
    }

    #[test]
    fn no_news_is_304_or_204_by_the_way_it_was_asked() {
        let cursor = Cursor::of(b"v", 0);
        let found = Some(content(b"v"));
        let matching = Condition::IfNoneMatch(cursor);
        let since = Condition::Since(cursor);
        let at = |method, condition, seconds, stage| {
            decide(&ask(method, condition, seconds), found, stage, RULES)
        };
        assert_eq!(
            at(Method::Get, matching, 0, Stage::Arrived),
            Decision::NotModified(304)
        );
        assert_eq!(
            at(Method::Get, since, 0, Stage::Arrived),
            Decision::NotModified(304)
        );
        assert_eq!(
            at(Method::Post, since, 0, Stage::Arrived),
            Decision::NotModified(204)
        );
        assert_eq!(at(Method::Get, matching, 9, Stage::Arrived), Decision::Wait);
        assert_eq!(at(Method::Get, matching, 9, Stage::Held), Decision::Wait);
        assert_eq!(
            at(Method::Get, matching, 9, Stage::Ended),
            Decision::NotModified(304)
        );
        assert_eq!(
            at(Method::Get, since, 9, Stage::Ended),
            Decision::NotModified(204)
        );
        assert_eq!(
            at(Method::Get, Condition::Any, 9, Stage::Arrived),
            Decision::NotModified(304)
        );
    }

    #[test]
    fn a_missing_key_goes_to_the_app_whenever_there_is_one() {
        let since = Condition::Since(Cursor::of(b"v", 0));
        for condition in [Condition::None, Condition::Foreign, since] {
            for seconds in [0, 9] {
                let poll = ask(Method::Get, condition, seconds);
                assert_eq!(decide(&poll, None, Stage::Arrived, RULES), Decision::Miss);
            }
        }
        assert_eq!(
            decide(&ask(Method::Get, since, 9), None, Stage::Held, RULES),
            Decision::Miss
        );
    }

    #[test]
    fn without_an_app_a_poll_with_nothing_waits_for_the_first_value() {
        let rules = Rules {
            has_upstream: false,
            ..RULES
        };
        let nothing = ask(Method::Get, Condition::None, 9);
        assert_eq!(
            decide(&nothing, None, Stage::Arrived, rules),
            Decision::Wait
        );
        assert_eq!(decide(&nothing, None, Stage::Held, rules), Decision::Wait);
        assert_eq!(
            decide(&nothing, None, Stage::Ended, rules),
            Decision::NotModified(204)
        );
        let impatient = ask(Method::Get, Condition::None, 0);
        assert_eq!(
            decide(&impatient, None, Stage::Arrived, rules),
            Decision::NotFound
        );
        let since = ask(Method::Get, Condition::Since(Cursor::of(b"v", 0)), 9);
        assert_eq!(
            decide(&since, None, Stage::Arrived, rules),
            Decision::NotFound
        );
        assert_eq!(decide(&since, None, Stage::Held, rules), Decision::NotFound);
    }

    #[test]
    fn a_route_may_keep_waiting_for_a_key_that_went_away() {
        let rules = Rules {
            on_delete: OnDelete::KeepWaiting,
            has_upstream: true,
        };
        let since = ask(Method::Get, Condition::Since(Cursor::of(b"v", 0)), 9);
        assert_eq!(decide(&since, None, Stage::Held, rules), Decision::Wait);
        assert_eq!(
            decide(&since, None, Stage::Ended, rules),
            Decision::NotModified(204)
        );
        let rules = Rules {
            on_delete: OnDelete::NotFound,
            has_upstream: true,
        };
        assert_eq!(decide(&since, None, Stage::Held, rules), Decision::NotFound);
    }
}
