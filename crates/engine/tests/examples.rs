//! Everything that is public is shown in an example that runs: what an example defines it also
//! calls, and where it listens somebody connects.
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
const PAGES: &[&str] = &[
    "../docs/manager.md",
    "../docs/manager-threads.md",
    "../docs/manager-tls.md",
    "../docs/server.md",
    "../docs/server-streams.md",
    "../docs/server-tls.md",
];
/// What bindings are made of, and nobody else is to use.
const NOT_FOR_PEOPLE: &[&str] = &["engine/src/embed", "engine/src/desk"];

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
    let (mut items, examples) = items_and_examples();
    let mut code = String::new();
    for example in &examples {
        code.push_str(&example.code);
    }
    for page in PAGES {
        let text = fs::read_to_string(crates.join(page)).unwrap();
        for example in fenced(text.lines()) {
            code.push_str(&example);
        }
    }
    let words = Words::of(&code);
    let is_hidden = |place: &str| NOT_FOR_PEOPLE.iter().any(|part| place.starts_with(part));
    items.retain(|item| !is_hidden(&item.place) && !words.show(item));
    let mut missing = String::new();
    for item in items {
        writeln!(missing, "{}: {}", item.place, item.name).unwrap();
    }
    assert_eq!(missing, "", "public, and in no example");
}

#[test]
fn whatever_an_example_defines_runs() {
    let mut idle = String::new();
    for example in items_and_examples().1 {
        for name in never_called(&example.code) {
            writeln!(idle, "{}: {name} is never called", example.place).unwrap();
        }
        if listens_in_vain(&example.code) {
            writeln!(idle, "{}: nobody connects\n{}", example.place, example.code).unwrap();
        }
    }
    assert_eq!(idle, "", "in examples, and never run");
}

#[test]
fn what_is_never_called_is_found() {
    let called = "fn greet() {}\nstruct Hello;\nimpl App for Hello {\n    fn body() {}\n}\n\
                  greet();\nserve(Hello);\nfn main() {}\n";
    assert_eq!(never_called(called), Vec::<String>::new());
    let idle = "fn greet() {}\nstruct Hello;\nimpl App for Hello {\n    fn body() {}\n}\n\
                // greet();\nprintln!(\"greet(Hello)\");\n";
    assert_eq!(never_called(idle), ["greet", "Hello"]);
    assert!(listens_in_vain("builder().serve(handler)"));
    assert!(!listens_in_vain(
        "let running = builder().serve(handler); ask(address);"
    ));
}

/// An example of a doc comment.
struct Example {
    place: String,
    code: String,
}

fn items_and_examples() -> (Vec<Item>, Vec<Example>) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut items, mut examples) = (Vec::new(), Vec::new());
    for source in SOURCES {
        for file in rust_files(&crates.join(source)) {
            let place = file.strip_prefix(crates).unwrap().display().to_string();
            let text = fs::read_to_string(&file).unwrap();
            read(&place, &text, &mut items, &mut examples);
        }
    }
    (items, examples)
}

/// The functions and implementations of an example that it does not use itself.
///
/// Shape: a function is used where it is called or handed over; an implementation of a trait where
/// the name of its type stands once more, other than in an implementation or definition.
fn never_called(example: &str) -> Vec<String> {
    let code = without_texts(example);
    let mut idle = Vec::new();
    let mut is_in_trait = false;
    for line in code.lines() {
        let is_head = line.starts_with("impl");
        is_in_trait = (is_in_trait && line != "}") || (is_head && line.contains(" for "));
        let defined = if is_head {
            line.split_once(" for ").map(|(_, name)| name)
        } else if is_in_trait {
            None
        } else {
            line.split_once("fn ").map(|(_, name)| name)
        };
        let name = defined.map_or("", first_word);
        let is_used = if is_head {
            names_type(&code, name)
        } else {
            calls(&code, name)
        };
        if !matches!(name, "" | "main") && !is_used && !idle.contains(&name.to_owned()) {
            idle.push(name.to_owned());
        }
    }
    idle
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn first_word(code: &str) -> &str {
    let end = code.find(|letter| !is_of_word(letter));
    &code[..end.unwrap_or(code.len())]
}

/// What stands before and behind each place of a word.
fn places<'c>(code: &'c str, name: &str) -> impl Iterator<Item = (&'c str, &'c str)> {
    code.match_indices(name).filter_map(|(start, found)| {
        let (before, behind) = (&code[..start], &code[start + found.len()..]);
        (!before.ends_with(is_of_word) && !behind.starts_with(is_of_word))
            .then_some((before, behind))
    })
}

/// Whether a function is called, or given to another one.
fn calls(code: &str, name: &str) -> bool {
    places(code, name).any(|(before, behind)| {
        let is_defined = before.ends_with("fn ");
        let is_given = before.trim_end().ends_with(['(', ',']) && behind.starts_with([')', ',']);
        !is_defined && (behind.starts_with('(') || is_given)
    })
}

/// Whether a type is made, or given to another one.
fn names_type(code: &str, name: &str) -> bool {
    places(code, name).any(|(before, _)| {
        let line = &before[before.rfind('\n').map_or(0, |end| end + 1)..];
        let is_defined = ["struct ", "enum ", "type "]
            .iter()
            .any(|word| before.ends_with(word));
        !line.starts_with("impl") && !is_defined
    })
}

/// Whether an example has a server that nobody asks.
fn listens_in_vain(example: &str) -> bool {
    let code = without_texts(example);
    code.contains(".serve(")
        && !["connect", "ask(", "ask_and_finish("]
            .iter()
            .any(|call| code.contains(call))
}

/// Code without its comments, and with nothing in its strings.
fn without_texts(code: &str) -> String {
    let mut left = String::new();
    for line in code.lines() {
        let mut is_text = false;
        let mut before = ' ';
        for letter in line.chars() {
            match letter {
                '"' if before != '\\' && before != '\'' => is_text = !is_text,
                '/' if before == '/' && !is_text => break,
                _ if is_text => {}
                _ => left.push(letter),
            }
            before = letter;
        }
        left.push('\n');
    }
    left
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
fn read(place: &str, text: &str, items: &mut Vec<Item>, examples: &mut Vec<Example>) {
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
        let has_example = !own.is_empty();
        if std::mem::take(&mut is_within_comment) {
            examples.extend(own.into_iter().map(|code| Example {
                place: place.to_owned(),
                code,
            }));
        }
        is_in_trait &= line != "}";
        if let Some((name, is_function)) = public_item(line, is_in_trait) {
            is_in_trait |= line.starts_with("pub trait");
            items.push(Item {
                place: place.to_owned(),
                name: name.to_owned(),
                is_function,
                has_example,
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

/// What stands between fences that say it is Rust and is run.
fn fenced<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut examples = Vec::new();
    let mut is_run = None;
    for line in lines {
        match (line.trim_start().strip_prefix("```"), is_run) {
            (Some(language), None) => {
                is_run = Some(matches!(language, "" | "rust"));
                examples.extend(matches!(language, "" | "rust").then(String::new));
            }
            (Some(_), Some(_)) => is_run = None,
            (None, Some(true)) => {
                let code = line.strip_prefix("# ").unwrap_or(line);
                if let Some(example) = examples.last_mut() {
                    example.push_str(code);
                    example.push('\n');
                }
            }
            (None, _) => {}
        }
    }
    examples
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
