//! Codecs of values about access.

use super::{Codec, Fault, Value, quoted, text};
use crate::config::access::check_token;

/// A token for an `Authorization` field.
pub(in crate::config) struct BearerToken;

impl Codec<String> for BearerToken {
    const IS_SECRET: bool = true;

    fn read(&self, value: &Value<'_>) -> Result<String, Fault> {
        let token = text(value, "a token")?;
        check_token(token.as_bytes())
            .map_err(|error| Fault::new(value, error).help("`openssl rand -hex 32` makes one"))?;
        Ok(token.to_owned())
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }

    fn describe(&self) -> String {
        "token of 16 to 256 letters, digits and `-._~+/=`".to_owned()
    }
}

/// A type with a text form.
pub(in crate::config) struct Written(pub(in crate::config) &'static str);

impl<T> Codec<T> for Written
where
    T: std::str::FromStr<Err = &'static str> + std::fmt::Display,
{
    fn read(&self, value: &Value<'_>) -> Result<T, Fault> {
        let text = text(value, self.0)?;
        let read = text.parse();
        read.map_err(|why: &str| Fault::new(value, format!("{why}: `{text}`")))
    }

    fn show(&self, value: &T) -> String {
        quoted(&value.to_string())
    }

    fn describe(&self) -> String {
        self.0.to_owned()
    }
}

/// An origin as browsers send it, or `*`.
pub(in crate::config) struct WebOrigin;

impl Codec<String> for WebOrigin {
    fn read(&self, value: &Value<'_>) -> Result<String, Fault> {
        let text = text(value, "an origin")?;
        if text == "*" {
            return Ok(text.to_owned());
        }
        let authority = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"));
        let is_of_authority = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:[]".contains(&byte)
        };
        let is_default = text.starts_with("https:") && text.ends_with(":443")
            || text.starts_with("http:") && text.ends_with(":80");
        match authority {
            Some(authority)
                if !authority.is_empty()
                    && authority.bytes().all(is_of_authority)
                    && !is_default =>
            {
                Ok(text.to_owned())
            }
            _ => Err(
                Fault::new(value, format!("no browser has the origin `{text}`")).help(
                    "write it as browsers do: \"https://app.example.com\", in lower case, without \
                     a path, and without the port where it is 443 or 80",
                ),
            ),
        }
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }

    fn describe(&self) -> String {
        "origin such as `\"https://app.example.com\"`, or `\"*\"`".to_owned()
    }
}

/// The name of a cookie or of a query parameter.
pub(in crate::config) struct Name;

impl Codec<String> for Name {
    fn read(&self, value: &Value<'_>) -> Result<String, Fault> {
        let text = text(value, "a name")?;
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if text.is_empty() || !text.bytes().all(is_of_name) {
            return Err(Fault::new(value, format!("not a name: `{text}`"))
                .help("write letters, digits and -._"));
        }
        Ok(text.to_owned())
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }

    fn describe(&self) -> String {
        "name".to_owned()
    }
}

/// Any text.
pub(in crate::config) struct Text;

impl Codec<String> for Text {
    fn read(&self, value: &Value<'_>) -> Result<String, Fault> {
        Ok(text(value, "a text")?.to_owned())
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }

    fn describe(&self) -> String {
        "text".to_owned()
    }
}
