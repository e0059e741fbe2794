//! The crates of the workspace, as cargo reports them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// The workspace that the current directory belongs to.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) crates: Vec<Crate>,
}

/// A package, with the root files of its library and its binaries.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) roots: Vec<PathBuf>,
    /// The folder of its manifest.
    pub(crate) folder: PathBuf,
    /// Those of `[dependencies]` and `[dev-dependencies]`.
    pub(crate) dependencies: Vec<Dependency>,
    /// The root files of its tests, benches and examples.
    pub(crate) tests: Vec<PathBuf>,
}

/// A dependency, as the manifest names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Only tests, benches and examples have it.
    pub(crate) dev: bool,
}

/// Why the workspace cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Cargo does not run.
    #[error("cannot run cargo metadata: {0}")]
    Cargo(#[from] std::io::Error),
    /// Cargo fails.
    #[error("cargo metadata failed: {0}")]
    Failed(String),
    /// Cargo's output has another form.
    #[error("cannot read the output of cargo metadata: {0}")]
    Output(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
    dependencies: Vec<Declared>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Declared {
    name: String,
    rename: Option<String>,
    /// `None` for `[dependencies]`.
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

/// Reads the workspace.
///
/// # Errors
/// See [`Error`].
pub(crate) fn read() -> Result<Workspace, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .output()?;
    if !output.status.success() {
        let cause = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Failed(cause.trim().to_owned()));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let product = ["lib", "bin", "proc-macro"];
    let crates = metadata.packages.into_iter().map(|package| {
        let of_product = |target: &Target| {
            target
                .kind
                .iter()
                .any(|kind| product.contains(&kind.as_str()))
        };
        let (roots, tests): (Vec<_>, Vec<_>) = package.targets.into_iter().partition(of_product);
        let paths = |targets: Vec<Target>| targets.into_iter().map(|target| target.src_path);
        let dependencies = package.dependencies.into_iter();
        let dependencies =
            dependencies.filter(|declared| declared.kind.as_deref() != Some("build"));
        let dependencies = dependencies.map(|declared| Dependency {
            dev: declared.kind.is_some(),
            name: declared.rename.unwrap_or(declared.name),
        });
        Crate {
            dependencies: dependencies
                .filter(|dependency| dependency.name != package.name)
                .collect(),
            name: package.name,
            folder: package
                .manifest_path
                .parent()
                .unwrap_or(Path::new(""))
                .to_owned(),
            roots: paths(roots).collect(),
            tests: paths(tests).collect(),
        }
    });
    Ok(Workspace {
        root: metadata.workspace_root,
        crates: crates.filter(|member| !member.roots.is_empty()).collect(),
    })
}
