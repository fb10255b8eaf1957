//! The `Date` field, formatted once a second.

use std::time::SystemTime;

/// The last formatted date and the second it is of.
#[derive(Debug, Default)]
pub(crate) struct DateCache {
    second: u64,
    text: String,
}

impl DateCache {
    /// The IMF-fixdate of `second` (RFC 9110 section 5.6.7).
    pub(crate) fn at(&mut self, second: u64, wall: SystemTime) -> &[u8] {
        if self.second != second || self.text.is_empty() {
            self.second = second;
            self.text = httpdate::fmt_http_date(wall);
        }
        self.text.as_bytes()
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
            b"Sun, 06 Nov 1994 08:49:37 GMT"
        );
        assert_eq!(
            cache.at(784_111_778, at(784_111_778)),
            b"Sun, 06 Nov 1994 08:49:38 GMT"
        );
    }
}
