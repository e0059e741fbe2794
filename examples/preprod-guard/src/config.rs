//! The configuration file.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::age::MaximumAge;
use crate::decision::Rule;
use crate::identity::{Callers, Environment};

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
    /// ServiceAccounts, as `namespace/name`, that pre-release callers may run Pods as and get tokens of, beside those that are
    /// pre-release callers themselves. Their requests count as those of production. Default: none.
    pub accounts: BTreeSet<String>,
    /// PriorityClasses that pre-release callers may use. Default: none.
    pub priority_classes: BTreeSet<String>,
    /// The effect of a rule that has none in `rules`. Default: `enforce`.
    pub mode: Mode,
    /// The effects of single rules.
    pub rules: BTreeMap<Rule, Mode>,
    /// The end of the names of webhooks, `pod.validate.NAME`, and the start of the names of configurations,
    /// `NAME-guard`. Default: `hbox`.
    pub name: String,
    /// The namespace of the guard. Everything in it is production. Default: `preprod-guard`.
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
    #[error("callers include parts of the cluster or the guard itself: {0}; remove them")]
    Dangerous(String),
    /// A value that would switch off a part of the guard.
    #[error("{0}")]
    Invalid(&'static str),
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
        let dangerous = config.callers.dangerous(&config.namespace);
        if !dangerous.is_empty() {
            return Err(Error::Dangerous(dangerous.join(", ")));
        }
        if config.exempt_namespaces.contains(&config.namespace) {
            return Err(Error::Invalid(
                "exemptNamespaces has the namespace of the guard, which must protect itself; remove it",
            ));
        }
        if config.patience == 0 {
            return Err(Error::Invalid(
                "patience is 0 s: each deletion would be reported before its record comes; set at least 1",
            ));
        }
        Ok(config)
    }

    /// Whether pre-release callers may act as this ServiceAccount.
    #[must_use]
    pub fn may_use_account(&self, namespace: &str, name: &str) -> bool {
        let user = crate::identity::of_account(namespace, name);
        self.callers.environment(&user) == Environment::PreRelease
            || self.accounts.contains(&format!("{namespace}/{name}"))
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
            accounts: BTreeSet::new(),
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
        for dangerous in [
            "callers: {groups: [system:nodes]}",
            "callers: {serviceAccountNamespaces: [preprod-guard]}",
            "{namespace: own, callers: {groups: ['system:serviceaccounts:own']}}",
        ] {
            let dangerous = Config::parse(dangerous);
            assert!(matches!(dangerous, Err(Error::Dangerous(_))));
        }
        for invalid in ["exemptNamespaces: [preprod-guard]", "patience: 0"] {
            assert!(matches!(Config::parse(invalid), Err(Error::Invalid(_))));
        }
    }
}
