//! `dwell explain`: what becomes of a request, and why.
//!
//! The process that runs is asked over its admin listener; without one, the configuration alone
//! says what it can. Both make the same `Explanation`.

mod peer;

use crate::config::{ConfigError, load};
use crate::polls;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Flags of `dwell explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArguments {
    /// A method and a target, or a target alone: GET /poll/x
    #[arg(required = true, num_args = 1..=2, value_names = ["METHOD", "TARGET"])]
    pub request: Vec<String>,
    /// A field of the request, as for curl; repeat it for several
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub fields: Vec<String>,
    /// Where the process answers /-/health
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    pub admin: String,
    /// Ask no process, but this file
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Why nothing can be explained.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExplainError {
    /// The configuration has mistakes.
    Config(ConfigError),
    /// The request is none, or the process says no.
    Refused(String),
}

impl fmt::Display for ExplainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => f.write_str(&error.render(false)),
            Self::Refused(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ExplainError {}

/// A request that is to be explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Explained {
    method: String,
    target: String,
    fields: Vec<String>,
}

/// What becomes of a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Explanation {
    pub(crate) request: String,
    /// Whether a process was asked, or the configuration alone.
    pub(crate) is_live: bool,
    pub(crate) topics: Vec<Topic>,
}

/// One side of it: for people, and for programs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) says: Vec<String>,
    pub(crate) facts: Map<String, Value>,
}

impl Topic {
    pub(crate) fn new(name: &str, says: String) -> Self {
        let (name, says, facts) = (name.to_owned(), vec![says], Map::new());
        Self { name, says, facts }
    }

    pub(crate) fn say(&mut self, sentence: String) {
        self.says.push(sentence);
    }

    pub(crate) fn fact(mut self, name: &str, value: Value) -> Self {
        self.facts.insert(name.to_owned(), value);
        self
    }
}

impl Explained {
    pub(crate) fn new(method: &str, target: &str, fields: Vec<String>) -> Self {
        let (method, target) = (method.to_owned(), target.to_owned());
        Self {
            method,
            target,
            fields,
        }
    }

    /// Reads `method=M&target=T&field=F`, of which the last may be there several times.
    ///
    /// # Errors
    /// There is no target.
    pub(crate) fn of_query(query: &str) -> Result<Self, String> {
        let mut explained = Self::new("GET", "", Vec::new());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "method" => explained.method = value.into_owned(),
                "target" => explained.target = value.into_owned(),
                "field" => explained.fields.push(value.into_owned()),
                _ => {}
            }
        }
        if explained.target.is_empty() {
            return Err("explain takes target=, and perhaps method= and field=".to_owned());
        }
        Ok(explained)
    }

    fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("method", &self.method);
        query.append_pair("target", &self.target);
        for field in &self.fields {
            query.append_pair("field", field);
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
    pub(crate) fn json(&self) -> String {
        // Strings and numbers have no way to fail.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// As people read it.
    fn text(&self) -> String {
        let mut text = format!("{}\n", self.request);
        if !self.is_live {
            text.push_str("  (no process was asked: this is what the configuration alone says)\n");
        }
        for topic in &self.topics {
            for (number, sentence) in topic.says.iter().enumerate() {
                let name = if number == 0 { &*topic.name } else { "" };
                // Writing to memory does not fail.
                let _ = writeln!(text, "  {name:<10}{sentence}");
            }
        }
        // Nothing that a request or a process says may move the cursor of a terminal.
        let is_odd = |c: char| c.is_control() && c != '\n';
        text.replace(is_odd, "?")
    }
}

/// Explains a request; returns what is to be printed.
///
/// # Errors
/// [`ExplainError`].
pub fn run(arguments: &ExplainArguments) -> Result<String, ExplainError> {
    let (method, target) = match arguments.request.as_slice() {
        [method, target] => (method.as_str(), target),
        [target] => ("GET", target),
        _ => return Err(ExplainError::Refused("name one target".to_owned())),
    };
    let explained = Explained::new(method, target, arguments.fields.clone());
    let asked = match &arguments.config {
        Some(_) => None,
        None => peer::ask(&arguments.admin, &explained.query()).map_err(ExplainError::Refused)?,
    };
    let explanation = if let Some(explanation) = asked {
        explanation
    } else {
        let config = load(arguments.config.as_deref(), &[]).map_err(ExplainError::Config)?;
        polls::explain(&config, &explained, None).map_err(ExplainError::Refused)?
    };
    Ok(if arguments.json {
        explanation.json()
    } else {
        explanation.text()
    })
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
        assert!(Explained::of_query("method=GET").is_err());
    }

    #[test]
    fn a_terminal_is_told_nothing_but_text() {
        let explained = Explained::new("GET", "/\x1b[2J", Vec::new());
        let text = Explanation::new(&explained, true).text();
        assert_eq!(text, "GET /?[2J\n");
    }
}
