//! The page docs/cli.md, made from the command line.

use crate::cli::CommandLine;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write as _;

/// Makes the page.
pub(crate) fn commands_page() -> String {
    let mut command = CommandLine::command();
    command.build();
    let mut page = include_str!("reference.md").to_owned();
    for part in command.get_subcommands() {
        add(&mut page, "dwell", part);
    }
    page
}

/// Adds a command and its own.
fn add(page: &mut String, parent: &str, command: &Command) {
    if command.get_name() == "help" {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string);
    let about = about.unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "\n## {name}\n\n{}.\n\n```text\n{usage}\n```\n",
        escaped(&about)
    );
    let shown =
        |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
    let arguments: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    if !arguments.is_empty() {
        page.push_str("\n| Argument | Description |\n|---|---|\n");
        for argument in arguments {
            let _ = writeln!(page, "{}", row(argument));
        }
    }
    if let Some(after) = command.get_after_help() {
        let _ = write!(page, "\n```text\n{after}\n```\n");
    }
    for part in command.get_subcommands() {
        add(page, &name, part);
    }
}

/// The row of a flag or a positional argument.
fn row(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values: Vec<&str> = values.iter().map(clap::builder::Str::as_str).collect();
    let takes_values = argument.get_action().takes_values();
    let values = values.join(" ");
    let name = match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, None) => String::new(),
    };
    let is_optional = argument
        .get_num_args()
        .is_some_and(|count| count.min_values() == 0);
    let name = match (name.is_empty(), takes_values) {
        (true, _) => values,
        (false, true) if is_optional => format!("{name}[={values}]"),
        (false, true) => format!("{name} {values}"),
        (false, false) => name,
    };
    let help = argument.get_help().map(ToString::to_string);
    let mut help = escaped(&help.unwrap_or_default());
    let defaults = argument.get_default_values();
    let defaults: Vec<_> = defaults.iter().filter_map(|text| text.to_str()).collect();
    if takes_values && !defaults.is_empty() {
        let _ = write!(help, " [default: {}]", defaults.join(" "));
    }
    let possible: Vec<String> = argument
        .get_possible_values()
        .iter()
        .map(|value| value.get_name().to_owned())
        .collect();
    if takes_values && !possible.is_empty() {
        let _ = write!(help, " [possible values: {}]", possible.join(", "));
    }
    format!("| `{}` | {help} |", name.replace('|', "\\|"))
}

/// Text for a cell of a table.
fn escaped(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_page_is_current() {
        assert!(
            include_str!("../../../docs/cli.md") == commands_page(),
            "run dwell check --print-commands > docs/cli.md"
        );
    }

    #[test]
    fn each_command_and_flag_is_there() {
        let page = commands_page();
        for text in [
            "\n## dwell serve\n",
            "\n## dwell config print\n",
            "\n## dwell mc get\n",
            "| `-c, --config FILE` | ",
            "| `--tls-self-signed[=ADDRESS]` | ",
            "| `FILE` | ",
            "[possible values: bash, ",
        ] {
            assert!(page.contains(text), "{text} is not in\n{page}");
        }
    }
}
