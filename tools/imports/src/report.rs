//! The printed text for a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::graph::{self, Edges};
use crate::resolve::{self, Imports, Reason};
use crate::tree::{self, Sources, Tree};
use crate::workspace::Crate;

/// The line above the summaries.
pub(crate) const HEAD: &str = "crate                     files   lines  imports  circle";

/// The files of a crate and their imports.
#[derive(Debug)]
pub(crate) struct Report {
    name: String,
    files: Vec<File>,
    lines: usize,
    imports: Imports,
    edges: Edges,
    circles: Vec<Vec<usize>>,
}

#[derive(Debug)]
struct File {
    /// Relative to the workspace.
    path: String,
    /// The module below the root that the file belongs to.
    top: Option<String>,
}

// === impl Report ===

impl Report {
    /// Reads a crate and computes its import graph.
    ///
    /// # Errors
    /// Where a source cannot be read.
    pub(crate) fn new(
        member: &Crate,
        root: &Path,
        sources: &dyn Sources,
    ) -> Result<Self, tree::Error> {
        let mut report = Self {
            name: member.name.clone(),
            files: Vec::new(),
            lines: 0,
            imports: Imports::new(),
            edges: Edges::new(),
            circles: Vec::new(),
        };
        for path in &member.roots {
            let tree = Tree::load(path, sources)?;
            let offset = report.files.len();
            report.lines += tree.lines();
            let imports = resolve::imports(&tree).into_iter();
            let moved = imports.map(|((from, to), why)| ((from + offset, to + offset), why));
            report.imports.extend(moved);
            report.files.extend(tree.files.into_iter().map(|file| {
                let path = file.path.strip_prefix(root).unwrap_or(&file.path);
                File {
                    path: path.display().to_string(),
                    top: file.top,
                }
            }));
        }
        report.edges = report
            .imports
            .iter()
            .map(|(&edge, why)| (edge, names(why).len()))
            .collect();
        report.circles = graph::circles(report.files.len(), &report.edges);
        Ok(report)
    }

    /// The number of files in the largest circle; 0 without one.
    pub(crate) fn largest(&self) -> usize {
        self.circles.first().map_or(0, Vec::len)
    }

    /// One line: the crate, its size, its largest circle.
    pub(crate) fn summary(&self) -> String {
        let mut line = format!(
            "{:<25} {:>5} {:>7} {:>8} {:>7}",
            self.name,
            self.files.len(),
            self.lines,
            self.edges.len(),
            self.largest()
        );
        if let Some(circle) = self.circles.first() {
            let files: Vec<&str> = circle.iter().map(|&file| self.short(file)).collect();
            let _ = write!(line, "  {}", files.join(" "));
        }
        line
    }

    /// The files of each circle, and the imports between them.
    pub(crate) fn why(&self) -> String {
        let mut text = String::new();
        for circle in &self.circles {
            let files: Vec<&str> = circle.iter().map(|&file| self.short(file)).collect();
            let _ = writeln!(text, "  circle of {}: {}", circle.len(), files.join(" "));
            for (&(from, to), why) in &self.imports {
                if circle.contains(&from) && circle.contains(&to) {
                    self.edge(&mut text, from, to, why);
                }
            }
        }
        text
    }

    /// Imports of the largest circle to reverse, so that no circle has more than `goal` files.
    pub(crate) fn cuts(&self, goal: usize) -> String {
        let mut text = String::new();
        for circle in self.circles.iter().filter(|circle| circle.len() > goal) {
            let cuts = graph::cuts(circle, &self.edges, goal);
            let _ = writeln!(
                text,
                "  circle of {}: {} of its imports to reverse",
                circle.len(),
                cuts.len()
            );
            for (from, to) in cuts {
                self.edge(&mut text, from, to, &self.imports[&(from, to)]);
            }
        }
        text
    }

    /// The modules below the root, highest floor first; a circle of modules in brackets.
    pub(crate) fn floors(&self) -> String {
        let tops: BTreeSet<&str> = self
            .files
            .iter()
            .filter_map(|file| file.top.as_deref())
            .collect();
        let tops: Vec<&str> = tops.into_iter().collect();
        let at: BTreeMap<&str, usize> = tops
            .iter()
            .enumerate()
            .map(|(at, &top)| (top, at))
            .collect();
        let mut edges = Edges::new();
        for (from, to) in self.edges.keys() {
            if let (Some(from), Some(to)) = (&self.files[*from].top, &self.files[*to].top)
                && from != to
            {
                edges.insert((at[from.as_str()], at[to.as_str()]), 1);
            }
        }
        let mut text = String::new();
        for (floor, components) in graph::floors(tops.len(), &edges).iter().enumerate().rev() {
            let mut words: Vec<String> = components
                .iter()
                .map(|component| {
                    let names: Vec<&str> = component.iter().map(|&at| tops[at]).collect();
                    match names.len() {
                        1 => names.concat(),
                        _ => format!("[{}]", names.join(" ")),
                    }
                })
                .collect();
            words.sort_unstable();
            let _ = writeln!(text, "  {floor:>2}  {}", words.join(", "));
        }
        text
    }

    fn edge(&self, text: &mut String, from: usize, to: usize, why: &BTreeSet<Reason>) {
        let lines: BTreeMap<&str, usize> = why
            .iter()
            .rev()
            .map(|reason| (reason.path.as_str(), reason.line))
            .collect();
        for name in names(why) {
            let _ = writeln!(
                text,
                "    {}:{} -> {} ({name})",
                self.files[from].path,
                lines[name],
                self.short(to)
            );
        }
    }

    /// The path of a file without the directory that all files of the crate share.
    fn short(&self, file: usize) -> &str {
        let path = self.files[file].path.as_str();
        path.rsplit_once("src/").map_or(path, |(_, short)| short)
    }
}

/// The different paths of an import.
fn names(why: &BTreeSet<Reason>) -> BTreeSet<&str> {
    why.iter().map(|reason| reason.path.as_str()).collect()
}
