//! Links and paths that lead nowhere.

use std::collections::BTreeMap;
use std::error::Error;

use crate::allowed::Allowed;
use crate::files::Files;
use crate::markdown::{Found, Page};

/// The ends of the names of files that inline code names by path.
const NAMED: [&str; 6] = [".rs", ".md", ".sh", ".yaml", ".toml", ".txt"];

/// Checks all pages, and returns a line for each finding.
pub(crate) fn check(files: &Files, allowed: &mut Allowed) -> Result<Vec<String>, Box<dyn Error>> {
    let mut pages = BTreeMap::new();
    for path in files.paths().filter(|path| path.ends_with(".md")) {
        if let Some(text) = files.text(path)? {
            pages.insert(path, Page::read(&text));
        }
    }
    let mut found = Vec::new();
    for (path, page) in &pages {
        for link in &page.links {
            let target = link.text.as_str();
            if let Some(problem) = problem(files, &pages, path, target)
                && !allowed.has(path, target)
            {
                found.push(format!("{path}:{}: {target}: {problem}", link.line));
            }
        }
        let undefined = |label: &&Found| !page.defined.contains(&label.text);
        for label in page.labels.iter().filter(undefined) {
            found.push(format!(
                "{path}:{}: [{}]: not defined",
                label.line, label.text
            ));
        }
        for code in &page.code {
            let named = code.text.as_str();
            if is_path(named) && !is_known(files, path, named) && !allowed.has(path, named) {
                found.push(format!("{path}:{}: {named}: no such file", code.line));
            }
        }
    }
    Ok(found)
}

/// Why the target of a link in the page `path` leads nowhere, if it does.
fn problem(
    files: &Files,
    pages: &BTreeMap<&str, Page>,
    path: &str,
    target: &str,
) -> Option<&'static str> {
    // Other sites are not asked. rustdoc checks the names of items, which only guides have.
    let is_item = path.contains("/guide/") && !target.contains(['/', '.', '#']);
    if target.contains("://") || target.starts_with("mailto:") || target.contains("::") || is_item {
        return None;
    }
    let (file, fragment) = match target.split_once('#') {
        Some((file, fragment)) => (file, Some(fragment)),
        None => (target, None),
    };
    let file = match file {
        "" => path.to_owned(),
        _ => match resolve(path, file) {
            Some(file) => file,
            None => return Some("outside of the repository"),
        },
    };
    if !files.has(&file) {
        return Some("no such file");
    }
    let fragment = fragment?;
    let is_line = fragment
        .strip_prefix('L')
        .is_some_and(|rest| rest.starts_with(char::is_numeric));
    let has = match pages.get(file.as_str()) {
        Some(page) => page.anchors.iter().any(|anchor| anchor == fragment),
        None => is_line,
    };
    (!has).then_some("no such heading")
}

/// A path relative to the directory of the page `from`, or to the top if it begins with `/`.
fn resolve(from: &str, to: &str) -> Option<String> {
    let mut parts: Vec<&str> = match to.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => from.split('/').collect(),
    };
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether inline code is the path of a file, with a directory.
fn is_path(code: &str) -> bool {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "./_-".contains(one);
    code.contains('/')
        && !code.starts_with(['/', '-'])
        && NAMED.iter().any(|end| code.ends_with(end))
        && code.chars().all(is_plain)
}

/// Whether there is a file with this path, or one that ends with it.
fn is_known(files: &Files, page: &str, named: &str) -> bool {
    let plain = named.trim_start_matches("./");
    files.has_end(plain) || resolve(page, named).is_some_and(|path| files.has(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem_in(path: &str, target: &str) -> Option<&'static str> {
        let files = Files::named(&["docs/a.md", "docs/more/b.md", "README.md", "src/x.rs"]);
        let page = |text: &str| Page::read(text);
        let pages = BTreeMap::from([
            ("docs/a.md", page("# Top")),
            ("docs/more/b.md", page("## Part")),
            ("README.md", page("")),
        ]);
        problem(&files, &pages, path, target)
    }

    #[test]
    fn a_link_leads_to_a_file_or_directory_and_to_a_heading_of_a_page() {
        for good in [
            "#top",
            "more/b.md#part",
            "../README.md",
            "../src/",
            "/src/x.rs#L12",
            "more",
            "https://example.com/#x",
            "mailto:a@example.com",
            "crate::cache",
            "",
            "..",
        ] {
            assert_eq!(problem_in("docs/a.md", good), None, "{good}");
        }
        for (bad, why) in [
            ("#part", "no such heading"),
            ("more/b.md#top", "no such heading"),
            ("README.md", "no such file"),
            ("mor", "no such file"),
            ("../src/x.rs#top", "no such heading"),
            ("../../x.md", "outside of the repository"),
            ("Controller", "no such file"),
        ] {
            assert_eq!(problem_in("docs/a.md", bad), Some(why), "{bad}");
        }
    }

    #[test]
    fn inline_code_that_is_a_path_names_a_file() {
        let files = Files::named(&["queue/src/state/adds.rs", "docs/a.md"]);
        for good in ["queue/src/state/adds.rs", "state/adds.rs", "./docs/a.md"] {
            assert!(
                is_path(good) && is_known(&files, "docs/a.md", good),
                "{good}"
            );
        }
        assert!(is_path("state/add.rs") && !is_known(&files, "docs/a.md", "state/add.rs"));
        for other in [
            "adds.rs",
            "/etc/x.yaml",
            "a/*.rs",
            "a/b",
            "src/<x>.rs",
            "--x/y.rs",
        ] {
            assert!(!is_path(other), "{other}");
        }
    }
}
