//! The user of a request.

use std::collections::BTreeMap;

use super::cache::{Key, digest};

/// The user of a request; an extension of each request that [`Access`](super::Access) let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// The name: `system:serviceaccount:monitoring:prometheus`.
    pub name: String,
    /// The uid.
    pub uid: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// More attributes, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

// === impl User ===

impl User {
    /// A user with this name and no other attributes; the fields can be set.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// The key of a decision about this user.
    pub(super) fn key(&self, verb: &str, path: &str) -> Key {
        // Each list follows its length, so that a part of one list is not taken for a part of another.
        let lengths: Vec<String> = std::iter::once(self.groups.len())
            .chain(self.extra.values().map(Vec::len))
            .map(|length| length.to_string())
            .collect();
        let mut lengths = lengths.iter().map(String::as_str);
        let mut parts = vec![
            verb,
            path,
            &self.name,
            self.uid.as_deref().unwrap_or_default(),
        ];
        parts.extend(lengths.next());
        parts.extend(self.groups.iter().map(String::as_str));
        for (name, values) in &self.extra {
            parts.push(name);
            parts.extend(lengths.next());
            parts.extend(values.iter().map(String::as_str));
        }
        digest(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_about_one_user_is_not_remembered_for_another() {
        let user = |groups: &[&str], extra: &[(&str, &[&str])]| User {
            name: "scraper".into(),
            uid: None,
            groups: groups.iter().map(ToString::to_string).collect(),
            extra: extra
                .iter()
                .map(|(name, values)| {
                    let values = values.iter().map(ToString::to_string);
                    ((*name).to_owned(), values.collect())
                })
                .collect(),
        };
        let users = [
            user(&[], &[]),
            user(&["k"], &[]),
            user(&["extra", "k", "v"], &[]),
            user(&["0"], &[("k", &["v"])]),
            user(&[], &[("k", &["v"])]),
            user(&[], &[("k", &[]), ("v", &[])]),
            user(&[], &[("extra", &["k", "v"])]),
            user(&["groups"], &[]),
        ];
        let keys: Vec<Key> = users
            .iter()
            .map(|user| user.key("get", "/metrics"))
            .collect();
        for (place, key) in keys.iter().enumerate() {
            assert!(!keys[..place].contains(key), "{:?}", users[place]);
        }
    }
}
