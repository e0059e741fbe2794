//! The record: one text file for each section, one block for each case.

use std::collections::BTreeMap;
use std::path::PathBuf;

const HEAD: &str = "== ";

fn file(section: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/it/conformance/recorded/{section}.txt"))
}

/// The recorded sections.
pub fn sections() -> Vec<String> {
    let directory = file("any")
        .parent()
        .map(PathBuf::from)
        .expect("a file has a directory");
    let entries = std::fs::read_dir(directory).expect("the record is there");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| name.strip_suffix(".txt").map(str::to_owned))
        .collect()
}

/// The conversations of a section by title.
pub fn read(section: &str) -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(file(section)).unwrap_or_default();
    let mut blocks = BTreeMap::new();
    for block in text.split(&format!("\n{HEAD}")) {
        let mut lines = block.trim_start_matches(HEAD).trim_end().lines();
        if let Some(title) = lines
            .next()
            .filter(|title| !title.is_empty() && !title.starts_with('#'))
        {
            blocks.insert(title.to_owned(), lines.map(str::to_owned).collect());
        }
    }
    blocks
}

/// Replaces a section, in the order given.
pub fn write(section: &str, blocks: &[(String, Vec<String>)]) {
    let mut text =
        "# The answers of a real kube-apiserver. Written by REEVE_RECORD=1, not by hand.\n"
            .to_owned();
    for (title, lines) in blocks {
        text.push_str(&format!("\n{HEAD}{title}\n"));
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
    }
    std::fs::write(file(section), text).expect("the record is written");
}

/// The differences, line by line; in JSON by path. Empty without a difference.
pub fn difference(recorded: &[String], heard: &[String]) -> Vec<String> {
    let mut report = Vec::new();
    for at in 0..recorded.len().max(heard.len()) {
        let (was, is) = (recorded.get(at), heard.get(at));
        if was == is {
            if let Some(line) = was.filter(|line| line.starts_with('>')) {
                report.push(format!("  {}", clipped(line)));
            }
            continue;
        }
        let (was, is) = (
            was.map_or("(nothing)", String::as_str),
            is.map_or("(nothing)", String::as_str),
        );
        match (json_of(was), json_of(is)) {
            (Some((was_head, was)), Some((is_head, is))) => {
                if was_head != is_head {
                    report.push(format!("- {was_head}\n+ {is_head}"));
                }
                compare("", &was, &is, &mut report);
            }
            _ => report.push(format!("- {}\n+ {}", clipped(was), clipped(is))),
        }
    }
    if report.iter().all(|line| line.starts_with("  ")) {
        Vec::new()
    } else {
        report
    }
}

fn clipped(line: &str) -> String {
    line.chars().take(600).collect()
}

fn json_of(line: &str) -> Option<(&str, serde_json::Value)> {
    let start = line.find(" {").filter(|_| !line.starts_with('>'))?;
    Some((&line[..start], serde_json::from_str(&line[start..]).ok()?))
}

fn compare(path: &str, was: &serde_json::Value, is: &serde_json::Value, report: &mut Vec<String>) {
    use serde_json::Value::{Array, Object};
    match (was, is) {
        (Object(was), Object(is)) => {
            let keys: std::collections::BTreeSet<&String> = was.keys().chain(is.keys()).collect();
            for key in keys {
                let path = format!("{path}.{key}");
                match (was.get(key), is.get(key)) {
                    (Some(was), Some(is)) => compare(&path, was, is, report),
                    (Some(was), None) => {
                        report.push(format!("- {path}: {was}\n+ {path}: (absent)"));
                    }
                    (None, Some(is)) => report.push(format!("- {path}: (absent)\n+ {path}: {is}")),
                    (None, None) => {}
                }
            }
        }
        (Array(was), Array(is)) if was.len() == is.len() => {
            for (at, (was, is)) in was.iter().zip(is).enumerate() {
                compare(&format!("{path}[{at}]"), was, is, report);
            }
        }
        (was, is) if was != is => report.push(format!("- {path}: {was}\n+ {path}: {is}")),
        _ => {}
    }
}
