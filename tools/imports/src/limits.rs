//! The largest circle that each crate may have: a ratchet that ends at [`GOAL`].

use std::collections::BTreeMap;

/// The largest circle of a crate that has no line in the file of limits.
pub(crate) const GOAL: usize = 4;

/// The limits of the crates above [`GOAL`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits(BTreeMap<String, usize>);

/// A line that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}")]
pub(crate) struct Error {
    line: usize,
    cause: String,
}

// === impl Limits ===

impl Limits {
    /// Reads lines `CRATE NUMBER`; `#` starts a comment.
    ///
    /// # Errors
    /// A line of another form, a limit that the goal makes useless, or a repeated crate.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut limits = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let error = |cause: String| Error {
                line: at + 1,
                cause,
            };
            let content = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = content.split_whitespace().collect();
            let (name, limit) = match words[..] {
                [] => continue,
                [name, limit] => (name, limit),
                _ => return Err(error("expected a crate and a number".to_owned())),
            };
            let limit: usize = limit
                .parse()
                .map_err(|_| error(format!("`{limit}` is not a number")))?;
            if limit <= GOAL {
                let cause = format!("{name} may have {GOAL} without a line; remove it");
                return Err(error(cause));
            }
            if limits.insert(name.to_owned(), limit).is_some() {
                return Err(error(format!("{name} has a limit already")));
            }
        }
        Ok(Self(limits))
    }

    /// The rule that a crate with a largest circle of `size` files breaks, with the remedy.
    pub(crate) fn check(&self, name: &str, size: usize) -> Option<String> {
        let limit = self.0.get(name).copied();
        match limit {
            Some(limit) if size > limit => Some(format!(
                "the largest circle of {name} has {size} files, over its limit of {limit}; --why shows its imports"
            )),
            None if size > GOAL => Some(format!(
                "the largest circle of {name} has {size} files, over {GOAL}; --why shows its imports"
            )),
            Some(limit) if size <= GOAL => Some(format!(
                "the largest circle of {name} has {size} files and its limit is {limit}: remove its line"
            )),
            Some(limit) if size < limit => Some(format!(
                "the largest circle of {name} has {size} files: lower its limit from {limit} to {size}"
            )),
            _ => None,
        }
    }

    /// Crates that have a limit and do not exist.
    pub(crate) fn unknown<'a>(&'a self, known: &'a [&str]) -> impl Iterator<Item = &'a str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(|name| !known.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_above_or_below_its_limit_is_an_error() {
        let limits = Limits::parse("# crates above the goal\na 10\n\nb 5 # nearly\n").unwrap();
        let cases = [
            ("at its limit", "a", 10, None),
            ("over its limit", "a", 11, Some("over its limit of 10")),
            (
                "under its limit",
                "a",
                9,
                Some("lower its limit from 10 to 9"),
            ),
            ("at the goal with a line", "b", 4, Some("remove its line")),
            (
                "without circles with a line",
                "b",
                0,
                Some("remove its line"),
            ),
            ("at the goal without a line", "c", 4, None),
            ("without circles or a line", "c", 0, None),
            ("over the goal without a line", "c", 5, Some("over 4")),
        ];
        for (case, name, size, expected) in cases {
            let found = limits.check(name, size);
            match expected {
                None => assert_eq!(found, None, "{case}"),
                Some(part) => assert!(found.unwrap().contains(part), "{case}"),
            }
        }
        assert_eq!(limits.unknown(&["a"]).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_wrong_limit_is_refused_with_its_line() {
        let cases = [
            ("a", "line 1: expected a crate and a number"),
            ("\na five", "line 2: `five` is not a number"),
            ("a 4", "line 1: a may have 4 without a line; remove it"),
            ("a 9\na 8", "line 2: a has a limit already"),
        ];
        for (text, expected) in cases {
            assert_eq!(Limits::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
