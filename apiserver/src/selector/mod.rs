//! Label and field selectors: parsed with Kubernetes' errors, matched against objects.
//!
//! (apimachinery: `labels.Parse`, `fields.ParseSelector`, `metav1.LabelSelectorAsSelector`.)

mod fields;
mod labels;
mod text;

pub(crate) use fields::FieldSelector;
pub(crate) use labels::LabelSelector;

/// A selector that cannot be parsed; the text is that of a real server's 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Error(String);
