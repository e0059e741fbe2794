//! The conversion of objects between versions.

use std::fmt;
use std::fmt::Display;
use std::marker::PhantomData;

use serde_json::Value;
use serde_json::value::RawValue;

use super::Problem;
use super::review::{Converted, Head, Review, answer};
use super::versions::{Convertible, Version};
use crate::admission::Failure;

/// Objects that are converted until other tasks get a turn.
const TURN: usize = 16;

/// The path that kubebuilder and controller-runtime use for every conversion.
const PATH: &str = "/convert";

/// Conversion between the versions of one kind, through the hub `H`. See the [module](crate::conversion).
pub struct Conversion<H = ()> {
    group: String,
    kind: String,
    path: String,
    versions: Vec<Version>,
    hub: PhantomData<fn(H) -> H>,
}

// === impl Conversion ===

impl Conversion {
    /// A conversion whose hub is `H`: the version that has every field. Objects of the hub's own version convert to
    /// themselves.
    #[must_use]
    pub fn hub<H>() -> Conversion<H>
    where
        H: Convertible,
    {
        Conversion {
            group: H::group(&()).into_owned(),
            kind: H::kind(&()).into_owned(),
            path: PATH.to_owned(),
            versions: vec![Version::hub::<H>()],
            hub: PhantomData,
        }
    }
}

impl<H: Convertible> Conversion<H> {
    /// Adds the version `K`, which converts by `From` or `TryFrom` to the hub and from it.
    ///
    /// # Panics
    /// When `K` is of another group or kind than the hub, or its version was added already.
    #[must_use]
    pub fn spoke<K>(self) -> Self
    where
        K: Convertible + TryFrom<H, Error: Display>,
        H: TryFrom<K, Error: Display>,
    {
        self.spoke_by(H::try_from, K::try_from)
    }

    /// Adds the version `K` with the functions that convert it to the hub and from it.
    ///
    /// # Panics
    /// When `K` is of another group or kind than the hub, or its version was added already.
    #[must_use]
    pub fn spoke_by<K, E1, E2>(
        mut self,
        to_hub: impl Fn(K) -> Result<H, E1> + Send + Sync + 'static,
        from_hub: impl Fn(H) -> Result<K, E2> + Send + Sync + 'static,
    ) -> Self
    where
        K: Convertible,
        E1: Display,
        E2: Display,
    {
        let version = Version::spoke::<H, K, _, _, E1, E2>(to_hub, from_hub);
        let (group, kind) = (K::group(&()), K::kind(&()));
        assert!(
            group == self.group && kind == self.kind,
            "a conversion has one kind: {kind} of {group:?} is not {} of {:?}",
            self.kind,
            self.group
        );
        assert!(
            self.version(&version.name).is_none(),
            "version {} of {} was added twice",
            version.name,
            self.kind
        );
        self.versions.push(version);
        self.versions.sort_by(|a, b| a.name.cmp(&b.name));
        self
    }
}

impl<H> Conversion<H> {
    /// Serves the conversion on another path than `/convert`: needed if a program converts several kinds.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    #[cfg(feature = "testing")]
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// The names of the versions, in order.
    #[must_use]
    pub fn versions(&self) -> Vec<&str> {
        self.versions
            .iter()
            .map(|version| version.name.as_str())
            .collect()
    }

    /// Forgets the type of the hub.
    #[must_use]
    pub fn erased(self) -> Conversion {
        Conversion {
            group: self.group,
            kind: self.kind,
            path: self.path,
            versions: self.versions,
            hub: PhantomData,
        }
    }

    /// `object`, of any version, in the version `desired`, such as `v2`.
    ///
    /// The metadata stay those of the object, except labels and annotations, which are those of the converted object: the
    /// API server refuses other changes. If the converter made new metadata, the labels and annotations of the object stay,
    /// too, and those of the converted object join them.
    ///
    /// # Errors
    /// When a version is unknown, or the object cannot be converted; the text names the object and both versions.
    pub fn convert(&self, object: &Value, desired: &str) -> Result<Value, String> {
        let text = RawValue::from_string(object.to_string()).map_err(|error| error.to_string())?;
        Ok(match self.convert_text(&text, desired)? {
            Converted::Same(_) => object.clone(),
            Converted::Other(value) => value,
        })
    }

    /// The answer to `review`, a ConversionReview of version v1 as JSON. One object that cannot be converted fails the
    /// review, as the API server expects.
    ///
    /// # Errors
    /// When the body is not such a review.
    pub async fn answer(&self, review: &[u8]) -> Result<Vec<u8>, Failure> {
        let review = Review::of(review)?;
        let converted = self.convert_all(&review).await;
        Ok(answer(&review.uid, converted))
    }

