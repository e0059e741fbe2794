//! Finds the file that defines the item of a path.
//!
//! A path is followed through modules, imports, re-exports and globs to the item's definition. A name that a macro
//! generates belongs to the file of the module in which it is searched.

use std::collections::{BTreeMap, BTreeSet};

use crate::parse::{Path, Use};
use crate::tree::{ROOT, Tree};

/// Imports between files: for each pair of importing and defining file, the reasons.
pub(crate) type Imports = BTreeMap<(usize, usize), BTreeSet<Reason>>;

/// One import: its line, and the path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reason {
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// The end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// An item of this crate, in the file with this index.
    Item(usize),
    /// A module of this crate.
    Module(usize),
    /// An item of another crate.
    Foreign,
}

/// Computes the imports between the files of a crate.
pub(crate) fn imports(tree: &Tree) -> Imports {
    let mut resolver = Resolver {
        tree,
        scopes: tree.modules.iter().map(|_| Scope::default()).collect(),
        imports: Imports::new(),
    };
    for (id, module) in tree.modules.iter().enumerate() {
        let scope = &mut resolver.scopes[id];
        for &child in &module.children {
            let name = tree.modules[child].name.as_str();
            scope.insert(name, Binding::Module(child));
        }
        for item in &module.body.items {
            scope.insert(item, Binding::Item);
        }
        for import in &module.body.uses {
            match &import.name {
                Some(name) => scope.insert(name, Binding::Use(import)),
                None if is_glob(import) => scope.globs.push(import),
                None => {}
            }
        }
    }
    for id in 0..tree.modules.len() {
        resolver.module(id);
    }
    resolver.imports
}

/// The names of one module.
#[derive(Debug, Default)]
struct Scope<'a> {
    names: BTreeMap<&'a str, Vec<Binding<'a>>>,
    globs: Vec<&'a Use>,
}

#[derive(Clone, Copy, Debug)]
enum Binding<'a> {
    Item,
    Module(usize),
    Use(&'a Use),
}

// === impl Scope ===

impl<'a> Scope<'a> {
    fn insert(&mut self, name: &'a str, binding: Binding<'a>) {
        self.names.entry(name).or_default().push(binding);
    }
}

struct Resolver<'a> {
    tree: &'a Tree,
    scopes: Vec<Scope<'a>>,
    imports: Imports,
}

/// Imports that are being followed, each with the searched name, so that a ring of them ends.
type Visited<'a> = Vec<(&'a Use, String)>;

// === impl Resolver ===

impl<'a> Resolver<'a> {
    /// Adds the imports of one module.
    fn module(&mut self, id: usize) {
        let body = &self.tree.modules[id].body;
        let mut walked = BTreeSet::new();
        for path in &body.paths {
            let first = path.segments[0].as_str();
            walked.insert(first);
            // If a path starts with an imported item, the import counts.
            let targets = self.name(id, first, &mut Visited::new());
            if targets
                .iter()
                .any(|target| matches!(target, Target::Item(_)))
                && !targets
                    .iter()
                    .any(|target| matches!(target, Target::Module(_)))
            {
                continue;
            }
            for target in self.path(id, &path.segments, &mut Visited::new()) {
                if let Target::Item(file) = target {
                    self.add(id, file, path);
                }
            }
        }
        for import in &body.uses {
            if is_glob(import) {
                self.glob(id, import);
                continue;
            }
            let used = |name: &String| body.names.contains_key(name);
            if import.exported && !import.name.as_ref().is_some_and(used) {
                continue;
            }
            for target in self.path(id, &import.path.segments, &mut Visited::new()) {
                match target {
                    Target::Item(file) => self.add(id, file, &import.path),
                    Target::Module(module) => {
                        // A module is imported for its items; the paths through its name show which.
                        let name = import.name.as_deref();
                        if !name.is_some_and(|name| walked.contains(name)) {
                            self.add(id, self.tree.modules[module].file, &import.path);
                        }
                    }
                    Target::Foreign => {}
                }
            }
        }
    }

