//! Codecs of values of the configuration: reading, and writing as TOML.

mod access;
mod network;
mod request;

pub(super) use access::{BearerToken, Name, Text, WebOrigin, Written};
pub(super) use network::{
    ClusterServer, KeyPrefix, MemcachedPeer, RedisServer, Sentinel, SocketAddress, Url,
};
pub(super) use request::{
    AccessLogTarget, FilePath, MediaType, MethodList, Origin, Permissions, Prefix, Template,
    UserName,
};

use super::units::{duration, show_duration, show_size, size};
use serde_json::{Value as Json, json};
use std::fmt::Display;
use std::ops::Range;
use std::time::Duration;
use toml::Spanned;
use toml::de::DeValue;

/// A value with its place in the text.
pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// A fault in a value, its place, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

impl Fault {
    fn new(value: &Value<'_>, message: impl Display) -> Self {
        Self {
            span: value.span(),
            message: message.to_string(),
            help: None,
        }
    }

    fn help(mut self, help: impl Display) -> Self {
        self.help = Some(help.to_string());
        self
    }
}

/// Conversion of a flag's text to a TOML value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A string.
    Text,
    /// A bare TOML value: a number, `true` or `false`.
    Bare,
    /// An array with one string for each use of the flag.
    List,
}

/// A codec of values of type `T`.
pub(super) trait Codec<T> {
    /// Conversion of a flag's text.
    const SHAPE: Shape = Shape::Text;
    /// True for values that no message shows.
    const IS_SECRET: bool = false;
    /// Reads a value.
    fn read(&self, value: &Value<'_>) -> Result<T, Fault>;
    /// Writes a value as TOML.
    fn show(&self, value: &T) -> String;
    /// Describes the accepted values for the reference.
    fn describe(&self) -> String;
    /// A JSON schema of the accepted values, which may allow more than is accepted.
    fn schema(&self) -> Json {
        json!({ "type": "string" })
    }
}

/// A whole number.
pub(super) struct Count(pub(super) u64, pub(super) u64);

impl<T: Copy + TryFrom<u64> + TryInto<u64>> Codec<T> for Count {
    const SHAPE: Shape = Shape::Bare;

    fn read(&self, value: &Value<'_>) -> Result<T, Fault> {
        let wanted = || format!("write a whole number from {} to {}", self.0, self.1);
        let DeValue::Integer(integer) = value.get_ref() else {
            return Err(wrong_type(value, "a whole number").help(wanted()));
        };
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.filter(|number| (self.0..=self.1).contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| {
                Fault::new(
                    value,
                    format!("must be {} to {}: {integer}", self.0, self.1),
                )
                .help(wanted())
            })
    }

    fn show(&self, value: &T) -> String {
        shown(*value, |number| number.to_string())
    }

    fn describe(&self) -> String {
        format!("number, {} to {}", self.0, self.1)
    }

    fn schema(&self) -> Json {
        json!({ "type": "integer", "minimum": self.0, "maximum": self.1 })
    }
}

/// A number of bytes.
pub(super) struct Size(pub(super) u64, pub(super) u64);

impl<T: Copy + TryFrom<u64> + TryInto<u64>> Codec<T> for Size {
    fn read(&self, value: &Value<'_>) -> Result<T, Fault> {
        let (least, most) = (show_size(self.0), show_size(self.1));
        let wanted = || format!("write a size from \"{least}\" to \"{most}\"");
        let number = match value.get_ref() {
            DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix())
                .map_err(|_| Fault::new(value, format!("not a size: {integer}")).help(wanted()))?,
            _ => size(text(value, "a size")?)
                .map_err(|error| Fault::new(value, error).help(wanted()))?,
        };
        let inside = Some(number).filter(|number| (self.0..=self.1).contains(number));
        inside
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| {
                let found = show_size(number);
                Fault::new(value, format!("must be {least} to {most}: {found}")).help(wanted())
            })
    }

    fn show(&self, value: &T) -> String {
        shown(*value, |number| quoted(&show_size(number)))
    }

    fn describe(&self) -> String {
        format!("size, {} to {}", show_size(self.0), show_size(self.1))
    }

    fn schema(&self) -> Json {
        let bytes = json!({ "type": "integer", "minimum": self.0, "maximum": self.1 });
        let pattern = "^[0-9]+([bB]|[kKmMgG]([iI]?[bB])?)?$";
        json!({ "anyOf": [bytes, { "type": "string", "pattern": pattern }] })
    }
}

