//! The closed sets of label values; a set that is closed cannot grow a scrape without bound.

use super::Counter;
use std::fmt::Debug;

/// A closed set of values of one label.
pub trait Label: Copy + Debug + 'static {
    /// One counter for each value.
    type Counters: AsRef<[Counter]> + Default + Debug + Send + Sync;
    /// The label's name.
    const NAME: &'static str;
    /// Every value, in the order of [`Self::index`].
    const ALL: &'static [Self];
    /// The value's place.
    fn index(self) -> usize;
    /// The value as a scrape and the access log show it.
    fn as_str(self) -> &'static str;
}

/// Declares an enum as a closed set of values of one label: its name, the label, and each value
/// with its text.
#[macro_export]
macro_rules! labels {
    (
        $(#[$documentation:meta])*
        $visibility:vis $name:ident, $label:literal:
        $($(#[$value_documentation:meta])* $value:ident = $text:literal,)+
    ) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $name {
            $($(#[$value_documentation])* $value,)+
        }

        impl $name {
            /// Every value.
            $visibility const ALL: &'static [Self] = &[$(Self::$value,)+];

            /// The value as a scrape and the access log show it.
            $visibility fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }

        impl $crate::Label for $name {
            type Counters = [$crate::Counter; Self::ALL.len()];
            const NAME: &'static str = $label;
            const ALL: &'static [Self] = Self::ALL;

            // A cast, and nothing where the label is named in the source.
            #[inline(always)]
            fn index(self) -> usize {
                self as usize
            }

            fn as_str(self) -> &'static str {
                Self::as_str(self)
            }
        }
    };
}
