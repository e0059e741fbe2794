//! The selectors and label names of a PromQL expression.
//!
//! It reads words, braces and strings only; promtool checks the syntax.

use std::collections::BTreeSet;

/// A metric in an expression, with its label matchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The name as it is written, `_bucket` or `_total` included.
    pub metric: String,
    /// Label, operator and value of each matcher.
    pub matchers: Vec<(String, String, String)>,
}

/// The parts of an expression that name metrics and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Each selector, in order.
    pub selectors: Vec<Selector>,
    /// The labels of `by (…)`, `on (…)` and their like.
    pub labels: BTreeSet<String>,
}

/// Words after which a list of labels follows.
const LISTS: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];

/// Words that are neither metrics nor functions.
const KEYWORDS: [&str; 7] = ["and", "or", "unless", "bool", "offset", "inf", "nan"];

/// The parts of `expression`.
#[must_use]
pub fn parts(expression: &str) -> Parts {
    let mut parts = Parts::default();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            rest = string(rest).1;
        } else if first == '[' {
            // A range such as [5m].
            rest = rest.split_once(']').map_or("", |(_, after)| after);
        } else if first.is_ascii_digit() {
            // A number or duration: its letters are not a word.
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else if is_word(first) {
            let (name, after) = word(rest);
            rest = after.trim_start();
            if LISTS.contains(&name) {
                let (list, after) = rest
                    .strip_prefix('(')
                    .and_then(|rest| rest.split_once(')'))
                    .unwrap_or(("", rest));
                parts
                    .labels
                    .extend(list.split(',').map(|label| label.trim().to_owned()));
                rest = after;
            } else if KEYWORDS.contains(&name) {
            } else if let Some(inner) = rest.strip_prefix('{') {
                let (matchers, after) = matchers(inner);
                parts.selectors.push(Selector {
                    metric: name.to_owned(),
                    matchers,
                });
                rest = after;
            } else if !rest.starts_with('(') && !is_aggregation(rest) {
                parts.selectors.push(Selector {
                    metric: name.to_owned(),
                    matchers: Vec::new(),
                });
            }
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    parts
}

/// Whether a list of labels follows, as in `sum by (x) (…)`.
fn is_aggregation(rest: &str) -> bool {
    let (next, after) = word(rest);
    matches!(next, "by" | "without") && after.trim_start().starts_with('(')
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    text.split_at(end)
}

/// The content of the string that `text` begins with, and the rest.
fn string(text: &str) -> (&str, &str) {
    let inner = &text[1..];
    let mut escaped = false;
    let end = inner.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or((inner, ""), |end| (&inner[..end], &inner[end + 1..]))
}

/// The matchers up to the closing brace, and the rest after it.
fn matchers(text: &str) -> (Vec<(String, String, String)>, &str) {
    let mut matchers = Vec::new();
    let mut rest = text.trim_start_matches([' ', ',', '\n']);
    while !rest.is_empty() && !rest.starts_with('}') {
        let (label, after) = word(rest);
        let after = after.trim_start();
        let end = after.find('"').unwrap_or(after.len());
        let (operator, after) = after.split_at(end);
        if after.is_empty() {
            return (matchers, "");
        }
        let (value, after) = string(after);
        matchers.push((label.into(), operator.trim().into(), value.into()));
        rest = after.trim_start_matches([' ', ',', '\n']);
    }
    (matchers, rest.strip_prefix('}').unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(expression: &str) -> Vec<String> {
        let selectors = parts(expression).selectors.into_iter();
        selectors.map(|selector| selector.metric).collect()
    }

    #[test]
    fn functions_labels_and_durations_are_not_metrics() {
        let expression = r#"sum by (job, le) (rate(a_bucket{job=~".*", x="}"}[5m] offset 1h)) / 2e3 > 0.5
            and on (job) b_total unless sum(c) by (z) or vector(0)"#;
        assert_eq!(metrics(expression), ["a_bucket", "b_total", "c"]);
        let labels: Vec<String> = parts(expression).labels.into_iter().collect();
        assert_eq!(labels, ["job", "le", "z"]);
    }

    #[test]
    fn matchers_have_their_operator_and_value() {
        let found = parts(r#"a{x!="1", y=~"a|\"b"}"#);
        let matcher = |label: &str, operator: &str, value: &str| {
            (label.to_owned(), operator.to_owned(), value.to_owned())
        };
        assert_eq!(
            found.selectors[0].matchers,
            [matcher("x", "!=", "1"), matcher("y", "=~", r#"a|\"b"#)]
        );
    }
}
