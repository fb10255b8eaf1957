use std::fmt;

/// The error of a timeout: its time has passed before the future was ready.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}
