//! The replies that are one fixed line, in one table for both sides.

use super::reply::Reply;

macro_rules! statuses {
    ($($name:ident = $word:literal)+) => {
        /// A reply that is one fixed line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Status {
            $(
                #[doc = concat!("`", $word, "`.")]
                $name,
            )+
        }

        impl Status {
            /// The line as it goes on the wire.
            pub fn as_bytes(self) -> &'static [u8] {
                match self {
                    $(Self::$name => concat!($word, "\r\n").as_bytes(),)+
                }
            }

            /// Reads the word of a line.
            pub(super) fn from_word(word: &[u8]) -> Option<Self> {
                match word {
                    $(word if word == $word.as_bytes() => Some(Self::$name),)+
                    _ => None,
                }
            }
        }

        impl From<Status> for Reply<'_> {
            fn from(status: Status) -> Self {
                match status {
                    $(Status::$name => Self::$name,)+
                }
            }
        }
    };
}

statuses! {
    Stored = "STORED"
    NotStored = "NOT_STORED"
    Exists = "EXISTS"
    NotFound = "NOT_FOUND"
    Deleted = "DELETED"
    Touched = "TOUCHED"
    Ok = "OK"
    Reset = "RESET"
    End = "END"
}
