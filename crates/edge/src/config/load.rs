//! Makes a [`Config`] from a file and flags, and collects all mistakes.

use super::check;
use super::codec::{Fault, Shape, Value};
use super::hidden::{HIDDEN, HiddenParts, is_public, value_without_passwords};
use super::nearest::{names, nearest, nearest_option};
use super::options::{OptionSpec, ROUTE_OPTIONS, SECTIONS, single_options};
use super::report::{ConfigError, Problem, SourceFile, ValuePlace};
use super::{Config, RouteConfig};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// One flag of the command line, or one environment variable, that sets an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagValue {
    /// The flag as written, such as `--listen`, or the name of the variable.
    pub flag: String,
    /// The option it sets, such as `server.listen`.
    pub option: String,
    /// Its values; more than one only if the flag may be repeated.
    pub values: Vec<String>,
}

impl FlagValue {
    fn shown(&self) -> String {
        let name = self.option.rsplit('.').next().unwrap_or(&self.option);
        let values = if is_public(name) {
            let values: Vec<_> = self
                .values
                .iter()
                .map(|one| value_without_passwords(one))
                .collect();
            values.join(" ")
        } else {
            HIDDEN.to_owned()
        };
        match self.flag.as_str() {
            "--set" => format!("--set {}={values}", self.option),
            // Variables often have secrets.
            variable if !variable.starts_with('-') => variable.to_owned(),
            flag => format!("{flag} {values}"),
        }
    }
}

/// Loads the file, if there is one, and the flags, which override it.
///
/// # Errors
/// [`ConfigError`] with all mistakes in both.
pub fn load(path: Option<&Path>, flags: &[FlagValue]) -> Result<Config, ConfigError> {
    load_source(path.map(SourceFile::read).transpose()?, flags)
}

/// Loads the text, if there is one, and the flags, which override it.
///
/// # Errors
/// [`ConfigError`] with all mistakes in both.
pub fn load_source(source: Option<SourceFile>, flags: &[FlagValue]) -> Result<Config, ConfigError> {
    let mut config = Draft::read(source, flags)?.config;
    config.routes.sort_by_key(|route| place_in_matching(route));
    Ok(config)
}

/// The sort key of routes in the order of matching; a stable sort keeps the order of the file among
/// prefixes of one length.
pub(super) fn place_in_matching(route: &RouteConfig) -> Reverse<usize> {
    Reverse(route.prefix.len())
}

/// Parses `text`, called `name` in errors, and the flags, which override it.
///
/// # Errors
/// [`ConfigError`] with all mistakes in both.
pub fn parse(name: &str, text: &str, flags: &[FlagValue]) -> Result<Config, ConfigError> {
    let source = SourceFile {
        name: name.to_owned(),
        text: text.to_owned(),
    };
    load_source(Some(source), flags)
}

/// A configuration that is being loaded.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) config: Config,
    problems: Vec<Problem>,
    /// Parts of the file that no report shows.
    hidden: HiddenParts,
    /// Places where options were written; defaults have none.
    origins: HashMap<String, WrittenOption>,
}

/// The place of an option, and if its value could be read.
struct WrittenOption {
    origin: ValuePlace,
    valid: bool,
}

impl Draft {
    /// Reads both, and checks them together. Routes are in the order of the text.
    pub(super) fn read(
        source: Option<SourceFile>,
        flags: &[FlagValue],
    ) -> Result<Self, ConfigError> {
        let mut draft = Self::default();
        if let Some(source) = &source {
            draft.read_file(&source.text);
        }
        for flag in flags {
            draft.read_flag(flag);
        }
        check::check(&mut draft);
        if draft.problems.is_empty() {
            Ok(draft)
        } else {
            Err(ConfigError::new(source, draft.hidden, draft.problems))
        }
    }

    /// The place at which an option was written; `None` if it was not.
    pub(super) fn place(&self, option: &str) -> Option<&ValuePlace> {
        self.origins.get(option).map(|written| &written.origin)
    }

    /// Reports a mistake in a combination of options, at the place of the first. It is not reported
    /// if one of them could not be read, since its default would be compared then.
    pub(super) fn conflict(&mut self, options: &[&str], message: String, help: &str) {
        let written = |option: &&str| self.origins.get(*option);
        if options
            .iter()
            .filter_map(written)
            .any(|written| !written.valid)
        {
            return;
        }
        let origin = options.iter().find_map(written);
        let origin = origin.map_or(ValuePlace::Nowhere, |written| written.origin.clone());
        self.problem(origin, message, Some(help.to_owned()));
    }

    fn problem(&mut self, origin: ValuePlace, message: String, help: Option<String>) {
        self.problems.push(Problem {
            origin,
            message,
            help,
        });
    }

