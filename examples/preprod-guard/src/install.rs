//! The webhook configurations.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::config::{Config, Mark};
use crate::identity::Callers;
use crate::kinds::{self, Guarded, Watched};
use crate::webhook::{DECIDE, RECORD};

/// The label of everything that belongs to a guard: name and value.
pub const LABEL: (&str, &str) = ("app.kubernetes.io/name", "preprod-guard");

/// The time that the API server waits for a decision, in seconds.
const DECIDE_SECONDS: u64 = 3;

/// The time that the API server waits for a record, in seconds.
const RECORD_SECONDS: u64 = 1;

/// The address of the webhook server for the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The Service of the configuration, port 443.
    Service,
    /// A URL such as `https://127.0.0.1:9443`.
    Url(String),
}

/// The names of the configurations: of the webhooks that decide, and of the one that records.
#[must_use]
pub fn names(config: &Config) -> [String; 2] {
    let name = &config.name;
    [format!("{name}-guard"), format!("{name}-guard-records")]
}

/// The configurations: one whose webhooks are called for pre-release callers, one that is called for deletions by others.
///
/// `authorities` are those of the server's certificate in PEM; empty if the guard writes them by itself.
#[must_use]
pub fn configurations(config: &Config, place: &Place, authorities: &[u8]) -> [Value; 2] {
    let guarded = kinds::all(config);
    let client = |path: &str| {
        let mut client = match place {
            Place::Url(url) => json!({"url": format!("{}{path}", url.trim_end_matches('/'))}),
            Place::Service => json!({"service": {
                "namespace": config.namespace, "name": config.service, "path": path, "port": 443,
            }}),
        };
        if !authorities.is_empty() {
            client["caBundle"] = json!(STANDARD.encode(authorities));
        }
        client
    };
    let callers = condition(&config.callers);
    let entry = |name: String, fields: Value| {
        let mut entry = json!({
            "name": format!("{name}.{}", config.name),
            "admissionReviewVersions": ["v1"],
            "matchPolicy": "Equivalent",
            "sideEffects": "NoneOnDryRun",
            "namespaceSelector": selector(config),
        });
        for (field, value) in fields.as_object().into_iter().flatten() {
            entry[field] = value.clone();
        }
        entry
    };
    let decide = guarded.iter().map(|kind| {
        let fields = json!({
            "clientConfig": client(DECIDE),
            "rules": rules(kind),
            "failurePolicy": "Fail",
            "timeoutSeconds": DECIDE_SECONDS,
            // A stopped webhook refuses the requests of pre-release callers only.
            "matchConditions": [{"name": "pre-release-callers", "expression": callers}],
        });
        entry(format!("{}.validate", kind.word), fields)
    });
    // Records of deletions are Events: one that a pre-release caller writes would hide a bypass.
    let events = json!({
        "clientConfig": client(DECIDE),
        "rules": events(),
        "failurePolicy": "Fail",
        "timeoutSeconds": DECIDE_SECONDS,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": config.namespace}},
        "matchConditions": [{"name": "pre-release-callers", "expression": callers}],
    });
    let decide = decide.chain([entry("event.validate".to_owned(), events)]);
    let fields = json!({
        "clientConfig": client(RECORD),
        "rules": recorded(&guarded),
        // A stopped webhook costs records, and no request of a production caller.
        "failurePolicy": "Ignore",
        "timeoutSeconds": RECORD_SECONDS,
        "matchConditions": [
            {"name": "other-callers", "expression": format!("!({callers})")},
            {"name": "deletions-and-lost-labels", "expression": loses(&config.mark)},
        ],
    });
    let [first, second] = names(config);
    [
        configuration(&first, decide.collect()),
        configuration(&second, vec![entry("deletion.record".to_owned(), fields)]),
    ]
}

fn configuration(name: &str, webhooks: Vec<Value>) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name, "labels": {LABEL.0: LABEL.1}},
        "webhooks": webhooks,
    })
}

