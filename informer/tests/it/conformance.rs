//! Each test that `CONFORMANCE.md` names exists, is a test, and is in the file that the table names.

use std::fs;
use std::path::Path;

/// The directories that may hold a named test.
const PLACES: [&str; 4] = [
    "src",
    "tests",
    "../apiserver/tests/it/rules",
    "../client/src",
];

/// A test and its file, relative to the crate.
#[derive(Debug)]
struct Test {
    file: String,
    name: String,
}

/// All tests below `place`.
fn note_tests(root: &Path, place: &str, tests: &mut Vec<Test>) {
    for entry in fs::read_dir(root.join(place)).unwrap() {
        let entry = entry.unwrap();
        let file = format!("{place}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            note_tests(root, &file, tests);
            continue;
        }
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        tests.extend(tests_of(&text).into_iter().map(|name| Test {
            file: file.clone(),
            name: name.to_owned(),
        }));
    }
}

/// The names of the functions with a test attribute, and of those that a macro makes of `"A" => name,`.
fn tests_of(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
            continue;
        }
        let function = ["fn ", "async fn "]
            .iter()
            .find_map(|start| line.strip_prefix(start));
        let made = line
            .split_once("\" => ")
            .filter(|(start, _)| start.starts_with('"'));
        let name = match (function, made) {
            (Some(rest), _) if std::mem::take(&mut is_test) => rest,
            (None, Some((_, rest))) => rest,
            _ => continue,
        };
        names.extend(name.split(|c| !is_part(c)).next());
    }
    names
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A test of the table, and the file that the table names.
#[derive(Debug, PartialEq)]
struct Named<'a> {
    place: Option<&'a str>,
    name: &'a str,
}

/// The tests that a row of the table names: long words in lower case. A path in backticks is the file of the tests
/// after it, up to the next path.
fn named_in(row: &str) -> Vec<Named<'_>> {
    let mut named = Vec::new();
    let mut place = None;
    for (number, part) in row.split('`').enumerate() {
        let is_code = number % 2 == 1;
        if is_code && is_path(part) {
            place = Some(part);
            continue;
        }
        let words = part.split(|c: char| !is_part(c) && c != '…');
        let tests = words
            .filter(|word| word.matches('_').count() >= 3)
            .filter(|word| !word.contains(|c: char| c.is_ascii_uppercase()));
        named.extend(tests.map(|name| Named { place, name }));
    }
    named
}

fn is_path(code: &str) -> bool {
    let starts = ["it/", "src/", "tests/", "apiserver/", "controller/"];
    starts.iter().any(|start| code.starts_with(start))
}

impl Named<'_> {
    fn is(&self, test: &Test) -> bool {
        self.place.is_none_or(|place| is_in(&test.file, place)) && matches(self.name, &test.name)
    }
}

/// True if `file` is `place` or below it. `it/x` is `tests/it/x` or `tests/it/x.rs`; other crates are beside this one.
fn is_in(file: &str, place: &str) -> bool {
    let place = match place.split_once('/') {
        Some(("it", _)) => format!("tests/{place}"),
        Some(("apiserver" | "controller", _)) => format!("../{place}"),
        _ => place.to_owned(),
    };
    let rest = file.strip_prefix(&*place);
    rest.is_some_and(|rest| rest.is_empty() || rest == ".rs" || rest.starts_with('/'))
}

/// Three dots stand for a part of a name.
fn matches(word: &str, name: &str) -> bool {
    match word.split_once('…') {
        None => name == word,
        Some(("", end)) => name.contains(end.trim_end_matches('…')),
        Some((start, end)) => name.starts_with(start) && name.ends_with(end),
    }
}

#[test]
fn each_test_of_the_table_is_a_test_in_the_named_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A package is without the crates beside it.
    if !PLACES.iter().all(|place| root.join(place).is_dir()) {
        return;
    }
    let mut tests = Vec::new();
    for place in PLACES {
        note_tests(root, place, &mut tests);
    }
    let table = fs::read_to_string(root.join("CONFORMANCE.md")).unwrap();
    let named: Vec<_> = table.lines().flat_map(named_in).collect();
    assert!(named.len() > 150, "{}", named.len());
    let missing: Vec<_> = named
        .iter()
        .filter(|named| !tests.iter().any(|test| named.is(test)))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_function_that_is_not_a_test_or_is_in_another_file_counts_as_missing() {
    let text = "#[test]\n#[allow(x)]\nfn a_b_c_d() {}\nfn e_f_g_h() {}\n#[tokio::test(start_paused = true)]\nasync fn i_j_k_l() {}\n    \"A\" => m_n_o_p,";
    assert_eq!(tests_of(text), ["a_b_c_d", "i_j_k_l", "m_n_o_p"]);
    let row = "| X | `it/factory` a_b_c_d, `Some::type` e_f_g_…; `src/x.rs` …_j_k_l |";
    let named = named_in(row);
    let places: Vec<_> = named.iter().map(|named| named.place).collect();
    assert_eq!(
        places,
        [Some("it/factory"), Some("it/factory"), Some("src/x.rs")]
    );
    let test = |file: &str, name: &str| Test {
        file: file.into(),
        name: name.into(),
    };
    for (named, file, name, expected) in [
        (&named[0], "tests/it/factory.rs", "a_b_c_d", true),
        (&named[0], "tests/it/factory/more.rs", "a_b_c_d", true),
        (&named[0], "tests/it/factory_more.rs", "a_b_c_d", false),
        (&named[0], "src/factory.rs", "a_b_c_d", false),
        (&named[0], "tests/it/factory.rs", "a_b_c_e", false),
        (&named[2], "src/x.rs", "i_j_k_l", true),
        (&named[2], "src/y.rs", "i_j_k_l", false),
    ] {
        assert_eq!(named.is(&test(file, name)), expected, "{file} {name}");
    }
}
