//! Rules made of single rights, and rules as YAML.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::rbac::Rule;

/// The order of verbs in a rule; other verbs follow in alphabetical order.
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];
/// Words that YAML 1.1 reads as something else than text.
const SPECIAL: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// A verb in its order.
type Verbs<'a> = BTreeSet<(usize, &'a str)>;
type Texts<'a> = BTreeSet<&'a str>;

/// The fewest rules that have exactly these parts. Each part is a rule with one verb, and one URL or one group, one
/// resource and at most one name. Rules are sorted by group, resource and name.
pub(super) fn merged(parts: &[Rule]) -> Vec<PolicyRule> {
    let mut of_urls: BTreeMap<&str, Verbs<'_>> = BTreeMap::new();
    let mut of_objects: BTreeMap<(&str, &str, Option<&str>), Verbs<'_>> = BTreeMap::new();
    for part in parts {
        let verbs = part.verbs.iter().map(|verb| (place(verb), verb.as_str()));
        for url in &part.non_resource_urls {
            of_urls.entry(url).or_default().extend(verbs.clone());
        }
        let name = part.resource_names.first().map(String::as_str);
        for (group, resource) in part.api_groups.iter().zip(&part.resources) {
            let object = (group.as_str(), resource.as_str(), name);
            of_objects.entry(object).or_default().extend(verbs.clone());
        }
    }

    let mut with_names: BTreeMap<(&str, &str, bool, Verbs<'_>), Texts<'_>> = BTreeMap::new();
    for (&(group, resource, name), verbs) in &of_objects {
        let mut verbs = verbs.clone();
        if name.is_some()
            && let Some(of_all) = of_objects.get(&(group, resource, None))
        {
            verbs.retain(|verb| !of_all.contains(verb));
        }
        if !verbs.is_empty() {
            let names = with_names.entry((group, resource, name.is_some(), verbs));
            names.or_default().extend(name);
        }
    }
    let mut with_resources: BTreeMap<(&str, Texts<'_>, Verbs<'_>), Texts<'_>> = BTreeMap::new();
    for ((group, resource, _, verbs), names) in with_names {
        let resources = with_resources.entry((group, names, verbs));
        resources.or_default().insert(resource);
    }
    let mut rules: Vec<PolicyRule> = with_resources
        .into_iter()
        .map(|((group, names, verbs), resources)| PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(owned(resources)),
            resource_names: (!names.is_empty()).then(|| owned(names)),
            verbs: in_order(verbs),
            ..PolicyRule::default()
        })
        .collect();
    rules.sort_by(|one, other| sorted_by(one).cmp(&sorted_by(other)));

    let mut with_urls: BTreeMap<Verbs<'_>, Texts<'_>> = BTreeMap::new();
    for (url, verbs) in of_urls {
        with_urls.entry(verbs).or_default().insert(url);
    }
    rules.extend(with_urls.into_iter().map(|(verbs, urls)| PolicyRule {
        non_resource_urls: Some(owned(urls)),
        verbs: in_order(verbs),
        ..PolicyRule::default()
    }));
    rules
}

fn place(verb: &str) -> usize {
    let known = VERBS.iter().position(|known| *known == verb);
    known.unwrap_or(VERBS.len())
}

fn in_order(verbs: Verbs<'_>) -> Vec<String> {
    verbs.into_iter().map(|(_, verb)| verb.to_owned()).collect()
}

fn owned(texts: Texts<'_>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

/// Group, resources, then names; rules without names come first.
fn sorted_by(rule: &PolicyRule) -> [&Option<Vec<String>>; 3] {
    [&rule.api_groups, &rule.resources, &rule.resource_names]
}

/// The rules as a list in YAML, each line after two spaces.
pub(super) fn yaml(rules: &[PolicyRule]) -> String {
    let mut text = String::new();
    for rule in rules {
        let verbs = Some(rule.verbs.clone());
        let fields = [
            ("apiGroups", &rule.api_groups),
            ("resources", &rule.resources),
            ("resourceNames", &rule.resource_names),
            ("nonResourceURLs", &rule.non_resource_urls),
            ("verbs", &verbs),
        ];
        let mut start = "  - ";
        for (name, values) in fields {
            let Some(values) = values else { continue };
            let values: Vec<String> = values.iter().map(|value| scalar(value)).collect();
            let _ = writeln!(text, "{start}{name}: [{}]", values.join(", "));
            start = "    ";
        }
    }
    text
}

/// A text in YAML, in quotes if it needs them.
fn scalar(text: &str) -> String {
    let starts = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/');
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "./-_".contains(one);
    let special = SPECIAL.iter().any(|word| text.eq_ignore_ascii_case(word));
    if starts && !special && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        serde_json::Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parts(rules: serde_json::Value) -> Vec<Rule> {
        let rules: Vec<Rule> = serde_json::from_value(rules).unwrap();
        rules.iter().flat_map(Rule::atoms).collect()
    }

    #[test]
    fn rights_with_the_same_verbs_become_one_rule() {
        let parts = parts(json!([
            {"apiGroups": ["g.io"], "resources": ["b", "b/status"], "verbs": ["watch", "list"]},
            {"apiGroups": ["g.io"], "resources": ["a"], "verbs": ["list", "watch"]},
            {"apiGroups": [""], "resources": ["c"], "verbs": ["patch", "approve", "get"]},
            {"apiGroups": [""], "resources": ["c"], "verbs": ["get"]},
            {"nonResourceURLs": ["/b", "/a"], "verbs": ["get"]},
        ]));
        let expected = r#"  - apiGroups: [""]
    resources: [c]
    verbs: [get, patch, approve]
  - apiGroups: [g.io]
    resources: [a, b, b/status]
    verbs: [list, watch]
  - nonResourceURLs: [/a, /b]
    verbs: [get]
"#;
        assert_eq!(yaml(&merged(&parts)), expected);
    }

    #[test]
    fn names_are_merged_and_a_right_to_all_objects_includes_them() {
        let parts = parts(json!([
            {"apiGroups": [""], "resources": ["c"], "resourceNames": ["x", "y"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["c"], "resourceNames": ["z"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["c"], "verbs": ["list", "create"]},
        ]));
        let expected = r#"  - apiGroups: [""]
    resources: [c]
    verbs: [list, create]
  - apiGroups: [""]
    resources: [c]
    resourceNames: [x, "y", z]
    verbs: [get]
"#;
        assert_eq!(yaml(&merged(&parts)), expected);
    }

    #[test]
    fn texts_that_yaml_reads_as_something_else_are_quoted() {
        for plain in ["configmaps", "pods/log", "/metrics", "apps.v1-x_y"] {
            assert_eq!(scalar(plain), plain);
        }
        for quoted in ["", "*", "1", "On", "a: b", "system:x", "-a", "1e3", "a b"] {
            assert_eq!(scalar(quoted), format!("{quoted:?}"));
        }
    }
}
