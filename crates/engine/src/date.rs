//! How every answer begins, formatted once a second.

use std::time::SystemTime;

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
            self.start = format!("{OK}Date: {}\r\n", httpdate::fmt_http_date(wall));
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

/// The status line of nearly every answer.
const OK: &str = "HTTP/1.1 200 OK\r\n";

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

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
