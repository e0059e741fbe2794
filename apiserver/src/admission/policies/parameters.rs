//! The parameters of a policy: the objects to which a binding refers.

use std::sync::Arc;

use serde_json::Value;

use crate::admission::{AdmissionRequest, Server};
use crate::resource::ResourceInfo;
use crate::selector::LabelSelector;
use crate::table::cells::string;
use crate::verbs::conversion;
use crate::verbs::present::whole;

/// The type of the parameters of a policy.
#[derive(Debug)]
pub(super) struct ParameterKind {
    api_version: String,
    kind: String,
}

/// The reference of a binding to its parameters.
#[derive(Debug)]
pub(super) struct Reference {
    /// Empty for all that the selector selects.
    name: String,
    /// Empty for the namespace of the write.
    namespace: String,
    selector: Option<Result<LabelSelector, String>>,
    /// Whether a write without any parameter fails.
    requires_one: bool,
}

// === impl ParameterKind ===

impl ParameterKind {
    /// Reads `paramKind`.
    pub(super) fn read(source: &Value) -> Option<Self> {
        source.is_object().then(|| Self {
            api_version: string(&source["apiVersion"]).to_owned(),
            kind: string(&source["kind"]).to_owned(),
        })
    }

    /// The resource of this type.
    ///
    /// # Errors
    /// It is not served.
    pub(super) fn resource(&self, server: &Server<'_>) -> Result<Arc<ResourceInfo>, String> {
        let served = server.registry.served();
        let mut all = served.all();
        let found = all.find(|info| {
            info.served && info.kind == self.kind && info.api_version() == self.api_version
        });
        found.cloned().ok_or_else(|| {
            let slash = if self.api_version.contains('/') {
                ""
            } else {
                "/"
            };
            format!(
                "failed to find resource referenced by paramKind: '{slash}{}, Kind={}'",
                self.api_version, self.kind
            )
        })
    }
}

// === impl Reference ===

impl Reference {
    /// Reads `paramRef`.
    pub(super) fn read(source: &Value) -> Self {
        let selector = &source["selector"];
        let read = || LabelSelector::from_value(selector).map_err(|error| error.to_string());
        Self {
            name: string(&source["name"]).to_owned(),
            namespace: string(&source["namespace"]).to_owned(),
            selector: selector.is_object().then(read),
            requires_one: source["parameterNotFoundAction"] == "Deny",
        }
    }

    /// The parameters for a write, by name.
    ///
    /// # Errors
    /// Why there can be none, or there is none although one is required.
    pub(super) async fn resolve(
        &self,
        server: &Server<'_>,
        asked: &AdmissionRequest<'_>,
        of: &ResourceInfo,
    ) -> Result<Vec<Value>, String> {
        let namespace = match (of.namespaced, self.namespace.as_str()) {
            (false, "") => "",
            (false, _) => {
                return Err(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
                        .to_owned(),
                );
            }
            (true, "") => match asked.namespace() {
                "" => return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned()),
                own => own,
            },
            (true, other) => other,
        };
        let prefix = match namespace {
            "" => String::new(),
            namespace => format!("{namespace}/"),
        };
        let found = if self.name.is_empty() {
            let selector = match &self.selector {
                Some(Ok(selector)) => selector,
                Some(Err(why)) => return Err(why.clone()),
                None => return Err("one of name or selector must be provided".to_owned()),
            };
            let mut all = server.store.list(&of.storage, &prefix).1;
            all.retain(|object| selector.matches_object(&object.value()));
            all
        } else {
            let key = format!("{prefix}{}", self.name);
            server.store.get(&of.storage, &key).into_iter().collect()
        };
        if found.is_empty() && self.requires_one {
            return Err(
                "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned(),
            );
        }
        let shown = conversion::shown(server.network(), of, found).await;
        let shown = shown.map_err(|status| status.to_string())?;
        Ok(shown.iter().map(|object| whole(of, object)).collect())
    }
}
