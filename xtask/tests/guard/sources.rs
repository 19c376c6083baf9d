//! The Rust files of this repository.

use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use walkdir::{DirEntry, WalkDir};

pub struct Source {
    pub package: String,
    pub path: String,
    pub text: String,
}

impl Source {
    /// Whether a tool made it.
    pub fn is_generated(&self) -> bool {
        self.text.contains("do not edit")
    }

    pub fn type_names(&self) -> Vec<String> {
        let mut names = TypeNames(Vec::new());
        names.visit_file(&self.parsed());
        names.0
    }

    fn parsed(&self) -> syn::File {
        syn::parse_file(&self.text).unwrap_or_else(|error| panic!("{}: {error}", self.path))
    }
}

struct TypeNames(Vec<String>);

impl<'ast> Visit<'ast> for TypeNames {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let name = match item {
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            _ => None,
        };
        self.0.extend(name.map(ToString::to_string));
        syn::visit::visit_item(self, item);
    }
}

pub fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask
        .parent()
        .expect("xtask is a directory of the repository")
        .into()
}

pub fn all() -> Vec<Source> {
    let root = root();
    let is_ours = |entry: &DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0 || !(name == "target" || name.starts_with('.'))
    };
    let files = WalkDir::new(&root).sort_by_file_name().into_iter();
    let files = files
        .filter_entry(is_ours)
        .map(|entry| entry.expect("the tree can be read"));
    let rust = files.filter(|it| it.path().extension().is_some_and(|it| it == "rs"));
    rust.map(|entry| {
        let path = entry.path();
        let text = fs::read_to_string(path).expect("sources are text");
        let is_package = |it: &&Path| it.join("Cargo.toml").exists() && *it != root;
        let package = path
            .ancestors()
            .skip(1)
            .find(is_package)
            .map_or_else(|| root.join("examples"), Path::to_path_buf);
        Source {
            package: below(&root, &package),
            path: below(&root, path),
            text,
        }
    })
    .collect()
}

fn below(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .expect("below the root")
        .display()
        .to_string()
}
