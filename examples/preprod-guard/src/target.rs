//! What a request acts on.

use reeve_webhook::admission::{Operation, Request, UserInfo};
use serde_json::Value;

use crate::config::Mark;
use crate::object::{Facts, Key};

/// The object of a request, in its old and its new state.
#[derive(Clone, Debug)]
pub struct Target {
    /// The operation.
    pub operation: Operation,
    /// The caller.
    pub user: UserInfo,
    /// The object. For a subresource, the object that has it.
    pub key: Key,
    /// The version of its resource in the request.
    pub version: String,
    /// The subresource.
    pub subresource: Option<String>,
    /// The states in the request: that of `oldObject`, and that of `object`. Bodies of subresources count, too.
    pub states: Vec<Facts>,
    /// The JSON of these states, for rules about single kinds.
    pub values: Vec<Value>,
    /// The object of a subresource, as the API server has it now.
    pub parent: Option<Facts>,
    /// The Namespace of the object, as the API server has it now, if the informers do not have it.
    pub namespace: Option<Facts>,
    /// Whether nothing is stored.
    pub dry_run: bool,
}

// === impl Target ===

impl Target {
    /// The target of `request`.
    #[must_use]
    pub fn of(request: Request, mark: &Mark) -> Self {
        let mut resource = request.resource.resource;
        let mut subresource = request.subresource;
        if request.resource.group.is_empty() && resource == "bindings" {
            // The older form of the subresource: the object has the name of the Pod.
            (resource, subresource) = ("pods".to_owned(), Some("binding".to_owned()));
        }
        let name = match subresource.as_deref() {
            Some("proxy") => proxied(&request.name).to_owned(),
            _ => request.name,
        };
        let cluster_scoped = resource == "namespaces";
        let namespace = request.namespace.filter(|_| !cluster_scoped);
        let values: Vec<Value> = [request.old_object, request.object]
            .into_iter()
            .flatten()
            .collect();
        Self {
            operation: request.operation,
            user: request.user,
            version: request.resource.version,
            key: Key {
                group: request.resource.group,
                resource,
                namespace: namespace.unwrap_or_default(),
                name,
            },
            subresource,
            states: values.iter().map(|value| Facts::of(value, mark)).collect(),
            values,
            parent: None,
            namespace: None,
            dry_run: request.dry_run,
        }
    }

    /// Group and plural.
    #[must_use]
    pub fn kind(&self) -> (&str, &str) {
        (&self.key.group, &self.key.resource)
    }

    /// The word for the kind in messages.
    #[must_use]
    pub fn word(&self) -> &str {
        word(&self.key.resource)
    }
}

/// The name of the object in the name of a proxy: `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
fn proxied(name: &str) -> &str {
    let parts: Vec<&str> = name.split(':').collect();
    match parts[..] {
        [name, _] | [_, name, _] => name,
        _ => name,
    }
}

/// The word in messages and in the names of webhooks for the kind of this plural.
#[must_use]
pub fn word(plural: &str) -> &str {
    match plural {
        "customresourcedefinitions" => "crd",
        "priorityclasses" => "priorityclass",
        "networkpolicies" => "networkpolicy",
        "ingresses" => "ingress",
        "storageclasses" | "ingressclasses" | "runtimeclasses" => {
            plural.strip_suffix("es").unwrap_or(plural)
        }
        "endpoints" => "endpoints",
        plural => plural.strip_suffix('s').unwrap_or(plural),
    }
}
