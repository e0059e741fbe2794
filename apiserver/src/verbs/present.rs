//! Presentation of objects in the version of the request: with `apiVersion` and `kind`, or as metadata, or as rows.

mod binary;
mod pieces;
mod rows;

pub(crate) use binary::document_frame;
pub(crate) use pieces::Pieces;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::frames::Form;
use crate::http::media::{Encoding, Shape};
use crate::resource::ResourceInfo;
use crate::store::Object;
use crate::table::IncludeObject;

/// Shows objects of one resource in one shape.
#[derive(Clone, Debug)]
pub(crate) struct Presenter {
    info: Arc<ResourceInfo>,
    shape: Shape,
    include_object: IncludeObject,
    now: Timestamp,
    type_meta: String,
}

/// An object in the version of `info`, with its type.
pub(crate) fn whole(info: &ResourceInfo, object: &Object) -> Value {
    let mut value = object.to_value();
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!(info.api_version()));
        map.insert("kind".to_owned(), json!(info.kind));
    }
    value
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListMeta {
    pub(crate) version: u64,
    pub(crate) continue_token: Option<String>,
    pub(crate) remaining: Option<usize>,
    /// The number of objects of the resource, of which the list may be a page or a selection.
    pub(crate) stored: usize,
}

// === impl Presenter ===

impl Presenter {
    pub(crate) fn new(
        info: &Arc<ResourceInfo>,
        shape: Shape,
        include_object: IncludeObject,
        now: Timestamp,
    ) -> Self {
        let type_meta = format!(
            "{{\"apiVersion\":{},\"kind\":{}",
            json!(info.api_version()),
            json!(info.kind)
        );
        Self {
            info: info.clone(),
            shape,
            include_object,
            now,
            type_meta,
        }
    }

    pub(crate) fn shared_info(&self) -> &Arc<ResourceInfo> {
        &self.info
    }

    /// Sets the time of the ages in Tables.
    pub(crate) fn set_time(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// The form of a frame of this presenter, before its event is known.
    pub(super) fn form(&self) -> Form {
        Form {
            kind: "",
            info: self.info.clone(),
            encoding: Encoding::Json,
            shape: self.shape,
            include_object: self.include_object,
            columns: false,
            second: 0,
        }
    }

    fn write_whole(&self, object: &Object, typed: bool, out: &mut BytesMut) {
        let content = object.encoded();
        if !typed {
            out.extend_from_slice(content);
            return;
        }
        out.extend_from_slice(self.type_meta.as_bytes());
        if content.len() > 2 {
            out.extend_from_slice(b",");
            out.extend_from_slice(&content[1..]);
        } else {
            out.extend_from_slice(b"}");
        }
    }

    /// One object.
    pub(crate) fn one(&self, object: &Object) -> Bytes {
        let mut out = BytesMut::with_capacity(object.encoded().len() + self.type_meta.len() + 1);
        self.write_one(object, true, true, &mut out);
        out.extend_from_slice(b"\n");
        out.freeze()
    }

    /// Appends one object; in a Table watch, only the first one carries the columns.
    pub(crate) fn write_one(
        &self,
        object: &Object,
        typed: bool,
        columns: bool,
        out: &mut BytesMut,
    ) {
        match self.shape {
            Shape::Whole => self.write_whole(object, typed, out),
            Shape::Metadata(version) => {
                write_metadata(object, version, out);
            }
            Shape::Table(version) => {
                let metadata = json!({"resourceVersion": object.version().to_string()});
                self.write_table(object, version, columns, &metadata, out);
            }
        }
    }

    /// A list of objects.
    pub(crate) fn list(self, objects: Vec<Arc<Object>>, meta: &ListMeta) -> Pieces {
        let mut head = BytesMut::new();
        let tail: &[u8] = match self.shape {
            Shape::Table(version) => {
                self.write_table_head(version, true, &meta.to_value(), &mut head);
                b"]}\n"
            }
            // As on a real server: no objects in this shape are `null`, not a list.
            Shape::Metadata(version) if objects.is_empty() => {
                let list = json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": format!("meta.k8s.io/{version}"),
                    "metadata": meta.to_value(),
                    "items": null,
                });
                head.extend_from_slice(list.to_string().as_bytes());
                b"\n"
            }
            shape => {
                let (api_version, kind) = match shape {
                    Shape::Metadata(version) => (
                        format!("meta.k8s.io/{version}"),
                        "PartialObjectMetadataList".to_owned(),
                    ),
                    _ => (self.info.api_version(), self.info.list_kind.clone()),
                };
                let mut metadata = meta.to_value();
                if self.info.custom && shape == Shape::Whole && meta.continue_token.is_none() {
                    metadata["continue"] = json!("");
                }
                let text = format!(
                    "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
                    json!(kind),
                    json!(api_version),
                    metadata
                );
                head.extend_from_slice(text.as_bytes());
                b"]}\n"
            }
        };
        Pieces::json(self, head, objects, meta, tail)
    }

    /// The object of a bookmark at `version`.
    pub(crate) fn bookmark(&self, version: u64, annotation: Option<&str>) -> Value {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if let Some(annotation) = annotation {
            metadata["annotations"] = json!({annotation: "true"});
        }
        match self.shape {
            Shape::Whole => json!({
                "kind": self.info.kind,
                "apiVersion": self.info.api_version(),
                "metadata": metadata,
            }),
            Shape::Metadata(form) => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": format!("meta.k8s.io/{form}"),
                "metadata": metadata,
            }),
            Shape::Table(form) => json!({
                "kind": "Table",
                "apiVersion": format!("meta.k8s.io/{form}"),
                "metadata": {"resourceVersion": version.to_string()},
                "columnDefinitions": null,
                "rows": [],
            }),
        }
    }
}

/// Appends the metadata of an object as an object of its own.
fn write_metadata(object: &Object, version: &str, out: &mut BytesMut) {
    for part in [
        &b"{\"apiVersion\":\"meta.k8s.io/"[..],
        version.as_bytes(),
        b"\",\"kind\":\"PartialObjectMetadata\",\"metadata\":",
        object.metadata().unwrap_or(b"null"),
        b"}",
    ] {
        out.extend_from_slice(part);
    }
}

// === impl ListMeta ===

impl ListMeta {
    fn to_value(&self) -> Value {
        let mut meta = json!({"resourceVersion": self.version.to_string()});
        if let Some(token) = &self.continue_token {
            meta["continue"] = json!(token);
        }
        if let Some(remaining) = self.remaining {
            meta["remainingItemCount"] = json!(remaining);
        }
        meta
    }
}
