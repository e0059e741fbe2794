//! Patches in the four forms of the API server.
//!
//! | to | use |
//! |---|---|
//! | set some fields, whatever the others are | [`Patch::merge`] with those fields |
//! | write the difference of two states of an object | [`Patch::merge_from`]; refused if the object changed meanwhile: [`Patch::merge_from_locked`] |
//! | change what another client may change, too | [`Client::edit`](crate::Client::edit): no patch |
//! | have an object in a wanted state, created or not | [`Client::create_or_update`](crate::Client::create_or_update), or [`Client::apply`](crate::Client::apply) for the fields of one owner |
//! | merge lists of a built-in kind by their keys | [`Patch::strategic`] |
//! | change a list only if it is as expected | [`Patch::json`] with `test` |
//!
//! This [`Patch`] has no type parameter, and [`Client::patch`](crate::Client::patch) takes it with options: `()` for none. The
//! patches and parameters of kube-core convert to both, so that code for kube-rs keeps them; new code needs only these.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use reeve_client::{Client, Error, ObjectKey, Patch};
//! use serde_json::json;
//!
//! async fn debug(client: &Client, key: &ObjectKey) -> Result<ConfigMap, Error> {
//!     client.patch(key, Patch::merge(json!({"data": {"level": "debug"}}))).await
//! }
//! ```

use std::fmt;

use kube_core::Resource;
use kube_core::params::PatchParams;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A change to an object. The patches of kube-core convert to it.
///
/// ```
/// use reeve_client::Patch;
/// use serde_json::json;
///
/// let merge = Patch::merge(json!({"data": {"key": "value", "gone": null}}));
/// let json = Patch::json(json!([{"op": "test", "path": "/data/key", "value": "value"},
///                               {"op": "remove", "path": "/data/key"}]));
/// let strategic = Patch::strategic(json!({"spec": {"containers": [{"name": "web", "image": "web:2"}]}}));
/// # let _ = (merge, json, strategic);
/// ```
///
/// Its `Debug` form gives the length of the body in bytes, not the body: that may be a Secret.
#[derive(Clone)]
pub struct Patch {
    pub(crate) form: Form,
    /// The body, or the error that the send reports.
    pub(crate) body: Result<Vec<u8>, String>,
}

/// The form of a [`Patch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// RFC 7386: objects are merged, null removes, arrays are replaced.
    Merge,
    /// RFC 6902: operations in order; all or none.
    Json,
    /// As merge, but arrays of built-in kinds are merged by their keys. Custom kinds are answered with 415.
    Strategic,
    /// Server-side apply.
    Apply,
}

// === impl Form ===

impl Form {
    /// The media type of the body.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            // JSON is YAML; older servers have no other name.
            Self::Apply => "application/apply-patch+yaml",
        }
    }

    fn of_content_type(text: &str) -> Option<Self> {
        [Self::Merge, Self::Json, Self::Strategic, Self::Apply]
            .into_iter()
            .find(|form| form.content_type() == text)
    }
}

/// The reason why two objects do not make a patch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// One of them does not encode.
    #[error("no patch can be made: {0}")]
    Encode(String),
    /// A patch with an optimistic lock needs the version of the original.
    #[error("no patch with an optimistic lock can be made: the original has no resourceVersion")]
    NoVersion,
    /// They are not two states of one object.
    #[error("no patch can be made: the name, the namespace or the uid differs")]
    Different,
}

// === impl Patch ===

impl Patch {
    /// A merge patch (RFC 7386).
    pub fn merge(body: impl Serialize) -> Self {
        Self::of(Form::Merge, &body)
    }

    /// A JSON patch (RFC 6902): an array of operations.
    pub fn json(operations: impl Serialize) -> Self {
        Self::of(Form::Json, &operations)
    }

    /// A strategic merge patch.
    pub fn strategic(body: impl Serialize) -> Self {
        Self::of(Form::Strategic, &body)
    }

