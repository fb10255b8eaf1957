//! Output of the program, and the exit status.

use dwell_edge::config::ConfigError;
use dwell_edge::log::has_colors;
use std::io::{self, Write};
use std::process::ExitCode;

/// Prints every mistake in the configuration.
pub(crate) fn wrong(error: &ConfigError) -> ExitCode {
    let mut out = io::stderr();
    let count = match error.count() {
        1 => "1 mistake".to_owned(),
        count => format!("{count} mistakes"),
    };
    let shown = error.render(has_colors(&out));
    say(
        &mut out,
        &format!("{shown}\n\ndwell: {count} in the configuration\n"),
    );
    ExitCode::from(STATUS_WRONG_CONFIGURATION)
}

/// Writes `text`; an error of the output only changes the exit status.
pub(crate) fn say(out: &mut impl Write, text: &str) -> ExitCode {
    write(out, text.as_bytes())
}

/// Writes `bytes`; an error of the output only changes the exit status.
pub(crate) fn write(out: &mut impl Write, bytes: &[u8]) -> ExitCode {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The exit status of clap for invalid flags.
pub(crate) const STATUS_WRONG_CONFIGURATION: u8 = 2;
