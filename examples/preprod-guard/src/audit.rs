//! The audit log: one line of JSON for each decision.

use jiff::Timestamp;
use serde::Serialize;

use crate::decision::{Decision, Rule};
use crate::target::Target;

/// A line of the log.
///
/// A field that is empty or unknown is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The time of the decision.
    pub time: Timestamp,
    /// The caller.
    pub user: String,
    /// Its groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The operation.
    pub op: &'static str,
    /// The object: `pods/hbox/web-0`, with the subresource as a last part.
    pub target: String,
    /// The uid of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The uid of the request, which the audit log of the API server does not have: both logs have time, user and object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// `allow` or `deny`.
    pub decision: &'static str,
    /// The first rule that matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// The message to the caller.
    pub message: String,
    /// Whether nothing is stored.
    pub dry_run: bool,
}

// === impl Line ===

impl Line {
    /// The record of `decision` about `target`.
    #[must_use]
    pub fn of(target: &Target, decision: &Decision, time: Timestamp) -> Self {
        let mut name = target.key.to_string();
        if let Some(subresource) = &target.subresource {
            name = format!("{name}/{subresource}");
        }
        let facts = target.parent.as_ref().or(target.states.first());
        let denial = decision.denial.as_ref();
        let first = denial.or(decision.noted.first().map(|(finding, _)| finding));
        Self {
            time,
            user: target.user.username.clone(),
            groups: target.user.groups.clone(),
            op: target.operation.as_str(),
            target: name,
            uid: facts.map(|facts| facts.uid.clone()).unwrap_or_default(),
            request: String::new(),
            decision: if denial.is_some() { "deny" } else { "allow" },
            rule: first.map(|finding| finding.rule),
            message: first.map_or_else(
                || format!("pass {}", target.operation.as_str().to_lowercase()),
                |finding| finding.message.clone(),
            ),
            dry_run: target.dry_run,
        }
    }

    /// Adds the uid of the request.
    #[must_use]
    pub fn of_request(mut self, uid: &str) -> Self {
        uid.clone_into(&mut self.request);
        self
    }

    /// The line, without its end.
    #[must_use]
    pub fn line(&self) -> String {
        serde_json::json!(self).to_string()
    }
}
