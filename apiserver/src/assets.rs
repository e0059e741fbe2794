//! Assets of tests: programs beside cargo that a test needs, and the rule for missing ones.
//!
//! Every suite uses this module, so that one rule holds for all of them:
//!
//! | `REEVE_REQUIRE_ASSETS` | asset found | asset missing |
//! |---|---|---|
//! | unset, empty or `0` | the test runs | the test is skipped, with a `SKIPPED` line on standard error |
//! | `1` | the test runs | the test fails |
//!
//! Any other value fails the test. The line is written past the capture of `cargo test`, which hides what a passing
//! test prints.
//!
//! `REEVE_ASSETS_LOG` names a file to which each decision is appended, as `ran PACKAGE TEST` or
//! `skipped PACKAGE TEST: REASON`. `.ci/run` compares what one stage skipped with what another ran.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let Some(builder) = reeve_apiserver::assets::control_plane() else {
//!     return Ok(());
//! };
//! let control_plane = builder.start().await?;
//! # Ok(())
//! # }
//! ```

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::control_plane::{ASSETS_VARIABLE, Builder, ControlPlane};

/// The environment variable that makes a missing asset a failure.
pub const REQUIRE_VARIABLE: &str = "REEVE_REQUIRE_ASSETS";

/// The environment variable that names the file of decisions.
pub const LOG_VARIABLE: &str = "REEVE_ASSETS_LOG";

/// Folders that have kubectl on common installations, after those of `PATH`.
const KUBECTL_FOLDERS: [&str; 3] = [
    "/usr/local/bin",
    "/usr/lib/google-cloud-sdk/bin",
    "/usr/share/google-cloud-sdk/bin",
];

/// The effect of a missing asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Skips,
    Fails,
}

// === impl Missing ===

impl Missing {
    /// The meaning of a value of `REEVE_REQUIRE_ASSETS`.
    fn of(value: Option<&OsStr>) -> Result<Self, String> {
        let text = value.unwrap_or_default();
        match text.to_str() {
            Some("" | "0") => Ok(Self::Skips),
            Some("1") => Ok(Self::Fails),
            _ => Err(format!(
                "{REQUIRE_VARIABLE} is {text:?}: set it to 1 or 0, or unset it"
            )),
        }
    }
}

/// A builder of a control plane from the directory in `KUBEBUILDER_ASSETS`; `None` skips the test.
///
/// # Panics
/// When the variable is not set and `REEVE_REQUIRE_ASSETS=1`.
#[must_use]
pub fn control_plane() -> Option<Builder> {
    let directory = variable(ASSETS_VARIABLE).map(PathBuf::from);
    let found = directory.map(|directory| ControlPlane::builder().assets(directory));
    decide(
        found,
        &format!("{ASSETS_VARIABLE} is not set (tools/kube-apiserver/build.sh)"),
    )
}

/// kubectl of any version: `KUBECTL`, else one in the usual folders; `None` skips the test.
///
/// # Panics
/// When there is none and `REEVE_REQUIRE_ASSETS=1`.
#[must_use]
pub fn kubectl() -> Option<PathBuf> {
    let named = variable("KUBECTL").map(PathBuf::from);
    decide(
        named.or_else(|| find(&folders(), &["kubectl".to_owned()])),
        "no kubectl in the usual folders; set KUBECTL to its path",
    )
}

/// kubectl of one minor version, as `"1.33"`: `KUBECTL_1_33`, else `kubectl.1.33` or `kubectl-1.33` in the usual folders;
/// `None` skips the test.
///
/// # Panics
/// When there is none and `REEVE_REQUIRE_ASSETS=1`.
#[must_use]
pub fn kubectl_of_version(version: &str) -> Option<PathBuf> {
    let name = format!("KUBECTL_{}", version.replace('.', "_"));
    let files = ["kubectl.", "kubectl-", "kubectl-v"].map(|prefix| format!("{prefix}{version}"));
    let named = variable(&name).map(PathBuf::from);
    decide(
        named.or_else(|| find(&folders(), &files)),
        &format!("no kubectl {version} in the usual folders; set {name} to its path"),
    )
}