    async fn convert_all<'a>(&self, review: &Review<'a>) -> Result<Vec<Converted<'a>>, String> {
        let desired = self.desired(&review.desired)?;
        let mut converted = Vec::with_capacity(review.objects.len());
        for (index, object) in review.objects.iter().enumerate() {
            if index % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
            converted.push(self.convert_text(object, desired)?);
        }
        Ok(converted)
    }

    /// The version in `group/version`.
    fn desired<'a>(&self, api_version: &'a str) -> Result<&'a str, String> {
        let version = api_version
            .strip_prefix(&self.group)
            .and_then(|rest| rest.strip_prefix('/'));
        version.ok_or_else(|| {
            format!(
                "desiredAPIVersion is {api_version:?}, and {} is of group {}",
                self.kind, self.group
            )
        })
    }

    fn convert_text<'a>(&self, text: &'a RawValue, desired: &str) -> Result<Converted<'a>, String> {
        let head: Head<'a> = serde_json::from_str(text.get())
            .map_err(|error| format!("the object cannot be read: {error}"))?;
        let version = self.desired(&head.api_version)?;
        if head.kind != self.kind {
            return Err(format!(
                "{} cannot be converted here, only {}",
                head.kind, self.kind
            ));
        }
        if version == desired {
            return Ok(Converted::Same(text));
        }
        let named = |problem: &dyn Display| {
            let place = |field: &str| head.metadata[field].as_str().unwrap_or_default();
            let (namespace, name) = (place("namespace"), place("name"));
            let slash = if namespace.is_empty() { "" } else { "/" };
            let kind = &self.kind;
            format!("{kind} {namespace}{slash}{name}, from {version} to {desired}: {problem}")
        };
        let known = |version: &str| {
            let found = self.version(version);
            found.ok_or_else(|| {
                named(&format!(
                    "version {version} is unknown; there are {}",
                    self.versions().join(", ")
                ))
            })
        };
        let (from, to) = (known(version)?, known(desired)?);
        let converted: Result<Value, Problem> =
            (from.read)(text.get()).and_then(|hub| (to.write)(hub));
        let mut converted = converted.map_err(|problem| named(&problem))?;
        converted["metadata"] = metadata(head.metadata.clone(), &converted["metadata"]);
        Ok(Converted::Other(converted))
    }

    fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }
}

impl<H> Clone for Conversion<H> {
    fn clone(&self) -> Self {
        Self {
            group: self.group.clone(),
            kind: self.kind.clone(),
            path: self.path.clone(),
            versions: self.versions.clone(),
            hub: PhantomData,
        }
    }
}

/// The fields of the metadata that a conversion may change.
const CHANGEABLE: [&str; 2] = ["labels", "annotations"];

/// The metadata of the object, with the labels and annotations of the converted one. A converter that made new metadata,
/// for a name alone, did not decide about labels and annotations: those of the object stay, and its own join them.
fn metadata(original: Value, converted: &Value) -> Value {
    let mut metadata = match original {
        Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    };
    let is_carried = carries(&metadata, converted);
    for field in CHANGEABLE {
        let new = converted.get(field).filter(|value| !value.is_null());
        let mut value = new.cloned();
        if !is_carried {
            value = match (metadata.remove(field), value) {
                (Some(Value::Object(mut all)), Some(Value::Object(more))) => {
                    all.extend(more);
                    Some(Value::Object(all))
                }
                (before, after) => after.or(before),
            };
        }
        match value {
            Some(value) => metadata.insert(field.to_owned(), value),
            None => metadata.remove(field),
        };
    }
    Value::Object(metadata)
}

/// Whether the converter kept the metadata of the object, in place of new metadata.
fn carries(original: &serde_json::Map<String, Value>, converted: &Value) -> bool {
    let is_set = |field: &str| converted.get(field).is_some_and(|value| !value.is_null());
    let mut others = original.iter().filter(|(field, value)| {
        !CHANGEABLE.contains(&field.as_str()) && *field != "name" && !value.is_null()
    });
    let is_told_apart = others.clone().next().is_some();
    others.all(|(field, _)| is_set(field))
        && (is_told_apart || CHANGEABLE.map(is_set).contains(&true))
}

impl<H> fmt::Debug for Conversion<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversion")
            .field("group", &self.group)
            .field("kind", &self.kind)
            .field("versions", &self.versions())
            .field("path", &self.path)
            .finish()
    }
}
