//! The `dwell` program: reads the command line and the configuration, then serves.
#![forbid(unsafe_code)]

use clap::Parser;
use dwell_edge::cli::{CheckArguments, Command, CommandLine};
use dwell_edge::config::{ConfigError, FlagValue, example_file, load, reference_page};
use dwell_edge::{log, mc, server};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match CommandLine::parse().command {
        Command::Serve(arguments) => serve(arguments.config.as_deref(), &arguments.flags(), false),
        Command::Demo(arguments) => serve(None, &arguments.flags(), true),
        Command::Mc(arguments) => mc::run(&arguments),
        Command::Check(arguments) => check(&arguments),
    }
}

fn serve(file: Option<&Path>, flags: &[FlagValue], demo: bool) -> ExitCode {
    let config = match load(file, flags) {
        Ok(config) => config,
        Err(error) => return wrong(&error),
    };
    log::start(&config.log);
    match server::run(config, demo) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&mut io::stderr(), &format!("dwell: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn check(arguments: &CheckArguments) -> ExitCode {
    let mut out = io::stdout();
    if arguments.print_default {
        return say(&mut out, &example_file());
    }
    if arguments.print_reference {
        return say(&mut out, &reference_page());
    }
    // Clap asks for the file where neither of the two above was given.
    let file = arguments.file.as_deref().unwrap_or(Path::new(""));
    match load(Some(file), &[]) {
        Ok(config) => say(
            &mut out,
            &format!("{} is good: {}\n", file.display(), config.summary()),
        ),
        Err(error) => wrong(&error),
    }
}

/// Shows every mistake of the configuration.
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

/// Writes `text`; a reader that left is not a reason to fail twice.
fn say(out: &mut impl Write, text: &str) -> ExitCode {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The status clap uses for wrong flags.
const STATUS_WRONG_CONFIGURATION: u8 = 2;