    fn read_file(&mut self, text: &str) {
        let (table, errors) = DeTable::parse_recoverable(text);
        for (name, value) in table.get_ref() {
            self.read_section(name, value);
        }
        // The rest of a broken line reveals nothing about its meaning.
        let broken: Vec<Range<usize>> = errors
            .iter()
            .filter_map(|error| Some(lines_of(error.span()?, text)))
            .collect();
        // What is broken in one line may be the rest of a value in another.
        if !errors.is_empty() {
            self.hidden.hide_broken(text);
        }
        self.problems.retain(|problem| match &problem.origin {
            ValuePlace::File(span) => !broken.iter().any(|lines| touch(lines, span)),
            ValuePlace::Flag(_) | ValuePlace::Nowhere => true,
        });
        for error in errors {
            let origin = error.span().map_or(ValuePlace::Nowhere, ValuePlace::File);
            self.problem(origin, format!("not TOML: {}", error.message()), None);
        }
    }

    fn read_section(&mut self, name: &Spanned<Cow<'_, str>>, value: &Value<'_>) {
        if name.get_ref() == "route" {
            return self.read_routes(value);
        }
        let is_known = SECTIONS.iter().any(|it| it.name == name.get_ref());
        if !is_known || !value.get_ref().is_table() {
            self.hidden.hide_in_unknown(name.get_ref(), value);
        }
        if !is_known {
            let help = unknown_section_help(name.get_ref());
            let message = format!("unknown section: `{}`", name.get_ref());
            return self.problem(ValuePlace::File(name.span()), message, Some(help));
        }
        let Some(table) = value.get_ref().as_table() else {
            let message = format!("`{}` is a section", name.get_ref());
            let help = format!("write [{}] and its options below it", name.get_ref());
            return self.problem(ValuePlace::File(name.span()), message, Some(help));
        };
        for (option, value) in table {
            let full_name = format!("{}.{}", name.get_ref(), option.get_ref());
            let spec = single_options().find(|spec| spec.full_name() == full_name);
            let Some(spec) = spec else {
                self.unknown_option(name.get_ref(), option, value);
                continue;
            };
            self.hide(spec.is_secret, value);
            let result = (spec.set)(&mut self.config, value);
            self.written(&full_name, value.span(), result);
        }
    }

    fn read_routes(&mut self, value: &Value<'_>) {
        let help = "write [[route]] and its options below it, once for each prefix";
        let tables = value.get_ref().as_array().filter(|array| !array.is_empty());
        let Some(tables) = tables.filter(|array| array.iter().all(|one| one.get_ref().is_table()))
        else {
            self.hidden.hide_in_unknown("route", value);
            let message = "`route` is a list of tables".to_owned();
            return self.problem(
                ValuePlace::File(value.span()),
                message,
                Some(help.to_owned()),
            );
        };
        self.config.routes.clear();
        for table in tables {
            self.read_route(table);
        }
    }

    fn read_route(&mut self, value: &Value<'_>) {
        let mut route = RouteConfig::default();
        let index = self.config.routes.len();
        let mut has_prefix = false;
        for (option, value) in value.get_ref().as_table().into_iter().flatten() {
            let name = option.get_ref().as_ref();
            let Some(spec) = ROUTE_OPTIONS.iter().find(|spec| spec.name == name) else {
                self.unknown_option("route", option, value);
                continue;
            };
            self.hide(spec.is_secret, value);
            has_prefix |= name == "prefix";
            let result = (spec.set)(&mut route, value);
            self.written(&route_option(index, name), value.span(), result);
        }
        if !has_prefix {
            let message = "the route has no prefix".to_owned();
            let help = "add a line such as prefix = \"/poll/\"".to_owned();
            self.problem(ValuePlace::File(value.span()), message, Some(help));
            self.origins.insert(
                route_option(index, "prefix"),
                WrittenOption {
                    origin: ValuePlace::File(value.span()),
                    valid: false,
                },
            );
        }
        self.config.routes.push(Arc::new(route));
    }

    fn written(&mut self, option: &str, place: Range<usize>, result: Result<(), Fault>) {
        let written = WrittenOption {
            origin: ValuePlace::File(place),
            valid: result.is_ok(),
        };
        self.origins.insert(option.to_owned(), written);
        if let Err(fault) = result {
            self.problem(ValuePlace::File(fault.span), fault.message, fault.help);
        }
    }

    /// Hides the value of a known option if it is a secret, else what may be one in it.
    fn hide(&mut self, is_secret: bool, value: &Value<'_>) {
        if is_secret {
            self.hidden.hide(value);
        } else {
            self.hidden.hide_in_known(value);
        }
    }

    fn unknown_option(&mut self, section: &str, option: &Spanned<Cow<'_, str>>, value: &Value<'_>) {
        let name = option.get_ref();
        self.hidden.hide_in_unknown(name, value);
        let message = format!("unknown option: `{section}.{name}`");
        self.problem(
            ValuePlace::File(option.span()),
            message,
            Some(unknown_help(section, name, false)),
        );
    }

    fn read_flag(&mut self, flag: &FlagValue) {
        if flag.option == "route.prefix" {
            return self.read_prefixes(flag);
        }
        let origin = ValuePlace::Flag(flag.shown());
        let Some(spec) = single_options().find(|spec| spec.full_name() == flag.option) else {
            let (section, name) = flag.option.split_once('.').unwrap_or(("", &flag.option));
            let help = match section {
                "route" => "the options of a route are set in a file".to_owned(),
                _ => unknown_help(section, name, true),
            };
            let message = format!("unknown option: `{}`", flag.option);
            return self.problem(origin, message, Some(help));
        };
        let value = flag_value(spec, &flag.values);
        let result = (spec.set)(&mut self.config, &Spanned::new(0..0, value));
        let written = WrittenOption {
            origin: origin.clone(),
            valid: result.is_ok(),
        };
        self.origins.insert(flag.option.clone(), written);
        if let Err(fault) = result {
            self.problem(origin, fault.message, fault.help);
        }
    }

