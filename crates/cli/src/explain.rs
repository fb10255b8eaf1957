//! `dwell explain`: the route, key and outcome of a request.
//!
//! The running process is asked over its admin listener. Without one, the explanation is made from
//! the configuration alone. Both make the same `Explanation`.

use crate::admin::{self, AdminError};
use crate::environment;
use clap::Args;
use dwell_edge::config::{ConfigError, load};
use dwell_edge::{Explained, Explanation, explain_configuration};
use std::fmt;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of `dwell explain`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExplainArguments {
    /// A method and a target, or a target alone: GET /poll/x
    #[arg(required = true, num_args = 1..=2, value_names = ["METHOD", "TARGET"])]
    pub(crate) request: Vec<String>,
    /// A header of the request, as for curl; repeat it for several
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub(crate) fields: Vec<String>,
    /// The common name in the client's certificate
    #[arg(long, value_name = "NAME")]
    pub(crate) client_cn: Option<String>,
    /// An alternative name in the client's certificate; repeat it for several
    #[arg(long, value_name = "NAME")]
    pub(crate) client_san: Vec<String>,
    /// The address of the admin listener [default: `DWELL_SERVER_ADMIN`, or 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Explain this file, without a process [default: `DWELL_CONFIG`, or none, if no process
    /// listens]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Error of an explanation.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum ExplainError {
    /// The configuration has mistakes.
    Config(ConfigError),
    /// The request is invalid, or the process rejects it.
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

/// Explains a request; returns the output.
///
/// # Errors
/// [`ExplainError`].
pub(crate) fn run(arguments: &ExplainArguments) -> Result<String, ExplainError> {
    let (method, target) = match arguments.request.as_slice() {
        [method, target] => (method.as_str(), target),
        [target] => ("GET", target),
        _ => return Err(ExplainError::Refused("name one target".to_owned())),
    };
    let explained = Explained::new(method, target, arguments.fields.clone())
        .with_certificate(arguments.client_cn.clone(), arguments.client_san.clone());
    let address = environment::admin(arguments.admin.clone());
    let asked = match address.filter(|_| arguments.config.is_none()) {
        Some(address) => ask(&address, &explained.query()).map_err(ExplainError::Refused)?,
        None => None,
    };
    let explanation = if let Some(explanation) = asked {
        explanation
    } else {
        let flags = environment::options().flags;
        let file = environment::config_file(arguments.config.clone());
        let config = load(file.as_deref(), &flags).map_err(ExplainError::Config)?;
        explain_configuration(&config, &explained).map_err(ExplainError::Refused)?
    };
    Ok(if arguments.json {
        explanation.json()
    } else {
        text(&explanation)
    })
}

/// Asks the process at `address`; `None` if no process listens there.
///
/// # Errors
/// The error of the process, or a malformed answer.
fn ask(address: &str, query: &str) -> Result<Option<Explanation>, String> {
    let answer = match admin::get(address, &format!("/-/explain?{query}"), ANSWER_TIMEOUT) {
        Ok(answer) => answer,
        Err(AdminError::Absent) => return Ok(None),
        Err(error) => return Err(format!("cannot ask {address}: {error}")),
    };
    if answer.status != 200 {
        let (status, body) = (answer.status, answer.body.trim_end());
        return Err(format!("{address} returns {status}: {body}"));
    }
    let explanation = serde_json::from_str(&answer.body);
    explanation
        .map(Some)
        .map_err(|error| format!("{address} does not explain: {error}"))
}

/// Renders an explanation for a terminal.
fn text(explanation: &Explanation) -> String {
    let mut text = format!("{}\n", explanation.request);
    if !explanation.is_live {
        text.push_str("  (no process was asked: this is what the configuration alone says)\n");
    }
    for topic in &explanation.topics {
        for (number, sentence) in topic.says.iter().enumerate() {
            let name = if number == 0 { &*topic.name } else { "" };
            // Writing to memory does not fail.
            let _ = writeln!(text, "  {name:<10}{sentence}");
        }
    }
    // Text from a request or a process must not move the cursor of a terminal.
    let is_odd = |c: char| c.is_control() && c != '\n';
    text.replace(is_odd, "?")
}

const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_but_text() {
        let explanation = Explanation {
            request: "GET /\x1b[2J".to_owned(),
            is_live: true,
            topics: Vec::new(),
        };
        assert_eq!(text(&explanation), "GET /?[2J\n");
    }
}
