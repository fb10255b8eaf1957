//! The parts of an explanation: the request that is explained, and what becomes of it.

use super::answers::content;
use super::decide::Content;
use super::watchers::Watchers;
use crate::access::Identity;
use crate::query::parameters;
use dwell_engine::ClientNames;
use dwell_memcache::on_loop::{Answer, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Map;

/// A request that is to be explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explained {
    method: String,
    target: String,
    fields: Vec<String>,
    certificate: Option<ExplainedCertificate>,
}

/// The names in the certificate of the client of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct ExplainedCertificate {
    common_name: Option<String>,
    alternative_names: Vec<String>,
}

/// A question to one loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    /// The watchers of the keys with this prefix.
    Prefix(Box<[u8]>),
    /// The watchers of the key of this request; the first loop reads its value as well.
    Request(Explained),
}

/// The course of a request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// Its method and target.
    pub request: String,
    /// True if a process was asked, false if the configuration alone was.
    pub is_live: bool,
    /// Its route, its key, its value and so on, in the order in which they are printed.
    pub topics: Vec<Topic>,
}

/// One side of an explanation: for people, and for programs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Topic {
    /// A word or two, such as `route`.
    pub name: String,
    /// Sentences for people.
    pub says: Vec<String>,
    /// The same for programs.
    pub facts: Map<String, serde_json::Value>,
}

/// Facts of a poll that only the running process has.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// The place of its value, in words.
    pub(crate) place: String,
    pub(crate) value: Valued,
    pub(crate) watchers: Watchers,
    /// Loops that were asked for watchers, and the ones that have answered.
    pub(crate) loops: (usize, usize),
    /// Addresses of the application, and whether each is up.
    pub(crate) upstreams: Vec<(String, bool)>,
}

/// State of a value, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Valued {
    /// Nothing has been read.
    #[default]
    Unasked,
    /// It cannot be read, for this reason.
    Unknown(String),
    Missing,
    There(Value),
}

/// A value, apart from its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Value {
    pub(crate) bytes: usize,
    pub(crate) flags: u32,
    pub(crate) cas: u64,
    /// Seconds; `None` is for ever.
    pub(crate) ttl: Option<u64>,
    pub(super) content: Content,
}

impl Value {
    pub(crate) fn new(value: &[u8], flags: u32, cas: u64, ttl: Option<u64>) -> Self {
        Self {
            bytes: value.len(),
            flags,
            cas,
            ttl,
            content: content(value, flags),
        }
    }
}

impl Valued {
    /// Reads it from what memcached has answered to a meta get with `v f c t`, or Redis to `GET`.
    pub(super) fn of(outcome: &Outcome<'_>) -> Self {
        match outcome {
            Outcome::Miss => Self::Missing,
            Outcome::Failed(failure) => Self::Unknown(failure.to_string()),
            Outcome::Hit {
                value,
                flags,
                cas_unique,
            } => Self::There(Value::new(value, *flags, *cas_unique, None)),
            Outcome::Answer(Answer::Meta {
                flags,
                value: Some(value),
                ..
            }) => {
                let number = |letter| flags.number(letter);
                let client_flags = number(b'f').and_then(|number| u32::try_from(number).ok());
                let cas = flags.cas_unique().unwrap_or_default();
                let ttl = number(b't').and_then(|number| u64::try_from(number).ok());
                let client_flags = client_flags.unwrap_or_default();
                Self::There(Value::new(value, client_flags, cas, ttl))
            }
            _ => Self::Unknown("memcached answers otherwise".to_owned()),
        }
    }
}

impl Topic {
    pub(crate) fn new(name: &str, says: String) -> Self {
        let (name, says, facts) = (name.to_owned(), vec![says], Map::new());
        Self { name, says, facts }
    }

    pub(crate) fn say(&mut self, sentence: String) {
        self.says.push(sentence);
    }

    pub(crate) fn fact(mut self, name: &str, value: serde_json::Value) -> Self {
        self.facts.insert(name.to_owned(), value);
        self
    }
}

