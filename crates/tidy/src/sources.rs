//! The files of one crate, parsed.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use syn::{Attribute, Expr, ImplItem, Item, ItemUse, Stmt, UseTree, Visibility};

/// A path of modules below the root of the crate; empty for the root itself.
pub type ModulePath = Vec<String>;

/// One file of a crate.
#[derive(Debug)]
pub struct SourceFile {
    /// The path below `src`, with `/`.
    pub path: String,
    /// The module that the file is.
    pub module: ModulePath,
    /// Attributes of the file itself, its `//!` comment among them.
    pub attributes: Vec<Attribute>,
    /// Items outside of tests.
    pub items: Vec<Item>,
    /// Paths that a `use` gives a name in this file, public ones included.
    pub names: HashMap<String, Vec<String>>,
}

/// The files of one crate.
#[derive(Debug)]
pub struct Sources {
    /// Sorted by path.
    pub files: Vec<SourceFile>,
    modules: HashMap<ModulePath, usize>,
}

/// One name that a `use` declaration brings.
#[derive(Clone, Debug)]
pub struct Used {
    /// The path as written, up to the name.
    pub path: Vec<String>,
    /// The name in this file; `*` for all names.
    pub name: String,
    /// The declaration exports the name again.
    pub is_export: bool,
}

impl Sources {
    /// The files below `src`, without those that only tests use.
    ///
    /// # Errors
    ///
    /// A message with the path of the first file that can't be read or parsed.
    pub fn read(src: &Path) -> Result<Self, String> {
        let mut texts = Vec::new();
        collect(src, src, &mut texts)?;
        Self::parse(&texts)
    }

    /// As [`read`](Self::read), from paths below `src` and texts.
    ///
    /// # Errors
    ///
    /// A message with the path of the first text that can't be parsed.
    pub fn parse(texts: &[(String, String)]) -> Result<Self, String> {
        let mut files = Vec::new();
        let mut of_tests = Vec::new();
        for (path, text) in texts {
            let parsed = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
            let module = module_of(path);
            let (tested, items): (Vec<Item>, Vec<Item>) =
                parsed.items.into_iter().partition(is_of_tests);
            for item in tested {
                if let Item::Mod(declared) = item {
                    let mut inner = module.clone();
                    inner.push(declared.ident.to_string());
                    of_tests.push(inner);
                }
            }
            let names = uses(&items)
                .into_iter()
                .map(|used| (used.name, used.path))
                .collect();
            files.push(SourceFile {
                path: path.clone(),
                module,
                attributes: parsed.attrs,
                items,
                names,
            });
        }
        files.retain(|file| !of_tests.iter().any(|tests| file.module.starts_with(tests)));
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let modules = files
            .iter()
            .enumerate()
            .map(|(place, file)| (file.module.clone(), place))
            .collect();
        Ok(Self { files, modules })
    }

    /// The file that is `module`.
    #[must_use]
    pub fn file_of(&self, module: &[String]) -> Option<usize> {
        self.modules.get(module).copied()
    }

    /// The file in which the item stands that `path` names in the file `from`, re-exports
    /// followed; `None` for items of other crates.
    #[must_use]
    pub fn resolve(&self, from: usize, path: &[String]) -> Option<usize> {
        self.follow(from, path, 0)
    }

    fn follow(&self, from: usize, path: &[String], depth: usize) -> Option<usize> {
        // A chain of re-exports is never this long, but two globs may name each other.
        const DEPTH_MAX: usize = 16;
        if depth > DEPTH_MAX {
            return None;
        }
        let file = &self.files[from];
        let (mut at, mut rest) = match path.split_first()? {
            (first, rest) if first == "crate" => (Vec::new(), rest),
            (first, rest) if first == "self" => (file.module.clone(), rest),
            (first, rest) if first == "super" => {
                let parent = file.module.len().checked_sub(1)?;
                (file.module[..parent].to_vec(), rest)
            }
            (first, rest) => {
                let mut child = file.module.clone();
                child.push(first.clone());
                if self.modules.contains_key(&child) {
                    (child, rest)
                } else {
                    let mut whole = file.names.get(first).filter(|used| *used != path)?.clone();
                    whole.extend_from_slice(rest);
                    return self.follow(from, &whole, depth + 1);
                }
            }
        };
        while let Some((next, further)) = rest.split_first() {
            if next == "super" {
                at.pop()?;
                rest = further;
                continue;
            }
            at.push(next.clone());
            if self.modules.contains_key(&at) {
                rest = further;
                continue;
            }
            at.pop();
            let place = self.file_of(&at)?;
            if let Some(used) = self.files[place].names.get(next)
                && (place != from || used != path)
            {
                let mut whole = used.clone();
                whole.extend_from_slice(further);
                return self.follow(place, &whole, depth + 1);
            }
            return Some(place);
        }
        self.file_of(&at)
    }
}

