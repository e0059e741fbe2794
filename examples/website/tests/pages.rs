//! The pages of the tutorial show the files of this program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files that the pages type. A line with nothing but a file in backquotes announces a listing, and the same file
/// again appends to it.
fn typed() -> BTreeMap<String, String> {
    let pages = root().join("controller/guide/tutorial");
    let names = [
        "README.md",
        "1-your-own-kind.md",
        "2-reconcile.md",
        "3-test-it.md",
        "4-ship-it.md",
        "5-look-at-it.md",
    ];
    let mut files = BTreeMap::<String, String>::new();
    for name in names {
        let page = std::fs::read_to_string(pages.join(name)).unwrap();
        let (mut announced, mut typing) = (None, false);
        for line in page.lines() {
            let file = line.strip_prefix('`').and_then(|line| {
                let (file, rest) = line.split_once('`')?;
                matches!(rest, ":" | ", continued:").then_some(file)
            });
            match (line.starts_with("```"), typing) {
                (true, true) => (announced, typing) = (None, false),
                (true, false) => {
                    typing = announced.is_some();
                    if let Some(text) = announced.and_then(|file: &str| files.get_mut(file)) {
                        text.push('\n');
                    }
                }
                (false, true) => {
                    let file = announced.expect("a listing that is typed is announced");
                    let text = files.entry(file.to_owned()).or_default();
                    text.push_str(line);
                    text.push('\n');
                }
                (false, false) => announced = file.or(announced),
            }
        }
    }
    files
}

#[test]
fn the_pages_type_the_files_of_this_program() {
    let mut typed = typed();
    assert!(
        typed.remove("Cargo.toml").is_some(),
        "it has other versions here"
    );
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (file, text) in &typed {
        let is = std::fs::read_to_string(here.join(file)).unwrap();
        assert_eq!(text, &is, "{file} on the pages (left) and here");
    }
    for folder in ["src", "manifests"] {
        for file in std::fs::read_dir(here.join(folder)).unwrap() {
            let file = file.unwrap().file_name().into_string().unwrap();
            let file = format!("{folder}/{file}");
            assert!(typed.contains_key(&file), "no page has {file}");
        }
    }
}

/// The versions on the pages are those of the workspace, and so are the crates.
#[test]
fn the_pages_name_the_versions_of_the_workspace() {
    let page = typed().remove("Cargo.toml").unwrap();
    let version = |manifest: &str, name: &str| -> Option<String> {
        let is_of = |line: &&str| line.starts_with(&format!("{name} = "));
        let mut numbers = manifest.lines().filter(is_of).filter_map(|line| {
            let after = line
                .split_once("version = \"")
                .or(line.split_once("= \""))?
                .1;
            Some(after.split_once('"')?.0.to_owned())
        });
        numbers.next()
    };
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let here = include_str!("../Cargo.toml");
    let mut count = 0;
    for line in page.lines().skip_while(|line| *line != "[dependencies]") {
        let Some((name, _)) = line.split_once(" = ") else {
            continue;
        };
        assert!(
            here.contains(&format!("\n{name} = ")),
            "{name} is not used here"
        );
        let (typed, is) = (version(&page, name).unwrap(), version(&workspace, name));
        let is = is.unwrap_or_else(|| panic!("the workspace has no {name}"));
        assert!(
            is == typed || is.starts_with(&format!("{typed}.")),
            "{name}: {typed}, {is}"
        );
        count += 1;
    }
    assert!(count >= 9, "{count}");
}
