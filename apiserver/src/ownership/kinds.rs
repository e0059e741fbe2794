//! The versions of a resource, as ownership follows them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::built_in;
use super::conversions::Conversions;
use super::ignored::ignored;
use crate::apply::{self, Kind, Schema, Set, Version};
use crate::core::Core;
use crate::kinds::data::Data;
use crate::resource::{Conversion, ResourceInfo};

const SCALE: &str = "autoscaling/v1";

/// A kind, and an object of it without any field.
pub(super) struct Known {
    pub(super) kind: Kind,
    pub(super) empty: Arc<Value>,
    /// What is converted by a webhook; `None` for other kinds.
    pub(super) conversions: Option<Arc<Conversions>>,
}

/// The types of a custom resource.
fn types(info: &ResourceInfo) -> Arc<Schema> {
    let schema = info.schema.as_deref();
    info.types
        .get(|| apply::of_custom_resource(schema, &built_in::component))
}

/// The types of a resource in its version; `None` for a kind without a type here.
pub(crate) fn schema(info: &ResourceInfo) -> Option<Arc<Schema>> {
    if info.custom {
        return Some(types(info));
    }
    info.of.map(built_in::schema)
}

/// The versions of a resource for a write to `subresource`; `None` for a kind without a type here.
pub(super) fn known(core: &Core, info: &ResourceInfo, subresource: &str) -> Option<Known> {
    if subresource == "scale" {
        let of = Data::get().named("autoscaling.v1.Scale")?;
        return Some(Known {
            kind: Kind::default().with(SCALE, Version::new(built_in::schema(of))),
            empty: Arc::new(built_in::empty(of, SCALE.to_owned(), "Scale")),
            conversions: None,
        });
    }
    if info.custom {
        return Some(custom(core, info, subresource));
    }
    let of = info.of?;
    let own = Version::new(built_in::schema(of)).ignoring(ignored(info, subresource));
    let mut kind = Kind::default().with(info.api_version(), own);
    let served = core.registry.served();
    let versions: Vec<Arc<ResourceInfo>> = served
        .all()
        .filter(|other| other.storage == info.storage)
        .cloned()
        .collect();
    for other in &versions {
        if let (Some(of), true) = (other.of, other.api_version() != info.api_version()) {
            let version = Version::new(built_in::schema(of)).ignoring(ignored(other, subresource));
            kind = kind.with(other.api_version(), version);
        }
    }
    if versions.len() > 1 {
        kind = kind.converted_by(Arc::new(move |object, to| {
            Ok(convert(&versions, object, to))
        }));
    }
    Some(Known {
        kind,
        empty: Arc::new(built_in::empty(of, info.api_version(), &info.kind)),
        conversions: None,
    })
}

/// An object of a built-in kind in another of its versions.
fn convert(versions: &[Arc<ResourceInfo>], object: &Value, to: &str) -> Value {
    let find = |version: &str| versions.iter().find(|info| info.api_version() == version);
    let mut object = object.clone();
    let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    if let (Some(from), Some(to)) = (find(&from), find(to)) {
        from.strategy.convert_to_stored(from, &mut object);
        to.strategy.convert_from_stored(to, &mut object);
    }
    object
}

/// All served versions of a custom resource.
fn custom(core: &Core, info: &ResourceInfo, subresource: &str) -> Known {
    let served = core.registry.served();
    let versions: Vec<Arc<ResourceInfo>> = served
        .all()
        .filter(|other| other.custom && other.storage == info.storage)
        .cloned()
        .collect();
    let mut kind = Kind::default();
    for other in &versions {
        if other.version == info.version {
            continue;
        }
        // The status of every version is the same; the rest of another version is not looked at.
        let ignored = if subresource == "status" {
            ignored(other, subresource)
        } else {
            Set::default()
        };
        let version = Version::new(types(other)).ignoring(ignored);
        kind = kind.with(other.api_version(), version);
    }
    let own = Version::new(types(info)).ignoring(ignored(info, subresource));
    kind = kind.with(info.api_version(), own);
    let is_converted = info.conversion == Conversion::Webhook;
    let conversions = is_converted.then(|| Conversions::new(versions));
    if let Some(conversions) = conversions.clone() {
        kind = kind.converted_by(Arc::new(move |object, to| conversions.get(object, to)));
    }
    Known {
        kind,
        empty: Arc::new(json!({"apiVersion": info.api_version(), "kind": info.kind})),
        conversions,
    }
}