    /// Adds the items that a module uses through one of its globs.
    fn glob(&mut self, id: usize, import: &Use) {
        let segments = &import.path.segments;
        let parents = &segments[..segments.len() - 1];
        for target in self.path(id, parents, &mut Visited::new()) {
            match target {
                // The variants of an enum.
                Target::Item(file) => self.add(id, file, &import.path),
                Target::Module(module) => {
                    for (name, &line) in &self.tree.modules[id].body.names {
                        if self.scopes[id].names.contains_key(name.as_str()) {
                            continue;
                        }
                        for found in self.name(module, name, &mut Visited::new()) {
                            if let Target::Item(file) = found {
                                let mut segments = parents.to_vec();
                                segments.push(name.clone());
                                self.add(id, file, &Path { segments, line });
                            }
                        }
                    }
                }
                Target::Foreign => {}
            }
        }
    }

    fn add(&mut self, id: usize, to: usize, path: &Path) {
        let from = self.tree.modules[id].file;
        if from != to {
            self.imports.entry((from, to)).or_default().insert(Reason {
                line: path.line,
                path: path.segments.join("::"),
            });
        }
    }

    /// Follows a path from a module.
    fn path(&self, id: usize, segments: &[String], visited: &mut Visited<'a>) -> Vec<Target> {
        let Some(first) = segments.first() else {
            return Vec::new();
        };
        let mut rest = &segments[1..];
        let mut found = match first.as_str() {
            "crate" => vec![Target::Module(ROOT)],
            "self" => vec![Target::Module(id)],
            "super" => {
                let mut parent = self.parent(id);
                while rest.first().is_some_and(|segment| segment == "super") {
                    parent = self.parent(parent);
                    rest = &rest[1..];
                }
                vec![Target::Module(parent)]
            }
            name => self.name(id, name, visited),
        };
        if first == "self" && rest.first().is_some_and(|segment| segment == "super") {
            return self.path(id, rest, visited);
        }
        for segment in rest {
            let mut next = BTreeSet::new();
            let mut stuck = BTreeSet::new();
            for target in found {
                match target {
                    Target::Module(module) => {
                        let below = self.name(module, segment, visited);
                        if below.is_empty() {
                            stuck.insert(Target::Item(self.tree.modules[module].file));
                        }
                        next.extend(below);
                    }
                    // A variant, an associated item, or an item of another crate.
                    end => {
                        next.insert(end);
                    }
                }
            }
            if next.is_empty() {
                next = stuck;
            }
            found = next.into_iter().collect();
        }
        found
    }

    /// The items and modules that a name stands for in a module.
    fn name(&self, id: usize, name: &str, visited: &mut Visited<'a>) -> Vec<Target> {
        let scope = &self.scopes[id];
        let mut found = BTreeSet::new();
        for binding in scope.names.get(name).into_iter().flatten() {
            match binding {
                Binding::Item => {
                    found.insert(Target::Item(self.tree.modules[id].file));
                }
                Binding::Module(module) => {
                    found.insert(Target::Module(*module));
                }
                Binding::Use(import) => {
                    let targets = self.follow(id, import, &import.path.segments, name, visited);
                    // A path that does not start with a name of this crate leads to another crate.
                    let foreign = targets.is_empty();
                    found.extend(targets);
                    if foreign {
                        found.insert(Target::Foreign);
                    }
                }
            }
        }
        if found.is_empty() {
            for glob in &scope.globs {
                let segments = &glob.path.segments;
                let parents = &segments[..segments.len() - 1];
                for target in self.follow(id, glob, parents, name, visited) {
                    if let Target::Module(module) = target {
                        visited.push((glob, name.to_owned()));
                        found.extend(self.name(module, name, visited));
                        visited.pop();
                    }
                }
            }
        }
        found.into_iter().collect()
    }

    /// Follows the path of an import in the search for a name, unless this search already runs.
    fn follow(
        &self,
        id: usize,
        import: &'a Use,
        segments: &[String],
        name: &str,
        visited: &mut Visited<'a>,
    ) -> Vec<Target> {
        let under_way = |(other, of): &(&Use, String)| std::ptr::eq(*other, import) && of == name;
        if visited.iter().any(under_way) {
            return Vec::new();
        }
        visited.push((import, name.to_owned()));
        let found = self.path(id, segments, visited);
        visited.pop();
        found
    }

    fn parent(&self, id: usize) -> usize {
        self.tree.modules[id].parent.unwrap_or(ROOT)
    }
}

