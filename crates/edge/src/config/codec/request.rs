//! Codecs of values about requests: prefixes, keys, methods, media types, the access log.

use super::{Codec, Fault, Shape, Value, quoted, text, wrong_type};
use crate::config::{AccessTarget, KeyTemplate, Methods};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// The start of a request path.
pub(in crate::config) struct Prefix;

impl Codec<String> for Prefix {
    fn read(&self, value: &Value<'_>) -> Result<String, Fault> {
        let text = text(value, "a path prefix")?;
        if !text.starts_with('/') {
            return Err(
                Fault::new(value, format!("a prefix starts with a slash: `{text}`"))
                    .help(format!("write \"/{text}\"")),
            );
        }
        let is_path_byte = |byte: u8| byte.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&byte);
        if !text.bytes().all(is_path_byte) {
            return Err(
                Fault::new(value, format!("no request path starts with `{text}`")).help(
                    "write it as it stands in a request line, percent-encoded, without a query",
                ),
            );
        }
        Ok(text.to_owned())
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }

    fn describe(&self) -> String {
        "path that starts with `/`".to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "pattern": "^/" })
    }
}

/// A key template.
pub(in crate::config) struct Template;

impl Codec<KeyTemplate> for Template {
    fn read(&self, value: &Value<'_>) -> Result<KeyTemplate, Fault> {
        let help = "the parts are {path}, {uri}, {scheme}, {query.NAME}, {header.NAME}, \
                    {cookie.NAME}, {claim.NAME}, {auth.NAME}, {tls.client.cn} and {tls.client.san}";
        text(value, "a key template")?
            .parse()
            .map_err(|error| Fault::new(value, error).help(help))
    }

    fn show(&self, value: &KeyTemplate) -> String {
        quoted(&value.to_string())
    }

    fn describe(&self) -> String {
        "text with `{path}`, `{uri}`, `{scheme}`, `{query.NAME}`, `{header.NAME}`, \
         `{cookie.NAME}`, `{claim.NAME}`, `{auth.NAME}`, `{tls.client.cn}`, `{tls.client.san}`"
            .to_owned()
    }
}

/// A media type.
pub(in crate::config) struct MediaType;

impl Codec<String> for MediaType {
    fn read(&self, value: &Value<'_>) -> Result<String, Fault> {
        let text = text(value, "a media type")?;
        let is_field_byte = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        let main = text.split(';').next().unwrap_or_default().trim();
        let has_both = main
            .split_once('/')
            .is_some_and(|(a, b)| !a.is_empty() && !b.is_empty());
        if has_both && text.bytes().all(is_field_byte) {
            return Ok(text.to_owned());
        }
        Err(Fault::new(value, format!("not a media type: `{text}`"))
            .help("write one such as \"application/json\" or \"text/plain; charset=utf-8\""))
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }

    fn describe(&self) -> String {
        "media type".to_owned()
    }
}

/// The origin of a page.
pub(in crate::config) struct Origin;

impl Codec<String> for Origin {
    fn read(&self, value: &Value<'_>) -> Result<String, Fault> {
        let text = text(value, "an origin")?;
        let is_authority = |rest: &str| {
            !rest.is_empty()
                && rest
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b'/')
        };
        let rest = text.split_once("://").map(|(_, rest)| rest);
        if text == "*" || rest.is_some_and(is_authority) {
            return Ok(text.to_owned());
        }
        Err(Fault::new(value, format!("not an origin: `{text}`"))
            .help("write one such as \"https://example.org\", or \"*\" for all"))
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }

    fn describe(&self) -> String {
        "origin such as `https://example.org`, or `\"*\"`".to_owned()
    }
}

/// The methods of a route.
pub(in crate::config) struct MethodList;

impl Codec<Methods> for MethodList {
    const SHAPE: Shape = Shape::List;

