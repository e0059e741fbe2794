//! Round trips of a conversion: each object goes to each other version and back.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::filled;
use crate::conversion::Conversion;

/// Round trips of a conversion.
///
/// ```
/// # use kube_derive::CustomResource;
/// # use reeve_webhook::Conversion;
/// # use reeve_webhook::testing::RoundTrips;
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// # mod v1 {
/// #   use super::*;
/// #   #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #   #[kube(group = "example.com", version = "v1", kind = "Website", namespaced, crates(kube_core = "::kube_core"))]
/// #   pub struct WebsiteSpec { pub size: i32 }
/// # }
/// # mod v2 {
/// #   use super::*;
/// #   #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #   #[kube(group = "example.com", version = "v2", kind = "Website", namespaced, crates(kube_core = "::kube_core"))]
/// #   pub struct WebsiteSpec { pub replicas: i32, pub color: Option<String> }
/// # }
/// # impl From<v1::Website> for v2::Website {
/// #   fn from(old: v1::Website) -> Self {
/// #     Self { metadata: old.metadata, spec: v2::WebsiteSpec { replicas: old.spec.size, color: None } }
/// #   }
/// # }
/// # impl From<v2::Website> for v1::Website {
/// #   fn from(new: v2::Website) -> Self {
/// #     Self { metadata: new.metadata, spec: v1::WebsiteSpec { size: new.spec.replicas } }
/// #   }
/// # }
/// use kube_core::CustomResourceExt;
///
/// # fn main() {
/// let conversion = Conversion::hub::<v2::Website>().spoke::<v1::Website>();
/// let losses = RoundTrips::of(&conversion)
///     .definition(&v1::Website::crd())
///     .definition(&v2::Website::crd())
///     .losses();
/// // v1 has no color.
/// let texts: Vec<String> = losses.iter().map(ToString::to_string).collect();
/// assert_eq!(texts, [r#"v2 -> v1 -> v2: .spec.color was "text" and is missing"#]);
/// # }
/// ```
#[must_use]
#[derive(Debug)]
pub struct RoundTrips {
    conversion: Conversion,
    objects: Vec<Value>,
    allowed: Vec<String>,
}

/// A difference that a round trip made, or its failure.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Loss {
    /// The version of the object.
    pub version: String,
    /// The version that it went through.
    pub through: String,
    /// The path of the field, such as `.spec.color`. Empty if the object could not be converted.
    pub path: String,
    /// What happened to the field.
    pub change: String,
}

// === impl RoundTrips ===

impl RoundTrips {
    /// Round trips of this conversion, without objects.
    pub fn of<H>(conversion: &Conversion<H>) -> Self {
        Self {
            conversion: conversion.clone().erased(),
            objects: Vec::new(),
            allowed: Vec::new(),
        }
    }

    /// Adds an object of any version, which has `apiVersion` and `kind`.
    ///
    /// # Panics
    /// When it cannot be encoded.
    pub fn object(mut self, object: &impl Serialize) -> Self {
        let object = serde_json::to_value(object).expect("an object that can be encoded");
        self.objects.push(object);
        self
    }

    /// Adds an object of each version of a CustomResourceDefinition, with a value in every field of its schema: see
    /// [`filled`].
    ///
    /// # Panics
    /// When it cannot be encoded.
    pub fn definition(mut self, definition: &impl Serialize) -> Self {
        let definition = serde_json::to_value(definition).expect("a definition");
        let spec = &definition["spec"];
        let group = spec["group"].as_str().unwrap_or_default();
        for version in spec["versions"].as_array().into_iter().flatten() {
            let name = version["name"].as_str().unwrap_or_default();
            let mut object = filled(&version["schema"]["openAPIV3Schema"]);
            object["apiVersion"] = json!(format!("{group}/{name}"));
            object["kind"] = spec["names"]["kind"].clone();
            object["metadata"] = json!({
                "name": "filled",
                "labels": {"label": "text"},
                "annotations": {"annotation": "text"},
            });
            if spec["scope"] == "Namespaced" {
                object["metadata"]["namespace"] = json!("default");
            }
            self.objects.push(object);
        }
        self
    }

    /// Allows losses of the field at `path` and below it: `.spec.color`. For a field that is lost on purpose.
    pub fn allow(mut self, path: impl Into<String>) -> Self {
        self.allowed.push(path.into());
        self
    }

    /// The differences between each object and what comes back through each other version.
    ///
    /// # Panics
    /// When an object is of no version of the conversion, or a version has no object: its fields would not be tested.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        let mut losses = Vec::new();
        for version in self.conversion.versions() {
            let is_of = |object: &Value| {
                let api_version = object["apiVersion"].as_str().unwrap_or_default();
                api_version.rsplit('/').next() == Some(version)
            };
            assert!(
                self.objects.iter().any(is_of),
                "no object of version {version}: add one, or a definition that has the version"
            );
        }
        for object in &self.objects {
            let api_version = object["apiVersion"].as_str().unwrap_or_default();
            let version = api_version.rsplit('/').next().unwrap_or_default();
            let versions = self.conversion.versions();
            assert!(
                versions.contains(&version),
                "an object of {api_version:?}: the conversion has {}",
                versions.join(", ")
            );
            for through in versions.into_iter().filter(|through| *through != version) {
                self.trip(object, version, through, &mut losses);
            }
        }
        losses
    }

    /// Checks that nothing is lost.
    ///
    /// # Panics
    /// When a field is lost or changed; the message has each of them.
    pub fn check(&self) {
        let losses = self.losses();
        let texts: Vec<String> = losses.iter().map(ToString::to_string).collect();
        let kind = self.conversion.kind();
        assert!(
            losses.is_empty(),
            "{kind} is changed by round trips:\n{}",
            texts.join("\n")
        );
    }

    fn trip(&self, object: &Value, version: &str, through: &str, losses: &mut Vec<Loss>) {
        let there = self.conversion.convert(object, through);
        let back = there.and_then(|there| self.conversion.convert(&there, version));
        let mut changes = Vec::new();
        match back {
            Ok(back) => compare("", object, &back, &mut changes),
            Err(problem) => changes.push((String::new(), problem)),
        }
        let allowed = |path: &str| {
            self.allowed.iter().any(|allowed| {
                let rest = path.strip_prefix(allowed.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
        };
        losses.extend(changes.into_iter().filter(|(path, _)| !allowed(path)).map(
            |(path, change)| Loss {
                version: version.to_owned(),
                through: through.to_owned(),
                path,
                change,
            },
        ));
    }
}

/// The paths at which `after` differs from `before`. A missing field and a `null` are equal.
fn compare(path: &str, before: &Value, after: &Value, changes: &mut Vec<(String, String)>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                let new = new.get(name).unwrap_or(&Value::Null);
                compare(&format!("{path}.{name}"), value, new, changes);
            }
            for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
                compare(&format!("{path}.{name}"), &Value::Null, value, changes);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                compare(&format!("{path}[{index}]"), old, new, changes);
            }
        }
        _ if before == after => {}
        (Value::Null, _) => changes.push((path.to_owned(), format!("was missing and is {after}"))),
        (_, Value::Null) => changes.push((path.to_owned(), format!("was {before} and is missing"))),
        _ => changes.push((path.to_owned(), format!("was {before} and is {after}"))),
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, through) = (&self.version, &self.through);
        write!(f, "{version} -> {through} -> {version}: ")?;
        if !self.path.is_empty() {
            write!(f, "{} ", self.path)?;
        }
        f.write_str(&self.change)
    }
}
