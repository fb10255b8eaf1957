//! Parts of a configuration that no message shows: secrets, and values that may be one.

use super::codec::Value;
use super::nearest::nearest_option;
use super::options::{ROUTE_OPTIONS, SECTIONS, single_options};
use std::ops::Range;
use toml::de::DeValue;

/// The words in place of a hidden value.
pub(super) const HIDDEN: &str = "(hidden)";

/// Parts of a text that are hidden.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HiddenParts {
    spans: Vec<Range<usize>>,
}

/// One line of a text without its hidden parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShownLine {
    /// Its number, from 1.
    pub(super) number: usize,
    pub(super) text: String,
    /// The marked bytes of `text`.
    pub(super) mark: Range<usize>,
}

impl HiddenParts {
    /// Hides a value.
    pub(super) fn hide(&mut self, value: &Value<'_>) {
        self.spans.push(value.span());
    }

    /// Hides what may be a secret in the value of a known option.
    pub(super) fn hide_in_known(&mut self, value: &Value<'_>) {
        self.hide_leaves(value, &|name| !has_secret_word(name));
    }

    /// Hides what may be a secret in the value of an unknown option or section.
    pub(super) fn hide_in_unknown(&mut self, name: &str, value: &Value<'_>) {
        let is_leaf = !value.get_ref().is_table() && tables(value).is_none();
        if is_leaf && !is_public(name) {
            self.hide(value);
        }
        self.hide_leaves(value, &is_public);
    }

    fn hide_leaves(&mut self, value: &Value<'_>, is_shown: &dyn Fn(&str) -> bool) {
        for table in tables(value).into_iter().flatten() {
            self.hide_leaves(table, is_shown);
        }
        for (name, value) in value.get_ref().as_table().into_iter().flatten() {
            let is_leaf = !value.get_ref().is_table() && tables(value).is_none();
            if is_leaf && !is_shown(name.get_ref()) {
                self.hide(value);
            }
            self.hide_leaves(value, is_shown);
        }
    }

    /// Hides what may be a secret in the lines of a text that is not TOML.
    ///
    /// Shape: the header of a known table is shown, the name of a known option, and its value if
    /// the option is no secret and nothing else is assigned in the line.
    pub(super) fn hide_broken(&mut self, text: &str) {
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let end = start + line.len();
            let shown = shown_of_broken(line);
            self.spans.push(start + shown..end);
            start = end;
        }
    }

    /// Hides the passwords and queries of URLs.
    pub(super) fn hide_passwords(&mut self, text: &str) {
        self.spans.extend(passwords(text, end_of_quoted));
        self.spans.extend(queries(text, end_of_quoted));
    }

    /// The line with the byte at the start of `mark`; `None` if all lines of it may be shown.
    pub(super) fn line(&self, text: &str, mark: &Range<usize>) -> Option<ShownLine> {
        let before = text.get(..mark.start)?;
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let end = start + text[start..].find('\n').unwrap_or(text.len() - start);
        let line = text[start..end].trim_end_matches('\r');
        let inside = |at: usize| at.clamp(start, start + line.len()) - start;
        let rest = text.get(mark.end..).unwrap_or_default();
        let last = text.len() - rest.find('\n').map_or(0, |at| rest.len() - at);
        let is_of_mark = |span: &Range<usize>| span.start < last && start < span.end;
        if !self.spans.iter().any(is_of_mark) {
            return None;
        }
        let spans = self.spans.iter();
        let spans = spans.map(|span| inside(span.start)..inside(span.end));
        let spans = joined(spans.filter(|span| !span.is_empty()).collect());
        let mark = inside(mark.start)..inside(mark.end);
        Some(ShownLine {
            number: before.matches('\n').count() + 1,
            text: replaced(line, &spans),
            mark: moved(mark.start, &spans, false)..moved(mark.end, &spans, true),
        })
    }
}

/// The message without the passwords and queries of URLs in it.
pub(super) fn without_passwords(message: &str) -> String {
    let mut spans = passwords(message, end_of_raw);
    spans.extend(queries(message, end_of_raw));
    replaced(message, &joined(spans))
}

/// As [`without_passwords`], for the value of a flag, which has no quotes around it.
pub(super) fn value_without_passwords(value: &str) -> String {
    let to_the_end = |rest: &str, _| rest.len();
    let mut spans = passwords(value, to_the_end);
    spans.extend(queries(value, to_the_end));
    replaced(value, &joined(spans))
}

/// Returns true if values of an option that may be misspelt may be shown.
pub(super) fn is_public(name: &str) -> bool {
    let Some(nearest) = nearest_option(name) else {
        return false;
    };
    let is_secret = options().any(|(known, is_secret)| known == nearest && is_secret);
    !is_secret && (name == nearest || !has_secret_word(name))
}

/// The names of all options, and whether each is a secret.
fn options() -> impl Iterator<Item = (&'static str, bool)> {
    let once = single_options().map(|spec| (spec.name, spec.is_secret));
    once.chain(ROUTE_OPTIONS.iter().map(|spec| (spec.name, spec.is_secret)))
}

