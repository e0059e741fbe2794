//! The rules by name, and what they find.

use serde::{Deserialize, Serialize};

use crate::target::Target;

/// A rule. Its name in configurations and in the audit log is in kebab case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The old state, the new state or the object of a subresource is production.
    Production,
    /// The request changes the whole cluster: priorities, aggregated APIs, rights, certificates.
    Cluster,
    /// The rules below cannot be checked: the state is incomplete, or the object of a subresource is unknown.
    Unresolved,
    /// The object is too old to be deleted.
    Age,
    /// The request acts on the content of a Namespace, a CustomResourceDefinition or a Node.
    Cascade,
    /// Production objects are owned by the object, directly or through others.
    Owner,
    /// Production objects use the object, or it selects them or is selected by them.
    Reference,
    /// The object holds for a whole namespace that has production objects.
    Shared,
    /// Pods would get a PriorityClass that is not listed, and might pre-empt production Pods.
    Priority,
    /// The caller would get the identity of a ServiceAccount or of a node that is not a pre-release one.
    Account,
}

/// The match of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The message to the caller.
    pub message: String,
}

// === impl Finding ===

impl Finding {
    /// A match of `rule`. `what` follows the operation in the message.
    pub(super) fn new(rule: Rule, target: &Target, what: impl std::fmt::Display) -> Self {
        let operation = target.operation;
        Self {
            rule,
            message: format!("Pre-release environment not allowed to {operation} {what}"),
        }
    }
}
