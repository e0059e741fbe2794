//! Resource versions and their order.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The version that the API server gave to an object or a list.
///
/// Versions that are decimal numbers of any length compare as numbers (etcd revisions; 20 digits do not
/// overflow). All others are opaque: they are equal or unknown, and every check that needs an order lets them
/// pass.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Arc<str>);

// === impl ResourceVersion ===

impl ResourceVersion {
    /// Wraps the text of a server.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text of the server.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for the empty version.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The order of `self` and `other`, or `None` if it is unknown.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        compare(&self.0, &other.0)
    }

    /// True unless `self` is known to be older than `other`.
    #[must_use]
    pub fn reaches(&self, other: &Self) -> bool {
        self.compare(other) != Some(Ordering::Less)
    }

    /// True only if `self` is known to be older than `other`.
    #[must_use]
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.compare(other) == Some(Ordering::Less)
    }
}

/// Compares two versions given as text; see [`ResourceVersion::compare`].
#[must_use]
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    if a == b {
        return Some(Ordering::Equal);
    }
    let (a, b) = (digits(a)?, digits(b)?);
    Some(a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

/// The number without leading zeros, or `None` if the text is not a decimal number.
///
/// A watch compares several times for each event, so this looks at bytes, not at characters.
fn digits(text: &str) -> Option<&[u8]> {
    let mut digits = is_number(text).then_some(text.as_bytes())?;
    while let [b'0', rest @ ..] = digits {
        digits = rest;
    }
    Some(digits)
}

/// True for a decimal number of any length.
#[must_use]
pub fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Default for ResourceVersion {
    fn default() -> Self {
        Self(Arc::from(""))
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for ResourceVersion {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rv:{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers_of_any_length() {
        let big = "99999999999999999999999999";
        for (a, b, expected) in [
            ("9", "10", Some(Ordering::Less)),
            ("10", "9", Some(Ordering::Greater)),
            ("10", "10", Some(Ordering::Equal)),
            ("007", "7", Some(Ordering::Equal)),
            (
                "18446744073709551616",
                "18446744073709551615",
                Some(Ordering::Greater),
            ),
            ("0", big, Some(Ordering::Less)),
        ] {
            assert_eq!(compare(a, b), expected, "{a} against {b}");
        }
    }

    #[test]
    fn opaque_versions_are_equal_or_unknown_and_pass_every_check() {
        assert_eq!(compare("abc", "abc"), Some(Ordering::Equal));
        for (a, b) in [("abc", "abd"), ("12", "1a"), ("", "5"), ("-1", "5")] {
            assert_eq!(compare(a, b), None, "{a} against {b}");
            let (a, b) = (ResourceVersion::from(a), ResourceVersion::from(b));
            assert!(a.reaches(&b) && !a.is_older_than(&b));
        }
    }
}
