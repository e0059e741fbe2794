//! `CONFORMANCE.md` names tests that are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Where tests are that the table names.
const PLACES: [&str; 4] = [
    "src",
    "tests",
    "../apiserver/tests/it/rules",
    "../controller/src/client",
];

/// The names of all functions below `place`, and of what a macro makes of `"A" => name,`.
fn note_names(place: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            note_names(&path, names);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        for line in text.lines() {
            let line = line.trim();
            let named = line.split_once("fn ").or_else(|| line.split_once("\" => "));
            let name = named.map(|(_, rest)| rest.split(|c| !is_part(c)).next());
            names.extend(name.flatten().map(str::to_owned));
        }
    }
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[test]
fn each_test_that_the_table_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = BTreeSet::new();
    for place in PLACES {
        note_names(&root.join(place), &mut names);
    }
    let table = fs::read_to_string(root.join("CONFORMANCE.md")).unwrap();
    let words = table.split(|c: char| !is_part(c) && c != '…');
    // What is long and in lower case is a test. Three dots stand for a part of its name.
    let named: Vec<_> = words
        .filter(|word| word.matches('_').count() >= 3)
        .filter(|word| !word.contains(|c: char| c.is_ascii_uppercase()))
        .collect();
    assert!(named.len() > 150, "{}", named.len());
    let is_there = |word: &&&str| {
        let (start, end) = word.split_once('…').unwrap_or((word, ""));
        let whole = !word.contains('…');
        names.iter().any(|name| match whole {
            true => name == *word,
            false if start.is_empty() => name.contains(end.trim_end_matches('…')),
            false => name.starts_with(start) && name.ends_with(end),
        })
    };
    let missing: Vec<_> = named.iter().filter(|word| !is_there(word)).collect();
    assert_eq!(missing, Vec::<&&str>::new());
}
