//! `dwell config print`: the configuration in effect.

use crate::cli::PrintArguments;
use crate::environment;
use crate::output::{say, wrong};
use dwell_edge::config::{EffectiveOption, OptionSource, effective, effective_file};
use serde_json::{Value, json};
use std::io;
use std::process::ExitCode;

/// Runs `dwell config print`.
pub(crate) fn print(arguments: &PrintArguments) -> ExitCode {
    let environment = environment::options();
    let flags = [environment.flags, arguments.serve.options.flags()].concat();
    let file = environment::config_file(arguments.serve.config.clone());
    let read = environment::source(file.as_deref()).and_then(|source| effective(source, &flags));
    let mut options = match read {
        Ok(options) => options,
        Err(error) => return wrong(&error),
    };
    for unknown in environment.unknown {
        say(&mut io::stderr(), &format!("dwell: warning: {unknown}\n"));
    }
    if arguments.changed {
        options.retain(|option| option.source != OptionSource::Default);
    }
    let text = if arguments.json {
        let options: Value = options.iter().map(option_json).collect();
        format!("{:#}\n", json!({ "options": options }))
    } else {
        effective_file(&options)
    };
    say(&mut io::stdout(), &text)
}

fn option_json(option: &EffectiveOption) -> Value {
    json!({
        "section": option.section,
        "route": option.route,
        "name": option.name,
        "value": option.json(),
        "source": option.source.kind(),
        "place": option.source.place(),
    })
}
