//! Checks of labels and annotations.

use serde_json::Value;

use crate::field::{Errors, FieldError, Path};
use crate::names;

/// Maximum size of all annotations together, keys and values, in bytes.
const LARGEST_ANNOTATIONS: usize = 256 * 1024;

/// Refuses keys and values that are not valid labels.
pub(crate) fn check_labels(labels: &Value, path: &Path, errors: &mut Errors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        for problem in names::qualified_name(key) {
            errors.push(FieldError::invalid(path, key.as_str(), problem));
        }
        let value = value.as_str().unwrap_or_default();
        for problem in names::label_value(value) {
            errors.push(FieldError::invalid(path, value, problem));
        }
    }
}

/// Refuses keys that are not valid, and annotations that are too large together.
pub(crate) fn check_annotations(annotations: &Value, path: &Path, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        for problem in names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, key.as_str(), problem));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > LARGEST_ANNOTATIONS {
        errors.push(FieldError::too_long(
            path,
            i64::try_from(LARGEST_ANNOTATIONS).unwrap_or(i64::MAX),
        ));
    }
}