/// The names that the `use` declarations among `items` bring.
#[must_use]
pub fn uses(items: &[Item]) -> Vec<Used> {
    let mut found = Vec::new();
    for item in items {
        if let Item::Use(declared) = item {
            found.append(&mut used(declared));
        }
    }
    found
}

/// The names that one `use` declaration brings.
#[must_use]
pub fn used(declared: &ItemUse) -> Vec<Used> {
    let mut found = Vec::new();
    let is_export = !matches!(declared.vis, Visibility::Inherited);
    spread(&declared.tree, &mut Vec::new(), is_export, &mut found);
    found
}

fn spread(tree: &UseTree, before: &mut Vec<String>, is_export: bool, found: &mut Vec<Used>) {
    let mut add = |last: Option<String>, name: String| {
        let mut path = before.clone();
        path.extend(last);
        found.push(Used {
            path,
            name,
            is_export,
        });
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            spread(&path.tree, before, is_export, found);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            let module = before.last().cloned().unwrap_or_default();
            add(None, module);
        }
        UseTree::Name(name) => add(Some(name.ident.to_string()), name.ident.to_string()),
        UseTree::Rename(rename) => {
            add(Some(rename.ident.to_string()), rename.rename.to_string());
        }
        UseTree::Glob(_) => add(None, "*".to_owned()),
        UseTree::Group(group) => {
            for tree in &group.items {
                spread(tree, before, is_export, found);
            }
        }
    }
}

/// The module that the file at `path` below `src` is.
fn module_of(path: &str) -> ModulePath {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let mut parts: ModulePath = stem.split('/').map(str::to_owned).collect();
    let last = parts.last().map(String::as_str);
    if last == Some("mod") || matches!(stem, "lib" | "main") {
        parts.pop();
    }
    parts
}

/// The item is compiled for tests alone.
#[must_use]
pub fn is_of_tests(item: &Item) -> bool {
    let attributes = match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(names_tests)
}

/// The member of an `impl` block is compiled for tests alone.
#[must_use]
pub fn is_member_of_tests(member: &ImplItem) -> bool {
    let attributes = match member {
        ImplItem::Const(member) => &member.attrs,
        ImplItem::Fn(member) => &member.attrs,
        ImplItem::Macro(member) => &member.attrs,
        ImplItem::Type(member) => &member.attrs,
        _ => return false,
    };
    attributes.iter().any(names_tests)
}

/// The statement is compiled for tests alone.
#[must_use]
pub fn is_statement_of_tests(statement: &Stmt) -> bool {
    let attributes = match statement {
        Stmt::Item(item) => return is_of_tests(item),
        Stmt::Local(statement) => &statement.attrs,
        Stmt::Macro(statement) => &statement.attrs,
        Stmt::Expr(Expr::Assign(expression), _) => &expression.attrs,
        Stmt::Expr(Expr::Binary(expression), _) => &expression.attrs,
        Stmt::Expr(Expr::Block(expression), _) => &expression.attrs,
        Stmt::Expr(Expr::Call(expression), _) => &expression.attrs,
        Stmt::Expr(Expr::If(expression), _) => &expression.attrs,
        Stmt::Expr(Expr::MethodCall(expression), _) => &expression.attrs,
        Stmt::Expr(..) => return false,
    };
    attributes.iter().any(names_tests)
}

/// The attribute is `#[cfg(test)]`, alone or within `all`; code of `any(test, ..)` is in products.
#[must_use]
pub fn names_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.meta.require_list().is_ok_and(|list| {
            let words = list.tokens.to_string();
            words == "test" || words.starts_with("all (test")
        })
}

fn collect(root: &Path, folder: &Path, texts: &mut Vec<(String, String)>) -> Result<(), String> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let entries = fs::read_dir(folder).map_err(|error| failed(folder, error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(root, &path, texts)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
            let below = path.strip_prefix(root).unwrap_or(&path);
            texts.push((below.to_string_lossy().replace('\\', "/"), text));
        }
    }
    Ok(())
}
