//! Removal of the webhook configurations.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube_core::params::{DeleteParams, ListParams};
use reeve_client::{Client, ObjectKey, optional};

use crate::config::Config;
use crate::install::{LABEL, names};
use crate::program::BoxError;
use crate::webhook::{DECIDE, RECORD};

/// The configurations to remove.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// Those of one guard.
    Of(&'a Config),
    /// Those of all guards, by their label, or by the names and paths of their webhooks: no configuration file is needed.
    Emergency,
}

/// The result of one deletion.
#[derive(Debug)]
pub struct Removal {
    /// The configuration.
    pub name: String,
    /// Whether it was deleted; `Ok(false)` if there is none of this name.
    pub deleted: Result<bool, BoxError>,
}

/// Deletes webhook configurations. A failure does not keep the others. Everything else of a guard stays.
///
/// # Errors
/// When the configurations cannot be listed.
pub async fn uninstall(client: &Client, scope: Scope<'_>) -> Result<Vec<Removal>, BoxError> {
    let names: Vec<String> = match scope {
        Scope::Of(config) => names(config).into(),
        Scope::Emergency => {
            let list = client
                .list::<ValidatingWebhookConfiguration>(None, &ListParams::default())
                .await?;
            let ours = list.items.into_iter().filter(is_of_guard);
            ours.filter_map(|one| one.metadata.name).collect()
        }
    };
    let mut removals = Vec::new();
    for name in names {
        let key = ObjectKey::cluster(name.as_str());
        let params = DeleteParams::default();
        let result = client
            .delete::<ValidatingWebhookConfiguration>(&key, &params)
            .await;
        let deleted = optional(result).map(|found| found.is_some());
        removals.push(Removal {
            name,
            deleted: deleted.map_err(Into::into),
        });
    }
    Ok(removals)
}

/// Whether a configuration is one of a guard: by its label, or, if the label was lost, by a webhook with the name and the path
/// of a guard's.
fn is_of_guard(configuration: &ValidatingWebhookConfiguration) -> bool {
    let (label, value) = LABEL;
    let labels = configuration.metadata.labels.as_ref();
    let labelled = labels.and_then(|labels| labels.get(label));
    let mut webhooks = configuration.webhooks.iter().flatten();
    labelled.is_some_and(|found| found == value)
        || webhooks.any(|webhook| {
            let client = &webhook.client_config;
            let path = client.service.as_ref().and_then(|of| of.path.as_deref());
            let url = client.url.as_deref();
            let leads_to =
                |end: &str| path == Some(end) || url.is_some_and(|url| url.ends_with(end));
            webhook.name.contains(".validate.") && leads_to(DECIDE)
                || webhook.name.starts_with("deletion.record.") && leads_to(RECORD)
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::install::{Place, configurations};

    fn is_ours(configuration: Value) -> bool {
        is_of_guard(&serde_json::from_value(configuration).unwrap())
    }

    #[test]
    fn a_configuration_that_lost_its_label_is_found_by_its_paths() {
        let url = Place::Url("https://127.0.0.1:9443".to_owned());
        for place in [Place::Service, url] {
            for mut one in configurations(&Config::default(), &place, b"") {
                assert!(is_ours(one.clone()));
                one["metadata"]["labels"] = json!({});
                assert!(is_ours(one.clone()));
                for webhook in one["webhooks"].as_array_mut().unwrap() {
                    webhook["name"] = json!("pods.another.example.com");
                }
                assert!(!is_ours(one), "another program has such a path, too");
            }
        }
    }
}