    /// The merge patch that makes `original` into `changed` (controller-runtime: `MergeFrom`).
    ///
    /// Changes by others to other fields are kept; a changed array is replaced as a whole. [`Patch::merge_from_locked`]
    /// guards against that.
    ///
    /// # Errors
    /// When they are not two states of one object.
    pub fn merge_from<K: Resource + Serialize>(original: &K, changed: &K) -> Result<Self, Error> {
        Ok(Self::merge(difference_of(original, changed)?))
    }

    /// As [`Patch::merge_from`] with an optimistic lock: conflicts if the object has changed since `original`, whose
    /// resourceVersion and uid are part of the patch (controller-runtime: `MergeFromWithOptimisticLock`).
    ///
    /// # Errors
    /// When they are not two states of one object, or the original has no version.
    pub fn merge_from_locked<K: Resource + Serialize>(
        original: &K,
        changed: &K,
    ) -> Result<Self, Error> {
        Ok(Self::merge(locked(
            original,
            difference_of(original, changed)?,
        )?))
    }

    /// The form.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// A server-side apply of `body`, which has its kind and apiVersion, unlike the object of
    /// [`Objects::apply`](crate::Objects::apply). The options need a field owner.
    pub fn apply(body: impl Serialize) -> Self {
        Self::of(Form::Apply, &body)
    }

    fn of(form: Form, body: &impl Serialize) -> Self {
        Self {
            form,
            body: serde_json::to_vec(body).map_err(|error| error.to_string()),
        }
    }
}

impl From<&Patch> for Patch {
    fn from(patch: &Patch) -> Self {
        patch.clone()
    }
}

impl<P: Serialize> From<&kube_core::params::Patch<P>> for Patch {
    fn from(patch: &kube_core::params::Patch<P>) -> Self {
        // The forms of kube-core depend on its features; its own request has each.
        let request = kube_core::Request::new("").patch("any", &PatchParams::default(), patch);
        let (form, body) = match request {
            Err(error) => (Form::Merge, Err(error.to_string())),
            Ok(request) => {
                let content = request.headers().get(http::header::CONTENT_TYPE);
                let form = content
                    .and_then(|value| value.to_str().ok())
                    .and_then(Form::of_content_type);
                match form {
                    Some(form) => (form, Ok(request.into_body())),
                    None => (Form::Merge, Err("a patch of an unknown form".to_owned())),
                }
            }
        };
        Self { form, body }
    }
}

impl fmt::Debug for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body_bytes = self.body.as_ref().map(Vec::len);
        f.debug_struct("Patch")
            .field("form", &self.form)
            .field("body_bytes", &body_bytes)
            .finish()
    }
}

/// Adds the resourceVersion and the uid of `original` to a merge patch, so that it conflicts if the object has changed since,
/// or was deleted and created again.
///
/// # Errors
/// [`Error::NoVersion`] when `original` has no resourceVersion.
pub fn locked<K: Resource>(original: &K, mut patch: Value) -> Result<Value, Error> {
    let meta = original.meta();
    let version = meta.resource_version.as_ref().ok_or(Error::NoVersion)?;
    if !patch["metadata"].is_object() {
        patch["metadata"] = json!({});
    }
    patch["metadata"]["resourceVersion"] = json!(version);
    // The uid protects an object that was created again under the same name.
    if let Some(uid) = &meta.uid {
        patch["metadata"]["uid"] = json!(uid);
    }
    Ok(patch)
}

fn difference_of<K: Resource + Serialize>(original: &K, changed: &K) -> Result<Value, Error> {
    let (before, after) = (original.meta(), changed.meta());
    if before.name != after.name || before.namespace != after.namespace || before.uid != after.uid {
        return Err(Error::Different);
    }
    let encode =
        |object: &K| serde_json::to_value(object).map_err(|error| Error::Encode(error.to_string()));
    Ok(difference(&encode(original)?, &encode(changed)?))
}

