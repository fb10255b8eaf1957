//! The response to the query for watched keys.

use super::WatchedKeys;
use crate::polls::Watchers;
use serde::Serialize;
use std::borrow::Cow;

#[derive(Serialize)]
struct WatchedResponse<'a> {
    keys: Vec<KeyLine<'a>>,
    /// Totals of all matching keys, listed or not.
    total: WatcherTotal,
    loops: LoopCounts,
}

#[derive(Serialize)]
struct KeyLine<'a> {
    key: Cow<'a, str>,
    watchers: u64,
    #[serde(flatten)]
    by_transport: Watchers,
}

#[derive(Serialize)]
struct WatcherTotal {
    keys: usize,
    watchers: u64,
}

#[derive(Serialize)]
struct LoopCounts {
    asked: usize,
    answered: usize,
}

/// Renders the most watched keys as JSON, at most `limit` of them; keys with the same count are
/// sorted by name.
///
/// Shape: `loops` are the loops that were asked, and those that have answered.
pub(crate) fn render(watched: WatchedKeys, limit: usize, loops: (usize, usize)) -> String {
    let mut all: Vec<_> = watched.into_iter().collect();
    all.sort_unstable_by(|(name, watchers), (other, others)| {
        let by_watchers = others.total().cmp(&watchers.total());
        by_watchers.then_with(|| name.cmp(other))
    });
    let total = WatcherTotal {
        keys: all.len(),
        watchers: all.iter().map(|(_, watchers)| watchers.total()).sum(),
    };
    let line = |(name, watchers): &'_ (Box<[u8]>, Watchers)| KeyLine {
        key: Cow::Owned(String::from_utf8_lossy(name).into_owned()),
        watchers: watchers.total(),
        by_transport: *watchers,
    };
    let answer = WatchedResponse {
        keys: all.iter().take(limit).map(line).collect(),
        total,
        loops: LoopCounts {
            asked: loops.0,
            answered: loops.1,
        },
    };
    // Strings and numbers always serialize.
    serde_json::to_string(&answer).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_watched_come_first_and_all_are_counted() {
        let watchers = |polls, streams, websockets| Watchers {
            polls,
            streams,
            websockets,
        };
        let watched = [
            (b"c"[..].into(), watchers(1, 0, 0)),
            (b"b"[..].into(), watchers(0, 1, 0)),
            (b"a\xff"[..].into(), watchers(1, 1, 1)),
        ];
        let text = render(watched.into(), 2, (2, 1));
        let expected = concat!(
            r#"{"keys":[{"key":"a�","watchers":3,"polls":1,"streams":1,"websockets":1},"#,
            r#"{"key":"b","watchers":1,"polls":0,"streams":1,"websockets":0}],"#,
            r#""total":{"keys":3,"watchers":5},"loops":{"asked":2,"answered":1}}"#,
            "\n"
        );
        assert_eq!(text, expected);
    }
}
