//! The configuration in effect: every option with its value and the place that it comes from.

use super::hidden::HIDDEN;
use super::load::{Draft, FlagValue, place_in_matching, route_option};
use super::options::{OptionSpec, ROUTE_OPTIONS, SECTIONS, single_options};
use super::report::{ConfigError, SourceFile, ValuePlace};
use serde_json::Value;
use std::fmt;
use std::fmt::Write as _;

/// One option of a configuration in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveOption {
    /// Its table, such as `server`.
    pub section: &'static str,
    /// The route that it belongs to, counted from 0 in the order of matching.
    pub route: Option<usize>,
    /// Its name in the table.
    pub name: &'static str,
    /// The value as TOML; that of a secret is `"(hidden)"`.
    pub value: String,
    /// The place that the value comes from.
    pub source: OptionSource,
}

/// The place that a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionSource {
    /// No place names the option.
    Default,
    /// A line of the file, from 1.
    File(String, usize),
    /// An environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag(String),
}

impl OptionSource {
    /// The kind: `default`, `file`, `environment` or `flag`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File(..) => "file",
            Self::Environment(_) => "environment",
            Self::Flag(_) => "flag",
        }
    }

    /// The place itself, such as `dwell.toml:3`; `None` for a default.
    pub fn place(&self) -> Option<String> {
        match self {
            Self::Default => None,
            Self::File(name, line) => Some(format!("{name}:{line}")),
            Self::Environment(name) | Self::Flag(name) => Some(name.clone()),
        }
    }
}

impl fmt::Display for OptionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some(place) => write!(f, "{} {place}", self.kind()),
            None => f.write_str(self.kind()),
        }
    }
}

impl EffectiveOption {
    /// The value as JSON.
    pub fn json(&self) -> Value {
        let value = self.value.parse::<toml::Value>().ok();
        serde_json::to_value(value).unwrap_or_default()
    }
}

/// Returns every option of the text and the flags, in the order of the reference.
///
/// # Errors
/// [`ConfigError`] with all mistakes in both.
pub fn effective(
    source: Option<SourceFile>,
    flags: &[FlagValue],
) -> Result<Vec<EffectiveOption>, ConfigError> {
    let file = source.clone();
    let draft = Draft::read(source, flags)?;
    let place = |option: &str| match draft.place(option) {
        Some(ValuePlace::File(span)) => file.as_ref().map_or(OptionSource::Default, |file| {
            OptionSource::File(file.name.clone(), file.position(span.start).0)
        }),
        Some(ValuePlace::Flag(shown)) => {
            // The rest of it is the value.
            let name = shown.split(' ').next().unwrap_or_default().to_owned();
            if name.starts_with('-') {
                OptionSource::Flag(name)
            } else {
                OptionSource::Environment(name)
            }
        }
        Some(ValuePlace::Nowhere) | None => OptionSource::Default,
    };
    let mut routes: Vec<_> = draft.config.routes.iter().enumerate().collect();
    routes.sort_by_key(|(_, route)| place_in_matching(route));
    let mut options = Vec::new();
    for section in SECTIONS {
        let once = single_options().filter(|spec| spec.section == section.name);
        options.extend(once.map(|spec| {
            let from = place(&spec.full_name());
            option(spec, &draft.config, None, from)
        }));
        if section.name == "route" {
            for (nth, (written, route)) in routes.iter().enumerate() {
                options.extend(ROUTE_OPTIONS.iter().map(|spec| {
                    let from = place(&route_option(*written, spec.name));
                    option(spec, &***route, Some(nth), from)
                }));
            }
        }
    }
    Ok(options)
}

/// Writes options as a TOML file, with the place of each value in a comment.
pub fn effective_file(options: &[EffectiveOption]) -> String {
    let mut text = String::new();
    let mut table = None;
    for option in options {
        if table != Some((option.section, option.route)) {
            let gap = if text.is_empty() { "" } else { "\n" };
            let section = option.section;
            // Writing to a string cannot fail.
            let _ = match option.route {
                Some(_) => writeln!(text, "{gap}[[{section}]]"),
                None => writeln!(text, "{gap}[{section}]"),
            };
            table = Some((option.section, option.route));
        }
        let line = format!("{} = {}", option.name, option.value);
        let _ = writeln!(text, "{line:<COLUMN$}  # {}", option.source);
    }
    text
}

fn option<T: Default>(
    spec: &OptionSpec<T>,
    target: &T,
    route: Option<usize>,
    source: OptionSource,
) -> EffectiveOption {
    let is_hidden = spec.is_secret && !(spec.is_same)(target, &T::default());
    let value = if is_hidden {
        format!("\"{HIDDEN}\"")
    } else {
        (spec.show)(target)
    };
    EffectiveOption {
        section: spec.section,
        route,
        name: spec.name,
        value,
        source,
    }
}

