//! Ownership of the number of replicas, for writes through the scale subresource.

use serde_json::Value;

use super::writer::Writer;
use crate::apply::ScaleFields;
use crate::core::Core;
use crate::request::Request;
use crate::status::Status;

/// Follows ownership through a write of a scale.
pub(crate) struct ScaleWriter<'a> {
    writer: Writer<'a>,
    fields: ScaleFields,
    is_custom: bool,
}

// === impl ScaleWriter ===

impl<'a> ScaleWriter<'a> {
    /// For a request to the scale of an object.
    pub(crate) fn new(core: &'a Core, request: &'a Request) -> Self {
        let info = &request.info;
        let served = core.registry.served();
        let versions = served
            .all()
            .filter(|other| other.storage == info.storage)
            .map(|other| {
                let path = other
                    .scale
                    .as_ref()
                    .map(|scale| scale.spec_replicas.as_str());
                (other.api_version(), path)
            });
        Self {
            writer: Writer::new(core, request),
            fields: ScaleFields::new(&info.api_version(), versions),
            is_custom: info.custom,
        }
    }

    /// The writer of the scale itself.
    pub(crate) fn writer(&self) -> &Writer<'a> {
        &self.writer
    }

    /// The managers of the scale of `parent`.
    ///
    /// # Errors
    /// 500 if they cannot be read.
    pub(crate) fn of_scale(&self, parent: &Value) -> Result<Option<Value>, Status> {
        self.fields
            .of_scale(&parent["metadata"]["managedFields"])
            .map_err(Status::internal_text)
    }

    /// The managers of the scale after a write of `new` over `live`.
    pub(crate) fn update(&self, live: &Value, new: &Value) -> Option<Value> {
        self.writer.update(Some(live), new)
    }

    /// The scale after an apply.
    ///
    /// A real server cannot apply to the scale of a custom resource: it converts the merged scale as if it were one.
    ///
    /// # Errors
    /// As [`Writer::apply`]; 500 for a custom resource.
    pub(crate) fn apply(
        &self,
        live: &Value,
        applied: &Value,
        force: bool,
    ) -> Result<Value, Status> {
        let refuse = |what: &str, name: &str| {
            Status::internal_text(format!(
                "{what} ({name}; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an invalid group/version: autoscaling/v1"
            ))
        };
        if self.is_custom && live["metadata"].get("managedFields").is_none() {
            let what =
                "failed to create manager for existing fields: failed to convert live object";
            return Err(refuse(what, "/"));
        }
        let merged = self.writer.apply(Some(live), applied, force)?.object;
        if self.is_custom && merged["spec"] != live["spec"] {
            let text = |field: &str| applied["metadata"][field].as_str().unwrap_or_default();
            let name = format!("{}/{}", text("namespace"), text("name"));
            return Err(refuse("failed to convert new object", &name));
        }
        Ok(merged)
    }

    /// The managers of `parent` after a write of its scale, which has these managers now.
    ///
    /// # Errors
    /// 500 if they cannot be read.
    pub(crate) fn of_parent(
        &self,
        parent: &Value,
        managers: Option<&Value>,
    ) -> Result<Option<Value>, Status> {
        let none = Value::Null;
        self.fields
            .of_parent(
                &parent["metadata"]["managedFields"],
                managers.unwrap_or(&none),
            )
            .map_err(Status::internal_text)
    }
}
