//! Lists the public items of each crate in `public-api.txt` beside its `Cargo.toml`.
//!
//! `cargo run -p public-api-listing --features listing` writes the listings. With `--check` it compares them with the code, prints what
//! was added and removed, and fails if anything was. A removed or changed line breaks users: it needs a line in the
//! CHANGELOG, and a new minor version before 1.0. The pages of `cargo doc` in `target/doc` are removed.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The published libraries: folder and name.
const CRATES: [(&str, &str); 10] = [
    ("clock", "reeve-clock"),
    ("workqueue", "reeve-workqueue"),
    ("wire", "reeve-wire"),
    ("serve", "reeve-serve"),
    ("client", "reeve-client"),
    ("webhook", "reeve-webhook"),
    ("informer", "reeve-informer"),
    ("election", "reeve-election"),
    ("controller", "reeve-controller"),
    ("apiserver", "reeve-apiserver"),
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let check = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(other) => {
            return Err(format!("unknown argument {other:?}; --check is the only one").into());
        }
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let documents = rustdoc_json(&root)?;
    let mut changed = false;
    for (folder, name) in CRATES {
        let listing = listing(&documents, name)?;
        let path = root.join(folder).join("public-api.txt");
        if !check {
            std::fs::write(&path, listing)?;
            continue;
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let difference = difference(&committed, &listing);
        if !difference.is_empty() {
            changed = true;
            println!("{name}: the public items differ from {folder}/public-api.txt:");
            difference.iter().for_each(|line| println!("  {line}"));
        }
    }
    if changed {
        println!(
            "if this is meant: cargo run -p public-api-listing --features listing, and a line in CHANGELOG.md"
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The public items of a crate, one a line.
fn listing(documents: &Path, name: &str) -> Result<String, Box<dyn Error>> {
    let json = documents.join(format!("{}.json", name.replace('-', "_")));
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    let mut text = String::new();
    for item in api.items() {
        text.push_str(&item.to_string());
        text.push('\n');
    }
    Ok(text)
}

/// Runs rustdoc for all crates at once, with the features of stage `docs`, so that both share what they compile. The one that is
/// missing has no public items.
fn rustdoc_json(root: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let features = Command::new(root.join(".ci/features")).output()?;
    if !features.status.success() {
        return Err(String::from_utf8_lossy(&features.stderr).into());
    }
    let features = String::from_utf8(features.stdout)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(["doc", "--quiet", "--locked", "--workspace", "--no-deps"])
        .args(["--lib", "--features", features.trim(), "--target-dir"])
        .arg(root.join("target"))
        .env("RUSTDOC", root.join("tools/public-api/rustdoc.sh"))
        .env("RUSTDOCFLAGS", "-Zunstable-options --output-format json");
    if !command.status()?.success() {
        return Err("rustdoc failed".into());
    }
    Ok(root.join("target/doc"))
}

/// The lines that only one of two sorted listings has, with a sign.
fn difference(before: &str, after: &str) -> Vec<String> {
    let missing = |from: &str, sign: char, of: &str| -> Vec<String> {
        let there: std::collections::BTreeSet<&str> = from.lines().collect();
        of.lines()
            .filter(|line| !there.contains(line))
            .map(|line| format!("{sign} {line}"))
            .collect()
    };
    let mut lines = missing(after, '-', before);
    lines.extend(missing(before, '+', after));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_and_added_is_shown_with_a_sign() {
        let difference = difference("pub fn a()\npub fn b()\n", "pub fn a()\npub fn c()\n");
        assert_eq!(difference, ["- pub fn b()", "+ pub fn c()"]);
        assert!(super::difference("a\n", "a\n").is_empty());
    }

    #[test]
    fn every_published_library_is_listed_or_known_to_be_for_tests_only() {
        // Parts of the tests of other packages.
        const FOR_TESTS: [&str; 3] = ["client/fake", "informer/scripted", "simulator"];
        const PROGRAMS: [&str; 2] = ["kubectl-reeve", "kubectl-ipb"];
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let workspace = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let (_, rest) = workspace.split_once("\nmembers = [").unwrap();
        let (members, _) = rest.split_once(']').unwrap();
        let mut listed = 0;
        for folder in members.split('"').skip(1).step_by(2) {
            let manifest = std::fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap();
            let unlisted = FOR_TESTS.contains(&folder) || PROGRAMS.contains(&folder);
            if manifest.contains("\npublish = false") || unlisted {
                continue;
            }
            let name = CRATES.iter().find(|(listed, _)| *listed == folder);
            let (_, name) = name.unwrap_or_else(|| panic!("{folder} is published and not listed"));
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{folder}");
            listed += 1;
        }
        assert_eq!(listed, CRATES.len());
    }
}
