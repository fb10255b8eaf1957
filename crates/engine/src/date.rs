//! The `Date` field, formatted once a second.

use std::time::SystemTime;

/// The last formatted field line and the second it is of.
#[derive(Debug, Default)]
pub(crate) struct DateCache {
    second: u64,
    line: String,
}

impl DateCache {
    /// The field line with the IMF-fixdate of `second` (RFC 9110 sections 5.6.7 and 6.6.1).
    pub(crate) fn at(&mut self, second: u64, wall: SystemTime) -> &[u8] {
        if self.second != second || self.line.is_empty() {
            self.second = second;
            self.line = format!("Date: {}\r\n", httpdate::fmt_http_date(wall));
        }
        self.line.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_date_is_formatted_anew_when_the_second_changes() {
        let mut cache = DateCache::default();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(
            cache.at(784_111_777, at(784_111_777)),
            b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        );
        assert_eq!(
            cache.at(784_111_778, at(784_111_778)),
            b"Date: Sun, 06 Nov 1994 08:49:38 GMT\r\n"
        );
    }
}