/// The program in the environment variable `name`; `None` skips the test. `remedy` describes how to set the variable.
///
/// # Panics
/// When the variable is not set and `REEVE_REQUIRE_ASSETS=1`.
#[must_use]
pub fn program(name: &str, remedy: &str) -> Option<PathBuf> {
    decide(
        variable(name).map(PathBuf::from),
        &format!("{name} is not set; {remedy}"),
    )
}

/// A file that a test needs, as the program of a package; `None` skips the test. `remedy` describes how to get the file.
///
/// # Panics
/// When the file does not exist and `REEVE_REQUIRE_ASSETS=1`.
#[must_use]
pub fn file(path: impl Into<PathBuf>, remedy: &str) -> Option<PathBuf> {
    let path = path.into();
    let reason = format!("{} does not exist: {remedy}", path.display());
    decide(path.is_file().then_some(path), &reason)
}

/// Another prerequisite of a test; `None` skips the test because of `reason`.
///
/// Both answers are recorded: a test that is skipped in one stage and runs in another calls this in both.
///
/// # Panics
/// When `found` is `None` and `REEVE_REQUIRE_ASSETS=1`.
#[must_use]
pub fn decide<T>(found: Option<T>, reason: &str) -> Option<T> {
    let missing = Missing::of(std::env::var_os(REQUIRE_VARIABLE).as_deref());
    let missing = missing.unwrap_or_else(|error| panic!("{error}"));
    let test = test_name();
    if found.is_some() {
        record(&format!("ran {test}"));
    } else {
        assert!(
            missing == Missing::Skips,
            "{REQUIRE_VARIABLE}=1, and an asset is missing: {reason}"
        );
        record(&format!("skipped {test}: {reason}"));
        // `eprintln!` would be captured. A closed standard error does not fail the test.
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    }
    found
}

/// `PACKAGE TEST`, as cargo and libtest name them.
fn test_name() -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "-".to_owned());
    let thread = std::thread::current();
    format!("{package} {}", thread.name().unwrap_or("-"))
}

/// Appends a line to the file of decisions, if there is one.
fn record(line: &str) {
    let Some(file) = variable(LOG_VARIABLE) else {
        return;
    };
    let opened = OpenOptions::new().create(true).append(true).open(&file);
    // One write a line: several processes append at once.
    let written = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        panic!(
            "cannot write {LOG_VARIABLE} {}: {error}",
            Path::new(&file).display()
        );
    }
}

/// A variable that is set and not empty.
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The folders of `PATH`, then the usual ones.
fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = KUBECTL_FOLDERS.map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).collect()
}

fn find(folders: &[PathBuf], files: &[String]) -> Option<PathBuf> {
    let mut candidates = folders
        .iter()
        .flat_map(|folder| files.iter().map(|file| folder.join(file)));
    candidates.find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_only_one_value_requires_assets() {
        let of = |text: &str| Missing::of(Some(OsStr::new(text)));
        assert_eq!(Missing::of(None), Ok(Missing::Skips));
        assert_eq!(of(""), Ok(Missing::Skips));
        assert_eq!(of("0"), Ok(Missing::Skips));
        assert_eq!(of("1"), Ok(Missing::Fails));
        assert!(of("true").unwrap_err().contains("set it to 1 or 0"));
        assert!(of(" 1").is_err());
    }

    #[test]
    fn a_program_is_found_in_the_first_folder_that_has_it() {
        let folders = [
            PathBuf::from("/nowhere"),
            PathBuf::from(env!("CARGO_MANIFEST_DIR")),
        ];
        let files = ["no-such-file".to_owned(), "Cargo.toml".to_owned()];
        assert_eq!(find(&folders, &files), Some(folders[1].join("Cargo.toml")));
        assert_eq!(find(&folders[..1], &files), None);
        assert_eq!(
            find(&folders, &["src".to_owned()]),
            None,
            "a folder is no program"
        );
    }

    #[test]
    fn a_file_that_a_test_needs_is_a_file() {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert_eq!(file(&here, "cargo new"), Some(here));
    }

    #[test]
    fn a_decision_names_the_test() {
        assert!(
            test_name().ends_with("a_decision_names_the_test") || test_name().ends_with("main")
        );
    }
}
