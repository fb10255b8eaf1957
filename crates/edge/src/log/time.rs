//! Times in the access log.

use std::time::{SystemTime, UNIX_EPOCH};

/// Appends `time` in UTC with milliseconds, such as `2026-11-21T20:48:11.250Z`.
///
/// Shape: a time before 1970 is written as the begin of 1970.
///
/// Source: RFC 3339 section 5.6.
pub(crate) fn write_rfc3339(out: &mut Vec<u8>, time: SystemTime) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    digits(out, year, 4, b'-');
    digits(out, month, 2, b'-');
    digits(out, day, 2, b'T');
    digits(out, seconds % 86_400 / 3600, 2, b':');
    digits(out, seconds % 3600 / 60, 2, b':');
    digits(out, seconds % 60, 2, b'.');
    digits(out, u64::from(since.subsec_millis()), 3, b'Z');
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01.
///
/// Years are counted from March here, so that the leap day is the last day of a year.
fn date(days: u64) -> (u64, u64, u64) {
    // From 0000-03-01, where a cycle of 400 years begins.
    let days = days + 719_468;
    let (cycle, day_of_cycle) = (days / 146_097, days % 146_097);
    let leap_days = day_of_cycle / 1_460 + day_of_cycle / 146_096 - day_of_cycle / 36_524;
    let year_of_cycle = (day_of_cycle - leap_days) / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    // March to July and August to December are the same 153 days.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = 400 * cycle + year_of_cycle + u64::from(month <= 2);
    (year, month, day)
}

fn digits(out: &mut Vec<u8>, number: u64, width: usize, end: u8) {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(number);
    out.extend(std::iter::repeat_n(b'0', width.saturating_sub(text.len())));
    out.extend_from_slice(text.as_bytes());
    out.push(end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn shown(millis: u64) -> String {
        let mut out = Vec::new();
        write_rfc3339(&mut out, UNIX_EPOCH + Duration::from_millis(millis));
        String::from_utf8(out).expect("digits are text")
    }

    #[test]
    fn known_moments_are_right() {
        assert_eq!(shown(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(shown(951_782_400_001), "2000-02-29T00:00:00.001Z");
        assert_eq!(shown(1_709_251_199_999), "2024-02-29T23:59:59.999Z");
        assert_eq!(shown(1_795_294_091_250), "2026-11-21T20:48:11.250Z");
        assert_eq!(shown(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn a_time_before_1970_is_its_first_moment() {
        let mut out = Vec::new();
        write_rfc3339(&mut out, UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(out, b"1970-01-01T00:00:00.000Z");
    }

    /// Counts year by year and month by month.
    fn naive_date(mut days: u64) -> (u64, u64, u64) {
        let leap = |year: u64| {
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
        };
        let mut year = 1970;
        while days >= 365 + u64::from(leap(year)) {
            days -= 365 + u64::from(leap(year));
            year += 1;
        }
        let february = 28 + u64::from(leap(year));
        let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut month = 0;
        while days >= months[month] {
            days -= months[month];
            month += 1;
        }
        (year, month as u64 + 1, days + 1)
    }

    proptest! {
        #[test]
        fn every_day_is_the_one_counted(days in 0_u64..400_000) {
            prop_assert_eq!(date(days), naive_date(days));
        }
    }
}
