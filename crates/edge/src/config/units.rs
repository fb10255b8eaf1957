//! Durations and sizes as text.

use std::fmt;
use std::time::Duration;

/// Reads a duration: one or more whole numbers with a unit, such as `250ms`, `10s` or `1m30s`.
///
/// Units: `ms`, `s`, `m`, `h`, `d`; a larger unit stands before a smaller one.
///
/// # Errors
/// [`UnitError`] when a number or a unit is missing, unknown or out of order.
///
/// ```
/// use dwell_edge::config::duration;
/// use std::time::Duration;
/// assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
/// assert!(duration("10").is_err());
/// ```
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    let mut total = 0_u64;
    let mut smallest = u64::MAX;
    let mut rest = text;
    while !rest.is_empty() || smallest == u64::MAX {
        let (number, unit, after) = number_and_unit(rest)?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "" => return Err(UnitError::NoUnit),
            _ => return Err(UnitError::DurationUnit(unit.to_owned())),
        };
        if millis >= smallest {
            return Err(UnitError::Order(unit.to_owned()));
        }
        smallest = millis;
        let part = number.checked_mul(millis).ok_or(UnitError::TooLarge)?;
        total = total.checked_add(part).ok_or(UnitError::TooLarge)?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

/// Writes a duration so that [`duration`] reads it back, rounded down to milliseconds.
pub fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
    ];
    let exact = units
        .iter()
        .find(|(_, size)| millis >= *size && millis.is_multiple_of(*size));
    match exact {
        Some((unit, size)) => format!("{}{unit}", millis / size),
        None if millis == 0 => "0s".to_owned(),
        None => format!("{millis}ms"),
    }
}

/// Reads a size: a whole number, alone or with a unit, such as `4096`, `64KiB` or `1g`.
///
/// Units: bytes; `k`, `m` and `g`, with or without `b` or `ib` and in any case, are powers of
/// 1024.
///
/// # Errors
/// [`UnitError`] when the number is missing or the unit is unknown.
///
/// ```
/// use dwell_edge::config::size;
/// assert_eq!(size("64KiB"), Ok(65_536));
/// assert_eq!(size("64kb"), size("64k"));
/// ```
pub fn size(text: &str) -> Result<u64, UnitError> {
    let (number, unit, rest) = number_and_unit(text)?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(UnitError::SizeUnit(unit.to_owned())),
    };
    if !rest.is_empty() {
        return Err(UnitError::SizeUnit(format!("{unit}{rest}")));
    }
    number.checked_mul(1 << shift).ok_or(UnitError::TooLarge)
}

/// Writes a size so that [`size`] reads it back.
pub fn show_size(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let exact = units
        .iter()
        .find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match exact {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Reason why a text is not a duration or a size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnitError {
    /// It does not begin with a digit.
    NoNumber,
    /// A number has a decimal point or comma.
    Fraction,
    /// A duration has no unit.
    NoUnit,
    /// The unit is not one of time.
    DurationUnit(String),
    /// The unit is not one of size.
    SizeUnit(String),
    /// A unit follows a smaller or equal one.
    Order(String),
    /// The value exceeds 2^64 milliseconds or bytes.
    TooLarge,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber => f.write_str("not a whole number with a unit"),
            Self::Fraction => f.write_str("not a whole number: use a smaller unit"),
            Self::NoUnit => f.write_str("a duration needs a unit: ms, s, m, h or d"),
            Self::DurationUnit(unit) => {
                write!(f, "unknown unit of time: `{unit}` is not ms, s, m, h or d")
            }
            Self::SizeUnit(unit) => {
                write!(f, "unknown unit of size: `{unit}` is not KiB, MiB or GiB")
            }
            Self::Order(unit) => write!(f, "`{unit}` stands after a smaller or equal unit"),
            Self::TooLarge => f.write_str("the number is too large"),
        }
    }
}

impl std::error::Error for UnitError {}

/// Splits off the leading digits and the letters after them.
fn number_and_unit(text: &str) -> Result<(u64, &str, &str), UnitError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if digits == 0 {
        return Err(UnitError::NoNumber);
    }
    let number = text[..digits].parse().map_err(|_| UnitError::TooLarge)?;
    let rest = &text[digits..];
    if rest.starts_with(['.', ',']) {
        return Err(UnitError::Fraction);
    }
    let letters = rest
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(rest.len());
    Ok((number, &rest[..letters], &rest[letters..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_have_units() {
        let millis = |text| duration(text).map(|duration| duration.as_millis());
        assert_eq!(millis("250ms"), Ok(250));
        assert_eq!(millis("0s"), Ok(0));
        assert_eq!(millis("2m"), Ok(120_000));
        assert_eq!(millis("1h1ms"), Ok(3_600_001));
        assert_eq!(millis("1d"), Ok(86_400_000));
        assert_eq!(millis(""), Err(UnitError::NoNumber));
        assert_eq!(millis("s"), Err(UnitError::NoNumber));
        assert_eq!(millis("10"), Err(UnitError::NoUnit));
        assert_eq!(millis("1.5s"), Err(UnitError::Fraction));
        assert_eq!(millis("-1s"), Err(UnitError::NoNumber));
        assert_eq!(
            millis("10 s"),
            Err(UnitError::DurationUnit(" s".to_owned()))
        );
        assert_eq!(
            millis("10sec"),
            Err(UnitError::DurationUnit("sec".to_owned()))
        );
        assert_eq!(millis("1s1m"), Err(UnitError::Order("m".to_owned())));
        assert_eq!(millis("1s1s"), Err(UnitError::Order("s".to_owned())));
        assert_eq!(millis("99999999999999999999s"), Err(UnitError::TooLarge));
        assert_eq!(millis("9999999999999999999d"), Err(UnitError::TooLarge));
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("64MiB"), Ok(67_108_864));
        assert_eq!(size("64mb"), Ok(67_108_864));
        assert_eq!(size("1G"), Ok(1_073_741_824));
        assert_eq!(size("12b"), Ok(12));
        assert_eq!(size("MiB"), Err(UnitError::NoNumber));
        assert_eq!(size("1.5GiB"), Err(UnitError::Fraction));
        assert_eq!(size("1TiB"), Err(UnitError::SizeUnit("TiB".to_owned())));
        assert_eq!(size("1k2"), Err(UnitError::SizeUnit("k2".to_owned())));
        assert_eq!(size("99999999999g"), Err(UnitError::TooLarge));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(number in 0_u64..1 << 36, factor in 0_usize..6) {
            let millis = number * [1, 10, 1_000, 60_000, 3_600_000, 86_400_000][factor];
            let time = Duration::from_millis(millis);
            prop_assert_eq!(duration(&show_duration(time)), Ok(time));
            let bytes = number << (factor * 4);
            prop_assert_eq!(size(&show_size(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = duration(&text);
            let _ = size(&text);
        }
    }
}
