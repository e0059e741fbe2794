//! Reviews on the wire. Objects stay text until the type that reads them is given.

use std::borrow::Cow;

use kube_core::gvk::{GroupVersionKind, GroupVersionResource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Failure, Operation, Request, UserInfo};

/// Version and kind of a body.
#[derive(Deserialize)]
struct Type<'a> {
    #[serde(default, borrow, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(default, borrow)]
    kind: Cow<'a, str>,
}

/// The body of a call.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(default, borrow, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(default, borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    request: Option<Review<'a>>,
}

/// A request whose objects are not read yet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review<'a> {
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    kind: KindName,
    #[serde(default)]
    resource: ResourceName,
    #[serde(default)]
    sub_resource: String,
    request_kind: Option<KindName>,
    request_resource: Option<ResourceName>,
    #[serde(default)]
    request_sub_resource: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    pub(super) operation: Operation,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(default, borrow)]
    pub(super) object: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) old_object: Option<&'a RawValue>,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    options: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KindName {
    group: String,
    version: String,
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceName {
    group: String,
    version: String,
    resource: String,
}

/// The names in an object.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    metadata: Names,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    name: String,
}

/// Checks that `body` is a review of version `group/v1` and of this kind.
pub(crate) fn type_of(
    body: &[u8],
    group: &'static str,
    expected: &'static str,
) -> Result<(), Failure> {
    let malformed = |source| Failure::Malformed { expected, source };
    let found: Type<'_> = serde_json::from_slice(body).map_err(malformed)?;
    let version = found.api_version.strip_prefix(group);
    if version == Some("/v1") && found.kind == expected {
        return Ok(());
    }
    let found = match (found.kind.as_ref(), found.api_version.as_ref()) {
        ("", "") => "an object without kind and apiVersion".to_owned(),
        (kind, version) => format!("{kind} of {version}"),
    };
    Err(Failure::Version { expected, found })
}

// === impl Body ===

impl Body<'_> {
    fn is_review(&self) -> bool {
        self.api_version == "admission.k8s.io/v1" && self.kind == Review::KIND
    }
}

// === impl Review ===

impl<'a> Review<'a> {
    /// The kind of the body.
    const KIND: &'static str = "AdmissionReview";

    pub(super) fn of(body: &'a [u8]) -> Result<Self, Failure> {
        let read: Result<Body<'a>, _> = serde_json::from_slice(body);
        // One pass over the body of a review. Another body is read again for the reason: its type comes before its fields.
        if !read.as_ref().is_ok_and(Body::is_review) {
            type_of(body, "admission.k8s.io", Self::KIND)?;
        }
        let read = read.map_err(|source| Failure::Malformed {
            expected: Self::KIND,
            source,
        })?;
        let review = read.request.ok_or(Failure::Missing("request"))?;
        if review.uid.is_empty() {
            return Err(Failure::Missing("uid in its request"));
        }
        Ok(review)
    }

    pub(super) fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::gvk(&self.kind.group, &self.kind.version, &self.kind.kind)
    }

    /// The request with its objects read as `K`. The error is that of an object that is no `K`; with `needs_old` also that of
    /// the stored object.
    pub(super) fn read<K: DeserializeOwned>(&self, needs_old: bool) -> Result<Request<K>, String> {
        let object = read("object", self.object)?;
        let (old_object, old_unreadable) = match read("oldObject", self.old_object) {
            Ok(old) => (old, false),
            Err(_) if !needs_old => (None, true),
            // The reason would quote a stored object, which the user may not be allowed to read.
            Err(_) => {
                let problem =
                    "oldObject cannot be read: the stored object is not of the type of the webhook";
                return Err(problem.to_owned());
            }
        };
        Ok(Request {
            uid: self.uid.clone(),
            kind: self.kind(),
            resource: self.resource.name(),
            subresource: given(&self.sub_resource),
            request_kind: self
                .request_kind
                .as_ref()
                .map(|kind| GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind)),
            request_resource: self.request_resource.as_ref().map(ResourceName::name),
            request_subresource: given(&self.request_sub_resource),
            name: self.name(),
            namespace: given(&self.namespace),
            operation: self.operation,
            user: self.user_info.clone(),
            object,
            old_object,
            old_unreadable,
            dry_run: self.dry_run.unwrap_or(false),
            options: self.options.clone(),
            deadline: None,
        })
    }

    /// The name of the request, or that in the object.
    fn name(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        let object = self.object.or(self.old_object);
        let named = object.and_then(|object| serde_json::from_str::<Named>(object.get()).ok());
        named.map(|named| named.metadata.name).unwrap_or_default()
    }
}

// === impl ResourceName ===

impl ResourceName {
    fn name(&self) -> GroupVersionResource {
        GroupVersionResource::gvr(&self.group, &self.version, &self.resource)
    }
}

fn given(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn read<K: DeserializeOwned>(field: &str, raw: Option<&RawValue>) -> Result<Option<K>, String> {
    raw.map(|raw| serde_json::from_str(raw.get()))
        .transpose()
        .map_err(|error| format!("{field} cannot be read: {error}"))
}