/// The condition in CEL that holds for the callers of the pre-release environment: that of
/// [`Callers::environment`].
fn condition(callers: &Callers) -> String {
    let mut parts = Vec::new();
    // A request may have no name and no groups. An error in a condition would refuse it.
    let named = |condition: String| format!("(has(request.userInfo.username) && {condition})");
    if !callers.users.is_empty() {
        let users = json!(callers.users);
        parts.push(named(format!("request.userInfo.username in {users}")));
    }
    for namespace in &callers.service_account_namespaces {
        let prefix = json!(format!("system:serviceaccount:{namespace}:"));
        parts.push(named(format!(
            "request.userInfo.username.startsWith({prefix})"
        )));
    }
    if !callers.groups.is_empty() {
        parts.push(format!(
            "(has(request.userInfo.groups) && request.userInfo.groups.exists(group, group in {}))",
            json!(callers.groups)
        ));
    }
    if parts.is_empty() {
        return "false".to_owned();
    }
    parts.join(" || ")
}

fn selector(config: &Config) -> Value {
    if config.exempt_namespaces.is_empty() {
        return json!({});
    }
    json!({"matchExpressions": [{
        "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": config.exempt_namespaces,
    }]})
}

/// The writes of a kind and of its subresources, and the connections to it.
fn rules(kind: &Guarded) -> Value {
    let resource = &kind.resource;
    // Servers that this guard accepts have them as betas only, and another version would match nothing.
    let version = match &*resource.group {
        "flowcontrol.apiserver.k8s.io" | "resource.k8s.io" => "*",
        _ => &resource.version,
    };
    let paths = |names: &[&str]| {
        let paths = names
            .iter()
            .map(|name| format!("{}/{name}", resource.plural));
        paths.collect::<Vec<String>>()
    };
    let rule = |operations: Value, resources: Vec<String>| {
        json!({
            "apiGroups": [resource.group], "apiVersions": [version], "scope": "*",
            "operations": operations, "resources": resources,
        })
    };
    let mut written = vec![resource.plural.clone()];
    written.extend(paths(&kind.subresources));
    let mut rules = vec![rule(json!(["CREATE", "UPDATE", "DELETE"]), written)];
    if !kind.connections.is_empty() {
        rules.push(rule(json!(["CONNECT"]), paths(&kind.connections)));
    }
    json!(rules)
}

/// The condition in CEL that holds for an update only if the object loses its own label.
fn loses(mark: &Mark) -> String {
    let (label, value) = (json!(mark.label), json!(mark.value));
    let has = |object: &str| {
        let labels = format!("{object}.metadata.labels");
        format!("(has({labels}) && {label} in {labels} && {labels}[{label}] == {value})")
    };
    format!(
        "request.operation != \"UPDATE\" || ({} && !{})",
        has("oldObject"),
        has("object")
    )
}

/// The deletions and updates of watched kinds. The API server deletes the Pod of an eviction without a further call.
fn recorded(kinds: &[Guarded]) -> Value {
    let watched = kinds.iter().filter(|kind| kind.watched != Watched::No);
    let mut rules: Vec<Value> = watched
        .map(|kind| {
            let resource = &kind.resource;
            json!({
                "apiGroups": [resource.group], "apiVersions": [resource.version], "scope": "*",
                "operations": ["UPDATE", "DELETE"], "resources": [resource.plural],
            })
        })
        .collect();
    rules.push(json!({
        "apiGroups": [""], "apiVersions": ["v1"], "scope": "*",
        "operations": ["CREATE"], "resources": ["pods/eviction"],
    }));
    json!(rules)
}

