//! The import graph of each crate's files: its circles, and its floors.
//!
//! Reads the sources of every crate of the workspace without tests. A file imports another one where a path, in a `use`
//! or in code, leads to an item that the other file defines; re-exports are followed to the definition. `mod x;` is not
//! an import, and neither is a re-export of a name that the file does not use itself.
//!
//! It also finds dependencies that a crate declares and does not use.
//!
//! Fails where a crate's largest circle (strongly connected component of files) does not match the file of limits, and for an unused dependency
//! without a reason in the file of exceptions.

mod dependencies;
mod graph;
mod limits;
mod parse;
mod report;
mod resolve;
mod tree;
mod workspace;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use dependencies::Exceptions;
use limits::{GOAL, Limits};
use report::Report;

/// Prints the largest circle of files that import each other, for each crate, and compares it with its limit.
#[derive(Debug, Parser)]
struct Arguments {
    /// Crates to check; by default all of the workspace.
    crates: Vec<String>,

    /// Print the files of each circle, and its imports: file:line -> file (path).
    #[arg(long)]
    why: bool,

    /// Print a small set of imports to reverse, which opens the largest circle: a heuristic.
    #[arg(long)]
    cuts: bool,

    /// Print the floors of each crate's modules: each module is above the modules that it imports.
    #[arg(long)]
    floors: bool,

    /// The file of limits.
    #[arg(long, value_name = "FILE", default_value = "tools/imports/limits")]
    limits: PathBuf,

    /// The file of dependencies that may be unused.
    #[arg(long, value_name = "FILE", default_value = "tools/imports/unused")]
    unused: PathBuf,
}

/// The reason of a failure.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Workspace(#[from] workspace::Error),
    #[error(transparent)]
    Tree(#[from] tree::Error),
    #[error("cannot read {path}: {cause}", path = path.display())]
    File { path: PathBuf, cause: String },
    #[error("cannot find crate {0} in the workspace")]
    Unknown(String),
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "imports: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints the reports, and returns whether every crate keeps its limit.
fn run(arguments: &Arguments) -> Result<bool, Error> {
    let workspace = workspace::read()?;
    let file_error = |path: &PathBuf, cause: String| Error::File {
        path: path.clone(),
        cause,
    };
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(workspace.root.join(path));
        text.map_err(|error| file_error(path, error.to_string()))
    };
    let limits = Limits::parse(&read(&arguments.limits)?)
        .map_err(|error| file_error(&arguments.limits, error.to_string()))?;
    let exceptions = Exceptions::parse(&read(&arguments.unused)?)
        .map_err(|error| file_error(&arguments.unused, error.to_string()))?;
    let names: Vec<&str> = workspace.crates.iter().map(|c| c.name.as_str()).collect();
    if let Some(unknown) = arguments
        .crates
        .iter()
        .find(|name| !names.contains(&name.as_str()))
    {
        return Err(Error::Unknown(unknown.clone()));
    }

    let mut out = io::stdout().lock();
    let mut broken: Vec<String> = limits
        .unknown(&names)
        .map(|name| format!("{name} has a limit and is not in the workspace: remove its line"))
        .collect();
    broken.extend(exceptions.unknown(&names).map(|name| {
        format!("{name} has an unused dependency and is not in the workspace: remove its line")
    }));
    writeln!(out, "{}", report::HEAD)?;
    for member in &workspace.crates {
        if !arguments.crates.is_empty() && !arguments.crates.contains(&member.name) {
            continue;
        }
        let report = Report::new(member, &workspace.root, &tree::Disk)?;
        writeln!(out, "{}", report.summary())?;
        if arguments.why {
            write!(out, "{}", report.why())?;
        }
        if arguments.cuts {
            write!(out, "{}", report.cuts(GOAL))?;
        }
        if arguments.floors {
            write!(out, "{}", report.floors())?;
        }
        broken.extend(limits.check(&member.name, report.largest()));
        let folder = &member.folder;
        let files = dependencies::files(folder, member)
            .map_err(|error| file_error(folder, error.to_string()))?;
        let unused = dependencies::unused(member, &tree::Disk, &files)?;
        broken.extend(exceptions.check(&member.name, &unused));
    }
    for rule in &broken {
        writeln!(out, "{rule}")?;
    }
    Ok(broken.is_empty())
}
