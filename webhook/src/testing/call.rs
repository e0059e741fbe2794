//! Calls, as the API server makes them.

use std::fmt;

use kube_core::Resource;
use kube_core::gvk::GroupVersionKind;
use serde::Serialize;
use serde_json::{Value, json};

use super::Reply;
use crate::admission::{Failure, Operation, Webhook};

/// The identifier of every call.
const UID: &str = "0df28fbd-5f5f-11e8-bc74-36e6bb280816";

/// A call of a webhook, as the API server makes it.
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    operation: Operation,
    request: Value,
}

// === impl Call ===

impl Call {
    /// The creation of `object`.
    ///
    /// # Panics
    /// When the object cannot be encoded, as in the functions below.
    pub fn create<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Self {
        Self::typed::<K>(Operation::Create, Some(object), None)
    }

    /// The update of `old` to `new`.
    pub fn update<K: Resource<DynamicType = ()> + Serialize>(old: &K, new: &K) -> Self {
        Self::typed(Operation::Update, Some(new), Some(old))
    }

    /// The deletion of `old`.
    pub fn delete<K: Resource<DynamicType = ()> + Serialize>(old: &K) -> Self {
        Self::typed(Operation::Delete, None, Some(old))
    }

    fn typed<K: Resource<DynamicType = ()> + Serialize>(
        operation: Operation,
        object: Option<&K>,
        old: Option<&K>,
    ) -> Self {
        let (group, version, kind) = (K::group(&()), K::version(&()), K::kind(&()));
        let kind = GroupVersionKind::gvk(&group, &version, &kind);
        let value =
            |object: &K| serde_json::to_value(object).expect("an object that can be encoded");
        Self::of(
            operation,
            &kind,
            &K::plural(&()),
            object.map(value),
            old.map(value),
        )
    }

    /// A call for an object of any kind, in the resource `plural` of its group and version.
    pub fn of(
        operation: Operation,
        kind: &GroupVersionKind,
        plural: &str,
        object: Option<Value>,
        old_object: Option<Value>,
    ) -> Self {
        let names = |object: &Option<Value>| {
            let metadata = &object.as_ref()?["metadata"];
            Some((metadata["name"].clone(), metadata["namespace"].clone()))
        };
        let (name, namespace) = names(&object).or(names(&old_object)).unwrap_or_default();
        let (group, version) = (&kind.group, &kind.version);
        let kind = json!({"group": group, "version": version, "kind": kind.kind});
        let resource = json!({"group": group, "version": version, "resource": plural});
        let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            operation,
            request: json!({
                "uid": UID,
                "kind": kind,
                "resource": resource,
                "requestKind": kind,
                "requestResource": resource,
                "name": text(name),
                "namespace": text(namespace),
                "operation": operation.as_str(),
                "userInfo": {"username": "user", "groups": ["system:authenticated"]},
                "object": object,
                "oldObject": old_object,
                "dryRun": false,
                "options": null,
            }),
        }
    }

    /// The user. Default: `user`.
    pub fn user(mut self, name: &str) -> Self {
        self.request["userInfo"]["username"] = json!(name);
        self
    }

    /// The groups of the user. Default: `system:authenticated`.
    pub fn groups<T: Into<String>>(mut self, groups: impl IntoIterator<Item = T>) -> Self {
        let groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        self.request["userInfo"]["groups"] = json!(groups);
        self
    }

    /// A request for a subresource of `plural` in the core group or another: an Eviction is created in `eviction` of
    /// `pods`.
    pub fn subresource(mut self, group: &str, version: &str, plural: &str, name: &str) -> Self {
        let resource = json!({"group": group, "version": version, "resource": plural});
        self.request["resource"] = resource.clone();
        self.request["requestResource"] = resource;
        self.request["subResource"] = json!(name);
        self.request["requestSubResource"] = json!(name);
        self
    }

    /// A deletion as one of a `deletecollection`: the call has no name, and the object has.
    pub fn in_collection(mut self) -> Self {
        self.request["name"] = json!("");
        self
    }

    /// A request of which nothing is stored.
    pub fn dry_run(mut self) -> Self {
        self.request["dryRun"] = json!(true);
        self
    }

    /// The options of the operation.
    pub fn options(mut self, options: Value) -> Self {
        self.request["options"] = options;
        self
    }

    /// Sets any field of the request.
    pub fn field(mut self, name: &str, value: Value) -> Self {
        self.request[name] = value;
        self
    }

    /// The review of the call, as JSON.
    #[must_use]
    pub fn review(&self) -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": self.request,
        })
    }

    /// Calls `webhook`, and checks its answer as the API server does.
    ///
    /// # Panics
    /// When the call fails, or the API server would refuse the answer.
    pub async fn to(&self, webhook: &Webhook) -> Reply {
        match self.try_to(webhook).await {
            Ok(reply) => reply,
            Err(failure) => panic!("{self}: {failure}"),
        }
    }

    /// As [`Call::to`], with the failure of the call.
    ///
    /// # Errors
    /// That of [`Webhook::answer`].
    ///
    /// # Panics
    /// When the API server would refuse the answer.
    pub async fn try_to(&self, webhook: &Webhook) -> Result<Reply, Failure> {
        let review = self.review().to_string();
        let response = webhook.answer(review.as_bytes()).await?;
        let object = Some(&self.request["object"]).filter(|object| !object.is_null());
        Ok(Reply::checked(
            &response.to_json(),
            UID,
            webhook.form(),
            object,
        ))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let request = &self.request;
        write!(f, "{} {}", self.operation, text(&request["kind"]["kind"]))?;
        for (before, value) in [
            (" ", &request["namespace"]),
            ("/", &request["name"]),
            (" ", &request["subResource"]),
            (" by ", &request["userInfo"]["username"]),
        ] {
            let value = text(value);
            if !value.is_empty() {
                write!(f, "{before}{value}")?;
            }
        }
        Ok(())
    }
}
