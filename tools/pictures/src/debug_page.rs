//! The page `/debug` of fixed reports at a fixed time, and whether its picture was made from it.

use std::fmt::Write as _;

use reeve_controller::debug::Overview;
use reeve_serve::debug::{Query, document, links};
use sha2::{Digest as _, Sha256};

/// The reports.
const REPORTS: &str = include_str!("../fixed/debug.json");
/// The pages that a manager serves.
const PAGES: [&str; 6] = [
    "",
    "controllers",
    "queues",
    "informers",
    "election",
    "writes",
];

/// The page, as a manager with these reports serves it.
pub(crate) fn page() -> Result<String, serde_json::Error> {
    let reports: Overview = serde_json::from_str(REPORTS)?;
    let links = links("", &PAGES, &Query::default());
    Ok(document(
        "debug",
        &links,
        None,
        &reports.with_problems().html(),
    ))
}

/// The record of a picture: the hashes of the page and of the picture made from it, as `sha256sum` prints them.
pub(crate) fn record(name: &str, page: &str, picture: &[u8]) -> String {
    let mut record = String::new();
    for (content, kind) in [(page.as_bytes(), "html"), (picture, "png")] {
        for byte in Sha256::digest(content) {
            let _ = write!(record, "{byte:02x}");
        }
        let _ = writeln!(record, "  {name}.{kind}");
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_changes_with_the_page_and_with_the_picture() {
        let page = page().unwrap();
        assert!(
            page.contains("shops/flowers 12 times: the ConfigMap flowers"),
            "{page}"
        );
        let first = record("debug", &page, b"a");
        assert_ne!(record("debug", &page, b"b"), first);
        assert_ne!(record("debug", "", b"a"), first);
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  debug.png\n";
        assert!(record("debug", "", b"").ends_with(empty));
    }
}
