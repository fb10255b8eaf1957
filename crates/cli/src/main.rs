//! The `dwell` program: reads the command line and the configuration, then serves.
#![forbid(unsafe_code)]

mod admin;
mod cli;
mod demo;
mod environment;
mod explain;
mod health;
mod mc;
mod pages;
mod store_command;
mod top;
mod version;

use clap::Parser;
use cli::{CheckArguments, Command, CommandLine, DemoArguments};
use demo::PartName;
use dwell_edge::config::{
    Config, ConfigError, FlagValue, example_file, load, reference_page, settings_file,
};
use dwell_edge::log;
use dwell_edge::metrics_page;
use dwell_edge::process::{self, ConfigSource, RunOptions, Severity, daemon};
use explain::ExplainError;
use std::env;
use std::fmt;
use std::io::{self, IsTerminal, Write};
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
        Command::Serve(arguments) => {
            let flags = arguments.flags();
            serve(environment::config_file(arguments.config), flags)
        }
        Command::Demo(arguments) => demo(&arguments),
        Command::Store(arguments) => store(&arguments),
        Command::Top(arguments) => match top::run(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed("top", &error),
        },
        Command::Health(arguments) => match health::run(&arguments) {
            Ok(body) => say(&mut io::stdout(), &body),
            Err(error) => failed("health", &error),
        },
        Command::Mc(arguments) => mc::run(&arguments),
        Command::Explain(arguments) => match explain::run(&arguments) {
            Ok(text) => say(&mut io::stdout(), &text),
            Err(ExplainError::Config(error)) => wrong(&error),
            Err(error) => failed("explain", &error),
        },
        Command::Check(arguments) => check(arguments),
        Command::Man(arguments) => match pages::man(&arguments) {
            Ok(page) => write(&mut io::stdout(), &page),
            Err(error) => failed("man", &error),
        },
        Command::Completions(arguments) => {
            write(&mut io::stdout(), &pages::completions(&arguments))
        }
        Command::Version => say(&mut io::stdout(), &format!("dwell {}\n", version::LONG)),
    }
}

fn failed(subcommand: &str, error: &dyn fmt::Display) -> ExitCode {
    say(&mut io::stderr(), &format!("dwell {subcommand}: {error}\n"));
    ExitCode::FAILURE
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

fn demo(arguments: &DemoArguments) -> ExitCode {
    match arguments.part {
        Some(PartName::Server) => return demo_server(),
        Some(PartName::Clients(transport, server)) => {
            return match demo::run_clients(transport, server) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed("demo", &error),
            };
        }
        None if arguments.once => {}
        None => return demo_page(arguments),
    }
    match demo::run_once(arguments.clients, arguments.json) {
        Ok((text, is_complete)) => match say(&mut io::stdout(), &text) {
            ExitCode::SUCCESS if !is_complete => ExitCode::FAILURE,
            code => code,
        },
        Err(error) => failed("demo", &error),
    }
}

/// Runs one of the servers whose clients wait.
fn demo_server() -> ExitCode {
    if let Err(error) = demo::end_with_parent() {
        return failed("demo", &error);
    }
    let config = match load(None, &demo::server_flags()) {
        Ok(config) => config,
        Err(error) => return wrong(&error),
    };
    log::start(&config.log);
    ended(process::run(config, RunOptions::default()))
}

/// Serves the page of the demonstration.
fn demo_page(arguments: &DemoArguments) -> ExitCode {
    let environment = environment::options();
    // The terminal gets its prompt back at once, unless an option says otherwise.
    let flags = [demo::page_flags(), environment.flags, arguments.flags()].concat();
    let config = match load(None, &flags) {
        Ok(config) => config,
        Err(error) => return wrong(&error),
    };
    let mut listen = config.server.listen.iter().chain(&config.tls.listen);
    if let (false, Some(address)) = (arguments.remote, listen.find(|it| !it.ip().is_loopback())) {
        say(
            &mut io::stderr(),
            &format!("dwell demo: other machines can reach {address}: --remote allows it\n"),
        );
        return ExitCode::from(STATUS_WRONG_CONFIGURATION);
    }
    log::start(&config.log);
    for unknown in environment.unknown {
        tracing::warn!("{unknown}");
    }
    let pages = match demo::pages(arguments.clients, arguments.remote) {
        Ok(pages) => pages,
        Err(error) => return failed("demo", &error),
    };
    let options = RunOptions {
        demo: Some(pages),
        ..RunOptions::default()
    };
    ended(process::run(config, options))
}

fn serve(file: Option<PathBuf>, flags: Vec<FlagValue>) -> ExitCode {
    let environment = environment::options();
    let flags = [environment.flags, flags].concat();
    let config = match load(file.as_deref(), &flags) {
        Ok(config) => config,
        Err(error) => return wrong(&error),
    };
    log::start(&config.log);
    for unknown in environment.unknown {
        tracing::warn!("{unknown}");
    }
    let source = file.map(|file| ConfigSource { file, flags });
    let options = RunOptions {
        source,
        ..RunOptions::default()
    };
    ended(process::run(config, options))
}

fn check(arguments: CheckArguments) -> ExitCode {
    let mut out = io::stdout();
    if arguments.documents.print_default {
        return say(&mut out, &example_file());
    }
    if arguments.documents.print_reference {
        return say(&mut out, &reference_page());
    }
    if arguments.documents.print_metrics {
        return say(&mut out, &metrics_page());
    }
    let environment = environment::options();
    let file = environment::config_file(arguments.file);
    let config = match load(file.as_deref(), &environment.flags) {
        Ok(config) => config,
        Err(error) => return wrong(&error),
    };
    let mut warnings = environment.unknown;
    warnings.extend(config.warnings());
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
    if arguments.print {
        return say(&mut out, &settings_file(&config));
    }
    let name = file.map_or("the environment".to_owned(), |file| {
        file.display().to_string()
    });
    let said = say(&mut out, &format!("{name} is good: {}\n", config.summary()));
    if arguments.live {
        return check_live(&config);
    }
    said
}

/// Asks the servers of the configuration, and prints what they lack.
fn check_live(config: &Config) -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    let findings = process::live(config);
    if findings.is_empty() {
        return say(
            &mut io::stdout(),
            "the configuration names no servers to ask\n",
        );
    }
    for finding in findings {
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
    write(out, text.as_bytes())
}

fn write(out: &mut impl Write, bytes: &[u8]) -> ExitCode {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The exit status of clap for invalid flags.
const STATUS_WRONG_CONFIGURATION: u8 = 2;
