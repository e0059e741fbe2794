//! Rules as JSON, for the control API.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Action, Rule, StreamEnd};
use crate::status::Status;

/// The verbs that requests can have; those of paths without resources are HTTP methods.
const VERBS: [&str; 12] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "post",
    "put",
    "head",
    "options",
];
/// The longest delay in seconds: a day.
const LONGEST_DELAY: f64 = 86_400.0;
/// Maximum length of a text in bytes.
const LONGEST_TEXT: usize = 16 * 1024;

/// A rule as JSON. Absent fields select everything.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RuleForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    verb: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    after: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probability: Option<f64>,
    fault: Fault,
}

/// The fault of a rule: a name, or a name with its options.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
enum Fault {
    Status {
        code: u16,
        #[serde(default)]
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_seconds: Option<u32>,
    },
    Text {
        code: u16,
        #[serde(default)]
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_seconds: Option<u32>,
    },
    Delay {
        seconds: f64,
    },
    DelayAnswer {
        seconds: f64,
    },
    Reset,
    LoseAnswer,
    Stall,
    Stale {
        resource_version: String,
    },
    CloseEmpty,
    ResetAfter {
        pieces: usize,
    },
    CloseAfter {
        pieces: usize,
    },
    TruncateAfter {
        pieces: usize,
    },
    StallAfter {
        pieces: usize,
    },
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

// === impl RuleForm ===

impl RuleForm {
    /// The rule of the form.
    ///
    /// # Errors
    /// The reason why it is not a rule.
    pub(crate) fn rule(self) -> Result<Rule, String> {
        if let Some(verb) = &self.verb
            && !VERBS.contains(&verb.as_str())
        {
            return Err(format!(
                "verb: no request has the verb {verb:?}; the verbs are {}",
                VERBS.join(", ")
            ));
        }
        if let Some(probability) = self.probability
            && !(0.0..=1.0).contains(&probability)
        {
            return Err(format!("probability: {probability} is not between 0 and 1"));
        }
        let texts = [
            &self.group,
            &self.resource,
            &self.namespace,
            &self.name,
            &self.subresource,
            &self.user_agent,
        ];
        if texts
            .into_iter()
            .flatten()
            .any(|text| text.len() > LONGEST_TEXT)
        {
            return Err(format!("a text is longer than {LONGEST_TEXT} bytes"));
        }
        Ok(Rule {
            verb: self.verb,
            group: self.group,
            resource: self.resource,
            namespace: self.namespace,
            name: self.name,
            subresource: self.subresource,
            agent: self.user_agent,
            skip: self.after,
            times: self.times,
            probability: self.probability,
            action: Some(self.fault.action()?),
        })
    }

    /// The form of a rule; `None` for one without a fault.
    pub(crate) fn of(rule: &Rule) -> Option<Self> {
        Some(Self {
            verb: rule.verb.clone(),
            group: rule.group.clone(),
            resource: rule.resource.clone(),
            namespace: rule.namespace.clone(),
            name: rule.name.clone(),
            subresource: rule.subresource.clone(),
            user_agent: rule.agent.clone(),
            after: rule.skip,
            times: rule.times,
            probability: rule.probability,
            fault: Fault::of(rule.action.as_ref()?),
        })
    }
}

// === impl Fault ===

impl Fault {
    fn action(self) -> Result<Action, String> {
        let answer = |rule: Rule, retry_after: Option<u32>| {
            let rule = match retry_after {
                Some(seconds) => rule.retry_after(seconds),
                None => rule,
            };
            rule.action.ok_or_else(|| "the fault is missing".to_owned())
        };
        let check = |code: u16, message: &str| {
            if !(200..=599).contains(&code) {
                return Err(format!("code: {code} is not between 200 and 599"));
            }
            if message.len() > LONGEST_TEXT {
                return Err(format!("message: it is longer than {LONGEST_TEXT} bytes"));
            }
            Ok(())
        };
        let delay = |seconds: f64| {
            if !(0.0..=LONGEST_DELAY).contains(&seconds) {
                return Err(format!(
                    "seconds: {seconds} is not between 0 and {LONGEST_DELAY}"
                ));
            }
            Ok(Duration::from_secs_f64(seconds))
        };
        let stream = |after: usize, end: StreamEnd| Ok(Action::Stream { after, end });
        match self {
            Self::Status {
                code,
                message,
                retry_after_seconds,
            } => {
                check(code, &message)?;
                answer(Rule::new().status(code, message), retry_after_seconds)
            }
            Self::Text {
                code,
                message,
                retry_after_seconds,
            } => {
                check(code, &message)?;
                answer(Rule::new().text(code, message), retry_after_seconds)
            }
            Self::Delay { seconds } => Ok(Action::DelayBefore(delay(seconds)?)),
            Self::DelayAnswer { seconds } => Ok(Action::DelayAfter(delay(seconds)?)),
            Self::Reset => Ok(Action::Reset),
            Self::LoseAnswer => Ok(Action::LoseAnswer),
            Self::Stall => Ok(Action::Stall),
            Self::Stale { resource_version } => match resource_version.parse() {
                Ok(version) => Ok(Action::Stale(version)),
                Err(_) => Err(format!(
                    "resourceVersion: {resource_version:?} is not a version"
                )),
            },
            Self::CloseEmpty => Ok(Action::CloseEmpty),
            Self::ResetAfter { pieces } => stream(pieces, StreamEnd::Reset),
            Self::CloseAfter { pieces } => stream(pieces, StreamEnd::Close),
            Self::TruncateAfter { pieces } => stream(pieces, StreamEnd::Truncate),
            Self::StallAfter { pieces } => stream(pieces, StreamEnd::Stall),
        }
    }

