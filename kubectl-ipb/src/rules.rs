//! The operator's rules, as far as the user may read them.

use std::collections::BTreeMap;
use std::time::Duration;

use ipblock_operator::config::{self, CONFIG_MAP, Config, keys};
use ipblock_operator::mounted::Directory;
use ipblock_operator::policy::Protected;
use ipblock_operator::reconcile::RECORD;
use ipblock_operator::target::Target;
use ipblock_operator::why::Rules;
use k8s_openapi::api::core::v1::ConfigMap;
use reeve_client::{Error as ClientError, ObjectKey};

use crate::cluster::Cluster;
use crate::error::is_forbidden;

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Known {
    texts: Option<BTreeMap<String, String>>,
    config: Option<Config>,
    unknown: Vec<String>,
}

// === impl Known ===

impl Known {
    /// Reads the ConfigMap, and the record of the last good one when the ConfigMap has errors.
    pub(crate) async fn read(cluster: &Cluster) -> Self {
        let mut known = Self::default();
        let texts = match get(cluster, CONFIG_MAP).await {
            Ok(texts) => texts,
            Err(why) => {
                known.unknown.push(format!(
                    "the allowlist and the protected ranges are not known: {why}"
                ));
                return known;
            }
        };
        let options = options(cluster);
        match parse(&texts, &options) {
            Ok(config) => known.config = Some(config),
            Err(errors) => {
                let rules = "the operator goes on with its last good configuration";
                known
                    .unknown
                    .push(format!("the ConfigMap has errors, and {rules}: {errors}"));
                match get(cluster, RECORD).await {
                    Ok(recorded) => {
                        known.config = parse(&recorded, &options).ok();
                        known.texts = known.config.is_some().then_some(recorded);
                    }
                    Err(why) => known.unknown.push(format!("that one is not known: {why}")),
                }
                return known;
            }
        }
        known.texts = Some(texts);
        known
    }

    /// `maxDuration`, as far as it is known.
    pub(crate) fn most(&self) -> Option<Duration> {
        self.config.as_ref().and_then(|config| config.max_duration)
    }

    /// The rules for an answer.
    pub(crate) fn rules(&self) -> Rules<'_> {
        Rules {
            policy: self.config.as_ref().map(|config| &config.policy),
            texts: self.texts.as_ref(),
            unblock_grace: self.config.as_ref().map(|config| config.unblock_grace),
            unknown: self.unknown.clone(),
        }
    }
}

async fn get(cluster: &Cluster, name: &str) -> Result<BTreeMap<String, String>, String> {
    let namespace = cluster.operator_namespace.as_str();
    let key = ObjectKey::namespaced(namespace, name);
    let map = cluster.client.get::<ConfigMap>(&key).await;
    let map = map.map_err(|error| match error {
        error if is_forbidden(&error) => {
            format!("the right to get the ConfigMap {namespace}/{name} is missing")
        }
        error if error.is_not_found() => format!(
            "there is no ConfigMap {namespace}/{name}; --operator-namespace names the operator's namespace"
        ),
        error @ ClientError::Api { .. } => error.to_string(),
        error => reeve_client::error_chain(&error).to_string(),
    })?;
    Ok(map.data.unwrap_or_default())
}

fn options(cluster: &Cluster) -> config::Options {
    let server = cluster.server.into_iter();
    config::Options {
        // Only the operator knows its flags; none of them changes a rule.
        allow_loopback: true,
        bearer_over_http: true,
        insecure_triggers: true,
        secrets: Directory::new("/"),
        templates: Directory::new("/"),
        infrastructure: server
            .map(|address| Protected {
                target: Target::host(address),
                what: "the API server".into(),
            })
            .collect(),
        ..config::Options::default()
    }
}

/// The configuration without its triggers and channels, of which no rule depends.
fn parse(
    texts: &BTreeMap<String, String>,
    options: &config::Options,
) -> Result<Config, config::Errors> {
    let mut texts = texts.clone();
    texts.retain(|key, _| key != keys::TRIGGER && !key.starts_with(keys::NOTIFY_PREFIX));
    config::parse(&texts, options)
}
