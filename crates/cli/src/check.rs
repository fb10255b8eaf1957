//! `dwell check`: the mistakes of a configuration, and what a start would fail with.

use crate::cli::{CheckArguments, DocumentArguments};
use crate::environment;
use crate::output::{STATUS_WRONG_CONFIGURATION, say, wrong};
use crate::reference::commands_page;
use dwell_edge::config::{
    Config, ConfigError, Mistake, example_file, load_source, reference_page, schema, settings_file,
};
use dwell_edge::metrics_page;
use dwell_edge::process::{self, LiveFinding, Severity};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Runs `dwell check`.
pub(crate) fn run(arguments: &CheckArguments) -> ExitCode {
    if let Some(document) = document(arguments.documents) {
        return say(&mut io::stdout(), &document);
    }
    let environment = environment::options();
    let file = environment::config_file(arguments.file.clone());
    let flags = [environment.flags, arguments.options.flags()].concat();
    let read = environment::source(file.as_deref()).and_then(|source| load_source(source, &flags));
    let config = match read {
        Ok(config) => config,
        Err(error) if arguments.json => return say_json(file.as_deref(), &Found::wrong(&error)),
        Err(error) => return wrong(&error),
    };
    let found = Found::of(&config, arguments, environment.unknown);
    if arguments.json {
        return say_json(file.as_deref(), &found);
    }
    for warning in &found.warnings {
        say(&mut io::stderr(), &format!("dwell: warning: {warning}\n"));
    }
    if !found.errors.is_empty() {
        for error in &found.errors {
            say(&mut io::stderr(), &format!("dwell: {error}\n"));
        }
        return ExitCode::FAILURE;
    }
    if arguments.print {
        return say(&mut io::stdout(), &settings_file(&config));
    }
    let checked = match &file {
        Some(file) => format!("{} is good", shown(file)),
        None => "no file: flags and environment are good".to_owned(),
    };
    let summary = format!("{checked}: {}\n", config.summary());
    let said = say(&mut io::stdout(), &summary);
    match &found.servers {
        Some(servers) => say_servers(servers),
        None => said,
    }
}

fn document(wanted: DocumentArguments) -> Option<String> {
    if wanted.print_default {
        Some(example_file())
    } else if wanted.print_reference {
        Some(reference_page())
    } else if wanted.print_schema {
        Some(schema())
    } else if wanted.print_metrics {
        Some(metrics_page())
    } else if wanted.print_commands {
        Some(commands_page())
    } else {
        None
    }
}

/// The findings about a configuration.
#[derive(Default)]
struct Found {
    /// Mistakes in the configuration; if there is one, nothing else was checked.
    mistakes: Vec<Mistake>,
    /// Errors with which the start would fail.
    errors: Vec<String>,
    warnings: Vec<String>,
    summary: Option<String>,
    /// The answers of the servers, if they were asked.
    servers: Option<Vec<LiveFinding>>,
}

impl Found {
    fn wrong(error: &ConfigError) -> Self {
        Self {
            mistakes: error.mistakes().collect(),
            ..Self::default()
        }
    }

    fn of(config: &Config, arguments: &CheckArguments, mut warnings: Vec<String>) -> Self {
        warnings.extend(config.warnings());
        warnings.extend(process::descriptor_warning(config));
        let mut errors = Vec::new();
        if !arguments.offline {
            warnings.extend(process::preflight_warnings(config));
            let found = process::preflight(config);
            errors.extend(found.iter().map(ToString::to_string));
        }
        let is_asked = arguments.live && errors.is_empty();
        Self {
            mistakes: Vec::new(),
            errors,
            warnings,
            summary: Some(config.summary()),
            servers: is_asked.then(|| process::live(config)),
        }
    }

    /// The exit status, and its name in JSON.
    fn result(&self) -> (u8, &'static str) {
        let mut servers = self.servers.iter().flatten();
        if !self.mistakes.is_empty() {
            (STATUS_WRONG_CONFIGURATION, "wrong")
        } else if !self.errors.is_empty() {
            (1, "does-not-start")
        } else if servers.any(|server| server.severity == Severity::Fault) {
            (1, "server-faults")
        } else {
            (0, "good")
        }
    }

    fn json(&self, file: Option<&Path>) -> Value {
        let (status, result) = self.result();
        let servers = self.servers.as_ref().map(|servers| {
            let servers = servers.iter();
            servers.map(server_json).collect::<Value>()
        });
        json!({
            "configuration": file.map(shown),
            "result": result,
            "status": status,
            "summary": self.summary,
            "mistakes": self.mistakes.iter().map(mistake_json).collect::<Value>(),
            "errors": self.errors,
            "warnings": self.warnings,
            "servers": servers,
        })
    }
}

fn mistake_json(mistake: &Mistake) -> Value {
    let place = mistake.place.as_ref();
    json!({
        "file": place.map(|(file, ..)| file),
        "line": place.map(|(_, line, _)| line),
        "column": place.map(|(.., column)| column),
        "flag": mistake.flag,
        "message": mistake.message,
        "help": mistake.help,
    })
}

fn server_json(finding: &LiveFinding) -> Value {
    let severity = match finding.severity {
        Severity::Good => "good",
        Severity::Warning => "warning",
        Severity::Fault => "fault",
    };
    json!({ "server": finding.server, "severity": severity, "text": finding.text })
}

fn say_json(file: Option<&Path>, found: &Found) -> ExitCode {
    match say(&mut io::stdout(), &format!("{:#}\n", found.json(file))) {
        ExitCode::SUCCESS => found.result().0.into(),
        failed => failed,
    }
}

/// Prints the answers of servers.
fn say_servers(servers: &[LiveFinding]) -> ExitCode {
    if servers.is_empty() {
        let text = "the configuration names no servers to ask\n";
        return say(&mut io::stdout(), text);
    }
    let mut status = ExitCode::SUCCESS;
    for finding in servers {
        let said = match finding.severity {
            Severity::Good => say(&mut io::stdout(), &format!("{finding}\n")),
            Severity::Warning => say(&mut io::stderr(), &format!("dwell: warning: {finding}\n")),
            Severity::Fault => {
                say(&mut io::stderr(), &format!("dwell: {finding}\n"));
                ExitCode::FAILURE
            }
        };
        if said != ExitCode::SUCCESS {
            status = said;
        }
    }
    status
}

/// The name of a file; `-` is the standard input.
fn shown(file: &Path) -> &str {
    match file.to_str() {
        Some("-") => "the standard input",
        Some(name) => name,
        None => "the file",
    }
}
