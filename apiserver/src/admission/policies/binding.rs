//! One binding of a policy, read once.

use serde_json::Value;

use super::parameters::Reference;
use crate::admission::matching::Matcher;
use crate::meta;
use crate::table::cells::{items, string};

/// One binding of a policy.
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    /// `None` for each write that its policy matches.
    pub(super) matcher: Option<Matcher>,
    /// `None` for no parameter.
    pub(super) parameters: Option<Reference>,
    /// What follows from a failed validation.
    pub(super) actions: Vec<Action>,
}

/// What follows from a failed validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Deny,
    Warn,
    /// An annotation in the audit log, which this server does not have.
    Audit,
}

// === impl Binding ===

impl Binding {
    /// Reads a stored binding.
    pub(super) fn read(object: &Value) -> Self {
        let spec = &object["spec"];
        let is_set = |field: &str| spec[field].is_object();
        let action = |text: &Value| match string(text) {
            "Deny" => Some(Action::Deny),
            "Warn" => Some(Action::Warn),
            "Audit" => Some(Action::Audit),
            _ => None,
        };
        Self {
            name: meta::text(object, "name").to_owned(),
            matcher: is_set("matchResources").then(|| Matcher::of_policy(&spec["matchResources"])),
            parameters: is_set("paramRef").then(|| Reference::read(&spec["paramRef"])),
            actions: items(&spec["validationActions"])
                .iter()
                .filter_map(action)
                .collect(),
        }
    }
}
