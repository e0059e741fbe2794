//! Removal of the webhook configurations.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube_core::params::{DeleteParams, ListParams};
use reeve_client::{Client, ObjectKey, optional};

use crate::config::Config;
use crate::install::{LABEL, names};
use crate::program::BoxError;

/// The configurations to remove.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// Those of one guard.
    Of(&'a Config),
    /// Those of all guards, by their label: no configuration file is needed.
    Emergency,
}

/// Deletes webhook configurations, and returns their names. Everything else of a guard stays.
///
/// # Errors
/// When the API server refuses it. Some may be deleted then.
pub async fn uninstall(client: &Client, scope: Scope<'_>) -> Result<Vec<String>, BoxError> {
    let names: Vec<String> = match scope {
        Scope::Of(config) => names(config).into(),
        Scope::Emergency => {
            let (label, value) = LABEL;
            let selected = ListParams::default().labels(&format!("{label}={value}"));
            let list = client
                .list::<ValidatingWebhookConfiguration>(None, &selected)
                .await?;
            list.items
                .into_iter()
                .filter_map(|one| one.metadata.name)
                .collect()
        }
    };
    let mut deleted = Vec::new();
    for name in names {
        let key = ObjectKey::cluster(name.as_str());
        let params = DeleteParams::default();
        let result = client
            .delete::<ValidatingWebhookConfiguration>(&key, &params)
            .await;
        if optional(result)?.is_some() {
            deleted.push(name);
        }
    }
    Ok(deleted)
}