/// A duration.
pub(super) struct TimeSpan(pub(super) Duration, pub(super) Duration);

impl Codec<Duration> for TimeSpan {
    fn read(&self, value: &Value<'_>) -> Result<Duration, Fault> {
        let (least, most) = (show_duration(self.0), show_duration(self.1));
        let wanted = || format!("write a duration from \"{least}\" to \"{most}\"");
        if let DeValue::Integer(integer) = value.get_ref() {
            return Err(Fault::new(value, "a duration needs a unit")
                .help(format!("write \"{integer}s\" or \"{integer}ms\"")));
        }
        let read = duration(text(value, "a duration")?)
            .map_err(|error| Fault::new(value, error).help(wanted()))?;
        if (self.0..=self.1).contains(&read) {
            return Ok(read);
        }
        let found = show_duration(read);
        Err(Fault::new(value, format!("must be {least} to {most}: {found}")).help(wanted()))
    }

    fn show(&self, value: &Duration) -> String {
        quoted(&show_duration(*value))
    }

    fn describe(&self) -> String {
        format!(
            "duration, {} to {}",
            show_duration(self.0),
            show_duration(self.1)
        )
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+$" })
    }
}

/// `true` or `false`.
pub(super) struct Truth;

impl Codec<bool> for Truth {
    const SHAPE: Shape = Shape::Bare;

    fn read(&self, value: &Value<'_>) -> Result<bool, Fault> {
        let help = "write true or false, without quotes";
        value
            .get_ref()
            .as_bool()
            .ok_or_else(|| wrong_type(value, "true or false").help(help))
    }

    fn show(&self, value: &bool) -> String {
        value.to_string()
    }

    fn describe(&self) -> String {
        "`true` or `false`".to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "type": "boolean" })
    }
}

/// A value, or `"off"` for none.
pub(super) struct OrOff<C>(pub(super) C);

impl<T, C: Codec<T>> Codec<Option<T>> for OrOff<C> {
    const IS_SECRET: bool = C::IS_SECRET;

    fn read(&self, value: &Value<'_>) -> Result<Option<T>, Fault> {
        match value.get_ref().as_str() {
            Some("off") => Ok(None),
            _ => self.0.read(value).map(Some),
        }
    }

    fn show(&self, value: &Option<T>) -> String {
        value
            .as_ref()
            .map_or_else(|| quoted("off"), |value| self.0.show(value))
    }

    fn describe(&self) -> String {
        format!("{}, or `\"off\"`", self.0.describe())
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [self.0.schema(), { "const": "off" }] })
    }
}

/// One value or an array of at least `.1` values.
pub(super) struct OneOrMany<C>(pub(super) C, pub(super) usize);

impl<T, C: Codec<T>> Codec<Vec<T>> for OneOrMany<C> {
    const SHAPE: Shape = Shape::List;
    const IS_SECRET: bool = C::IS_SECRET;

    fn read(&self, value: &Value<'_>) -> Result<Vec<T>, Fault> {
        let DeValue::Array(array) = value.get_ref() else {
            return self.0.read(value).map(|one| vec![one]);
        };
        if array.len() < self.1 {
            return Err(Fault::new(value, "the list is empty").help("name at least one"));
        }
        array.iter().map(|value| self.0.read(value)).collect()
    }

