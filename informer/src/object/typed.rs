//! The typed form: every Kubernetes type is an entry of itself.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::{DynamicObject, Resource};
use reeve_client::json::{self, Reader};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::decoding::Decoding;
use super::form::Form;
use super::stored::Stored;
use super::view_error::ViewError;

impl<K> Stored for K
where
    K: Resource + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> Option<&str> {
        self.meta()
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty())
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn resource_version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.meta().labels.as_ref()?.get(name).map(String::as_str)
    }

    fn each_label(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self.meta().labels.iter().flatten() {
            visit(name, value);
        }
    }

    fn owner_references(&self) -> Cow<'_, [OwnerReference]> {
        Cow::Borrowed(self.meta().owner_references.as_deref().unwrap_or_default())
    }

    fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, ViewError> {
        Ok(Cow::Borrowed(self.meta()))
    }

    fn metadata_mut(&mut self) -> Option<&mut ObjectMeta> {
        Some(self.meta_mut())
    }

    fn dynamic(&self) -> Result<DynamicObject, ViewError> {
        json::reencode(self).map_err(|error| ViewError::Encode(json::redacted(&error)))
    }
}

impl<K> Form for K
where
    K: Resource + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    type Typed = K;

    fn typed(self: &Arc<Self>) -> Result<Arc<K>, ViewError> {
        Ok(Arc::clone(self))
    }

    fn decode<'de>(
        document: &mut Reader<'de>,
        decoding: &'de Decoding,
    ) -> Result<Self, serde_json::Error> {
        K::deserialize(document.trimming(&decoding.trimming))
    }
}
