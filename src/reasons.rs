//! docs/runbook.md against the code: every reason of a condition or an Event is explained.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const RUNBOOK: &str = include_str!("../docs/runbook.md");

/// Where reasons are made.
const SOURCES: [&str; 9] = [
    "api",
    "decide",
    "engine",
    "guard",
    "lists",
    "policy",
    "reconcile",
    "sets",
    "trigger",
];

/// Words in the form of a reason that are none.
const NO_REASONS: [(&str, &str); 22] = [
    ("Ready", "a type of condition"),
    ("Enforced", "a type of condition"),
    ("Lifted", "a type of condition"),
    ("LiftHeld", "a type of condition"),
    ("Reconcile", "an action of Events"),
    ("Configure", "an action of Events"),
    ("Alert", "an action of Events"),
    ("DatasourceError", "a rule of Grafana"),
    ("DatasourceNoData", "a rule of Grafana"),
    ("TestAlert", "a rule of Grafana"),
    ("Helm", "a manager of objects"),
    ("Default", "a trait"),
    ("PartialEq", "a trait"),
    ("Ip", "a scope of CrowdSec"),
    ("Range", "a scope of CrowdSec"),
    ("Bearer", "a scheme of HTTP"),
    ("CiliumCIDRGroup", "a kind of Cilium"),
    ("CiliumClusterwideNetworkPolicy", "a kind of Cilium"),
    ("GlobalNetworkSet", "a kind of Calico"),
    ("GlobalNetworkPolicy", "a kind of Calico"),
    ("Ingress", "a type of Calico's policies"),
    ("Deny", "an action of Calico's policies"),
];

fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let tests = ["tests", "simulation"].map(|name| path.ends_with(name));
        if tests.contains(&true) {
            return;
        }
        for entry in std::fs::read_dir(path).expect("a directory of sources") {
            files(&entry.expect("an entry").path(), found);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        let name = path.file_stem().and_then(|name| name.to_str());
        if !name.is_some_and(|name| name == "tests" || name.ends_with("_tests")) {
            found.push(path.to_owned());
        }
    }
}

/// Whether `text` is words without spaces, each with a capital: `BanFailed`, `GatewayTLS`.
fn is_camel(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_uppercase())
        && letters
            .next()
            .is_some_and(|second| second.is_ascii_lowercase())
        && letters.all(|letter| letter.is_ascii_alphabetic())
}

/// The reasons in a source file, without its tests.
fn reasons(source: &str) -> BTreeSet<String> {
    let source = source.split("#[cfg(test)]\nmod").next().unwrap_or_default();
    let lines = source.lines().map(str::trim).filter(|line| {
        let skipped = ["//", "#[", "printcolumn", "kind = ", "status = "];
        !skipped.iter().any(|start| line.starts_with(start)) && !line.contains("debug_struct")
    });
    let literals = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    literals
        .filter(|text| is_camel(text) && !NO_REASONS.iter().any(|(word, _)| word == text))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_reason_of_the_code_is_in_the_runbook() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    for part in SOURCES {
        for path in [source.join(part), source.join(part).with_extension("rs")] {
            if path.exists() {
                files(&path, &mut paths);
            }
        }
    }
    let mut made: BTreeMap<String, PathBuf> = BTreeMap::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a source file");
        for reason in reasons(&text) {
            made.insert(reason, path.clone());
        }
    }
    let rows = RUNBOOK.lines().filter_map(|line| line.strip_prefix("| `"));
    let explained: BTreeSet<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let missing: Vec<_> = made
        .iter()
        .filter(|(reason, _)| !explained.contains(reason.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/runbook.md, \"Reasons\", has no row for {missing:#?}; a word that is no reason belongs into NO_REASONS"
    );
    for reason in [
        "BanFailed",
        "GatewayTLS",
        "ConfigInvalid",
        "RangeTooWide",
        "Unblocked",
    ] {
        assert!(made.contains_key(reason), "{reason} is found in the code");
    }
    let stale: Vec<_> = explained
        .iter()
        .filter(|reason| is_camel(reason) && !made.contains_key(**reason))
        .collect();
    assert!(stale.is_empty(), "the code has no reason {stale:?}");
}

#[test]
fn a_reason_is_found_in_code_and_not_in_comments_attributes_or_tests() {
    let source = "// \"NoComment\"\n#[doc = \"NoAttribute\"]\nfail(\"BanFailed\", \"a text\", \"ready\");\n#[cfg(test)]\nmod tests { \"NoTest\" }";
    assert_eq!(reasons(source), BTreeSet::from(["BanFailed".to_owned()]));
}
