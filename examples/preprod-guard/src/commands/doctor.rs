//! Checks of an installed guard: its configurations, and the rights that would pass by a webhook.

use jiff::SignedDuration;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube_core::params::ListParams;
use reeve_client::{Client, ObjectKey, optional};
use reeve_clock::Clock;
use serde_json::{Value, json};

use super::certs::end_of_certificate;
use super::rights::rights;
use super::times::Longest;
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

/// The oldest version of Kubernetes that has the conditions of the webhooks.
const OLDEST_VERSION: (u32, u32) = (1, 28);

/// The least replicas of which one may stop.
const LEAST_REPLICAS: i32 = 2;

/// The least rest of a certificate's life: the guard renews it after two thirds of a year.
const LEAST_LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Runs the checks. `place` is the address of the webhooks that the configurations must have.
/// A check that cannot be made is a problem among the findings.
pub async fn doctor(
    client: &Client,
    config: &Config,
    place: &Place,
    clock: &Clock,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.callers == crate::identity::Callers::default() {
        findings.push(bad(
            "no caller is configured: every request is allowed; list callers",
        ));
    }
    findings.extend(result(version(client).await.map(|one| vec![one])));
    for expected in install::configurations(config, place, b"") {
        findings.extend(result(configuration(client, &expected).await));
    }
    findings.extend(result(operation(client, config, clock).await));
    findings.extend(result(times(client).await.map(|one| vec![one])));
    findings.extend(result(rights(client, config).await));
    findings
}

/// The findings of a check, or that it could not be made.
fn result(checked: Result<Vec<Finding>, BoxError>) -> Vec<Finding> {
    checked.unwrap_or_else(|error| vec![bad(format!("a check could not be made: {error}"))])
}

/// Whether the API server has the conditions of the webhooks. An older one drops them, and calls the webhooks for every caller.
///
/// # Errors
/// When the API server does not answer.
pub async fn version(client: &Client) -> Result<Finding, BoxError> {
    let version = client.kube().apiserver_version().await?;
    let number = |text: &str| {
        let digits = text.trim_end_matches(|last: char| !last.is_ascii_digit());
        digits.parse::<u32>().unwrap_or_default()
    };
    let found = (number(&version.major), number(&version.minor));
    let text = format!("Kubernetes {}.{}", version.major, version.minor);
    if found >= OLDEST_VERSION {
        return Ok(good(text));
    }
    Ok(bad(format!(
        "{text} has no matchConditions: every caller would depend on the guard; update to 1.28"
    )))
}

pub(super) fn good(text: impl Into<String>) -> Finding {
    let text = text.into();
    Finding { good: true, text }
}

pub(super) fn bad(text: impl Into<String>) -> Finding {
    let text = text.into();
    Finding { good: false, text }
}

/// The replicas of the Deployment with the name of the Service, and the certificate that the guard renews. A guard that runs in
/// another way has neither.
async fn operation(
    client: &Client,
    config: &Config,
    clock: &Clock,
) -> Result<Vec<Finding>, BoxError> {
    let mut findings = Vec::new();
    let (namespace, service) = (config.namespace.as_str(), config.service.as_str());
    let key = ObjectKey::namespaced(namespace, service);
    if let Some(deployment) = optional(client.get::<Deployment>(&key).await)? {
        let ready = deployment.status.and_then(|status| status.ready_replicas);
        let ready = ready.unwrap_or_default();
        let text = format!("deployment {namespace}/{service} has {ready} ready replicas");
        findings.push(if ready >= LEAST_REPLICAS {
            good(text)
        } else {
            bad(format!(
                "{text}: a stop of one refuses pre-release callers and loses records; run {LEAST_REPLICAS}"
            ))
        });
    }
    let name = format!("{service}-webhook-certificates");
    let key = ObjectKey::namespaced(namespace, name.as_str());
    if let Some(secret) = optional(client.get::<Secret>(&key).await)? {
        let data = secret.data.unwrap_or_default();
        let end = data
            .get("tls.crt")
            .and_then(|pem| end_of_certificate(&pem.0));
        let left = end.map(|end| end.duration_since(clock.now()));
        findings.push(match (end, left) {
            (Some(end), Some(left)) if left >= LEAST_LIFE => {
                good(format!("certificate in {name} until {end}"))
            }
            (Some(end), _) => bad(format!(
                "certificate in {name} ends {end}, and the guard did not renew it; read its log"
            )),
            (None, _) => bad(format!("{name} has no certificate in tls.crt; delete it")),
        });
    }
    Ok(findings)
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

/// The time that the webhooks of all configurations can hold a write of a Pod.
async fn times(client: &Client) -> Result<Finding, BoxError> {
    let all = ListParams::default();
    let mutating = client
        .list::<MutatingWebhookConfiguration>(None, &all)
        .await?;
    let validating = client
        .list::<ValidatingWebhookConfiguration>(None, &all)
        .await?;
    let mutating: Vec<Value> = mutating.items.iter().map(|one| json!(one)).collect();
    let validating: Vec<Value> = validating.items.iter().map(|one| json!(one)).collect();
    let longest = Longest::of(&mutating, &validating);
    Ok(Finding {
        good: !longest.is_too_long(),
        text: longest.text(),
    })
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
    let mut client = stored["clientConfig"].clone();
    if let Some(fields) = client.as_object_mut() {
        fields.remove("caBundle");
    }
    if client != expected["clientConfig"] {
        let expected = &expected["clientConfig"];
        found.push(bad(format!(
            "{name}: {webhook} calls {client} and not {expected}; install it again, or give doctor the same --url"
        )));
    }
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
