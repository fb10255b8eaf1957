//! Documents made from the table of options: the example file and the reference page.

use super::live::NEEDS_RESTART;
use super::options::{OptionSpec, ROUTE_OPTIONS, SECTIONS, Section, single_options};
use super::{Config, RouteConfig};

/// A TOML file with every option at its default and a comment on each.
pub fn example_file() -> String {
    let title = "Every option of Dwell at its default. Keep the lines you change.";
    let mut parts = vec![comment(title)];
    for section in SECTIONS {
        parts.push(format!("\n{}{}\n", comment(section.about), header(section)));
        let lines = lines(section).into_iter();
        parts.extend(
            lines.map(|line| format!("{}{} = {}\n", comment(line.about), line.name, line.default)),
        );
    }
    parts.concat()
}

/// A TOML file with the options of `config` that are not at their defaults.
///
/// Shape: `dwell serve` runs the same with it as with what `config` was read from. It has secrets.
pub fn settings_file(config: &Config) -> String {
    let mut parts = Vec::new();
    for section in SECTIONS {
        if section.name == ROUTE {
            let defaults = Config::default();
            if config.routes != defaults.routes {
                parts.extend(
                    config
                        .routes
                        .iter()
                        .map(|route| table(section, ROUTE_OPTIONS, &**route)),
                );
            }
        } else {
            let of_section = single_options().filter(|spec| spec.section == section.name);
            parts.push(table(section, of_section, config));
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// The table of a section with what differs from the defaults; empty if nothing does. Prefixes of
/// routes are always there.
fn table<'s, T: Default + 'static>(
    section: &Section,
    specs: impl IntoIterator<Item = &'s OptionSpec<T>>,
    target: &T,
) -> String {
    let defaults = T::default();
    let differs = |spec: &&OptionSpec<T>| {
        let is_name = spec.section == ROUTE && spec.name == "prefix";
        is_name || !(spec.is_same)(target, &defaults)
    };
    let lines = specs.into_iter().filter(differs);
    let lines: Vec<String> = lines
        .map(|spec| format!("{} = {}\n", spec.name, (spec.show)(target)))
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("{}\n{}", header(section), lines.concat())
}

/// The page docs/configuration.md.
pub fn reference_page() -> String {
    let mut parts = vec![include_str!("reference.md").to_owned()];
    for section in SECTIONS {
        parts.push(format!(
            "\n## `{}`\n\n{}\n\n",
            header(section),
            section.about
        ));
        parts.push("| Option | Default | Values | |\n|---|---|---|---|\n".to_owned());
        let lines = lines(section).into_iter();
        parts.extend(lines.map(|line| {
            let flag = line
                .flag
                .map(|flag| format!(" Flag: `{flag}`."))
                .unwrap_or_default();
            let restart = if NEEDS_RESTART.contains(&line.full_name.as_str()) {
                " Needs a restart."
            } else {
                ""
            };
            let (name, default, values, about) = (line.name, line.default, line.values, line.about);
            format!("| `{name}` | `{default}` | {values} | {about}{flag}{restart} |\n")
        }));
    }
    parts.concat()
}

fn header(section: &Section) -> String {
    match section.name {
        ROUTE => format!("[[{ROUTE}]]"),
        name => format!("[{name}]"),
    }
}

/// Documentation of one option.
struct OptionDoc {
    full_name: String,
    name: &'static str,
    about: &'static str,
    flag: Option<&'static str>,
    default: String,
    values: String,
}

fn lines(section: &Section) -> Vec<OptionDoc> {
    if section.name == ROUTE {
        let route = RouteConfig::default();
        return ROUTE_OPTIONS
            .iter()
            .map(|spec| line(spec, &route))
            .collect();
    }
    let config = Config::default();
    let of_section = single_options().filter(|spec| spec.section == section.name);
    of_section.map(|spec| line(spec, &config)).collect()
}

fn line<T>(spec: &OptionSpec<T>, defaults: &T) -> OptionDoc {
    OptionDoc {
        full_name: spec.full_name(),
        name: spec.name,
        about: spec.about,
        flag: spec.flag,
        default: (spec.show)(defaults),
        values: (spec.describe)(),
    }
}

/// Breaks `text` into comment lines.
fn comment(text: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in text.split_whitespace() {
        if lines
            .last()
            .is_some_and(|line| line.len() + 1 + word.len() > COLUMNS_MAX)
        {
            lines.push("#".to_owned());
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

const ROUTE: &str = "route";
const COLUMNS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use std::collections::HashSet;

    #[test]
    fn the_example_file_is_the_default() {
        assert_eq!(
            parse("example", &example_file(), &[]),
            Ok(Config::default())
        );
    }

    #[test]
    fn the_printed_settings_are_those_that_were_read() {
        let file = "[server]\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\nadmin = \"off\"\n\
                    [[route]]\nprefix = \"/a/\"\nkey = \"a:{query.id}\"\n\
                    [[route]]\nprefix = \"/b/\"\n\
                    [limits]\nidle_timeout = \"1m30s\"\n";
        let config = parse("dwell.toml", file, &[]).expect("the file is right");
        let printed = settings_file(&config);
        assert_eq!(parse("printed", &printed, &[]), Ok(config));
        assert!(!printed.contains("pollers"), "{printed}");
        assert_eq!(settings_file(&Config::default()), "");
    }

    #[test]
    fn the_committed_documents_are_current() {
        let example = include_str!("../../../../docs/dwell.example.toml");
        assert!(
            example == example_file(),
            "run dwell check --print-default > docs/dwell.example.toml"
        );
        let page = include_str!("../../../../docs/configuration.md");
        assert!(
            page == reference_page(),
            "run dwell check --print-reference > docs/configuration.md"
        );
    }

    /// The names in the output of `{:?}`, so that a field that lacks an option is found.
    fn field_names(debug: &str) -> HashSet<&str> {
        let words = debug.lines().map(str::trim_start);
        words
            .filter_map(|line| line.split_once(": "))
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn every_field_of_the_configuration_is_an_option() {
        let config = Config {
            routes: Vec::new(),
            ..Config::default()
        };
        let route = RouteConfig::default();
        let debug = format!("{config:#?}\n{route:#?}");
        let sections = [
            "server",
            "tls",
            "limits",
            "store",
            "memcached",
            "redis",
            "upstream",
            "presence",
            "routes",
            "log",
        ];
        // Fields of values, not of the configuration.
        let inner = ["parts", "get", "head", "post", "query", "count", "per"];
        let known: HashSet<&str> = single_options()
            .map(|spec| spec.name)
            .chain(ROUTE_OPTIONS.iter().map(|spec| spec.name))
            .chain(sections)
            .chain(inner)
            .collect();
        let fields = field_names(&debug);
        assert!(fields.len() > 50, "{fields:?}");
        let missing: Vec<_> = fields.difference(&known).collect();
        assert_eq!(missing, Vec::<&&str>::new());
    }

    #[test]
    fn every_section_has_its_options_and_every_option_its_section() {
        for section in SECTIONS {
            assert!(!lines(section).is_empty(), "{}", section.name);
        }
        let known: HashSet<&str> = SECTIONS.iter().map(|section| section.name).collect();
        assert!(single_options().all(|spec| known.contains(spec.section)));
    }

    #[test]
    fn comments_are_short() {
        assert!(example_file().lines().all(|line| line.len() <= COLUMNS_MAX));
    }
}
