//! Imports: a file names another by `use`, or by a path in the code.

use crate::sources::{self, Sources};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemMod, ItemUse, Path, Stmt, Visibility};

/// Arrows from a file to one whose items it names, by their places in [`Sources::files`].
///
/// A `pub use` is no arrow: it is followed to the file of the item. Declaring a module is none
/// either.
#[must_use]
pub fn imports(sources: &Sources) -> BTreeSet<(usize, usize)> {
    let mut arrows = BTreeSet::new();
    for (place, file) in sources.files.iter().enumerate() {
        let mut seen = Paths::default();
        for item in &file.items {
            seen.visit_item(item);
        }
        for path in seen.paths {
            // A path of one segment names what a `use` has brought, or what the file has.
            let within = matches!(
                path.first().map(String::as_str),
                Some("crate" | "super" | "self")
            );
            if path.len() < 2 && !within {
                continue;
            }
            if let Some(target) = sources.resolve(place, &path)
                && target != place
            {
                arrows.insert((place, target));
            }
        }
    }
    arrows
}

/// The first module of a file's path, the crate's name for its root: the room it stands in.
#[must_use]
pub fn room(sources: &Sources, file: usize) -> &str {
    let module = &sources.files[file].module;
    module.first().map_or("", String::as_str)
}

/// Rooms of which the first imports the second, with how many of `arrows` do.
#[must_use]
pub fn between_rooms<'a>(
    sources: &'a Sources,
    arrows: &BTreeSet<(usize, usize)>,
) -> BTreeMap<(&'a str, &'a str), usize> {
    let mut rooms = BTreeMap::new();
    for (from, to) in arrows {
        let pair = (room(sources, *from), room(sources, *to));
        if pair.0 != pair.1 {
            *rooms.entry(pair).or_default() += 1;
        }
    }
    rooms
}

/// Arrows between rooms that run against `order`, whose first room is the highest: each with the
/// files of one example. A room that is not in `order` is an error of its own.
#[must_use]
pub fn upward(sources: &Sources, order: &[&str]) -> Vec<String> {
    let level = |room: &str| order.iter().position(|listed| *listed == room);
    let mut found = Vec::new();
    for (place, file) in sources.files.iter().enumerate() {
        let room = room(sources, place);
        if !room.is_empty() && level(room).is_none() {
            found.push(format!(
                "{}: the room {room} is not in the table",
                file.path
            ));
        }
    }
    for (from, to) in imports(sources) {
        let (lower, upper) = (room(sources, from), room(sources, to));
        if let (Some(of_from), Some(of_to)) = (level(lower), level(upper))
            && of_to < of_from
        {
            let (from, to) = (&sources.files[from].path, &sources.files[to].path);
            found.push(format!("{from} -> {to}"));
        }
    }
    found
}

#[derive(Default)]
struct Paths {
    paths: Vec<Vec<String>>,
    /// Modules within the file around what is visited.
    depth: usize,
}

impl Paths {
    /// Adds a path as the file's own module would write it, but for those within the file.
    fn add(&mut self, mut path: Vec<String>) {
        let is_relative = path.first().is_some_and(|it| it == "super" || it == "self");
        if self.depth > 0 && is_relative {
            let supers = path.iter().take_while(|it| *it == "super").count();
            if supers <= self.depth {
                return;
            }
            path.drain(..self.depth);
        }
        self.paths.push(path);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, declared: &'ast ItemUse) {
        let brought = sources::used(declared).into_iter();
        for used in brought.filter(|used| !used.is_export) {
            self.add(used.path);
        }
    }

    /// `pub(crate)` names the root and imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

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

    fn visit_item_mod(&mut self, inner: &'ast ItemMod) {
        self.depth += 1;
        visit::visit_item_mod(self, inner);
        self.depth -= 1;
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let segments = path.segments.iter();
        self.add(segments.map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}
