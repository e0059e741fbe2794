//! OpenAPI documents, kept while the resources that they describe stay the same.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::document::{base_path, document, hash};
use super::v2;
use crate::registry::{Served, Version};

/// OpenAPI documents, each cached until a resource that it describes changes.
#[derive(Debug, Default)]
pub(crate) struct OpenApiCache {
    /// By path, each of a group and version.
    documents: Mutex<HashMap<String, Document>>,
    /// The v2 document, and the versions that it describes.
    v2: Mutex<Option<(Vec<Version>, Bytes)>>,
}

/// The OpenAPI document of a group and version.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    of: Version,
    pub(crate) content: Bytes,
    hash: String,
}

// === impl OpenApiCache ===

impl OpenApiCache {
    /// The document of a group and version.
    pub(crate) fn document(&self, group: &str, version: &Version) -> Document {
        let path = base_path(group, &version.name);
        if let Some(cached) = self.documents.lock().get(&path)
            && same(&cached.of, version)
        {
            return cached.clone();
        }
        let value = document(group, version);
        let document = Document {
            of: version.clone(),
            content: Bytes::from(value.to_string().into_bytes()),
            hash: hash(&value),
        };
        self.documents.lock().insert(path, document.clone());
        document
    }

    /// The path of the document of each group and version, with a hash that changes with it.
    pub(crate) fn index(&self, served: &Served) -> Value {
        let mut paths = Map::new();
        for group in &served.groups {
            for version in &group.versions {
                let path = base_path(&group.name, &version.name);
                let hash = self.document(&group.name, version).hash;
                let url = format!("/openapi/v3/{path}?hash={hash}");
                paths.insert(path, json!({"serverRelativeURL": url}));
            }
        }
        json!({"paths": paths})
    }

    /// The v2 document of all groups, in JSON.
    pub(crate) fn v2(&self, served: &Served) -> Bytes {
        let versions = || served.groups.iter().flat_map(|group| &group.versions);
        // The lock is held while the document is made, so that requests at once make it once.
        let mut cached = self.v2.lock();
        if let Some((of, content)) = &*cached
            && of.len() == versions().count()
            && of
                .iter()
                .zip(versions())
                .all(|(one, other)| same(one, other))
        {
            return content.clone();
        }
        let documents = served.groups.iter().flat_map(|group| {
            let versions = group.versions.iter();
            versions.map(|version| document(&group.name, version))
        });
        let content = Bytes::from(v2::merge(documents).to_string().into_bytes());
        *cached = Some((versions().cloned().collect(), content.clone()));
        content
    }
}

fn same(one: &Version, other: &Version) -> bool {
    one.resources.len() == other.resources.len()
        && one
            .resources
            .iter()
            .zip(&other.resources)
            .all(|((_, one), (_, other))| Arc::ptr_eq(one, other))
}