    fn of(action: &Action) -> Self {
        match action {
            Action::Status(status) => Self::of_status(status),
            Action::DelayBefore(delay) => Self::Delay {
                seconds: delay.as_secs_f64(),
            },
            Action::DelayAfter(delay) => Self::DelayAnswer {
                seconds: delay.as_secs_f64(),
            },
            Action::Reset => Self::Reset,
            Action::LoseAnswer => Self::LoseAnswer,
            Action::Stall => Self::Stall,
            Action::Stale(version) => Self::Stale {
                resource_version: version.to_string(),
            },
            Action::CloseEmpty => Self::CloseEmpty,
            &Action::Stream { after, end } => match end {
                StreamEnd::Reset => Self::ResetAfter { pieces: after },
                StreamEnd::Close => Self::CloseAfter { pieces: after },
                StreamEnd::Truncate => Self::TruncateAfter { pieces: after },
                StreamEnd::Stall => Self::StallAfter { pieces: after },
            },
        }
    }

    fn of_status(status: &Status) -> Self {
        let (code, message) = (status.code, status.message.clone());
        let details = status.details.as_ref();
        let retry_after_seconds = details.and_then(|details| details.retry_after_seconds);
        if status.plain_text {
            Self::Text {
                code,
                message,
                retry_after_seconds,
            }
        } else {
            Self::Status {
                code,
                message,
                retry_after_seconds,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(form: Value) -> Result<Rule, String> {
        let form: RuleForm = serde_json::from_value(form).map_err(|error| error.to_string())?;
        form.rule()
    }

    #[test]
    fn every_rule_has_a_form_and_comes_back_from_it() {
        let status = json!({"status": {"code": 503, "message": "later", "retryAfterSeconds": 1}});
        let plain = json!({"text": {"code": 429, "message": "slow down"}});
        let faults = [
            status,
            plain,
            json!({"delay": {"seconds": 0.5}}),
            json!({"delayAnswer": {"seconds": 2.0}}),
            json!("reset"),
            json!("loseAnswer"),
            json!("stall"),
            json!({"stale": {"resourceVersion": "10003"}}),
            json!("closeEmpty"),
            json!({"resetAfter": {"pieces": 1}}),
            json!({"closeAfter": {"pieces": 2}}),
            json!({"truncateAfter": {"pieces": 3}}),
            json!({"stallAfter": {"pieces": 4}}),
        ];
        for fault in faults {
            let form = json!({
                "verb": "patch", "group": "", "resource": "pods", "namespace": "n", "name": "p", "subresource": "status",
                "userAgent": "kubectl", "after": 1, "times": 2, "probability": 0.5, "fault": fault,
            });
            let rule = parse(form.clone()).unwrap();
            let back = serde_json::to_value(RuleForm::of(&rule)).unwrap();
            assert_eq!(back, form);
        }
        let least = json!({"fault": "reset"});
        let rule = parse(least.clone()).unwrap();
        assert_eq!(serde_json::to_value(RuleForm::of(&rule)).unwrap(), least);
    }

    #[test]
    fn a_form_that_is_not_a_rule_is_refused_with_its_field() {
        for (form, expected) in [
            (json!({}), "missing field `fault`"),
            (json!({"fault": "explode"}), "unknown variant `explode`"),
            (
                json!({"fault": "reset", "Verb": "get"}),
                "unknown field `Verb`",
            ),
            (json!({"fault": "reset", "verb": "Create"}), "verb: "),
            (
                json!({"fault": "reset", "probability": 1.5}),
                "probability: ",
            ),
            (json!({"fault": "reset", "times": -1}), "-1"),
            (json!({"fault": {"status": {"code": 99}}}), "code: 99"),
            (
                json!({"fault": {"status": {"code": 500, "text": ""}}}),
                "unknown field `text`",
            ),
            (json!({"fault": {"delay": {"seconds": -1}}}), "seconds: -1"),
            (json!({"fault": {"delay": {"seconds": 1e9}}}), "seconds: "),
            (
                json!({"fault": {"stale": {"resourceVersion": "x"}}}),
                "resourceVersion: ",
            ),
            (
                json!({"fault": "reset", "name": "n".repeat(LONGEST_TEXT + 1)}),
                "longer",
            ),
        ] {
            let error = parse(form.clone()).unwrap_err();
            assert!(error.contains(expected), "{form}: {error}");
        }
    }
}