    fn read(&self, value: &Value<'_>) -> Result<Methods, Fault> {
        let help = "write a list of \"GET\", \"HEAD\", \"POST\" and \"QUERY\"";
        let list = value.get_ref().as_array();
        let list = list.ok_or_else(|| wrong_type(value, "a list of methods").help(help))?;
        let mut methods = Methods {
            get: false,
            head: false,
            post: false,
            query: false,
        };
        for method in list {
            match text(method, "a method")? {
                "GET" => methods.get = true,
                "HEAD" => methods.head = true,
                "POST" => methods.post = true,
                "QUERY" => methods.query = true,
                other => {
                    let message = format!("not a method of polls: `{other}`");
                    return Err(Fault::new(method, message).help(help));
                }
            }
        }
        if list.is_empty() {
            return Err(Fault::new(value, "the list is empty").help(help));
        }
        Ok(methods)
    }

    fn show(&self, value: &Methods) -> String {
        let names = value.allow_field();
        let names: Vec<String> = names.split(", ").map(quoted).collect();
        format!("[{}]", names.join(", "))
    }

    fn describe(&self) -> String {
        "list of `\"GET\"`, `\"HEAD\"`, `\"POST\"`, `\"QUERY\"`".to_owned()
    }

    fn schema(&self) -> Json {
        let method = json!({ "enum": ["GET", "HEAD", "POST", "QUERY"] });
        json!({ "type": "array", "minItems": 1, "items": method })
    }
}

/// The target of the access log.
pub(in crate::config) struct AccessLogTarget;

impl Codec<AccessTarget> for AccessLogTarget {
    fn read(&self, value: &Value<'_>) -> Result<AccessTarget, Fault> {
        match text(value, "a path")? {
            "off" => Ok(AccessTarget::Off),
            "-" => Ok(AccessTarget::Stdout),
            "" => Err(Fault::new(value, "the path is empty")
                .help("write a path, \"-\" for standard output, or \"off\"")),
            path => Ok(AccessTarget::File(PathBuf::from(path))),
        }
    }

    fn show(&self, value: &AccessTarget) -> String {
        match value {
            AccessTarget::Off => quoted("off"),
            AccessTarget::Stdout => quoted("-"),
            AccessTarget::File(path) => quoted(&path.to_string_lossy()),
        }
    }

    fn describe(&self) -> String {
        "path, `\"-\"` for standard output, or `\"off\"`".to_owned()
    }
}

/// The path of a file.
pub(in crate::config) struct FilePath;

impl Codec<PathBuf> for FilePath {
    fn read(&self, value: &Value<'_>) -> Result<PathBuf, Fault> {
        match text(value, "a path")? {
            "" => Err(Fault::new(value, "the path is empty").help("write a path")),
            path => Ok(PathBuf::from(path)),
        }
    }

    fn show(&self, value: &PathBuf) -> String {
        quoted(&value.to_string_lossy())
    }

    fn describe(&self) -> String {
        "path".to_owned()
    }
}

/// A user of the system.
pub(in crate::config) struct UserName;

impl Codec<String> for UserName {
    fn read(&self, value: &Value<'_>) -> Result<String, Fault> {
        match text(value, "a user")? {
            "" => Err(Fault::new(value, "the user has no name").help("write a name")),
            name => Ok(name.to_owned()),
        }
    }

    fn show(&self, value: &String) -> String {
        quoted(value)
    }

    fn describe(&self) -> String {
        "user name".to_owned()
    }
}

/// Permission bits of a file in octal, as `chmod` takes them.
pub(in crate::config) struct Permissions;

impl Codec<u32> for Permissions {
    fn read(&self, value: &Value<'_>) -> Result<u32, Fault> {
        let digits = text(value, "permissions")?;
        let bits = u32::from_str_radix(digits, 8).ok();
        bits.filter(|bits| *bits <= 0o777).ok_or_else(|| {
            Fault::new(value, format!("not octal permissions: `{digits}`"))
                .help("write octal digits from \"000\" to \"777\"")
        })
    }

    fn show(&self, value: &u32) -> String {
        quoted(&format!("{value:03o}"))
    }

    fn describe(&self) -> String {
        "octal permissions, `\"000\"` to `\"777\"`".to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "pattern": "^\\+?[0-7]+$" })
    }
}
