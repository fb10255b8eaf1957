//! Options from environment variables.

use super::codec::Shape;
use super::load::{FlagValue, unknown_help};
use super::options::{SECTIONS, single_options};

/// The options that environment variables set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentOptions {
    /// The options, to be read after the file and before the flags.
    pub flags: Vec<FlagValue>,
    /// Variables that have the prefix of a section and set no option of it, with a remedy each.
    pub unknown: Vec<String>,
}

/// Reads the options that environment variables set: `DWELL_SERVER_LISTEN` is `server.listen`.
///
/// Shape: commas part the values of a list, and an empty variable counts as absent. Prefixes of
/// routes are `DWELL_ROUTE_PREFIX`; other options of routes are set in a file. Variables that
/// Kubernetes sets for a service with such a name are left alone.
///
/// ```
/// use dwell_edge::config::environment_options;
///
/// let variables = [("DWELL_SERVER_LISTEN", "127.0.0.1:80,127.0.0.1:81"), ("HOME", "/")];
/// let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
/// let options = environment_options(variables);
/// assert_eq!(options.flags[0].option, "server.listen");
/// assert_eq!(options.flags[0].values, ["127.0.0.1:80", "127.0.0.1:81"]);
/// ```
pub fn environment_options(
    variables: impl IntoIterator<Item = (String, String)>,
) -> EnvironmentOptions {
    let mut variables: Vec<(String, String)> = variables
        .into_iter()
        .filter(|(name, value)| name.starts_with(PREFIX) && !value.is_empty())
        .collect();
    variables.sort_unstable();
    let mut found = EnvironmentOptions::default();
    for (variable, value) in variables {
        if let Some((option, shape)) = option_of(&variable) {
            let values = match shape {
                Shape::List => value.split(',').map(|one| one.trim().to_owned()).collect(),
                Shape::Bare | Shape::Text => vec![value],
            };
            found.flags.push(FlagValue {
                flag: variable,
                option,
                values,
            });
        } else if !is_of_kubernetes(&variable)
            && let Some((section, name)) = section_of(&variable)
        {
            let help = match section {
                "route" => "the options of a route are set in a file".to_owned(),
                _ => unknown_help(section, &name, true),
            };
            found
                .unknown
                .push(format!("{variable} sets no option: {help}"));
        }
    }
    found
}

/// The variable that sets an option.
pub(super) fn variable(option: &str) -> String {
    format!("{PREFIX}{}", option.replace('.', "_").to_ascii_uppercase())
}

fn option_of(name: &str) -> Option<(String, Shape)> {
    if name == variable(PREFIXES) {
        return Some((PREFIXES.to_owned(), Shape::List));
    }
    let specs = single_options().map(|spec| (spec.full_name(), spec.shape));
    specs
        .into_iter()
        .find(|(option, _)| variable(option) == name)
}

/// The section that a variable is of, and the rest of its name as of an option.
fn section_of(name: &str) -> Option<(&'static str, String)> {
    SECTIONS.iter().find_map(|section| {
        let rest = name.strip_prefix(&variable(section.name))?;
        let rest = rest.strip_prefix('_')?;
        Some((section.name, rest.to_ascii_lowercase()))
    })
}

/// Returns true for the variables that tell a container where a service is, such as
/// `DWELL_STORE_SERVICE_HOST` and `DWELL_STORE_PORT_11211_TCP`.
fn is_of_kubernetes(name: &str) -> bool {
    let is_port = |rest: &str| rest.is_empty() || rest.starts_with('_');
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name
            .match_indices("_PORT")
            .any(|(at, port)| is_port(&name[at + port.len()..]))
}

const PREFIX: &str = "DWELL_";
const PREFIXES: &str = "route.prefix";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, parse};
    use std::collections::HashSet;

    fn options(variables: &[(&str, &str)]) -> EnvironmentOptions {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        environment_options(variables.iter().map(owned))
    }

    #[test]
    fn each_option_has_a_variable_of_its_own() {
        let mut names = HashSet::from([variable(PREFIXES)]);
        for spec in single_options() {
            let name = variable(&spec.full_name());
            assert!(!is_of_kubernetes(&name), "{name}");
            assert!(names.insert(name), "{}", spec.full_name());
        }
    }

    #[test]
    fn variables_stand_between_the_file_and_the_flags() {
        let mut flags = options(&[
            ("DWELL_LIMITS_WAITERS_MAX", "7"),
            ("DWELL_SERVER_LISTEN", "127.0.0.1:1, 127.0.0.1:2"),
            ("DWELL_SERVER_ADMIN", "off"),
            ("DWELL_ROUTE_PREFIX", "/a/,/b/"),
        ])
        .flags;
        flags.push(FlagValue {
            flag: "--admin".to_owned(),
            option: "server.admin".to_owned(),
            values: vec!["127.0.0.1:3".to_owned()],
        });
        let file = "[limits]\nwaiters_max = 9\nidle_timeout = \"3s\"\n";
        let config = parse("dwell.toml", file, &flags).expect("the options are right");
        assert_eq!(config.limits.waiters_max, 7);
        assert_ne!(
            config.limits.idle_timeout,
            Config::default().limits.idle_timeout
        );
        assert_eq!(config.server.listen.len(), 2);
        assert!(config.server.admin.is_some());
        assert_eq!(config.routes.len(), 2);
    }

    #[test]
    fn a_mistake_names_the_variable_and_not_its_value() {
        let flags = options(&[("DWELL_LIMITS_WAITERS_MAX", "secret")]).flags;
        let error = parse("dwell.toml", "", &flags).unwrap_err();
        let shown = error.render(false);
        assert!(shown.contains("DWELL_LIMITS_WAITERS_MAX: "), "{shown}");
    }

    #[test]
    fn a_variable_of_no_option_is_told_unless_others_set_it() {
        let found = options(&[
            ("DWELL_SERVER_LISTN", "127.0.0.1:1"),
            ("DWELL_ROUTE_KEY", "{path}"),
            ("DWELL_STORE_SERVICE_HOST", "10.0.0.1"),
            ("DWELL_STORE_SERVICE_PORT_MEMCACHED", "11211"),
            ("DWELL_STORE_PORT", "tcp://10.0.0.1:11211"),
            ("DWELL_STORE_PORT_11211_TCP_ADDR", "10.0.0.1"),
            ("DWELL_SERVER_IO_URING", ""),
            ("DWELL_UPGRADE", "1"),
            ("DWELL_CONFIG", "dwell.toml"),
        ]);
        assert_eq!(found.flags, []);
        assert_eq!(
            found.unknown,
            [
                "DWELL_ROUTE_KEY sets no option: the options of a route are set in a file",
                "DWELL_SERVER_LISTN sets no option: did you mean `server.listen`?",
            ]
        );
    }
}