    /// Reads prefixes from the command line, which replace the routes. A route with the same prefix
    /// in the file keeps its options.
    fn read_prefixes(&mut self, flag: &FlagValue) {
        let from_file = std::mem::take(&mut self.config.routes);
        let previous = std::mem::take(&mut self.origins);
        let (of_routes, others) = previous
            .into_iter()
            .partition(|(name, _)| name.starts_with("route["));
        self.origins = others;
        let mut of_routes: HashMap<String, WrittenOption> = of_routes;
        for prefix in &flag.values {
            let mut route = RouteConfig::default();
            let value = Spanned::new(0..0, DeValue::String(Cow::Borrowed(prefix)));
            let result = (ROUTE_OPTIONS[0].set)(&mut route, &value);
            let index = self.config.routes.len();
            let kept = from_file.iter().position(|known| known.prefix == *prefix);
            for spec in kept.map_or(&[][..], |_| ROUTE_OPTIONS) {
                let written = of_routes.remove(&route_option(kept.unwrap_or(index), spec.name));
                self.origins
                    .extend(written.map(|one| (route_option(index, spec.name), one)));
            }
            let one = FlagValue {
                values: vec![prefix.clone()],
                ..flag.clone()
            };
            let origin = ValuePlace::Flag(one.shown());
            let written = WrittenOption {
                origin: origin.clone(),
                valid: result.is_ok(),
            };
            self.origins.insert(route_option(index, "prefix"), written);
            self.config
                .routes
                .push(kept.map_or_else(|| Arc::new(route), |kept| Arc::clone(&from_file[kept])));
            if let Err(fault) = result {
                self.problem(origin, fault.message, fault.help);
            }
        }
    }
}

/// The name under which the place of a route's option is recorded.
pub(super) fn route_option(index: usize, name: &str) -> String {
    format!("route[{index}].{name}")
}

fn flag_value<'v>(spec: &OptionSpec<Config>, values: &'v [String]) -> DeValue<'v> {
    let string = |text: &'v String| DeValue::String(Cow::Borrowed(text.as_str()));
    match spec.shape {
        Shape::List => {
            let mut array = DeArray::default();
            for text in values {
                array.push(Spanned::new(0..0, string(text)));
            }
            DeValue::Array(array)
        }
        Shape::Bare | Shape::Text => {
            let text = values.last().map_or("", String::as_str);
            let bare = (spec.shape == Shape::Bare)
                .then(|| DeValue::parse(text).ok())
                .flatten();
            bare.map_or(DeValue::String(Cow::Borrowed(text)), Spanned::into_inner)
        }
    }
}

fn unknown_section_help(name: &str) -> String {
    let sections = SECTIONS.iter().map(|section| section.name);
    if let Some(near) = nearest(name, sections.clone()) {
        return format!("did you mean `{near}`?");
    }
    if let Some(full_names) = elsewhere(name) {
        return full_names;
    }
    format!(
        "the sections are {}",
        sections.collect::<Vec<_>>().join(", ")
    )
}

/// The help text for an unknown option; `full` includes the section in names.
pub(super) fn unknown_help(section: &str, name: &str, full: bool) -> String {
    let of_section: Vec<&str> = names()
        .filter(|(candidate, _)| *candidate == section)
        .map(|(_, name)| name)
        .collect();
    if let Some(near) = nearest(name, of_section.iter().copied()) {
        let section = if full {
            format!("{section}.")
        } else {
            String::new()
        };
        return format!("did you mean `{section}{near}`?");
    }
    if let Some(full_names) = elsewhere(name) {
        return full_names;
    }
    if of_section.is_empty() {
        return unknown_section_help(section);
    }
    format!("the options of {section} are {}", of_section.join(", "))
}

/// The help text with the sections that have this option, or the most similar one.
fn elsewhere(name: &str) -> Option<String> {
    let near = nearest_option(name)?;
    let full: Vec<String> = names()
        .filter(|(_, name)| *name == near)
        .map(|(section, name)| format!("`{section}.{name}`"))
        .collect();
    Some(format!("did you mean {}?", full.join(" or ")))
}

/// The whole lines that `span` is on.
fn lines_of(span: Range<usize>, text: &str) -> Range<usize> {
    let start = text
        .get(..span.start)
        .and_then(|before| before.rfind('\n'))
        .map_or(0, |at| at + 1);
    let after = text.get(span.end..).and_then(|after| after.find('\n'));
    start..after.map_or(text.len(), |at| span.end + at)
}

fn touch(lines: &Range<usize>, span: &Range<usize>) -> bool {
    span.start <= lines.end && lines.start <= span.end
}

#[cfg(test)]
mod tests;
