//! For how long an answer of the application stands for its key, by what it says of itself.

use dwell_proto::http1::list_tokens;
use dwell_upstream::Answer;
use std::time::Duration;

/// Directives of `Cache-Control` and `Age` for a shared cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Freshness {
    /// Time for which the response is fresh; `None` if it has no such directive.
    pub(crate) lifetime: Option<Duration>,
    /// Time for which it may be sent while stale and being revalidated (RFC 5861 section 3).
    pub(crate) while_revalidate: Option<Duration>,
    /// Time for which it may be sent while stale if a fetch fails (RFC 5861 section 4).
    pub(crate) if_error: Option<Duration>,
}

impl Freshness {
    /// Reads an answer.
    ///
    /// Shape: `s-maxage` wins over `max-age`, and `Age` is taken off. An answer with `no-cache`,
    /// `no-store` or `private` is not fresh at all; one that must be revalidated is never given
    /// when stale. If a directive comes twice, the shorter one counts.
    ///
    /// Source: RFC 9111 sections 4.2.1 and 5.2.2, RFC 5861.
    pub(super) fn of(answer: &Answer) -> Self {
        let mut directives = Directives::default();
        let mut age = 0;
        for (name, value) in &answer.fields {
            if name.eq_ignore_ascii_case("cache-control") {
                list_tokens(value).for_each(|directive| directives.read(directive));
            } else if name.eq_ignore_ascii_case("age") {
                age = seconds(value).unwrap_or(0);
            }
        }
        let mut freshness = Self {
            lifetime: directives
                .shared
                .or(directives.all)
                .map(|lifetime| Duration::from_secs(lifetime.saturating_sub(age))),
            while_revalidate: directives.while_revalidate.map(Duration::from_secs),
            if_error: directives.if_error.map(Duration::from_secs),
        };
        if directives.is_unusable {
            freshness.lifetime = None;
        }
        if directives.is_unusable || directives.must_revalidate {
            freshness.while_revalidate = Some(Duration::ZERO);
            freshness.if_error = Some(Duration::ZERO);
        }
        freshness
    }
}

#[derive(Default)]
struct Directives {
    shared: Option<u64>,
    all: Option<u64>,
    while_revalidate: Option<u64>,
    if_error: Option<u64>,
    must_revalidate: bool,
    is_unusable: bool,
}

impl Directives {
    fn read(&mut self, directive: &[u8]) {
        let mut parts = directive.splitn(2, |byte| *byte == b'=');
        let name = parts.next().unwrap_or_default().trim_ascii();
        let argument = parts.next().unwrap_or_default();
        let name = name.to_ascii_lowercase();
        let place = match name.as_slice() {
            b"s-maxage" => &mut self.shared,
            b"max-age" => &mut self.all,
            b"stale-while-revalidate" => &mut self.while_revalidate,
            b"stale-if-error" => &mut self.if_error,
            b"must-revalidate" | b"proxy-revalidate" => {
                self.must_revalidate = true;
                return;
            }
            b"no-cache" | b"no-store" | b"private" => {
                self.is_unusable = true;
                return;
            }
            _ => return,
        };
        // What is no number is taken for stale (RFC 9111 section 4.2.1).
        let said = seconds(argument).unwrap_or(0);
        *place = Some(place.map_or(said, |before| before.min(said)));
    }
}

/// Delta-seconds, quoted or not; too many are as many as can be (RFC 9111 section 1.2.2).
fn seconds(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim().trim_matches('"');
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(SECONDS_MAX).min(SECONDS_MAX))
}

/// Beyond it a number of seconds is for ever: 2^31, as RFC 9111 has it.
const SECONDS_MAX: u64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn of(fields: &[(&str, &'static str)]) -> Freshness {
        let field = |(name, value): &(&str, &'static str)| {
            ((*name).to_owned(), Bytes::from_static(value.as_bytes()))
        };
        Freshness::of(&Answer {
            status: 200,
            fields: fields.iter().map(field).collect(),
            content_length: None,
            body: Bytes::new(),
        })
    }

    fn lifetime(control: &'static str) -> Option<u64> {
        let freshness = of(&[("Cache-Control", control)]);
        freshness.lifetime.map(|lifetime| lifetime.as_secs())
    }

    #[test]
    fn the_shared_age_wins() {
        assert_eq!(lifetime("max-age=5"), Some(5));
        assert_eq!(lifetime("max-age=5, s-maxage=60"), Some(60));
        assert_eq!(lifetime("S-MaxAge=\"60\" , Max-Age=5"), Some(60));
        assert_eq!(lifetime("max-age=5, max-age=3"), Some(3));
        assert_eq!(lifetime("public"), None);
        assert_eq!(of(&[]), Freshness::default());
    }

    #[test]
    fn what_makes_no_sense_is_stale() {
        for control in ["max-age=soon", "max-age=-1", "max-age", "max-age="] {
            assert_eq!(lifetime(control), Some(0), "{control}");
        }
        assert_eq!(lifetime("max-age=99999999999999999999"), Some(1 << 31));
    }

    #[test]
    fn the_time_it_has_lain_elsewhere_is_taken_off() {
        let aged = of(&[("Age", "40"), ("Cache-Control", "max-age=60")]);
        assert_eq!(aged.lifetime, Some(Duration::from_secs(20)));
        let old = of(&[("Age", "400"), ("Cache-Control", "max-age=60")]);
        assert_eq!(old.lifetime, Some(Duration::ZERO));
    }

    #[test]
    fn whoever_forbids_it_is_not_kept() {
        for control in [
            "no-store, max-age=60",
            "private=x, max-age=60",
            "no-cache, max-age=60",
        ] {
            assert_eq!(lifetime(control), None, "{control}");
            let freshness = of(&[("Cache-Control", control)]);
            assert_eq!(freshness.if_error, Some(Duration::ZERO), "{control}");
        }
    }

    #[test]
    fn stale_answers_are_allowed_and_forbidden_by_name() {
        let allowed = of(&[(
            "Cache-Control",
            "max-age=1, stale-while-revalidate=30, stale-if-error=600",
        )]);
        assert_eq!(allowed.while_revalidate, Some(Duration::from_secs(30)));
        assert_eq!(allowed.if_error, Some(Duration::from_mins(10)));
        let forbidden = of(&[("Cache-Control", "stale-if-error=600, must-revalidate")]);
        assert_eq!(forbidden.if_error, Some(Duration::ZERO));
    }
}
