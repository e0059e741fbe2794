//! docs/contract.md against the sources: each rule names a test, and each test that is named exists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const CONTRACT: &str = include_str!("../docs/contract.md");
const DECISIONS: &str = include_str!("../docs/decisions/operator.md");

/// A row of the page: its rule, and what is written as code in its last cell.
struct Row {
    rule: &'static str,
    tests: Vec<&'static str>,
}

fn rows() -> Vec<Row> {
    let lines = CONTRACT.lines().filter(|line| line.starts_with("| "));
    let rows = lines.filter(|line| *line != "| rule | held by |");
    rows.map(|line| {
        let cells = line.trim_matches('|').rsplit_once(" | ");
        let (rule, tests) = cells.unwrap_or_else(|| panic!("two cells: {line}"));
        let tests = tests.split('`').skip(1).step_by(2).collect();
        let rule = rule.trim();
        Row { rule, tests }
    })
    .collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(path).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// Whether a source file has a test of this name.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_it = |line: &&str| {
        let plain = line.strip_prefix("async ").unwrap_or(line);
        plain.strip_prefix("fn ").is_some_and(|rest| {
            let rest = rest.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('('))
        })
    };
    let Some(at) = lines.iter().position(is_it) else {
        return false;
    };
    let above = lines[..at].iter().rev();
    let mut above = above.take_while(|line| line.starts_with("#[") || line.starts_with("///"));
    let cases = lines
        .iter()
        .skip_while(|line| !line.starts_with("on_both_servers!("));
    let mut cases = cases.skip(1).take_while(|line| !line.starts_with(')'));
    above.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
        || cases.any(|line| line.trim_end_matches(',') == name)
}

#[test]
fn every_rule_names_tests_that_exist() {
    let rows = rows();
    assert!(rows.len() > 90, "only {} rules", rows.len());
    let mut missing = Vec::new();
    for Row { rule, tests } in &rows {
        assert!(!tests.is_empty(), "no test holds: {rule}");
        for test in tests {
            let Some((path, name)) = test.split_once("::") else {
                panic!("{test} is not path::name: {rule}");
            };
            let source = std::fs::read_to_string(root().join(path)).unwrap_or_default();
            if !has_test(&source, name) {
                missing.push((path, name));
            }
        }
    }
    // A test that was moved is found, so that the page is soon right again.
    let mut files = Vec::new();
    if !missing.is_empty() {
        sources(&root().join("src"), &mut files);
        sources(&root().join("tests/e2e"), &mut files);
    }
    let found = missing.iter().map(|(path, name)| {
        let has = |file: &&PathBuf| {
            let source = std::fs::read_to_string(file);
            has_test(&source.unwrap_or_default(), name)
        };
        let elsewhere = files.iter().find(has);
        let elsewhere = elsewhere.map(|file| file.strip_prefix(root()).unwrap_or(file));
        format!("{path}::{name}; it is in {elsewhere:?}")
    });
    let found: Vec<String> = found.collect();
    assert!(found.is_empty(), "docs/contract.md names {found:#?}");
}

#[test]
fn every_decision_that_a_rule_names_exists() {
    let numbers = DECISIONS.lines().filter_map(|line| line.split_once(". **"));
    let known: BTreeSet<&str> = numbers.map(|(number, _)| number).collect();
    let mut named = BTreeSet::new();
    for Row { rule, .. } in rows() {
        let Some((_, numbers)) = rule.trim_end_matches('.').rsplit_once(" (") else {
            continue;
        };
        let numbers = numbers.strip_suffix(')').unwrap_or_default();
        for number in numbers.split(", ").filter(|it| !it.is_empty()) {
            assert!(known.contains(number), "no decision {number}: {rule}");
            named.insert(number);
        }
    }
    assert!(named.len() >= 10, "{named:?}");
}

#[test]
fn a_function_without_the_attribute_and_a_name_in_a_comment_are_not_tests() {
    let source = "// fn noted() {}\nfn plain() {}\n/// Documented.\n#[tokio::test(start_paused = true)]\nasync fn paused() {}\n#[test]\nfn whole() {}\non_both_servers!(\n    first,\n    last\n);\nasync fn first(world: World) {}\nasync fn last(world: World) {}\nasync fn helper(world: World) {}\n";
    for (name, expected) in [
        ("noted", false),
        ("plain", false),
        ("paused", true),
        ("whole", true),
        ("whol", false),
        ("first", true),
        ("last", true),
        ("helper", false),
    ] {
        assert_eq!(has_test(source, name), expected, "{name}");
    }
}