fn is_glob(import: &Use) -> bool {
    import.path.segments.last().is_some_and(|last| last == "*")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::tree::{Error, Sources};

    /// Files in memory.
    struct Memory<'a>(BTreeMap<&'a str, &'a str>);

    impl Sources for Memory<'_> {
        fn read(&self, path: &std::path::Path) -> io::Result<String> {
            let text = path.to_str().and_then(|path| self.0.get(path));
            text.map(|&text| text.to_owned())
                .ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }

    fn load(files: &[(&str, &str)]) -> Result<Tree, Error> {
        let sources = Memory(files.iter().copied().collect());
        Tree::load("lib.rs".as_ref(), &sources)
    }

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let tree = load(files).unwrap();
        let path = |file: usize| tree.files[file].path.display();
        let imports = imports(&tree);
        let edges = imports.keys();
        let edges = edges.map(|&(from, to)| format!("{} -> {}", path(from), path(to)));
        let sorted: BTreeSet<String> = edges.collect();
        sorted.into_iter().collect()
    }

    #[test]
    fn an_import_leads_to_the_file_that_defines_the_item() {
        type Case = (
            &'static str,
            &'static [(&'static str, &'static str)],
            &'static [&'static str],
        );
        let cases: &[Case] = &[
            (
                "by its own path",
                &[
                    ("lib.rs", "mod a; mod b;"),
                    ("a.rs", "use crate::b::B;"),
                    ("b.rs", "pub struct B;"),
                ],
                &["a.rs -> b.rs"],
            ),
            (
                "declared modules and plain re-exports are not imports",
                &[
                    ("lib.rs", "mod a; pub use a::A;"),
                    ("a.rs", "pub struct A;"),
                ],
                &[],
            ),
            (
                "a re-export that the code uses is one",
                &[
                    ("lib.rs", "mod a; pub use a::A; fn f(a: A) {}"),
                    ("a.rs", "pub struct A;"),
                ],
                &["lib.rs -> a.rs"],
            ),
            (
                "from a child, over the parent's re-export, to its sibling",
                &[
                    ("lib.rs", "mod m;"),
                    ("m/mod.rs", "mod a; mod b; pub use b::B;"),
                    ("m/a.rs", "use super::B;"),
                    ("m/b.rs", "pub struct B;"),
                ],
                &["m/a.rs -> m/b.rs"],
            ),
            (
                "to the parent, where the parent defines it",
                &[
                    ("lib.rs", "mod m;"),
                    ("m/mod.rs", "mod a; pub struct B;"),
                    ("m/a.rs", "use super::B;"),
                ],
                &["m/a.rs -> m/mod.rs"],
            ),
            (
                "over a chain of renamed re-exports",
                &[
                    ("lib.rs", "mod a; mod m; pub use m::Second as Third;"),
                    ("a.rs", "use crate::Third;"),
                    ("m.rs", "mod n; pub use n::First as Second;"),
                    ("m/n.rs", "pub enum First {}"),
                ],
                &["a.rs -> m/n.rs"],
            ),
            (
                "over a glob of re-exports",
                &[
                    ("lib.rs", "mod a; mod m; pub use m::*;"),
                    ("a.rs", "use crate::B;"),
                    ("m.rs", "mod n; pub use n::*;"),
                    ("m/n.rs", "pub fn B() {}"),
                ],
                &["a.rs -> m/n.rs"],
            ),
            (
                "over re-exports in a ring, which end",
                &[
                    ("lib.rs", "mod a; mod b; mod c;"),
                    ("a.rs", "pub use crate::b::*; pub struct A;"),
                    ("b.rs", "pub use crate::a::*; pub struct B;"),
                    ("c.rs", "use crate::a::B; use crate::b::A;"),
                ],
                &["c.rs -> a.rs", "c.rs -> b.rs"],
            ),
            (
                "by a path in code through an imported module",
                &[
                    ("lib.rs", "mod a; mod m;"),
                    ("a.rs", "use crate::m; fn f() { m::B::new() }"),
                    ("m/mod.rs", "mod b; pub use b::B;"),
                    ("m/b.rs", "pub struct B;"),
                ],
                &["a.rs -> m/b.rs"],
            ),
            (
                "a module that is imported and not walked through counts itself",
                &[
                    ("lib.rs", "mod a; mod m;"),
                    ("a.rs", "use crate::m; #[serde(with = \"m\")] struct A;"),
                    ("m.rs", ""),
                ],
                &["a.rs -> m.rs"],
            ),
            (
                "in a macro's arguments",
                &[
                    ("lib.rs", "mod a; mod b;"),
                    ("a.rs", "fn f() { select! { x = crate::b::g() => {} } }"),
                    ("b.rs", "pub fn g() {}"),
                ],
                &["a.rs -> b.rs"],
            ),
            (
                "a name that a macro makes belongs to the macro's file",
                &[
                    ("lib.rs", "mod a; mod b;"),
                    ("a.rs", "use crate::b::Made;"),
                    ("b.rs", "make!(Made);"),
                ],
                &["a.rs -> b.rs"],
            ),
            (
                "an associated item belongs to its type",
                &[
                    ("lib.rs", "mod a; mod b;"),
                    ("a.rs", "use crate::b::B::C;"),
                    ("b.rs", "pub enum B { C }"),
                ],
                &["a.rs -> b.rs"],
            ),
            (
                "another crate's is none",
                &[
                    ("lib.rs", "mod a; mod b;"),
                    (
                        "a.rs",
                        "use std::fmt; use crate::b::Arc; fn f() { fmt::g() }",
                    ),
                    ("b.rs", "pub use std::sync::Arc;"),
                ],
                &[],
            ),
            (
                "a child has the name of another crate, and `::` says which",
                &[
                    ("lib.rs", "mod http; use http::A; use ::http::B;"),
                    ("http.rs", "pub struct A; pub struct B;"),
                ],
                &["lib.rs -> http.rs"],
            ),
            (
                "a function and a module of one name are both found",
                &[
                    ("lib.rs", "mod a; mod run; pub use run::run;"),
                    ("a.rs", "use crate::run; fn f() { run::end(); run() }"),
                    ("run.rs", "mod e; pub use e::end; pub fn run() {}"),
                    ("run/e.rs", "pub fn end() {}"),
                ],
                &["a.rs -> run.rs", "a.rs -> run/e.rs"],
            ),
            (
                "names of a glob count if the code has them",
                &[
                    ("lib.rs", "mod m;"),
                    ("m/mod.rs", "mod a; mod b; mod c; use b::B; use c::C;"),
                    ("m/a.rs", "use super::*; fn f(b: B) {}"),
                    ("m/b.rs", "pub struct B;"),
                    ("m/c.rs", "pub struct C;"),
                ],
                &[
                    "m/a.rs -> m/b.rs",
                    "m/mod.rs -> m/b.rs",
                    "m/mod.rs -> m/c.rs",
                ],
            ),
            (
                "an inline module is in its parent's file",
                &[
                    ("lib.rs", "mod a; mod b;"),
                    (
                        "a.rs",
                        "mod inner { use super::super::b::B; use super::A; } struct A;",
                    ),
                    ("b.rs", "pub struct B;"),
                ],
                &["a.rs -> b.rs"],
            ),
            (
                "tests are excluded, with the files that only they reach",
                &[
                    ("lib.rs", "mod a; mod b; #[cfg(test)] mod fixtures;"),
                    ("a.rs", "#[cfg(test)] mod tests;"),
                    ("b.rs", "#[cfg(test)] use crate::a::A;"),
                ],
                &[],
            ),
            (
                "a module whose file has another name",
                &[
                    ("lib.rs", "mod a; #[path = \"c/d.rs\"] mod b;"),
                    ("a.rs", "use crate::b::e::E;"),
                    ("c/d.rs", "pub mod e;"),
                    ("c/e.rs", "pub struct E;"),
                ],
                &["a.rs -> c/e.rs"],
            ),
        ];
        for (name, files, expected) in cases {
            assert_eq!(edges(files), *expected, "{name}");
        }
    }

    #[test]
    fn a_reason_has_the_line_and_the_path_of_the_import() {
        let tree = load(&[
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "//! A.\n\nuse crate::b::{\n    B,\n    C as D,\n};"),
            ("b.rs", "pub struct B;\npub struct C;"),
        ]);
        let imports = imports(&tree.unwrap());
        let reasons: Vec<(usize, &str)> = imports[&(1, 2)]
            .iter()
            .map(|reason| (reason.line, reason.path.as_str()))
            .collect();
        assert_eq!(reasons, [(4, "crate::b::B"), (5, "crate::b::C")]);
    }

    #[test]
    fn a_declared_module_without_a_file_is_an_error_unless_it_is_conditional() {
        let error = load(&[("lib.rs", "mod a;")]).unwrap_err();
        assert!(matches!(error, Error::Missing { .. }), "{error}");
        assert_eq!(
            load(&[("lib.rs", "#[cfg(windows)] mod a;")])
                .unwrap()
                .files
                .len(),
            1
        );
    }
}
