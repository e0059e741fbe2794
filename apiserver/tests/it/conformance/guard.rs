//! `CONFORMANCE.md` defines the rules that cases name, and names existing cases and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::conformance::{cases, recorded, runner};

/// A row of the tables: the rule, and the case or test that checks it.
struct Row {
    rule: String,
    held_by: HeldBy,
}

enum HeldBy {
    Case(String),
    /// The tests of one file.
    Tests {
        names: Vec<String>,
        file: String,
    },
    Nothing(String),
}

/// The rows of `text`.
fn rows(text: &str) -> Vec<Row> {
    text.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.trim_end_matches('|').split(" | ");
            let (rule, _, held_by) = (cells.next()?, cells.next()?, cells.next()?.trim());
            (rule != "rule").then(|| Row {
                rule: rule.to_owned(),
                held_by: HeldBy::of(held_by),
            })
        })
        .collect()
}

impl HeldBy {
    fn of(cell: &str) -> Self {
        let quoted = |text: &str| -> Option<String> {
            Some(text.strip_prefix("case \"")?.strip_suffix('"')?.to_owned())
        };
        let tests = |text: &str| -> Option<Self> {
            let text = text
                .strip_prefix("test `")
                .or_else(|| text.strip_prefix("tests `"))?;
            let (names, file) = text.split_once("` (`")?;
            Some(Self::Tests {
                names: names.split("`, `").map(str::to_owned).collect(),
                file: file.strip_suffix("`)")?.to_owned(),
            })
        };
        quoted(cell)
            .map(Self::Case)
            .or_else(|| tests(cell))
            .unwrap_or_else(|| Self::Nothing(cell.to_owned()))
    }
}

/// Whether `source` has a test of this name: a function with a test attribute.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_it = |line: &str| {
        let rest = line.trim_start_matches("async ").strip_prefix("fn ");
        rest.and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    };
    let is_head = |line: &&&str| line.starts_with("#[") || line.starts_with("//");
    lines.iter().enumerate().any(|(at, line)| {
        let mut head = lines[..at].iter().rev().take_while(is_head);
        is_it(line) && head.any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"))
    })
}

/// The contradictions between the rules, the cases with their rules, and the sources by path.
fn problems(
    text: &str,
    cases: &[(&str, &str)],
    source: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let rows = rows(text);
    let mut defined = BTreeSet::new();
    for row in &rows {
        let rule = row.rule.as_str();
        if !defined.insert(rule) {
            problems.push(format!("{rule} is defined twice"));
        }
        let named = |rules: &str| rules.split(' ').any(|one| one == rule);
        match &row.held_by {
            HeldBy::Case(name) => {
                if !cases
                    .iter()
                    .any(|(rules, case)| case == name && named(rules))
                {
                    problems.push(format!("{rule} has no case {name:?}"));
                }
            }
            HeldBy::Tests { names, file } => match source(file) {
                Some(source) => {
                    let missing = names.iter().filter(|name| !has_test(&source, name));
                    problems
                        .extend(missing.map(|name| format!("{rule}: {file} has no test {name}")));
                }
                None => problems.push(format!("{rule}: file {file} does not exist")),
            },
            HeldBy::Nothing(cell) => problems.push(format!("{rule} has no case or test: {cell}")),
        }
    }
    for (rules, case) in cases {
        for rule in rules.split(' ').filter(|rule| !defined.contains(rule)) {
            problems.push(format!("the case {case:?} names the undefined rule {rule}"));
        }
    }
    problems
}

#[test]
fn each_rule_is_defined_once_and_checked_by_an_existing_case_or_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("CONFORMANCE.md")).unwrap();
    assert!(rows(&text).len() > 50, "{}", rows(&text).len());
    let all = cases::all();
    let all: Vec<(&str, &str)> = all.iter().map(|one| (one.rules, one.name)).collect();
    let source = |file: &str| fs::read_to_string(root.join(file)).ok();
    assert_eq!(problems(&text, &all, &source), Vec::<String>::new());
}

#[test]
fn the_guard_finds_what_is_missing() {
    let source = |file: &str| {
        (file == "a.rs").then(|| {
            "#[test]\n// why\nfn good() {}\n\nfn helper() {}\n\n#[test]\nfn better() {}\n"
                .to_owned()
        })
    };
    let cases = [("A-1 B-1", "one"), ("C-1", "two")];
    let check = |rows: &str| problems(rows, &cases, &source);
    let whole = "| A-1 | x | case \"one\" |\n| B-1 | x | test `good` (`a.rs`) |\n| C-1 | x | case \"two\" |\n";
    assert_eq!(check(whole), Vec::<String>::new());
    let two = whole.replace("test `good`", "tests `good`, `better`");
    assert_eq!(check(&two), Vec::<String>::new());
    let wrong = [
        ("| A-1 |", "| A-2 |", "A-2 has no case \"one\""),
        ("case \"one\"", "case \"on\"", "A-1 has no case \"on\""),
        ("case \"two\"", "case \"one\"", "C-1 has no case \"one\""),
        ("`good`", "`goo`", "B-1: a.rs has no test goo"),
        ("`good`", "`helper`", "B-1: a.rs has no test helper"),
        (
            "test `good`",
            "tests `good`, `worse`, `better`",
            "B-1: a.rs has no test worse",
        ),
        ("a.rs", "b.rs", "B-1: file b.rs does not exist"),
        ("| B-1 |", "| A-1 |", "A-1 is defined twice"),
        ("case \"two\"", "hope", "C-1 has no case or test: hope"),
    ];
    for (from, to, problem) in wrong {
        let found = check(&whole.replacen(from, to, 1));
        assert_eq!(found.first().map(String::as_str), Some(problem), "{to}");
    }
    let undefined = check("| A-1 | x | case \"one\" |\n| B-1 | x | case \"one\" |\n");
    assert_eq!(undefined, ["the case \"two\" names the undefined rule C-1"]);
}

#[test]
fn each_recorded_conversation_belongs_to_a_case() {
    let mut titles: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for entry in cases::all() {
        let section = titles.entry(entry.section).or_default();
        section.insert(entry.title());
    }
    let mut stale = Vec::new();
    for section in recorded::sections() {
        let known = titles.get(section.as_str()).cloned().unwrap_or_default();
        let blocks = recorded::read(&section).into_keys();
        stale.extend(blocks.filter(|title| !known.contains(title)));
    }
    assert_eq!(stale, Vec::<String>::new());
    assert_eq!(recorded::sections().len(), titles.len());
}

#[test]
fn a_filter_that_names_no_case_is_refused() {
    assert_eq!(runner::select("").unwrap().len(), cases::all().len());
    assert!(!runner::select("CRD-6: ").unwrap().is_empty());
    let refused = runner::select("typo").err();
    assert_eq!(
        refused.as_deref(),
        Some("REEVE_CASE=typo: no case has this in its title")
    );
}
