//! Sizes of types, and the files over which their methods are spread.

use crate::sources::{Sources, is_member_of_tests, names_tests};
use std::collections::{BTreeMap, BTreeSet};
use syn::punctuated::Punctuated;
use syn::{Field, Fields, FnArg, ImplItem, Item, ReceiverKind, Type};

/// Fields that a struct with methods of its own to change it may have.
pub const FIELDS_MAX: usize = 15;
/// Files that may have `impl` blocks of one type.
pub const FILES_MAX: usize = 2;

/// One struct or enum of a crate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Measured {
    /// Fields of a struct; 0 for an enum.
    pub fields: usize,
    /// Files with an `impl` block of it, with or without a trait.
    pub files: BTreeSet<String>,
    /// A method of its own changes it (`&mut self`).
    pub is_of_behaviour: bool,
}

impl Measured {
    /// Its fields, where its own methods change them; 0 for data that others read.
    #[must_use]
    pub fn changing_fields(&self) -> usize {
        if self.is_of_behaviour { self.fields } else { 0 }
    }

    /// Returns true within [`FIELDS_MAX`] and [`FILES_MAX`].
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.changing_fields() <= FIELDS_MAX && self.files.len() <= FILES_MAX
    }
}

/// Every struct and enum, by the path of its file and its name: `polls/mod.rs Polls`.
#[must_use]
pub fn measure(sources: &Sources) -> BTreeMap<String, Measured> {
    let mut types: BTreeMap<(usize, String), Measured> = BTreeMap::new();
    for (place, file) in sources.files.iter().enumerate() {
        for item in &file.items {
            match item {
                Item::Struct(declared) => {
                    let fields = match &declared.fields {
                        Fields::Named(fields) => &fields.named,
                        Fields::Unnamed(fields) => &fields.unnamed,
                        Fields::Unit => &Punctuated::new(),
                    };
                    let is_of_tests = |field: &&Field| field.attrs.iter().any(names_tests);
                    let fields = fields.iter().filter(|field| !is_of_tests(field)).count();
                    let key = (place, declared.ident.to_string());
                    types.entry(key).or_default().fields = fields;
                }
                Item::Enum(declared) => {
                    types
                        .entry((place, declared.ident.to_string()))
                        .or_default();
                }
                _ => {}
            }
        }
    }
    for (place, file) in sources.files.iter().enumerate() {
        for item in &file.items {
            let Item::Impl(block) = item else { continue };
            let Type::Path(named) = &*block.self_ty else {
                continue;
            };
            let segments = named.path.segments.iter();
            let path: Vec<String> = segments.map(|segment| segment.ident.to_string()).collect();
            let Some(name) = path.last().cloned() else {
                continue;
            };
            let here = (place, name.clone());
            let key = if types.contains_key(&here) {
                here
            } else if let Some(there) = sources.resolve(place, &path) {
                (there, name)
            } else {
                continue;
            };
            let Some(measured) = types.get_mut(&key) else {
                continue;
            };
            measured.files.insert(file.path.clone());
            let mut members = block.items.iter().filter(|it| !is_member_of_tests(it));
            let changes = block.trait_.is_none() && members.any(takes_mut_self);
            measured.is_of_behaviour |= changes;
        }
    }
    types
        .into_iter()
        .map(|((place, name), measured)| {
            (format!("{} {name}", sources.files[place].path), measured)
        })
        .collect()
}

fn takes_mut_self(item: &ImplItem) -> bool {
    let ImplItem::Fn(method) = item else {
        return false;
    };
    match method.sig.inputs.first() {
        Some(FnArg::Receiver(receiver)) => {
            matches!(receiver.kind, ReceiverKind::Reference(_, _, Some(_)))
        }
        _ => false,
    }
}
