//! Everything that is public is shown in an example that compiles; those that need no client run.
//!
//! A type is shown by an example of its own or by being named in another one, a function by being
//! named as one. The examples are the doc comments of both crates, and the pages that are compiled.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Where to look, beneath `crates`.
const SOURCES: &[&str] = &[
    "engine/src",
    "proto/src/http1",
    "proto/src/sse",
    "proto/src/websocket",
];
/// Pages whose examples are compiled with the crate.
const PAGES: &[&str] = &["../docs/manager.md", "../docs/server.md"];
/// What bindings are made of, and nobody else is to use.
const NOT_FOR_PEOPLE: &str = "engine/src/embed";

/// A public item that is to be shown.
struct Item {
    place: String,
    name: String,
    is_function: bool,
    has_example: bool,
}

#[test]
fn whatever_is_public_is_shown_in_an_example() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut examples = String::new();
    let mut items = Vec::new();
    for source in SOURCES {
        for file in rust_files(&crates.join(source)) {
            let place = file.strip_prefix(crates).unwrap().display().to_string();
            let text = fs::read_to_string(&file).unwrap();
            read(&place, &text, &mut items, &mut examples);
        }
    }
    for page in PAGES {
        let text = fs::read_to_string(crates.join(page)).unwrap();
        examples.push_str(&fenced(text.lines()));
    }
    let words = Words::of(&examples);
    items.retain(|item| !item.place.starts_with(NOT_FOR_PEOPLE) && !words.show(item));
    let mut missing = String::new();
    for item in items {
        writeln!(missing, "{}: {}", item.place, item.name).unwrap();
    }
    assert_eq!(missing, "", "public, and in no example");
}

/// What the examples name.
struct Words {
    /// In small letters, as a type may be made by a function of its name.
    all: HashSet<String>,
    functions: HashSet<String>,
}

impl Words {
    fn of(examples: &str) -> Self {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let mut words = Self {
            all: HashSet::new(),
            functions: HashSet::new(),
        };
        let mut rest = examples;
        let mut before = "";
        while let Some(start) = rest.find(is_word) {
            before = if start == 0 { before } else { &rest[..start] };
            rest = &rest[start..];
            let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let is_called = after.starts_with('(') || after.starts_with("::<");
            if is_called || before.ends_with("::") {
                words.functions.insert(word.to_owned());
            }
            words.all.insert(word.to_lowercase());
            rest = after;
        }
        words
    }

    fn show(&self, item: &Item) -> bool {
        item.has_example
            || if item.is_function {
                self.functions.contains(&item.name)
            } else {
                self.all.contains(&item.name.to_lowercase())
            }
    }
}

/// Adds the public items of a file, and its examples.
fn read(place: &str, text: &str, items: &mut Vec<Item>, examples: &mut String) {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut comment: Vec<&str> = Vec::new();
    let mut is_within_comment = false;
    let mut is_in_trait = false;
    for line in text.lines() {
        let code = line.trim_start();
        if let Some(words) = code.strip_prefix("///").or(code.strip_prefix("//!")) {
            if !std::mem::replace(&mut is_within_comment, true) {
                comment.clear();
            }
            comment.push(words.strip_prefix(' ').unwrap_or(words));
            continue;
        }
        let own = fenced(comment.iter().copied());
        if std::mem::take(&mut is_within_comment) {
            examples.push_str(&own);
        }
        is_in_trait &= line != "}";
        if let Some((name, is_function)) = public_item(line, is_in_trait) {
            is_in_trait |= line.starts_with("pub trait");
            items.push(Item {
                place: place.to_owned(),
                name: name.to_owned(),
                is_function,
                has_example: !own.is_empty(),
            });
            comment.clear();
        }
    }
}

/// The name of the item that a line begins, and whether it is a function.
fn public_item(line: &str, is_in_trait: bool) -> Option<(&str, bool)> {
    let code = line.trim_start();
    let mut words = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let is_public = code.starts_with("pub ");
    let is_method = is_in_trait && line.starts_with("    fn ");
    if !is_public && !is_method {
        return None;
    }
    loop {
        match words.next()? {
            "pub" | "async" | "const" => {}
            "fn" => return Some((words.next()?, true)),
            "struct" | "enum" | "trait" => return Some((words.next()?, false)),
            _ => return None,
        }
    }
}

/// What stands between fences that say it is Rust, or nothing.
fn fenced<'t>(lines: impl Iterator<Item = &'t str>) -> String {
    let mut code = String::new();
    let mut is_rust = None;
    for line in lines {
        match (line.trim_start().strip_prefix("```"), is_rust) {
            (Some(language), None) => {
                is_rust = Some(language.is_empty() || language.starts_with("rust"));
            }
            (Some(_), Some(_)) => is_rust = None,
            (None, Some(true)) => {
                code.push_str(line);
                code.push('\n');
            }
            (None, _) => {}
        }
    }
    code
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let beside = folder.with_extension("rs");
    files.extend(beside.exists().then_some(beside));
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.retain(|file| !file.ends_with("tests.rs"));
    files.sort();
    files.dedup();
    files
}
