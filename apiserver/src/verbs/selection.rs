//! The objects that a list, a watch or a deletion of many selects.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::field::quote;
use crate::http::query::Parameters;
use crate::resource::{Conversion, ResourceInfo};
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::Status;
use crate::store::Object;

/// Label and field selectors of one request, checked against its resource.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    info: Arc<ResourceInfo>,
    labels: LabelSelector,
    fields: FieldSelector,
}

// === impl Selection ===

impl Selection {
    /// Reads `labelSelector` and `fieldSelector`. A `name` from the path narrows it to one object.
    ///
    /// # Errors
    /// 400 for malformed selectors and for fields that cannot be selected.
    pub(crate) fn of(
        info: &Arc<ResourceInfo>,
        query: &Parameters,
        name: &str,
    ) -> Result<Self, Status> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default())
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let mut text = query.get("fieldSelector").unwrap_or_default().to_owned();
        if !name.is_empty() {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str("metadata.name=");
            text.push_str(name);
        }
        let fields =
            FieldSelector::parse(&text).map_err(|error| Status::bad_request(error.to_string()))?;
        for term in fields.terms() {
            if !selectable(info, &term.field) {
                return Err(unsupported(info, &term.field));
            }
        }
        Ok(Self {
            info: info.clone(),
            labels,
            fields,
        })
    }

    /// The name that all selected objects have, if there is one.
    pub(crate) fn required_name(&self) -> Option<&str> {
        self.fields.required_value("metadata.name")
    }

    /// Every object matches.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether it depends on the version of an object: a webhook may convert labels and selectable fields. Then
    /// [`Selection::matches`] counts only for an object in the version of the request. (apiserver: `GetAttrs` gets that.)
    pub(crate) fn is_of_version(&self) -> bool {
        let of_any = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
        let has_others = !self.fields.terms().iter().all(|term| of_any(&term.field));
        self.info.conversion == Conversion::Webhook && (!self.labels.is_empty() || has_others)
    }

    /// Whether `object` may match once it is in the version of the request.
    pub(crate) fn may_match(&self, object: &Object) -> bool {
        self.is_of_version() || self.matches(object)
    }

    /// Whether `object` matches.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.has_labels(object)
            && (self.fields.is_empty()
                || self
                    .fields
                    .matches(|field| field_text(&self.info, object, field)))
    }

    fn has_labels(&self, object: &Object) -> bool {
        self.labels.matches(|key| object.label(key))
    }
}

fn selectable(info: &ResourceInfo, field: &str) -> bool {
    matches!(field, "metadata.name" | "metadata.namespace")
        || info
            .selectable_fields
            .iter()
            .any(|known| known.name == field)
}

/// Kinds with selectable fields have another text for an unknown field.
fn unsupported(info: &ResourceInfo, field: &str) -> Status {
    if info.custom || !info.selectable_fields.is_empty() {
        return Status::bad_request(format!("field label not supported: {field}"));
    }
    Status::bad_request(format!(
        "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        quote(field)
    ))
}

/// The text of a selectable field; empty when absent.
fn field_text<'a>(info: &ResourceInfo, object: &'a Object, field: &str) -> Cow<'a, str> {
    match field {
        "metadata.name" => return Cow::Borrowed(object.name()),
        "metadata.namespace" => return Cow::Borrowed(object.namespace()),
        _ => {}
    }
    let extract = info
        .selectable_fields
        .iter()
        .find(|known| known.name == field)
        .and_then(|known| known.extract);
    if let Some(extract) = extract {
        return Cow::Owned(extract(&object.value()));
    }
    match object.field(field) {
        Value::String(text) => Cow::Owned(text),
        Value::Null => Cow::Borrowed(""),
        other => Cow::Owned(other.to_string()),
    }
}
