//! First words of doc comments.

use crate::sources::{self, Sources};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, ItemEnum, ItemStruct, Lit, Meta, Stmt};

/// Words with which no doc comment begins: the thing is named first, or what it does.
///
/// Shape: fields and variants of a parser of the command line are left out, as their comments are
/// the text of `--help`.
pub const BANNED: &[&str] = &[
    "What",
    "Whether",
    "Who",
    "Whom",
    "Whose",
    "Whoever",
    "Whatever",
    "How",
    "Where",
    "Wherever",
    "Which",
    "Why",
    "When",
    "Those",
    "That",
    "Nobody",
    "Somebody",
    "Everybody",
    "Anybody",
    "Of",
];

/// Doc comments of `sources` that begin with a word of [`BANNED`]: `polls/mod.rs:12: Whether`.
#[must_use]
pub fn banned(sources: &Sources) -> Vec<String> {
    let mut found = Vec::new();
    for file in &sources.files {
        let mut seen = Docs::default();
        for attribute in &file.attributes {
            seen.visit_attribute(attribute);
        }
        for item in &file.items {
            seen.visit_item(item);
        }
        found.extend(
            seen.found
                .into_iter()
                .map(|found| format!("{}:{found}", file.path)),
        );
    }
    found
}

#[derive(Default)]
struct Docs {
    found: Vec<String>,
    /// The line of the comment line before.
    line: Option<usize>,
}

impl<'ast> Visit<'ast> for Docs {
    fn visit_item(&mut self, item: &'ast Item) {
        if !sources::is_of_tests(item) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, member: &'ast ImplItem) {
        if !sources::is_member_of_tests(member) {
            visit::visit_impl_item(self, member);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if !sources::is_statement_of_tests(statement) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        for attribute in &item.attrs {
            self.visit_attribute(attribute);
        }
        if !is_parser(&item.attrs) {
            self.visit_fields(&item.fields);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        for attribute in &item.attrs {
            self.visit_attribute(attribute);
        }
        for variant in item.variants.iter().filter(|_| !is_parser(&item.attrs)) {
            self.visit_variant(variant);
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let Meta::NameValue(pair) = &attribute.meta else {
            return;
        };
        if !pair.path.is_ident("doc") {
            return;
        }
        let line = attribute.pound_token.span.start().line;
        let begins = self
            .line
            .replace(line)
            .is_none_or(|before| line != before + 1);
        let Expr::Lit(literal) = &pair.value else {
            return;
        };
        if let (true, Lit::Str(text)) = (begins, &literal.lit) {
            let text = text.value();
            let mut words = text
                .trim_start()
                .split(|sign: char| !sign.is_alphanumeric());
            let word = words.next().unwrap_or_default();
            if BANNED.contains(&word) {
                self.found.push(format!("{line}: {word}"));
            }
        }
    }
}

/// Returns true for a type that `clap` derives a parser for.
fn is_parser(attributes: &[Attribute]) -> bool {
    let mut is_parser = false;
    for attribute in attributes.iter().filter(|it| it.path().is_ident("derive")) {
        // A `derive` that does not parse is not a parser's.
        let _ = attribute.parse_nested_meta(|meta| {
            let derived = &meta.path.segments;
            is_parser |= derived.last().is_some_and(|last| {
                ["Args", "Parser", "Subcommand"]
                    .iter()
                    .any(|name| last.ident == name)
            });
            Ok(())
        });
    }
    is_parser
}