/// Column before the comments.
const COLUMN: usize = 44;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{parse, settings_file};

    fn flag(flag: &str, option: &str, value: &str) -> FlagValue {
        FlagValue {
            flag: flag.to_owned(),
            option: option.to_owned(),
            values: vec![value.to_owned()],
        }
    }

    fn found<'o>(options: &'o [EffectiveOption], name: &str) -> &'o EffectiveOption {
        let (section, name) = name.split_once('.').expect("section and option");
        let mut of_name = options.iter();
        of_name
            .find(|option| option.section == section && option.name == name)
            .expect("there is such an option")
    }

    fn options(text: &str, flags: &[FlagValue]) -> Vec<EffectiveOption> {
        let name = "dwell.toml".to_owned();
        let text = text.to_owned();
        effective(Some(SourceFile { name, text }), flags).expect("it is right")
    }

    #[test]
    fn each_value_has_the_place_that_won() {
        let text = "[server]\nlisten = \"127.0.0.1:1\"\npollers = 2\n[limits]\nwaiters_max = 5\n";
        let flags = [
            flag("DWELL_SERVER_POLLERS", "server.pollers", "3"),
            flag("DWELL_SERVER_ADMIN", "server.admin", "127.0.0.1:2"),
            flag("--admin", "server.admin", "off"),
            flag("--set", "log.level", "warn"),
        ];
        let options = options(text, &flags);
        let of = |name| {
            let option = found(&options, name);
            (option.value.as_str(), option.source.to_string())
        };
        let is = |name, value, source: &str| assert_eq!(of(name), (value, source.to_owned()));
        is("server.listen", "\"127.0.0.1:1\"", "file dwell.toml:2");
        is("server.pollers", "3", "environment DWELL_SERVER_POLLERS");
        is("server.admin", "\"off\"", "flag --admin");
        is("log.level", "\"warn\"", "flag --set");
        is("limits.waiters_max", "5", "file dwell.toml:5");
        is("server.h2c", "false", "default");
    }

    #[test]
    fn secrets_are_hidden_wherever_they_are_from() {
        let text = "[publish]\ntoken = \"0123456789abcdef-file\"\n";
        let token = "0123456789abcdef-flag";
        for flags in [
            vec![],
            vec![flag("--set", "publish.token", token)],
            vec![flag("DWELL_PUBLISH_TOKEN", "publish.token", token)],
        ] {
            let options = options(text, &flags);
            let file = effective_file(&options);
            let all = format!("{options:?}{file}");
            assert!(!all.contains("0123456789abcdef"), "{all}");
            assert_eq!(found(&options, "publish.token").json(), "(hidden)");
        }
        assert_eq!(found(&options("", &[]), "publish.token").value, "[]");
    }

    #[test]
    fn every_option_with_a_token_is_a_secret() {
        let single = single_options().map(|spec| ((spec.describe)(), spec.is_secret));
        let of_routes = ROUTE_OPTIONS
            .iter()
            .map(|spec| ((spec.describe)(), spec.is_secret));
        let mut secrets = 0;
        for (values, is_secret) in single.chain(of_routes) {
            assert_eq!(values.contains("token of 16"), is_secret, "{values}");
            secrets += usize::from(is_secret);
        }
        assert!(secrets >= 2);
    }

    #[test]
    fn the_printed_file_is_the_configuration() {
        let text = "[memcached]\nservers = [\"a:1\", { address = \"b:2\", weight = 3 }]\n\
                    [[route]]\nprefix = \"/a/\"\n[[route]]\nprefix = \"/a/b/\"\n\
                    wait_max = \"9s\"\n";
        let flags = [flag("--set", "limits.waiters_max", "7")];
        let options = options(text, &flags);
        let printed = effective_file(&options);
        let config = parse("dwell.toml", text, &flags).expect("it is right");
        let again = parse("printed", &printed, &[]).expect("it is right");
        assert_eq!(settings_file(&again), settings_file(&config));
        let servers = found(&options, "memcached.servers").json();
        assert_eq!(servers[1]["weight"], 3);
        let mut waits = options.iter().filter(|option| option.name == "wait_max");
        let first = waits.next().expect("the longer prefix is first");
        assert_eq!((first.route, first.value.as_str()), (Some(0), "\"9s\""));
        assert_eq!(first.source.to_string(), "file dwell.toml:7");
        assert_eq!(first.json(), "9s");
    }
}
