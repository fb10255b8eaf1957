//! Each measure, on sources small enough to be measured by eye.

use dwell_tidy::{Sources, comments, imports, rings, types};

fn sources(texts: &[(&str, &str)]) -> Sources {
    let texts: Vec<(String, String)> = texts
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect();
    Sources::parse(&texts).expect("the sample parses")
}

/// Imports as pairs of paths.
fn arrows(sources: &Sources) -> Vec<(&str, &str)> {
    let path = |file: usize| &*sources.files[file].path;
    let arrows = imports::imports(sources).into_iter();
    arrows.map(|(from, to)| (path(from), path(to))).collect()
}

#[test]
fn imports_are_followed_through_re_exports_to_the_item() {
    let sources = sources(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::Thing; pub(crate) fn f(_: Thing) {}"),
        ("b/mod.rs", "mod c; pub(crate) use c::Thing;"),
        ("b/c.rs", "pub(crate) struct Thing;"),
    ]);
    assert_eq!(arrows(&sources), [("a.rs", "b/c.rs")]);
}

#[test]
fn names_that_a_parent_imports_are_followed() {
    let sources = sources(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub(crate) struct Thing;"),
        (
            "b/mod.rs",
            "mod c; use crate::a::Thing; struct Other(Thing);",
        ),
        ("b/c.rs", "use super::{Other, Thing};"),
    ]);
    let found = arrows(&sources);
    assert_eq!(
        found,
        [
            ("b/c.rs", "a.rs"),
            ("b/c.rs", "b/mod.rs"),
            ("b/mod.rs", "a.rs")
        ]
    );
}

#[test]
fn paths_in_code_are_imports_and_other_crates_are_none() {
    let sources = sources(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "fn f() { crate::b::g(); bytes::Bytes::new(); std::fs::read(\"\"); }",
        ),
        ("b.rs", "pub(crate) fn g() {}"),
    ]);
    assert_eq!(arrows(&sources), [("a.rs", "b.rs")]);
}

#[test]
fn code_of_tests_imports_nothing() {
    let sources = sources(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "#[cfg(test)] mod tests { use crate::b::g; } #[cfg(test)] use crate::b;",
        ),
        ("b.rs", "pub(crate) fn g() {} #[cfg(test)] mod harness;"),
        ("b/harness.rs", "use crate::a;"),
    ]);
    assert_eq!(arrows(&sources), []);
    assert_eq!(sources.files.len(), 3);
}

#[test]
fn methods_and_statements_of_tests_import_nothing() {
    let sources = sources(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "struct S; impl S { #[cfg(test)] fn f(&self) { crate::b::g(); } }
             fn f() { #[cfg(test)] crate::b::g(); #[cfg(test)] let x = crate::b::g(); }",
        ),
        ("b.rs", "pub(crate) fn g() {}"),
    ]);
    assert_eq!(arrows(&sources), []);
}

#[test]
fn code_of_tests_and_of_products_counts() {
    let sources = sources(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "#[cfg(any(test, feature = \"x\"))] fn f() { crate::b::g(); }",
        ),
        ("b.rs", "pub(crate) fn g() {}"),
    ]);
    assert_eq!(arrows(&sources), [("a.rs", "b.rs")]);
}

#[test]
fn imports_within_functions_and_modules_of_a_file_are_found() {
    let sources = sources(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        (
            "a.rs",
            "fn f() { use crate::b::g; g(); }
             mod inner { use crate::c::g; use super::f; use super::super::d; }",
        ),
        ("b.rs", "pub(crate) fn g() {}"),
        ("c.rs", "pub(crate) fn g() {}"),
        ("d.rs", "pub(crate) fn g() {}"),
    ]);
    assert_eq!(
        arrows(&sources),
        [("a.rs", "b.rs"), ("a.rs", "c.rs"), ("a.rs", "d.rs")]
    );
}

#[test]
fn fields_and_methods_of_tests_make_no_type_wider() {
    let sources = sources(&[(
        "lib.rs",
        "struct S { a: u8, #[cfg(test)] b: u8 } impl S { #[cfg(test)] fn f(&mut self) {} }",
    )]);
    let found = &types::measure(&sources)["lib.rs S"];
    assert_eq!((found.fields, found.changing_fields()), (1, 0));
}

#[test]
fn an_import_against_the_order_of_rooms_is_found() {
    let sources = sources(&[
        ("lib.rs", "mod high; mod low; mod new;"),
        ("high/mod.rs", "use crate::low::L; pub(crate) struct H;"),
        ("low.rs", "pub(crate) struct L(crate::high::H);"),
        ("new.rs", ""),
    ]);
    assert_eq!(
        imports::upward(&sources, &["high", "low"]),
        [
            "new.rs: the room new is not in the table",
            "low.rs -> high/mod.rs"
        ]
    );
    let arrows = imports::imports(&sources);
    let between = imports::between_rooms(&sources, &arrows).into_iter();
    let expected = [(("high", "low"), 1), (("low", "high"), 1)];
    assert_eq!(between.collect::<Vec<_>>(), expected);
    let found = rings::rings(sources.files.len(), &arrows);
    assert_eq!(found.len(), 1);
}

#[test]
fn fields_and_files_of_a_type_are_counted() {
    let sources = sources(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "pub(crate) struct Thing { x: u8, y: u8 } impl Thing { fn f(&mut self) {} }
             struct Plain(u8); impl Plain { fn f(&self) {} }",
        ),
        (
            "b.rs",
            "use crate::a::Thing; impl Thing { fn g(&self) {} } enum Thin {}",
        ),
    ]);
    let found = types::measure(&sources);
    let thing = &found["a.rs Thing"];
    assert_eq!((thing.changing_fields(), thing.files.len()), (2, 2));
    assert_eq!(found["a.rs Plain"].changing_fields(), 0);
    assert_eq!(found["b.rs Thin"].files.len(), 0);
}

#[test]
fn the_comment_of_a_file_is_read() {
    let sources = sources(&[("lib.rs", "//! Which file.\n\n/// Why.\nfn a() {}")]);
    assert_eq!(
        comments::banned(&sources),
        ["lib.rs:1: Which", "lib.rs:3: Why"]
    );
}

#[test]
fn the_first_word_of_a_comment_is_read_and_no_other() {
    let sources = sources(&[(
        "lib.rs",
        "/// Whether it is.\nfn a() {}\n/// It is.\n/// What follows is no first word.\nfn b() {}
         struct S {\n    /// How many.\n    n: u8,\n}\n#[cfg(test)]\n/// Who.\nfn c() {}",
    )]);
    assert_eq!(
        comments::banned(&sources),
        ["lib.rs:1: Whether", "lib.rs:7: How"]
    );
}
