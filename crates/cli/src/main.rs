//! The `dwell` program: reads the command line and the configuration, then serves.
#![forbid(unsafe_code)]

mod admin;
mod check;
mod cli;
mod config;
mod control;
mod demo;
mod environment;
mod explain;
mod health;
mod mc;
mod output;
mod pages;
mod reference;
mod store_command;
mod top;
mod version;

use clap::Parser;
use cli::{Command, CommandLine, ConfigCommand, DemoArguments};
use demo::PartName;
use dwell_edge::config::{FlagValue, load};
use dwell_edge::log;
use dwell_edge::process::{self, ConfigSource, RunOptions, daemon};
use explain::ExplainError;
use output::{STATUS_WRONG_CONFIGURATION, say, write, wrong};
use std::env;
use std::fmt;
use std::io;
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
        Command::Serve(arguments) => {
            let flags = arguments.options.flags();
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
        Command::Check(arguments) => check::run(&arguments),
        Command::Config(arguments) => match arguments.command {
            ConfigCommand::Print(arguments) => config::print(&arguments),
        },
        Command::Reload(arguments) => control::reload(&arguments),
        Command::Stop(arguments) => control::stop(&arguments),
        Command::Upgrade(arguments) => control::upgrade(&arguments),
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
            log::end(None);
            ExitCode::SUCCESS
        }
        Err(error) => {
            log::end(Some(&error));
            ExitCode::FAILURE
        }
    }
}

fn demo(arguments: &DemoArguments) -> ExitCode {
    match arguments.part {
        Some(PartName::Server(listen)) => return demo_server(listen),
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

/// Runs one of the servers whose clients wait, at `listen` or at a port of the system's choice.
fn demo_server(listen: Option<SocketAddr>) -> ExitCode {
    if let Err(error) = demo::end_with_parent() {
        return failed("demo", &error);
    }
    // An empty file, so that a reload has one to read.
    let source = ConfigSource {
        file: PathBuf::from("/dev/null"),
        flags: demo::server_flags(listen),
    };
    let config = match load(Some(&source.file), &source.flags) {
        Ok(config) => config,
        Err(error) => return wrong(&error),
    };
    log::start(&config.log);
    let options = RunOptions {
        source: Some(source),
        ..RunOptions::default()
    };
    ended(process::run(config, options))
}

/// Serves the page of the demonstration.
fn demo_page(arguments: &DemoArguments) -> ExitCode {
    let environment = environment::options();
    // The terminal gets its prompt back at once, unless an option says otherwise.
    let flags = [demo::page_flags(), environment.flags, arguments.flags()].concat();
    let mut config = match load(None, &flags) {
        Ok(config) => config,
        Err(error) => return wrong(&error),
    };
    // The variable may name that of a process that serves.
    config.server.pid_file = None;
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
