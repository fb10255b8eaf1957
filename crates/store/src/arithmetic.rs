//! The commands that change a number.

use crate::item::Expiry;
use crate::items::Write;
use crate::options::{ArithmeticOptions, ArithmeticOutcome, Direction};
use crate::record::mark;
use crate::shard::{Call, Shard};

impl Shard {
    pub(crate) fn arithmetic(
        &mut self,
        options: &ArithmeticOptions,
        call: &mut Call<'_>,
    ) -> ArithmeticOutcome {
        let Some(at) = self.find(call) else {
            let Some(expiry) = options.vivify else {
                self.count_arithmetic(options.direction, false);
                return ArithmeticOutcome::NotFound;
            };
            let cas = call.version(options.cas_new);
            let blank = Write::empty(0, expiry, 0, cas);
            return self.put_number(None, options.initial, 0, blank, call);
        };
        let entry = self.items.entry(at);
        if options.cas.is_some_and(|cas| cas != entry.cas) {
            return ArithmeticOutcome::Exists;
        }
        let Some(before) = parse_number(entry.value()) else {
            return ArithmeticOutcome::NotNumeric;
        };
        // A number that is counted is no copy.
        let (flags, marks) = (entry.flags, entry.tag.marks() & !mark::FILLED);
        let expiry_before = entry.expiry;
        let expiry = options.expiry.unwrap_or(expiry_before);
        let len_before = entry.value().len();
        let number = match options.direction {
            Direction::Increment => before.wrapping_add(options.delta),
            Direction::Decrement => before.saturating_sub(options.delta),
        };
        self.count_arithmetic(options.direction, true);
        let cas = call.version(options.cas_new);
        let blank = Write::empty(flags, expiry, marks, cas);
        self.put_number(Some((at, expiry_before)), number, len_before, blank, call)
    }

    /// Stores a number in decimal, with spaces behind it up to the length of the old value.
    fn put_number(
        &mut self,
        existing: Option<(u32, Expiry)>,
        number: u64,
        len_before: usize,
        blank: Write<'_>,
        call: &mut Call<'_>,
    ) -> ArithmeticOutcome {
        let mut digits = itoa::Buffer::new();
        let head = digits.format(number).as_bytes();
        let spaces = vec![b' '; len_before.saturating_sub(head.len())];
        if !self.fits(call.key.len(), head.len() + spaces.len()) {
            return ArithmeticOutcome::TooLarge;
        }
        let (cas, expiry) = (blank.cas, blank.expiry);
        let write = Write {
            head,
            tail: &spaces,
            ..blank
        };
        if self.put(existing.map(|(at, _)| at), write, call).is_err() {
            return ArithmeticOutcome::OutOfMemory;
        }
        ArithmeticOutcome::Done {
            number,
            cas,
            expiry,
            expiry_before: existing.map(|(_, expiry)| expiry),
        }
    }

    fn count_arithmetic(&mut self, direction: Direction, hit: bool) {
        let counter = match (direction, hit) {
            (Direction::Increment, true) => &mut self.statistics.incr_hits,
            (Direction::Increment, false) => &mut self.statistics.incr_misses,
            (Direction::Decrement, true) => &mut self.statistics.decr_hits,
            (Direction::Decrement, false) => &mut self.statistics.decr_misses,
        };
        *counter += 1;
    }
}

/// Reads a number as memcached does: blanks in front, a plus sign, digits, then the end or a
/// blank with anything behind it.
pub(crate) fn parse_number(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii_start();
    let value = value.strip_prefix(b"+").unwrap_or(value);
    let digits = value
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (number, rest) = value.split_at(digits);
    if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
        return None;
    }
    std::str::from_utf8(number).ok()?.parse().ok()
}
