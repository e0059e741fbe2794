//! The audit log: one line of JSON for each decision.

use jiff::Timestamp;
use serde::Serialize;

use crate::decision::{Decision, Rule};
use crate::target::Target;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The time of the decision.
    pub time: Timestamp,
    /// The caller.
    pub user: String,
    /// The operation.
    pub op: &'static str,
    /// The object: `pods/hbox/web-0`, with the subresource as a last part.
    pub target: String,
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

// === impl Record ===

impl Record {
    /// The record of `decision` about `target`.
    #[must_use]
    pub fn of(target: &Target, decision: &Decision, time: Timestamp) -> Self {
        let mut name = target.key.to_string();
        if let Some(subresource) = &target.subresource {
            name = format!("{name}/{subresource}");
        }
        let denial = decision.denial.as_ref();
        let first = denial.or(decision.noted.first().map(|(finding, _)| finding));
        Self {
            time,
            user: target.user.username.clone(),
            op: target.operation.as_str(),
            target: name,
            decision: if denial.is_some() { "deny" } else { "allow" },
            rule: first.map(|finding| finding.rule),
            message: first.map_or_else(|| "pass".to_owned(), |finding| finding.message.clone()),
            dry_run: target.dry_run,
        }
    }

    /// The line, without its end.
    #[must_use]
    pub fn line(&self) -> String {
        serde_json::json!(self).to_string()
    }
}
