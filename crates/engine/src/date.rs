//! The start of every response, formatted once a second.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The start of an answer with status 200, which ends in the `Date` field of its second.
#[derive(Debug, Default)]
pub(crate) struct DateCache {
    second: u64,
    start: String,
}

/// The lines an answer begins with in this second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a>(&'a [u8]);

impl DateCache {
    /// The start with the IMF-fixdate of `second` (RFC 9110 sections 5.6.7 and 6.6.1).
    pub(crate) fn at(&mut self, second: u64, wall: SystemTime) -> Start<'_> {
        if self.second != second || self.start.is_empty() {
            self.second = second;
            self.start = format!("{OK}Date: {}\r\n", httpdate::fmt_http_date(within(wall)));
        }
        Start(self.start.as_bytes())
    }
}

impl<'a> Start<'a> {
    /// The status line of 200 and the `Date` field line.
    pub(crate) fn ok(self) -> &'a [u8] {
        self.0
    }

    /// The `Date` field line.
    pub(crate) fn date(self) -> &'a [u8] {
        &self.0[OK.len()..]
    }
}

/// The nearest moment that an IMF-fixdate has a name for: its years have four digits.
fn within(wall: SystemTime) -> SystemTime {
    wall.clamp(UNIX_EPOCH, UNIX_EPOCH + LAST_SECOND)
}

/// The last second of the year 9999.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

/// The status line of nearly every answer.
const OK: &str = "HTTP/1.1 200 OK\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_far_off_is_shown_as_the_nearest_date() {
        let mut cache = DateCache::default();
        let before = cache.at(1, UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(before.date(), b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
        let after = cache.at(2, UNIX_EPOCH + LAST_SECOND + Duration::from_secs(1));
        assert_eq!(after.date(), b"Date: Fri, 31 Dec 9999 23:59:59 GMT\r\n");
    }

    #[test]
    fn a_date_is_formatted_anew_when_the_second_changes() {
        let mut cache = DateCache::default();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let start = cache.at(784_111_777, at(784_111_777));
        assert_eq!(start.date(), b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
        let start = cache.at(784_111_778, at(784_111_778));
        assert_eq!(
            start.ok(),
            b"HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:38 GMT\r\n"
        );
    }
}