/// Returns true for names that people give to secrets.
fn has_secret_word(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// The tables of an array of tables.
fn tables<'v, 'd>(value: &'v Value<'d>) -> Option<impl Iterator<Item = &'v Value<'d>>> {
    let array = value.get_ref().as_array()?;
    let is_table = |one: &Value<'_>| matches!(one.get_ref(), DeValue::Table(_));
    array.iter().any(is_table).then(|| array.iter())
}

/// The number of bytes at the front of a broken line that are shown.
fn shown_of_broken(line: &str) -> usize {
    let is_of_header = |letter: char| letter.is_ascii_lowercase() || "[_]".contains(letter);
    let trimmed = line.trim();
    if trimmed.starts_with('[') && trimmed.chars().all(is_of_header) {
        let name = trimmed.trim_matches(['[', ']']);
        let sections = SECTIONS.iter();
        let is_known = sections.map(|section| section.name).any(|it| it == name);
        return if is_known { line.len() } else { 0 };
    }
    let Some((name, value)) = line.split_once('=') else {
        return 0;
    };
    let full_name = name.trim();
    let last = full_name.rsplit('.').next().unwrap_or(full_name);
    let mut known = options().filter(|(known, _)| *known == last).peekable();
    if known.peek().is_none() {
        return 0;
    }
    if known.any(|(_, is_secret)| is_secret) || value.contains('=') {
        let space = value.len() - value.trim_start_matches(' ').len();
        return name.len() + 1 + space;
    }
    line.len()
}

/// The places of user names and passwords of URLs, which end before what `end_of` says.
fn passwords(text: &str, end_of: impl Fn(&str, Option<char>) -> usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("://") {
        let is_of_scheme = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
        let opener = text[..at]
            .trim_end_matches(is_of_scheme)
            .chars()
            .next_back();
        let start = at + 3;
        let rest = &text[start..];
        let end = end_of(rest, opener);
        if let Some(last) = rest[..end].rfind('@') {
            found.push(start..start + last);
        }
    }
    // An address without a scheme.
    for (at, _) in text.match_indices('@') {
        let before = &text[..at];
        let start = before.rfind(QUOTES_AND_SPACE).map_or(0, |quote| quote + 1);
        let user = &before[start..];
        if let Some(colon) = user.find(':').filter(|_| !user.contains("://")) {
            found.push(start + colon + 1..at);
        }
    }
    found
}

/// The places of the queries of URLs and paths, in which people write tokens: all that follows `?`
/// up to what `end_of` says. Outside of quotes a space or quote behind `?` is prose.
fn queries(text: &str, end_of: impl Fn(&str, Option<char>) -> usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut opener, mut before, mut is_escaped, mut end) = (None, '\n', false, 0);
    // Behind the start of a string of several lines, a quote may be a part of it.
    let long = LONG_QUOTES.iter().filter_map(|quotes| text.find(quotes));
    let long = long.min().unwrap_or(text.len());
    for (at, letter) in text.char_indices() {
        if at < end {
            continue;
        }
        if let Some(start) = behind_question_mark(text, at) {
            let rest = &text[start..];
            let is_prose = opener.is_none() && rest.starts_with(QUOTES_AND_SPACE);
            let length = end_of(rest, opener);
            if length > 0 && !is_prose {
                end = start + length;
                found.push(start..end);
            }
        } else if letter == '\n' || opener == Some(letter) && !is_escaped {
            opener = None;
        } else if opener.is_none() && at < long && "\"'`".contains(letter) {
            // One within a word is an apostrophe.
            opener = Some(letter).filter(|_| !before.is_alphanumeric());
        }
        is_escaped = letter == '\\' && opener == Some('"') && !is_escaped;
        before = letter;
    }
    found
}

/// The place behind the question mark at `at`, as it is or escaped, if there is one.
fn behind_question_mark(text: &str, at: usize) -> Option<usize> {
    let mut ends = QUESTION_MARKS.iter().map(|mark| (mark, at + mark.len()));
    let is_it = |mark: &str, end| {
        let part = text.get(at..end);
        part.is_some_and(|part| part.eq_ignore_ascii_case(mark))
    };
    ends.find_map(|(mark, end)| is_it(mark, end).then_some(end))
}

/// The end of a value that is shown as it is behind the quote: quotes in it are not escaped.
fn end_of_raw(text: &str, opener: Option<char>) -> usize {
    let opener = opener.filter(|letter| "\"'`".contains(*letter));
    let closer = opener.and_then(|opener| text.rfind(opener));
    closer.unwrap_or(text.len())
}

/// The end of a text whose quote was opened before it.
fn end_of_quoted(text: &str, opener: Option<char>) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        let is_quote = opener == Some(letter) && "\"'`".contains(letter);
        if letter == '\n' || is_quote && !is_escaped {
            return at;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    text.len()
}

/// Sorts spans, and joins those that touch.
fn joined(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut joined: Vec<Range<usize>> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
}

/// The text with [`HIDDEN`] in place of each of the joined spans.
fn replaced(text: &str, spans: &[Range<usize>]) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut from = 0;
    for span in spans {
        shown.push_str(&text[from..span.start]);
        shown.push_str(HIDDEN);
        from = span.end;
    }
    shown.push_str(&text[from..]);
    shown
}

/// The place in the replaced text of a byte of the text; one in a hidden span is at an edge of it.
fn moved(at: usize, spans: &[Range<usize>], is_end: bool) -> usize {
    let mut moved = at;
    for span in spans.iter().rev() {
        if span.end <= at {
            moved = moved - span.len() + HIDDEN.len();
        } else if span.start < at {
            let edge = if is_end { HIDDEN.len() } else { 0 };
            moved = span.start + edge;
        }
    }
    moved
}

const SECRET_WORDS: [&str; 7] = ["pass", "pwd", "secret", "token", "cred", "auth", "apikey"];
const QUOTES_AND_SPACE: [char; 6] = ['"', '\'', '`', ' ', '\t', '\n'];
const LONG_QUOTES: [&str; 2] = ["\"\"\"", "'''"];
const QUESTION_MARKS: [&str; 4] = ["?", "\\u003f", "\\U0000003f", "\\x3f"];

#[cfg(test)]
mod tests;
