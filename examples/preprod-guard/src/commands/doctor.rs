//! Checks of an installed guard: its configurations, and the rights that would pass by a webhook.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use reeve_client::{Client, ObjectKey, optional};
use serde_json::{Value, json};

use crate::config::Config;
use crate::install::{self, Place};
use crate::program::BoxError;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether nothing is wrong.
    pub good: bool,
    /// What was checked, and the remedy.
    pub text: String,
}

/// Rights with which a caller passes by the webhooks: verb, group, resource, subresource.
const RIGHTS: [(&str, &str, &str, &str); 10] = [
    (
        "delete",
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "",
    ),
    (
        "patch",
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "",
    ),
    (
        "create",
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "",
    ),
    (
        "create",
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicies",
        "",
    ),
    ("impersonate", "", "users", ""),
    ("impersonate", "", "groups", ""),
    ("impersonate", "", "serviceaccounts", ""),
    ("get", "", "nodes", "proxy"),
    ("create", "", "nodes", "proxy"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
];

/// Runs the checks.
///
/// # Errors
/// When the API server cannot be asked.
pub async fn doctor(client: &Client, config: &Config) -> Result<Vec<Finding>, BoxError> {
    let mut findings = Vec::new();
    if config.callers == crate::identity::Callers::default() {
        findings.push(bad(
            "no caller is configured: every request is allowed; list callers",
        ));
    }
    for expected in install::configurations(config, &Place::Service, b"") {
        findings.extend(configuration(client, &expected).await?);
    }
    let users = config.callers.users.iter().map(|user| ("user", user));
    let groups = config.callers.groups.iter().map(|group| ("group", group));
    let callers: Vec<(&str, String)> = users
        .chain(groups)
        .map(|(kind, name)| (kind, name.clone()))
        .chain(
            config
                .callers
                .service_account_namespaces
                .iter()
                .map(|namespace| ("group", format!("system:serviceaccounts:{namespace}"))),
        )
        .collect();
    for (kind, name) in callers {
        findings.push(rights(client, config, kind, &name).await?);
    }
    Ok(findings)
}

fn good(text: impl Into<String>) -> Finding {
    let text = text.into();
    Finding { good: true, text }
}

fn bad(text: impl Into<String>) -> Finding {
    let text = text.into();
    Finding { good: false, text }
}

/// Compares a stored configuration with the expected one.
async fn configuration(client: &Client, expected: &Value) -> Result<Vec<Finding>, BoxError> {
    let name = expected["metadata"]["name"].as_str().unwrap_or_default();
    let key = ObjectKey::cluster(name);
    let stored = optional(client.get::<ValidatingWebhookConfiguration>(&key).await)?;
    let Some(stored) = stored else {
        let text = format!("configuration {name} does not exist; run `preprod-guard install`");
        return Ok(vec![bad(text)]);
    };
    let stored = json!(stored.webhooks);
    let mut findings = Vec::new();
    for entry in expected["webhooks"].as_array().into_iter().flatten() {
        let of_name = stored.as_array().into_iter().flatten();
        let found = of_name.clone().find(|found| found["name"] == entry["name"]);
        findings.extend(differences(name, entry, found));
    }
    if findings.is_empty() {
        findings.push(good(format!("configuration {name}")));
    }
    Ok(findings)
}

/// The fields of an entry that let requests pass, or production callers wait.
const FIELDS: [&str; 6] = [
    "failurePolicy",
    "matchConditions",
    "matchPolicy",
    "namespaceSelector",
    "rules",
    "timeoutSeconds",
];

fn differences(name: &str, expected: &Value, stored: Option<&Value>) -> Vec<Finding> {
    let webhook = expected["name"].as_str().unwrap_or_default();
    let Some(stored) = stored else {
        return vec![bad(format!(
            "configuration {name} has no webhook {webhook}; install it again"
        ))];
    };
    let mut found: Vec<Finding> = FIELDS
        .into_iter()
        .filter(|field| stored[field] != expected[field])
        .map(|field| {
            bad(format!(
                "{name}: {webhook} has another {field}; install it again"
            ))
        })
        .collect();
    let selects = |object: &Value| object.as_object().is_some_and(|object| !object.is_empty());
    if selects(&stored["objectSelector"]) {
        found.push(bad(format!(
            "{name}: {webhook} has an objectSelector; remove it"
        )));
    }
    if stored["clientConfig"]["caBundle"]
        .as_str()
        .unwrap_or_default()
        .is_empty()
    {
        let text = format!("{name}: {webhook} has no caBundle; the guard writes it while it runs");
        found.push(bad(text));
    }
    found
}

/// The rights of a caller that pass by the webhooks.
async fn rights(
    client: &Client,
    config: &Config,
    kind: &str,
    name: &str,
) -> Result<Finding, BoxError> {
    let mut held = Vec::new();
    let own = [
        ("delete", "apps", "deployments", ""),
        ("patch", "", "secrets", ""),
        ("get", "", "secrets", ""),
    ];
    let own = own
        .into_iter()
        .map(|right| (right, Some(&config.namespace)));
    for ((verb, group, resource, subresource), namespace) in
        RIGHTS.into_iter().map(|right| (right, None)).chain(own)
    {
        let mut spec = json!({"resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "subresource": subresource,
            "namespace": namespace.map_or("", String::as_str),
        }});
        spec[kind.replace("group", "groups")] = match kind {
            "group" => json!([name]),
            _ => json!(name),
        };
        if kind == "group" {
            // The API server requires a user, too: one that has no rights of its own.
            spec["user"] = json!("preprod-guard:doctor");
        }
        let review: SubjectAccessReview =
            serde_json::from_value(json!({"metadata": {}, "spec": spec}))?;
        let answer = client.create(&review).await?;
        if answer.status.is_some_and(|status| status.allowed) {
            let path = if subresource.is_empty() {
                resource.to_owned()
            } else {
                format!("{resource}/{subresource}")
            };
            let place = namespace
                .map(|name| format!(" in {name}"))
                .unwrap_or_default();
            held.push(format!("{verb} {path}{place}"));
        }
    }
    if held.is_empty() {
        return Ok(good(format!("rights of {kind} {name}")));
    }
    let held = held.join(", ");
    Ok(bad(format!(
        "{kind} {name} passes by the webhooks: may {held}; remove these rights"
    )))
}
