//! The commands that only read: `ccm plan` and `ccm annotations`.

use std::fmt::Write as _;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube_core::params::ListParams;
use reeve_controller::client::{self, Client};
use reeve_controller::{ObjectKey, serde_json};
use serde_json::Value;

use crate::annotations::TABLE;
use crate::applier::Failures;
use crate::backends::Sources;
use crate::controller::service_of;
use crate::explain::explain;
use crate::identity::PREFIX;
use crate::provider::Provider;
use crate::settings::Settings;

/// A Service and the objects that its backends come from.
#[derive(Debug)]
pub struct Objects {
    service: Service,
    nodes: Vec<Arc<Node>>,
    slices: Vec<Arc<EndpointSlice>>,
}

/// The reason why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not YAML, or not a list of objects.
    #[error("document {number}: {cause}")]
    Document {
        /// The number of the document, from 1.
        number: usize,
        /// The cause.
        cause: String,
    },
    /// There is no such Service.
    #[error("there is no Service {0}")]
    NoService(ObjectKey),
    /// The cluster does not answer.
    #[error(transparent)]
    Cluster(#[from] client::Error),
    /// The cloud does not answer.
    #[error(transparent)]
    Cloud(#[from] Failures),
}

/// Reads `namespace/name`, or a name in `default`.
#[must_use]
pub fn key(text: &str) -> ObjectKey {
    match text.split_once('/') {
        Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::namespaced("default", text),
    }
}

// === impl Objects ===

impl Objects {
    /// The Service `key` and all others of a text of YAML documents, or of `List` objects as `kubectl get -o yaml` prints
    /// them. Other kinds are skipped.
    ///
    /// # Errors
    /// If a document cannot be read, or the Service is not there.
    pub fn read(key: &ObjectKey, text: &str) -> Result<Self, Error> {
        let mut objects = Vec::new();
        let documents = text.split("\n---").map(str::trim);
        for (at, document) in documents.filter(|one| !one.is_empty()).enumerate() {
            let read = serde_saphyr::from_str::<Value>(document);
            let mut value = read.map_err(|error| Error::Document {
                number: at + 1,
                cause: error.to_string(),
            })?;
            match value.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => {
                    objects.extend(items.into_iter().map(|item| (at, item)));
                }
                _ => objects.push((at, value)),
            }
        }
        let (mut services, mut nodes, mut slices) = (Vec::new(), Vec::new(), Vec::new());
        // Anything else is no object.
        objects.retain(|(_, object)| object.is_object());
        for (at, mut object) in objects {
            let meta = &mut object["metadata"];
            if object_is_named(meta) && meta["namespace"].is_null() {
                meta["namespace"] = "default".into();
            }
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            match &*kind {
                "Service" => services.push(typed::<Service>(at, object)?),
                "Node" => nodes.push(Arc::new(typed::<Node>(at, object)?)),
                "EndpointSlice" => slices.push(Arc::new(typed::<EndpointSlice>(at, object)?)),
                _ => {}
            }
        }
        let mut services = services.into_iter();
        let service = services.find(|service| ObjectKey::of(service) == *key);
        Self::of(key, service, nodes, slices)
    }

    /// The Service `key` and all others of a cluster.
    ///
    /// # Errors
    /// If the cluster does not answer, or the Service is not there.
    pub async fn fetch(key: &ObjectKey, client: &Client) -> Result<Self, Error> {
        let service = client::optional(client.get::<Service>(key).await)?;
        let all = ListParams::default();
        let nodes = client.list::<Node>(None, &all).await?.items;
        let slices = client
            .list::<EndpointSlice>(key.namespace.as_deref(), &all)
            .await?;
        let slices = slices.items.into_iter().map(Arc::new).collect();
        Self::of(
            key,
            service,
            nodes.into_iter().map(Arc::new).collect(),
            slices,
        )
    }

    fn of(
        key: &ObjectKey,
        service: Option<Service>,
        nodes: Vec<Arc<Node>>,
        mut slices: Vec<Arc<EndpointSlice>>,
    ) -> Result<Self, Error> {
        slices.retain(|slice| service_of(slice).as_ref() == Some(key));
        Ok(Self {
            service: service.ok_or_else(|| Error::NoService(key.clone()))?,
            nodes,
            slices,
        })
    }

    /// The plan for the Service.
    ///
    /// # Errors
    /// If the cloud does not answer.
    pub async fn plan(
        &self,
        provider: &dyn Provider,
        settings: &Settings,
    ) -> Result<String, Error> {
        let sources = Sources {
            nodes: &self.nodes,
            slices: &self.slices,
        };
        Ok(explain(provider, settings, &self.service, sources).await?)
    }
}

fn object_is_named(meta: &Value) -> bool {
    meta["name"].is_string()
}

fn typed<K: serde::de::DeserializeOwned>(at: usize, object: Value) -> Result<K, Error> {
    serde_json::from_value(object).map_err(|error| Error::Document {
        number: at + 1,
        cause: error.to_string(),
    })
}

/// The table of annotations in Markdown.
#[must_use]
pub fn annotations() -> String {
    let mut text = "| annotation | values | meaning and default |\n|---|---|---|\n".to_owned();
    for row in TABLE {
        let _ = writeln!(
            text,
            "| `{PREFIX}{}` | {} | {} |",
            row.name, row.values, row.meaning
        );
    }
    text
}
