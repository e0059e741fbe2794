//! The tree of a crate's modules, and the files they are in.

use std::io;
use std::path::{Path, PathBuf};

use crate::parse::{self, Body, Child};

/// Index of the root module in [`Tree::modules`].
pub(crate) const ROOT: usize = 0;

/// The modules of one crate that are compiled without tests.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
    pub(crate) modules: Vec<Module>,
}

/// A source file.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    /// Lines without those of tests.
    pub(crate) lines: usize,
    /// The module directly below the root that the file belongs to; none for the root.
    pub(crate) top: Option<String>,
}

/// A module, in its own file or inline.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) parent: Option<usize>,
    /// Index in [`Tree::files`].
    pub(crate) file: usize,
    pub(crate) body: Body,
    pub(crate) children: Vec<usize>,
}

/// Why a crate cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file does not consist of Rust's tokens.
    #[error("cannot parse {path}:{line}: {cause}", path = path.display())]
    Parse {
        path: PathBuf,
        line: usize,
        cause: String,
    },
    /// The file of a declared module does not exist.
    #[error("cannot find the file of `mod {module}`, declared in {path}: neither {first} nor {second} exists", path = path.display(), first = first.display(), second = second.display())]
    Missing {
        module: String,
        path: PathBuf,
        first: PathBuf,
        second: PathBuf,
    },
}

/// Where sources come from: the file system, or a map in tests.
pub(crate) trait Sources {
    /// The text of a file.
    ///
    /// # Errors
    /// The file system's error; `NotFound` for a file that does not exist.
    fn read(&self, path: &Path) -> io::Result<String>;
}

/// The file system.
#[derive(Debug)]
pub(crate) struct Disk;

impl Sources for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }
}

// === impl Tree ===

impl Tree {
    /// Reads the crate whose root is the file `root`.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) fn load(root: &Path, sources: &dyn Sources) -> Result<Self, Error> {
        let mut loader = Loader {
            tree: Self::default(),
            sources,
        };
        let text = sources.read(root).map_err(|source| Error::Read {
            path: root.to_owned(),
            source,
        })?;
        let position = Position {
            name: String::new(),
            parent: None,
            top: None,
            children: directory(root),
        };
        loader.file(root, &text, position)?;
        Ok(loader.tree)
    }

    pub(crate) fn lines(&self) -> usize {
        self.files.iter().map(|file| file.lines).sum()
    }
}

struct Loader<'a> {
    tree: Tree,
    sources: &'a dyn Sources,
}

/// A module's position in the tree.
struct Position {
    name: String,
    parent: Option<usize>,
    top: Option<String>,
    /// The directory in which the files of its children are.
    children: PathBuf,
}

// === impl Loader ===

impl Loader<'_> {
    /// Adds a file and the module in it, unless the file belongs to tests.
    fn file(&mut self, path: &Path, text: &str, position: Position) -> Result<(), Error> {
        let mut body = parse::parse(text).map_err(|(line, cause)| Error::Parse {
            path: path.to_owned(),
            line,
            cause,
        })?;
        if body.test {
            return Ok(());
        }
        let children = std::mem::take(&mut body.children);
        let file = self.tree.files.len();
        self.tree.files.push(File {
            path: path.to_owned(),
            lines: text.lines().count().saturating_sub(body.test_lines),
            top: position.top.clone(),
        });
        let beside = directory(path);
        self.module(file, body, children, &position, &beside)
    }

    /// Adds a module and its children. A `#[path]` is relative to `beside`.
    fn module(
        &mut self,
        file: usize,
        body: Body,
        children: Vec<Child>,
        position: &Position,
        beside: &Path,
    ) -> Result<(), Error> {
        let id = self.tree.modules.len();
        self.tree.modules.push(Module {
            name: position.name.clone(),
            parent: position.parent,
            file,
            body,
            children: Vec::new(),
        });
        if let Some(parent) = position.parent {
            self.tree.modules[parent].children.push(id);
        }
        for child in children {
            let below = Position {
                parent: Some(id),
                top: position.top.clone().or_else(|| Some(child.name.clone())),
                children: position.children.join(&child.name),
                name: child.name.clone(),
            };
            match child.inline {
                Some(mut inline) => {
                    let grandchildren = std::mem::take(&mut inline.children);
                    let beside = below.children.clone();
                    self.module(file, inline, grandchildren, &below, &beside)?;
                }
                None => self.declared(&child, file, below, &position.children, beside)?,
            }
        }
        Ok(())
    }

    /// Adds the file of a module that is declared without content.
    fn declared(
        &mut self,
        child: &Child,
        file: usize,
        mut below: Position,
        children: &Path,
        beside: &Path,
    ) -> Result<(), Error> {
        let candidates = match &child.path {
            Some(path) => vec![beside.join(path)],
            None => vec![
                children.join(format!("{}.rs", child.name)),
                children.join(&child.name).join("mod.rs"),
            ],
        };
        for path in &candidates {
            match self.sources.read(path) {
                Ok(text) => {
                    if child.path.is_some() {
                        below.children = directory(path);
                    }
                    return self.file(path, &text, below);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    let path = path.clone();
                    return Err(Error::Read { path, source });
                }
            }
        }
        if child.conditional {
            return Ok(());
        }
        Err(Error::Missing {
            module: child.name.clone(),
            path: self.tree.files[file].path.clone(),
            second: candidates.last().cloned().unwrap_or_default(),
            first: candidates.into_iter().next().unwrap_or_default(),
        })
    }
}

fn directory(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}
