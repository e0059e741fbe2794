//! The configuration file.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::age::MaximumAge;
use crate::decision::Rule;
use crate::identity::Callers;

/// The settings of the guard. Unknown fields are errors.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The callers of the pre-release environment.
    pub callers: Callers,
    /// The label of production objects and namespaces.
    pub mark: Mark,
    /// The age from which objects may not be deleted.
    pub maximum_age: MaximumAge,
    /// PriorityClasses that pre-release callers may use. Default: none.
    pub priority_classes: BTreeSet<String>,
    /// The effect of a rule that has none in `rules`. Default: `enforce`.
    pub mode: Mode,
    /// The effects of single rules.
    pub rules: BTreeMap<Rule, Mode>,
    /// The end of the names of webhooks, `pod.validate.NAME`, and the begin of the names of configurations,
    /// `NAME-guard`. Default: `hbox`.
    pub name: String,
    /// The namespace of the guard. Default: `preprod-guard`.
    pub namespace: String,
    /// The Service of the guard. Default: `preprod-guard`.
    pub service: String,
    /// Namespaces that the webhooks are not called for. Default: none, because production callers do not need it.
    pub exempt_namespaces: BTreeSet<String>,
    /// Kinds to guard and to watch beside the built-in ones.
    pub kinds: Vec<Custom>,
    /// Seconds that a deletion may be seen before the record of its request. Default: 30.
    pub patience: u64,
}

/// A kind in the configuration, such as a custom resource.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Custom {
    /// The API group, empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The plural.
    pub plural: String,
    /// Whether its objects are in namespaces. Default: true.
    #[serde(default = "yes")]
    pub namespaced: bool,
}

fn yes() -> bool {
    true
}

/// A label.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Its name. Default: `environment`.
    pub label: String,
    /// Its value. Default: `production`.
    pub value: String,
}

/// What a rule does to a request that it matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Denies it.
    #[default]
    Enforce,
    /// Allows it with a warning.
    Warn,
    /// Allows it with an audit annotation.
    Monitor,
}

/// The reason why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not a configuration.
    #[error("the configuration cannot be read: {0}")]
    Unreadable(String),
    /// The callers include parts of the cluster.
    #[error("callers include parts of the cluster itself: {0}; remove them")]
    Dangerous(String),
}

// === impl Config ===

impl Config {
    /// Reads a configuration in YAML.
    ///
    /// # Errors
    /// When it cannot be read, or its callers include parts of the cluster.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let config: Self =
            serde_saphyr::from_str(text).map_err(|error| Error::Unreadable(error.to_string()))?;
        let dangerous = config.callers.dangerous();
        if dangerous.is_empty() {
            return Ok(config);
        }
        Err(Error::Dangerous(dangerous.join(", ")))
    }

    /// The effect of `rule`.
    #[must_use]
    pub fn mode(&self, rule: Rule) -> Mode {
        self.rules.get(&rule).copied().unwrap_or(self.mode)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            callers: Callers::default(),
            mark: Mark {
                label: "environment".into(),
                value: "production".into(),
            },
            maximum_age: MaximumAge::default(),
            priority_classes: BTreeSet::new(),
            mode: Mode::default(),
            rules: BTreeMap::new(),
            name: "hbox".into(),
            namespace: "preprod-guard".into(),
            service: "preprod-guard".into(),
            exempt_namespaces: BTreeSet::new(),
            kinds: Vec::new(),
            patience: 30,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_a_mode_of_its_own() {
        let config =
            Config::parse("{callers: {users: [hbox-pre]}, mode: warn, rules: {age: monitor}}");
        let config = config.unwrap();
        assert_eq!(config.mode(Rule::Age), Mode::Monitor);
        assert_eq!(config.mode(Rule::Production), Mode::Warn);
    }

    #[test]
    fn unknown_fields_and_parts_of_the_cluster_are_errors() {
        assert!(matches!(
            Config::parse("caller: {}"),
            Err(Error::Unreadable(_))
        ));
        let dangerous = Config::parse("callers: {groups: [system:nodes]}");
        assert!(matches!(dangerous, Err(Error::Dangerous(_))));
    }
}
