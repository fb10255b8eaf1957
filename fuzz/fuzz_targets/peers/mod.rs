//! Two servers that are given the same frames.

pub mod ours;
pub mod script;
pub mod theirs;

/// The results of one frame.
#[derive(Debug, Default)]
pub struct Seen {
    /// Requests, data, trailers and ends of streams, one line each.
    pub lines: Vec<String>,
    pub end: End,
    /// The differences that are possible here.
    pub may: May,
}

/// Listed differences between both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum May {
    #[default]
    NotDiffer,
    /// The other ends the connection, too, with another code.
    SayOtherwise,
    /// The other refuses the request, too, and may end the connection by that.
    EndMore,
    /// The other may take what is refused here, or do more about it.
    TakeIt,
}

/// The state of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum End {
    #[default]
    GoesOn,
    /// It has ended by an error with this code.
    Failed(u32),
}

impl Seen {
    /// Returns true if the other has seen the same. With a connection all its streams end.
    pub fn is_as(&self, other: &Self) -> bool {
        let is_over = other.end != End::GoesOn;
        let (ends, untold) = match self.may {
            May::SayOtherwise => (is_over, false),
            May::EndMore => (true, is_over),
            May::NotDiffer | May::TakeIt => (self.end == other.end, false),
        };
        let told = |line: &&String| !(untold && line.contains(" fails "));
        ends && self.lines.iter().filter(told).eq(&other.lines)
    }
}

/// A request as both write it: fields are in the order of their names, and cookies are one field.
pub fn request(
    stream: u32,
    [method, scheme, authority, target]: [&str; 4],
    fields: Vec<(String, Vec<u8>)>,
) -> String {
    // The types of the crate `http` have no scheme without an authority, for which `host` stands.
    let scheme = match authority {
        "" => String::new(),
        _ => scheme.to_ascii_lowercase(),
    };
    let fields = ordered(fields);
    format!("{stream} {method} {scheme} {authority} {target} {fields}")
}

/// Trailer fields as both write them.
pub fn trailers(stream: u32, fields: Vec<(String, Vec<u8>)>) -> String {
    format!("{stream} trailers {}", ordered(fields))
}

fn ordered(mut fields: Vec<(String, Vec<u8>)>) -> String {
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    let mut joined: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, value) in fields {
        match joined.last_mut() {
            Some((last, text)) if *last == "cookie" && name == "cookie" => {
                text.extend_from_slice(b"; ");
                text.extend_from_slice(&value);
            }
            _ => joined.push((name, value)),
        }
    }
    let escape = |value: &[u8]| value.escape_ascii().to_string();
    let lines = joined
        .iter()
        .map(|(name, value)| format!("{name}={}", escape(value)));
    lines.collect::<Vec<_>>().join(",")
}
