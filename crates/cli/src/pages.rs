//! Manual pages and shell completions, made from the command line.

use crate::cli::CommandLine;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Flags of `dwell man`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ManArguments {
    /// Write a page for each subcommand into this directory, instead of one to the output
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,
}

/// Flags of `dwell completions`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    pub(crate) shell: Shell,
}

/// Makes the manual page `dwell(1)`, or writes all pages and returns nothing to print.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn man(arguments: &ManArguments) -> io::Result<Vec<u8>> {
    let mut command = CommandLine::command();
    command.build();
    let Some(directory) = &arguments.dir else {
        return page(&command);
    };
    fs::create_dir_all(directory)?;
    fs::write(directory.join("dwell.1"), page(&command)?)?;
    let parts = command.get_subcommands();
    for part in parts.filter(|part| part.get_name() != "help") {
        let name = format!("dwell-{}", part.get_name());
        // The page is named as the file is; clap's name has a space.
        let shown = part.clone().display_name(&name);
        fs::write(directory.join(format!("{name}.1")), page(&shown)?)?;
    }
    Ok(Vec::new())
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command.clone())
        .manual("Dwell")
        .render(&mut text)?;
    Ok(text)
}

/// Makes the completions of a shell.
pub(crate) fn completions(arguments: &CompletionsArguments) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut CommandLine::command(),
        "dwell",
        &mut text,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_every_subcommand() {
        let text = man(&ManArguments { dir: None }).expect("it is made in memory");
        let text = String::from_utf8(text).expect("it is text");
        for part in CommandLine::command().get_subcommands() {
            let name = format!("dwell\\-{}(1)", part.get_name());
            assert!(text.contains(&name), "{name} is not in\n{text}");
        }
    }

    #[test]
    fn each_shell_gets_the_flags() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions(&CompletionsArguments { shell });
            let text = String::from_utf8(text).expect("it is text");
            assert!(text.contains("poll-prefix"), "{shell}");
        }
    }
}