    fn show(&self, value: &Vec<T>) -> String {
        match value.as_slice() {
            [one] => self.0.show(one),
            many => {
                let shown: Vec<String> = many.iter().map(|one| self.0.show(one)).collect();
                format!("[{}]", shown.join(", "))
            }
        }
    }

    fn describe(&self) -> String {
        format!("{}, one or a list", self.0.describe())
    }

    fn schema(&self) -> Json {
        let one = self.0.schema();
        json!({ "anyOf": [one, { "type": "array", "minItems": self.1, "items": one }] })
    }
}

/// One value or several, or `"off"` for none.
pub(super) struct ManyOrOff<C>(pub(super) C);

impl<T, C: Codec<T>> Codec<Vec<T>> for ManyOrOff<C> {
    const SHAPE: Shape = Shape::List;
    const IS_SECRET: bool = C::IS_SECRET;

    fn read(&self, value: &Value<'_>) -> Result<Vec<T>, Fault> {
        let alone = match value.get_ref() {
            DeValue::Array(array) if array.len() == 1 => &array[0],
            _ => value,
        };
        if alone.get_ref().as_str() == Some("off") {
            return Ok(Vec::new());
        }
        let many = OneOrMany(&self.0, 1);
        many.read(value)
    }

    fn show(&self, value: &Vec<T>) -> String {
        if value.is_empty() {
            return quoted("off");
        }
        OneOrMany(&self.0, 1).show(value)
    }

    fn describe(&self) -> String {
        format!("{}, one or a list, or `\"off\"`", self.0.describe())
    }

    fn schema(&self) -> Json {
        let one = json!({ "anyOf": [self.0.schema(), { "const": "off" }] });
        json!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] })
    }
}

impl<T, C: Codec<T>> Codec<T> for &C {
    const SHAPE: Shape = C::SHAPE;
    const IS_SECRET: bool = C::IS_SECRET;

    fn read(&self, value: &Value<'_>) -> Result<T, Fault> {
        (**self).read(value)
    }

    fn show(&self, value: &T) -> String {
        (**self).show(value)
    }

    fn describe(&self) -> String {
        (**self).describe()
    }

    fn schema(&self) -> Json {
        (**self).schema()
    }
}

/// One of a few words.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Codec<T> for Choice<T> {
    fn read(&self, value: &Value<'_>) -> Result<T, Fault> {
        let words: Vec<String> = self.0.iter().map(|(word, _)| quoted(word)).collect();
        let wanted = || format!("write one of {}", words.join(", "));
        let text = text(value, "a word").map_err(|fault| fault.help(wanted()))?;
        let found = self.0.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| Fault::new(value, format!("unknown value: `{text}`")).help(wanted()))
    }

    fn show(&self, value: &T) -> String {
        let found = self.0.iter().find(|(_, candidate)| candidate == value);
        quoted(found.map_or("", |(word, _)| word))
    }

    fn describe(&self) -> String {
        let words: Vec<String> = self
            .0
            .iter()
            .map(|(word, _)| format!("`\"{word}\"`"))
            .collect();
        words.join(", ")
    }

    fn schema(&self) -> Json {
        let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
        json!({ "enum": words })
    }
}

/// The text of a value that must be a string.
fn text<'v>(value: &'v Value<'_>, wanted: &str) -> Result<&'v str, Fault> {
    value
        .get_ref()
        .as_str()
        .ok_or_else(|| wrong_type(value, wanted).help(format!("write {wanted} in quotes")))
}

fn wrong_type(value: &Value<'_>, wanted: &str) -> Fault {
    let found = match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    Fault::new(value, format!("expected {wanted}, found {found}"))
}

fn shown<T: TryInto<u64>>(value: T, show: impl Fn(u64) -> String) -> String {
    // The integers of a Config are unsigned and have at most 64 bits.
    value.try_into().map(show).unwrap_or_default()
}

/// Writes a TOML string; the values of options have no control characters.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
