//! The limits of warnings and audit annotations. The API server drops a warning with a control character without a message,
//! and shortens all warnings of a request once they are too long together.

use std::collections::BTreeMap;

/// The most warnings of one answer. Further ones are counted in the last one.
pub const MOST_WARNINGS: usize = 10;

/// The most characters of one warning (kube-apiserver shortens to the same length once all warnings of a request have more
/// than 4,096).
pub const WARNING_LENGTH: usize = 256;

/// The most characters of the name of an audit annotation.
const NAME: usize = 63;

/// The texts as the API server keeps them: distinct, on one line, within the limits.
pub(super) fn limited(texts: &[String]) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for text in texts {
        let text = one_line(text);
        if !text.is_empty() && !kept.contains(&text) {
            kept.push(text);
        }
    }
    if kept.len() > MOST_WARNINGS {
        let more = kept.len() - (MOST_WARNINGS - 1);
        kept.truncate(MOST_WARNINGS - 1);
        kept.push(format!("and {more} more warnings"));
    }
    kept
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect();
    let text = words.join(" ");
    if text.chars().count() <= WARNING_LENGTH {
        return text;
    }
    let mut short: String = text.chars().take(WARNING_LENGTH - 1).collect();
    short.push('…');
    short
}

/// The annotations that the API server accepts. It logs and drops others.
pub(super) fn annotations(of: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let (good, bad): (BTreeMap<_, _>, BTreeMap<_, _>) = of
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .partition(|(name, _)| is_name(name));
    for name in bad.keys() {
        tracing::warn!(
            name,
            "dropped an audit annotation: its name must be letters, digits, '-', '_' and '.'"
        );
    }
    good
}

/// Whether the API server accepts the name after it has put the name of the webhook and a slash before it.
fn is_name(name: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.len() <= NAME
        && ends(name.chars().next())
        && ends(name.chars().last())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_one_line_distinct_and_within_the_limits() {
        let long = "ü".repeat(300);
        let texts: Vec<String> = ["a\nb\u{0}", "a b", "", " \t", &long]
            .map(str::to_owned)
            .into();
        let kept = limited(&texts);
        assert_eq!(kept[0], "a b");
        assert_eq!(kept[1].chars().count(), WARNING_LENGTH);
        assert!(kept[1].ends_with("ü…"));
        assert_eq!(kept.len(), 2);
        let many: Vec<String> = (0..25).map(|number| format!("warning {number}")).collect();
        let kept = limited(&many);
        assert_eq!(kept.len(), MOST_WARNINGS);
        assert_eq!(kept[8], "warning 8");
        assert_eq!(kept[9], "and 16 more warnings");
        assert!(kept.iter().map(|text| text.chars().count()).sum::<usize>() <= 4096);
    }

    #[test]
    fn an_annotation_with_a_name_that_the_server_drops_is_not_sent() {
        let pairs = [
            ("rule", true),
            ("a.b-c_d", true),
            ("", false),
            ("a/b", false),
            ("-a", false),
            ("a b", false),
        ];
        let all = pairs
            .map(|(name, _)| (name.to_owned(), String::new()))
            .into();
        let kept = annotations(&all);
        for (name, expected) in pairs {
            assert_eq!(kept.contains_key(name), expected, "{name:?}");
        }
        let long = "a".repeat(64);
        assert!(annotations(&[(long, String::new())].into()).is_empty());
    }
}
