//! Which module of a crate uses which, by the paths in its code that begin with `crate`, `self` or
//! `super`. Test modules and `mod` declarations do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::Visit;
use syn::{Item, UseTree};

type Module = Vec<String>;

struct Reference {
    from: Module,
    path: Vec<String>,
}

#[derive(Default)]
struct Crate {
    modules: BTreeSet<Module>,
    /// What a module imports: name to full path. Re-exports are followed by it.
    imports: BTreeMap<(Module, String), Vec<String>>,
    references: Vec<Reference>,
}

pub fn circles(package: &str) -> Vec<Vec<String>> {
    let uses = Crate::read(package).uses();
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        uses.keys().map(|it| (it, reachable(it, &uses))).collect();
    let mut circles = BTreeSet::new();
    for (module, reached) in &reach {
        let both = reached
            .iter()
            .filter(|it| reach.get(*it).is_some_and(|it| it.contains(module)));
        let circle: Vec<String> = both.map(|it| name(it)).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

pub fn imports_of_buses() -> Vec<(String, String)> {
    let uses = Crate::read("busway-transport").uses();
    let is_bus = |it: &Module| {
        let buses = ["memory", "pci", "rdma", "tcp", "tipc", "udp"];
        it.first().is_some_and(|it| buses.contains(&it.as_str()))
    };
    let is_contract = |it: &Module| {
        let modules = ["contract"];
        it.first().is_some_and(|it| modules.contains(&it.as_str()))
    };
    let mut found = Vec::new();
    for (module, used) in uses.iter().filter(|it| is_contract(it.0)) {
        for bus in used.iter().filter(|it| is_bus(it)) {
            let place = format!("{} uses {}", name(module), name(bus));
            found.push(("crates/busway-transport".to_string(), place));
        }
    }
    found
}

fn name(module: &Module) -> String {
    if module.is_empty() {
        "lib".to_string()
    } else {
        module.join("::")
    }
}

fn reachable<'a>(from: &'a Module, uses: &'a BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        let used = uses.get(module).into_iter().flatten();
        next.extend(used.filter(|it| reached.insert(*it)));
    }
    reached
}

impl Crate {
    fn read(package: &str) -> Crate {
        let root = super::sources::root().join("crates").join(package).join("src");
        let mut read = Crate::default();
        read.file(&root.join("lib.rs"), &root, Vec::new());
        assert!(read.modules.len() > 10, "the modules of {package} are found");
        read
    }

    fn file(&mut self, path: &Path, folder: &Path, module: Module) {
        let text = fs::read_to_string(path).unwrap_or_else(|it| panic!("{}: {it}", path.display()));
        let file = syn::parse_file(&text).expect("the compiler takes it, too");
        self.modules.insert(module.clone());
        self.items(&file.items, folder, &module, &module);
    }

    /// Reads items; `module` is theirs, `file` the one whose file they stand in.
    fn items(&mut self, items: &[Item], folder: &Path, module: &Module, file: &Module) {
        for item in items.iter().filter(|it| !is_test(it)) {
            let Item::Mod(inner) = item else {
                self.item(item, module, file);
                continue;
            };
            let name = inner.ident.to_string();
            let mut path = module.clone();
            path.push(name.clone());
            if let Some((_, items)) = &inner.content {
                self.items(items, &folder.join(&name), &path, file);
                continue;
            }
            let folder = folder.join(&name);
            let candidates = [folder.with_extension("rs"), folder.join("mod.rs")];
            // A `path` attribute leads elsewhere: generated code and shared tests.
            if let Some(found) = candidates.iter().find(|it| it.exists()) {
                self.file(found, &folder, path);
            }
        }
    }

    fn item(&mut self, item: &Item, module: &Module, file: &Module) {
        let mut paths = Paths::default();
        paths.visit_item(item);
        for path in paths.found {
            let Some(path) = absolute(module, &path) else {
                continue;
            };
            self.references.push(Reference {
                from: file.clone(),
                path,
            });
        }
        let mut flat = Vec::new();
        if let Item::Use(item) = item {
            flatten(&item.tree, &[], &mut flat);
        }
        for (name, path) in flat {
            let Some(path) = absolute(module, &path) else {
                continue;
            };
            if !matches!(item, Item::Use(it) if is_public(it)) || name == "*" {
                self.references.push(Reference {
                    from: file.clone(),
                    path: path.clone(),
                });
            }
            self.imports.insert((module.clone(), name), path);
        }
    }

    fn uses(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let mut uses: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for Reference { from, path } in &self.references {
            if let Some(to) = self.resolve(path).filter(|to| to != from) {
                uses.entry(from.clone()).or_default().insert(to);
            }
        }
        uses
    }

    /// The module that defines what a path names; `None`: another crate does.
    fn resolve(&self, path: &[String]) -> Option<Module> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let length = (0..=path.len())
                .rev()
                .find(|it| self.modules.contains(&path[..*it]))?;
            let module = path[..length].to_vec();
            let Some(name) = path.get(length) else {
                return Some(module);
            };
            let Some(target) = self.imports.get(&(module.clone(), name.clone())) else {
                return Some(module);
            };
            let rest = path[length + 1..].to_vec();
            path = target.iter().cloned().chain(rest).collect();
        }
        None
    }
}

/// The path from the crate's root; `None`: it begins with an imported name or another crate.
fn absolute(module: &Module, path: &[String]) -> Option<Vec<String>> {
    let mut base = match path.first()?.as_str() {
        "crate" => return Some(path[1..].to_vec()),
        "self" => return Some([module.as_slice(), &path[1..]].concat()),
        "super" => module.clone(),
        _ => return None,
    };
    let ups = path.iter().take_while(|it| *it == "super").count();
    for _ in 0..ups {
        base.pop()?;
    }
    Some([base, path[ups..].to_vec()].concat())
}

fn is_public(item: &syn::ItemUse) -> bool {
    !matches!(item.vis, syn::Visibility::Inherited)
}

fn is_test(item: &Item) -> bool {
    let attributes = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        _ => return false,
    };
    let is_test = |it: &syn::Attribute| {
        let words = it.parse_args::<syn::Path>();
        it.path().is_ident("cfg") && words.is_ok_and(|it| it.is_ident("test"))
    };
    attributes.iter().any(is_test)
}

fn flatten(tree: &UseTree, before: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &with(&path.ident), found),
        UseTree::Name(it) if it.ident == "self" => {
            found.push((before.last().cloned().unwrap_or_default(), before.to_vec()));
        }
        UseTree::Name(it) => found.push((it.ident.to_string(), with(&it.ident))),
        UseTree::Rename(it) => found.push((it.rename.to_string(), with(&it.ident))),
        UseTree::Glob(_) => found.push(("*".to_string(), before.to_vec())),
        UseTree::Group(group) => group.items.iter().for_each(|it| flatten(it, before, found)),
    }
}

/// Collects paths of several segments in code.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|it| it.ident.to_string());
        self.found.push(names.collect());
        syn::visit::visit_path(self, path);
    }

    // `pub(in path)` uses nothing.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}
}
