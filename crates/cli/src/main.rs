//! The `dwell` program: reads the command line and the configuration, then serves.
#![forbid(unsafe_code)]

mod cli;
mod demo;
mod explain;
mod mc;
mod store_command;
mod top;

use clap::Parser;
use cli::{CheckArguments, Command, CommandLine};
use demo::Demo;
use dwell_edge::config::{ConfigError, FlagValue, example_file, load, reference_page};
use dwell_edge::process::{self, ConfigSource, RunOptions, daemon};
use dwell_edge::{MakePages, Pages, log};
use explain::ExplainError;
use std::env;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store_command::{StoreArguments, StoreRequest};

fn main() -> ExitCode {
    // A link with the name of another program acts as that program.
    let mut words: Vec<_> = env::args_os().collect();
    let name = words.first().and_then(|path| Path::new(path).file_name());
    if name.is_some_and(|name| name == "memcached") {
        words.insert(1, "store".into());
    }
    match CommandLine::parse_from(words).command {
        Command::Serve(arguments) => serve(arguments.config.as_deref(), &arguments.flags(), None),
        Command::Demo(arguments) => serve(None, &arguments.flags(), Some(demo_pages)),
        Command::Store(arguments) => store(&arguments),
        Command::Top(arguments) => match top::run(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                say(&mut io::stderr(), &format!("dwell top: {error}\n"));
                ExitCode::FAILURE
            }
        },
        Command::Mc(arguments) => mc::run(&arguments),
        Command::Explain(arguments) => match explain::run(&arguments) {
            Ok(text) => say(&mut io::stdout(), &text),
            Err(ExplainError::Config(error)) => wrong(&error),
            Err(error) => {
                say(&mut io::stderr(), &format!("dwell explain: {error}\n"));
                ExitCode::FAILURE
            }
        },
        Command::Check(arguments) => check(&arguments),
        Command::Version => say(&mut io::stdout(), &format!("dwell {VERSION}\n")),
    }
}

fn store(arguments: &StoreArguments) -> ExitCode {
    let plan = match arguments.request() {
        Ok(StoreRequest::Print(text)) => return say(&mut io::stdout(), &text),
        Ok(StoreRequest::Serve(plan)) => plan,
        Err(error) => {
            say(&mut io::stderr(), &format!("dwell store: {error}\n"));
            return ExitCode::from(STATUS_WRONG_CONFIGURATION);
        }
    };
    if plan.is_daemon && !daemon::is_daemon() {
        return match daemon::start(&plan.config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                say(&mut io::stderr(), &format!("dwell store: {error}\n"));
                ExitCode::FAILURE
            }
        };
    }
    log::start(&plan.config.log);
    if !plan.ignored.is_empty() {
        tracing::warn!("these mean nothing here: {}", plan.ignored.join("; "));
    }
    let options = RunOptions {
        pid_file: plan.pid_file,
        port_file: env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from),
        ..RunOptions::default()
    };
    ended(process::run(plan.config, options))
}

fn ended(result: Result<(), process::RunError>) -> ExitCode {
    match result {
        Ok(()) => {
            log::end("");
            ExitCode::SUCCESS
        }
        Err(error) => {
            log::end(&format!("dwell: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn demo_pages(store: SocketAddr) -> Box<dyn Pages> {
    Box::new(Demo::new(store))
}

fn serve(file: Option<&Path>, flags: &[FlagValue], demo: Option<MakePages>) -> ExitCode {
    let config = match load(file, flags) {
        Ok(config) => config,
        Err(error) => return wrong(&error),
    };
    log::start(&config.log);
    let source = file.map(|file| ConfigSource {
        file: file.to_owned(),
        flags: flags.to_vec(),
    });
    let options = RunOptions {
        source,
        demo,
        ..RunOptions::default()
    };
    ended(process::run(config, options))
}

fn check(arguments: &CheckArguments) -> ExitCode {
    let mut out = io::stdout();
    if arguments.print_default {
        return say(&mut out, &example_file());
    }
    if arguments.print_reference {
        return say(&mut out, &reference_page());
    }
    // Clap requires the file unless one of the two flags above is given.
    let file = arguments.file.as_deref().unwrap_or(Path::new(""));
    let config = match load(Some(file), &[]) {
        Ok(config) => config,
        Err(error) => return wrong(&error),
    };
    let mut warnings = config.warnings();
    if !arguments.offline {
        warnings.extend(process::preflight_warnings(&config));
    }
    for warning in warnings {
        say(&mut io::stderr(), &format!("dwell: warning: {warning}\n"));
    }
    let found = if arguments.offline {
        Vec::new()
    } else {
        process::preflight(&config)
    };
    if !found.is_empty() {
        for error in found {
            say(&mut io::stderr(), &format!("dwell: {error}\n"));
        }
        return ExitCode::FAILURE;
    }
    let text = format!("{} is good: {}\n", file.display(), config.summary());
    say(&mut out, &text)
}

/// Prints every mistake in the configuration.
fn wrong(error: &ConfigError) -> ExitCode {
    let mut out = io::stderr();
    let count = match error.count() {
        1 => "1 mistake".to_owned(),
        count => format!("{count} mistakes"),
    };
    let shown = error.render(out.is_terminal());
    say(
        &mut out,
        &format!("{shown}\n\ndwell: {count} in the configuration\n"),
    );
    ExitCode::from(STATUS_WRONG_CONFIGURATION)
}

/// Writes `text`; an error of the output only changes the exit status.
fn say(out: &mut impl Write, text: &str) -> ExitCode {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The exit status of clap for invalid flags.
const STATUS_WRONG_CONFIGURATION: u8 = 2;
