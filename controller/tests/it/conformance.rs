//! The tests that `CONFORMANCE.md` names exist in the named files.
//!
//! A name belongs to the last file that its row names before it. At the start of a row, and after `; ` or `. `, this is
//! the file in the prose of the section, if there is one. `a::b::tests::name` is in the files of the module `a::b`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};

/// Options and metrics, which have the form of test names.
const OTHERS: [&str; 5] = [
    "cache_sync_timeout",
    "leader_election_slowpath_total",
    "read_certificate_errors_total",
    "read_certificate_total",
    "rest_client_requests_total",
];

/// The names of the test functions in `source`.
fn tests_of(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let (mut is_test, mut is_left_out) = (false, false);
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_left_out = true;
        } else if let Some((before, after)) = line.split_once("fn ")
            && ["", "async ", "pub(crate) async "].contains(&before)
        {
            let end = after.find(|c| !is_part(c)).unwrap_or(after.len());
            let left_out = std::mem::take(&mut is_left_out);
            if std::mem::take(&mut is_test) && !left_out {
                names.push(after[..end].to_owned());
            }
        } else if line.is_empty() || line == "}" {
            (is_test, is_left_out) = (false, false);
        }
    }
    names
}

fn is_part(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '…'
}

/// Whether `word` has the form of a test name: long and in lower case. Three dots stand for an omitted part.
fn is_name(word: &str) -> bool {
    word.chars().all(is_part) && word.matches('_').count() >= 2 && !OTHERS.contains(&word)
}

fn is_named(test: &str, word: &str) -> bool {
    match word.split_once('…') {
        None => test == word,
        Some((start, end)) => test.starts_with(start) && test.ends_with(end),
    }
}

/// The state of the check.
struct Check {
    root: PathBuf,
    /// The tests in each file that was read.
    files: BTreeMap<PathBuf, Vec<String>>,
    named: usize,
    problems: Vec<String>,
}

// === impl Check ===

impl Check {
    /// The file that a section names `word`.
    fn find(&mut self, word: &str, places: &[&Path]) -> Option<PathBuf> {
        let mut places = places.iter().map(|place| self.root.join(place).join(word));
        let found = places.find(|path| path.is_file());
        if found.is_none() {
            self.problems.push(format!("no file {word}"));
        }
        found
    }

    fn has(&mut self, file: &Path, word: &str) -> bool {
        let tests = match self.files.entry(file.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(tests_of(&fs::read_to_string(file).unwrap())),
        };
        tests.iter().any(|test| is_named(test, word))
    }

    fn expect(&mut self, files: &[PathBuf], word: &str, line: &str) {
        self.named += 1;
        if !files.iter().any(|file| self.has(file, word)) {
            let start: String = line.chars().take(60).collect();
            self.problems
                .push(format!("no test {word} in {files:?}, row: {start}"));
        }
    }

    fn section(&mut self, text: &str) {
        let (rows, prose): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('|'));
        let prose = prose.join(" ");
        let named: Vec<&str> = prose.split('`').skip(1).step_by(2).collect();
        let prefix = named.iter().find(|word| word.ends_with('/'));
        let prefix = Path::new(prefix.copied().unwrap_or_default());
        let default = named.iter().find(|word| word.ends_with(".rs"));
        let default = default.and_then(|word| self.find(word, &[Path::new("")]));
        let beside = default.as_deref().and_then(Path::parent).map(PathBuf::from);
        let places = [prefix, beside.as_deref().unwrap_or(prefix), Path::new("")];
        for row in rows {
            let mut file = None;
            for part in row.split("; ").flat_map(|part| part.split(". ")) {
                file = default.clone().or(file);
                for word in part.split([' ', '`', ',', '(', ')', '|']) {
                    let word = word.trim_end_matches([':', ';', '.']);
                    if word.ends_with(".rs") {
                        file = self.find(word, &places);
                    } else if let Some((module, name)) = word.rsplit_once("::tests::")
                        && is_name(name)
                    {
                        let module = module.replace("::", "/");
                        let files = below(&self.root.join("src").join(module));
                        self.expect(&files, name, row);
                    } else if is_name(word) {
                        let file = file.iter().cloned().collect::<Vec<_>>();
                        self.expect(&file, word, row);
                    }
                }
            }
        }
    }
}

/// The files of a module: its own file, and those in its directory.
fn below(module: &Path) -> Vec<PathBuf> {
    let mut files = vec![module.with_extension("rs")];
    if let Ok(entries) = fs::read_dir(module) {
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.retain(|file| file.is_file());
    files
}

#[test]
fn each_test_that_the_table_names_is_in_the_named_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).to_owned();
    // The table names files of other crates too, which a package does not have.
    if !root.with_file_name("CONTRIBUTING.md").is_file() {
        eprintln!("not checked: the crate is not in the repository");
        return;
    }
    let table = fs::read_to_string(root.join("CONFORMANCE.md")).unwrap();
    let mut check = Check {
        root,
        files: BTreeMap::new(),
        named: 0,
        problems: Vec::new(),
    };
    for section in table.split("\n## ").skip(1) {
        check.section(section);
    }
    assert_eq!(check.problems, Vec::<String>::new());
    assert!(check.named > 200, "{}", check.named);
}

#[test]
fn only_functions_that_run_as_tests_count() {
    let source = "
        #[tokio::test(start_paused = true)]
        async fn one() {}
        #[test]
        #[should_panic(expected = \"fn four() {}\")]
        fn two() {}
        fn helper() {}
        #[test]
        fn three()
        {}

        #[test]
        #[ignore = \"it takes an hour\"]
        fn five() {}
        #[ignore]
        #[test]
        fn six() {}

        #[cfg(test)]
        fn other() {}
    ";
    assert_eq!(tests_of(source), ["one", "two", "three"]);
}