impl Explained {
    /// Makes it from a method, a target and lines of a header section.
    pub fn new(method: &str, target: &str, fields: Vec<String>) -> Self {
        let (method, target) = (method.to_owned(), target.to_owned());
        Self {
            method,
            target,
            fields,
            certificate: None,
        }
    }

    /// Has its client show a certificate with these names; without names it shows no certificate.
    #[must_use]
    pub fn with_certificate(
        mut self,
        common_name: Option<String>,
        alternative_names: Vec<String>,
    ) -> Self {
        let is_named = common_name.is_some() || !alternative_names.is_empty();
        self.certificate = is_named.then_some(ExplainedCertificate {
            common_name,
            alternative_names,
        });
        self
    }

    /// The client of the request, as far as it is named.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let named = self.certificate.as_ref()?;
        let alternatives: Vec<_> = named.alternative_names.iter().map(String::as_str).collect();
        let client = ClientNames::named(named.common_name.as_deref(), &alternatives);
        Some(Identity::of_client(client))
    }

    /// Reads `method=M&target=T&field=F&client_cn=C&client_san=S`, of which `field` and
    /// `client_san` may be there several times.
    ///
    /// # Errors
    /// There is no target.
    pub(crate) fn of_query(query: &str) -> Result<Self, String> {
        let mut explained = Self::new("GET", "", Vec::new());
        for (name, value) in parameters(query) {
            match &*name {
                "method" => explained.method = value.into_owned(),
                "target" => explained.target = value.into_owned(),
                "field" => explained.fields.push(value.into_owned()),
                "client_cn" => {
                    let named = explained.certificate.get_or_insert_default();
                    named.common_name = Some(value.into_owned());
                }
                "client_san" => {
                    let named = explained.certificate.get_or_insert_default();
                    named.alternative_names.push(value.into_owned());
                }
                _ => {}
            }
        }
        if explained.target.is_empty() {
            return Err("explain takes target=, and perhaps method= and field=".to_owned());
        }
        Ok(explained)
    }

    /// Encodes it as the query that the admin listener takes:
    /// `method=M&target=T&field=F&client_cn=C&client_san=S`.
    pub fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("method", &self.method);
        query.append_pair("target", &self.target);
        for field in &self.fields {
            query.append_pair("field", field);
        }
        if let Some(named) = &self.certificate {
            let common_name = named.common_name.iter().map(|name| ("client_cn", name));
            let alternatives = named
                .alternative_names
                .iter()
                .map(|name| ("client_san", name));
            query.extend_pairs(common_name.chain(alternatives));
        }
        query.finish()
    }

    /// The request as it would come.
    pub(crate) fn head(&self) -> Vec<u8> {
        let (method, target) = (&self.method, &self.target);
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        let is_host = |field: &String| field.to_ascii_lowercase().starts_with("host:");
        if !self.fields.iter().any(is_host) {
            head.push_str("Host: dwell\r\n");
        }
        for field in &self.fields {
            head.push_str(field);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

impl Explanation {
    pub(crate) fn new(explained: &Explained, is_live: bool) -> Self {
        let request = format!("{} {}", explained.method, explained.target);
        Self {
            request,
            is_live,
            topics: Vec::new(),
        }
    }

    /// As JSON, on one line.
    pub fn json(&self) -> String {
        // Strings and numbers have no way to fail.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_through_a_query_unchanged() {
        let fields = vec!["A: b&c=d%".to_owned(), "Host: x".to_owned()];
        let explained = Explained::new("POST", "/poll/x?since=a+b&k=%2F", fields);
        assert_eq!(
            Explained::of_query(&explained.query()),
            Ok(explained.clone())
        );
        let head = String::from_utf8(explained.head()).unwrap();
        assert_eq!(head.matches("Host:").count(), 1);
        let sans = vec!["a.example".to_owned(), "spiffe://a/b".to_owned()];
        let named = explained.with_certificate(Some("a&b".to_owned()), sans);
        assert_eq!(Explained::of_query(&named.query()), Ok(named));
        assert!(Explained::of_query("method=GET").is_err());
    }
}