/// The merge patch (RFC 7386) that makes `from` into `to`: removed fields become null, equal fields are left out.
///
/// ```
/// use reeve_client::patch::difference;
/// use serde_json::json;
///
/// let patch = difference(&json!({"a": 1, "b": {"c": 2, "d": 3}}), &json!({"b": {"c": 2, "d": 4}}));
/// assert_eq!(patch, json!({"a": null, "b": {"d": 4}}));
/// ```
#[must_use]
pub fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, after) in to {
        match from.get(name) {
            Some(before) if before == after => {}
            Some(before @ Value::Object(_)) if after.is_object() => {
                patch.insert(name.clone(), difference(before, after));
            }
            _ => {
                patch.insert(name.clone(), after.clone());
            }
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn map(version: &str, data: &[(&str, &str)]) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some("web".into());
        map.metadata.uid = Some("u".into());
        map.metadata.resource_version = Some(version.into());
        let data = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        map.data = Some(data.collect());
        map
    }

    fn body(patch: &Patch) -> Value {
        serde_json::from_slice(patch.body.as_ref().unwrap()).unwrap()
    }

    #[test]
    fn a_patch_of_two_states_holds_only_what_differs() {
        let (old, new) = (map("7", &[("a", "1"), ("b", "2")]), map("7", &[("b", "3")]));
        let plain = Patch::merge_from(&old, &new).unwrap();
        assert_eq!(body(&plain), json!({"data": {"a": null, "b": "3"}}));
        let locked = Patch::merge_from_locked(&old, &new).unwrap();
        assert_eq!(
            body(&locked),
            json!({"data": {"a": null, "b": "3"}, "metadata": {"resourceVersion": "7", "uid": "u"}})
        );
        let nothing = Patch::merge_from(&old, &old).unwrap();
        assert_eq!(body(&nothing), json!({}));
    }

    #[test]
    fn what_makes_no_patch_is_an_error() {
        let old = map("7", &[]);
        let mut other = old.clone();
        other.metadata.name = Some("db".into());
        assert!(matches!(
            Patch::merge_from(&old, &other),
            Err(Error::Different)
        ));
        let mut unread = old.clone();
        unread.metadata.resource_version = None;
        assert!(matches!(
            Patch::merge_from_locked(&unread, &old),
            Err(Error::NoVersion)
        ));
    }

    #[test]
    fn large_integers_stay_what_they_are() {
        // controller-runtime: "should patch an object with a large int64".
        let large = i64::MAX;
        let patch = difference(&json!({"a": 1}), &json!({"a": large}));
        assert_eq!(patch.to_string(), format!("{{\"a\":{large}}}"));
    }

    #[test]
    fn patches_of_kube_core_keep_their_form() {
        use kube_core::params::Patch as Kube;
        for (patch, form) in [
            (Kube::Merge(json!({"a": 1})), Form::Merge),
            (Kube::Strategic(json!({"a": 1})), Form::Strategic),
            (Kube::Apply(json!({"a": 1})), Form::Apply),
        ] {
            let patch = Patch::from(&patch);
            assert_eq!(patch.form(), form);
            assert_eq!(body(&patch), json!({"a": 1}));
        }
    }

    #[test]
    fn every_merge_patch_makes_the_one_into_the_other() {
        fn merge(target: &mut Value, patch: &Value) {
            let Value::Object(patch) = patch else {
                *target = patch.clone();
                return;
            };
            if !target.is_object() {
                *target = json!({});
            }
            for (name, value) in patch {
                if value.is_null() {
                    target.as_object_mut().unwrap().remove(name);
                } else {
                    merge(&mut target[name], value);
                }
            }
        }
        let states = [
            json!({}),
            json!({"a": 1}),
            json!({"a": {"b": [1, 2], "c": {}}}),
            json!({"a": {"c": {"d": "x"}}, "e": false}),
            json!({"a": [], "e": {"f": 1}}),
        ];
        for from in &states {
            for to in &states {
                let mut made = from.clone();
                merge(&mut made, &difference(from, to));
                assert_eq!(&made, to, "from {from}");
            }
        }
    }
}
