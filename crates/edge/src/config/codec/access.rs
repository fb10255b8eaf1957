//! Values about who may do what.

use super::{Codec, Fault, Shape, Value, quoted, text};

/// A token that is shown in an `Authorization` field.
pub(in crate::config) struct BearerToken;

impl Codec<String> for BearerToken {
    const SHAPE: Shape = Shape::Text;

    fn read(&self, value: &Value<'_>) -> Result<String, Fault> {
        let token = text(value, "a token")?;
        crate::publish::check_token(token.as_bytes())
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
