//! Reports of mistakes in a configuration.

use super::hidden::{HiddenParts, without_passwords};
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::io;
use std::iter::once;
use std::ops::Range;
use std::path::Path;

/// All mistakes in one configuration: its file and its flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: Option<SourceFile>,
    hidden: HiddenParts,
    problems: Vec<Problem>,
}

/// The text of a configuration, and its name in errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The name, such as the path.
    pub name: String,
    /// The text, which is TOML.
    pub text: String,
}

impl SourceFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`ConfigError`], if it cannot be read.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::read_as(&path.display().to_string(), || fs::read_to_string(path))
    }

    /// Takes the text that `read` returns, under this name.
    ///
    /// # Errors
    /// [`ConfigError`], if it cannot be read.
    pub fn read_as(
        name: &str,
        read: impl FnOnce() -> io::Result<String>,
    ) -> Result<Self, ConfigError> {
        let unread = |error| Problem {
            origin: ValuePlace::Nowhere,
            message: format!("cannot read {name}: {error}"),
            help: None,
        };
        let text = read()
            .map_err(|error| ConfigError::new(None, HiddenParts::default(), vec![unread(error)]))?;
        Ok(Self {
            name: name.to_owned(),
            text,
        })
    }

    /// The line and column at a byte, both from 1.
    pub(super) fn position(&self, byte: usize) -> (usize, usize) {
        let before = self.text.get(..byte).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[line_start..].chars().count() + 1;
        (before.matches('\n').count() + 1, column)
    }
}

/// One mistake in a configuration, for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file, its line and column, both from 1; `None` if the value is not from a file.
    pub place: Option<(String, usize, usize)>,
    /// The flag or environment variable that has the value, if it is not from a file.
    pub flag: Option<String>,
    /// The mistake.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
}

/// One mistake, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) origin: ValuePlace,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// The place of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValuePlace {
    /// The file, at these bytes.
    File(Range<usize>),
    /// The command line: the flag with its value, unless that is a secret.
    Flag(String),
    /// No place: a default, or a file that could not be read.
    Nowhere,
}

impl ConfigError {
    /// Collects the problems: those of the file first, in the order of its lines.
    ///
    /// Shape: no report shows the hidden parts of the file, nor the password of a URL anywhere.
    pub(super) fn new(
        file: Option<SourceFile>,
        mut hidden: HiddenParts,
        mut problems: Vec<Problem>,
    ) -> Self {
        if let Some(file) = &file {
            hidden.hide_passwords(&file.text);
        }
        for problem in &mut problems {
            problem.message = without_passwords(&problem.message);
            problem.help = problem.help.as_deref().map(without_passwords);
        }
        problems.sort_by_key(|problem| match &problem.origin {
            ValuePlace::File(span) => (0, span.start),
            ValuePlace::Flag(_) => (1, 0),
            ValuePlace::Nowhere => (2, 0),
        });
        Self {
            file,
            hidden,
            problems,
        }
    }

    /// The number of mistakes; at least 1.
    pub fn count(&self) -> usize {
        self.problems.len()
    }

    /// Each mistake, for programs.
    pub fn mistakes(&self) -> impl Iterator<Item = Mistake> {
        self.problems.iter().map(|problem| {
            let (mut place, mut flag) = (None, None);
            match (&problem.origin, &self.file) {
                (ValuePlace::File(span), Some(file)) => {
                    let (line, column) = file.position(span.start);
                    place = Some((file.name.clone(), line, column));
                }
                (ValuePlace::Flag(shown), _) => flag = Some(shown.clone()),
                _ => {}
            }
            Mistake {
                place,
                flag,
                message: problem.message.clone(),
                help: problem.help.clone(),
            }
        })
    }

    /// Renders each mistake with its file, line, column, source line and remedy.
    ///
    /// Shape: `color` adds the escape sequences of a terminal.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let shown: Vec<String> = self
            .problems
            .iter()
            .map(|problem| self.render_one(&renderer, problem))
            .collect();
        shown.join("\n\n")
    }

    fn render_one(&self, renderer: &Renderer, problem: &Problem) -> String {
        let message = match &problem.origin {
            ValuePlace::Flag(flag) => format!("{flag}: {}", problem.message),
            ValuePlace::File(_) | ValuePlace::Nowhere => problem.message.clone(),
        };
        let title = Level::ERROR.primary_title(message);
        let snippet = match (&problem.origin, &self.file) {
            (ValuePlace::File(span), Some(file)) => {
                let span = inside(span, &file.text);
                let (source, number, mark) = match self.hidden.line(&file.text, &span) {
                    Some(line) => (Cow::Owned(line.text), line.number, line.mark),
                    None => (Cow::Borrowed(file.text.as_str()), 1, span),
                };
                let mark = AnnotationKind::Primary.span(mark);
                let snippet = Snippet::source(source).line_start(number);
                Some(snippet.path(&file.name).annotation(mark))
            }
            _ => None,
        };
        let help = problem.help.as_deref();
        let Some(snippet) = snippet else {
            // Separate, since groups of one report are joined by the margin of a snippet.
            let help = help.map(|help| Group::with_title(Level::HELP.secondary_title(help)));
            let groups = once(Group::with_title(title)).chain(help);
            let lines: Vec<String> = groups.map(|group| renderer.render(&[group])).collect();
            return lines.join("\n");
        };
        let help = help.map(|help| Level::HELP.message(help));
        renderer.render(&[title.element(snippet).elements(help)])
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for ConfigError {}

/// Cuts a span to its first line, so that a table is marked at its header only.
fn inside(span: &Range<usize>, text: &str) -> Range<usize> {
    let start = span.start.min(text.len());
    let end = span.end.clamp(start, text.len());
    let line = text
        .get(start..end)
        .map_or(0, |marked| marked.find('\n').unwrap_or(marked.len()));
    start..start + line
}