/// The writes of Events by both of their API groups.
fn events() -> Value {
    let rules = ["", "events.k8s.io"].map(|group| {
        json!({
            "apiGroups": [group], "apiVersions": ["v1"], "scope": "*",
            "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["events"],
        })
    });
    json!(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::parse("callers: {users: [hbox-pre], groups: ['hbox:pre-release'], serviceAccountNamespaces: [pre]}")
            .unwrap()
    }

    #[test]
    fn a6_the_service_has_a_name_without_its_namespace() {
        let [decide, record] = configurations(&config(), &Place::Service, b"");
        for entry in [&decide["webhooks"][0], &record["webhooks"][0]] {
            let service = &entry["clientConfig"]["service"];
            assert_eq!(service["name"], "preprod-guard");
            assert_eq!(service["namespace"], "preprod-guard");
            assert_eq!(entry["clientConfig"]["caBundle"], Value::Null);
        }
    }

    #[test]
    fn a7_a_webhook_that_fails_closed_is_called_for_pre_release_callers_only() {
        let configurations = configurations(&config(), &Place::Service, b"");
        let callers = r#"(has(request.userInfo.username) && request.userInfo.username in ["hbox-pre"]) || (has(request.userInfo.username) && request.userInfo.username.startsWith("system:serviceaccount:pre:")) || (has(request.userInfo.groups) && request.userInfo.groups.exists(group, group in ["hbox:pre-release"]))"#;
        for entry in configurations
            .iter()
            .flat_map(|one| one["webhooks"].as_array().unwrap())
        {
            let condition = entry["matchConditions"][0]["expression"].as_str().unwrap();
            if entry["failurePolicy"] == "Fail" {
                assert_eq!(condition, callers);
            } else {
                assert_eq!(entry["failurePolicy"], "Ignore");
                assert_eq!(condition, format!("!({callers})"));
            }
            assert!(entry["timeoutSeconds"].as_u64() <= Some(3));
            // B1, B19: an Eviction has no labels, and another version of a kind is the same object.
            assert_eq!(entry["objectSelector"], Value::Null);
            assert_eq!(entry["matchPolicy"], "Equivalent");
            assert_eq!(entry["admissionReviewVersions"], json!(["v1"]));
        }
        assert_eq!(condition(&Callers::default()), "false");
    }

    #[test]
    fn exempt_namespaces_are_exempt_and_events_are_guarded_in_the_namespace_of_the_guard() {
        let config = Config {
            exempt_namespaces: ["tests".to_owned()].into(),
            ..config()
        };
        let [decide, record] = configurations(&config, &Place::Service, b"");
        let selector = json!({"matchExpressions": [{
            "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["tests"],
        }]});
        let own = json!({"matchLabels": {"kubernetes.io/metadata.name": "preprod-guard"}});
        let entries = [&decide, &record].map(|one| one["webhooks"].as_array().unwrap());
        for entry in entries.into_iter().flatten() {
            let expected = match entry["name"].as_str().unwrap() {
                "event.validate.hbox" => &own,
                _ => &selector,
            };
            assert_eq!(&entry["namespaceSelector"], expected);
        }
    }

    #[test]
    fn a3_a10_subresources_and_further_kinds_are_in_the_rules() {
        let [decide, _] = configurations(&config(), &Place::Service, b"");
        let entries = decide["webhooks"].as_array().unwrap();
        let pods = &entries[0];
        assert_eq!(pods["name"], "pod.validate.hbox");
        let text = pods["rules"].to_string();
        for path in [
            "pods/eviction",
            "pods/ephemeralcontainers",
            "pods/exec",
            "pods/binding",
        ] {
            assert!(text.contains(path), "{path}");
        }
        let all = decide.to_string();
        for path in [
            "daemonsets",
            "cronjobs",
            "deployments/scale",
            "secrets",
            "serviceaccounts/token",
        ] {
            assert!(all.contains(path), "{path}");
        }
        let mut names: Vec<&str> = entries
            .iter()
            .filter_map(|one| one["name"].as_str())
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "the API server refuses equal names");
    }

    #[test]
    fn a_url_has_the_authorities_of_its_certificate() {
        let place = Place::Url("https://127.0.0.1:9443/".to_owned());
        let [decide, _] = configurations(&config(), &place, b"PEM");
        let client = &decide["webhooks"][0]["clientConfig"];
        assert_eq!(client["url"], "https://127.0.0.1:9443/decide");
        assert_eq!(client["caBundle"], "UEVN");
    }
}
