//! The longest time that webhooks can hold a write of a Pod.

use serde_json::Value;

/// The time of a write in the API server, in seconds. (apiserver: `requestTimeoutUpperBound`.)
const DEADLINE: u64 = 34;
/// The time of a call, where a configuration has none.
const TIMEOUT: u64 = 10;
const OPERATIONS: [&str; 3] = ["CREATE", "UPDATE", "DELETE"];

/// The longest time that the webhooks of all configurations can hold a write of a Pod.
///
/// Webhooks that change objects are called in turn, and those with `reinvocationPolicy: IfNeeded` a second time. All others
/// are called at once. One that is ignored when it fails is waited for, too: several such webhooks that do not answer use
/// up the time of the request (kubernetes#128162).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Longest {
    operation: &'static str,
    seconds: u64,
    /// The webhooks that are called in turn, and the slowest of the others.
    parts: Vec<String>,
}

/// A webhook that is called for writes of Pods.
struct Called<'a> {
    configuration: &'a str,
    webhook: &'a Value,
}

// === impl Longest ===

impl Longest {
    /// That of stored configurations. Selectors and conditions are not evaluated: they may match.
    pub(super) fn of(mutating: &[Value], validating: &[Value]) -> Self {
        let all = OPERATIONS.map(|operation| Self::of_operation(operation, mutating, validating));
        let mut longest = all.into_iter();
        let first = longest.next().unwrap_or(Self {
            operation: "",
            seconds: 0,
            parts: Vec::new(),
        });
        longest.fold(first, |longest, other| {
            if other.seconds > longest.seconds {
                other
            } else {
                longest
            }
        })
    }

    fn of_operation(operation: &'static str, mutating: &[Value], validating: &[Value]) -> Self {
        let mut longest = Self {
            operation,
            seconds: 0,
            parts: Vec::new(),
        };
        for called in Called::all(mutating, operation) {
            let again = called.webhook["reinvocationPolicy"] == "IfNeeded";
            longest.add(&called, if again { 2 } else { 1 });
        }
        let slowest = Called::all(validating, operation).max_by_key(Called::seconds);
        if let Some(called) = slowest {
            longest.add(&called, 1);
        }
        longest
    }

    fn add(&mut self, called: &Called<'_>, times: u64) {
        let seconds = called.seconds() * times;
        self.seconds += seconds;
        let twice = if times > 1 { ", called twice" } else { "" };
        self.parts.push(format!(
            "{}/{} {seconds} s ({}{twice})",
            called.configuration,
            called.webhook["name"].as_str().unwrap_or_default(),
            called.webhook["failurePolicy"].as_str().unwrap_or("Fail"),
        ));
    }

    /// Whether the API server ends the request first.
    pub(super) fn is_too_long(&self) -> bool {
        self.seconds > DEADLINE
    }

    /// What it is, and the remedy if it is too long.
    pub(super) fn text(&self) -> String {
        let Self {
            operation,
            seconds,
            parts,
        } = self;
        if !self.is_too_long() {
            return format!("webhooks hold a write of a Pod for {seconds} s at most");
        }
        format!(
            "webhooks that do not answer hold {operation} of a Pod for {seconds} s, and the API server ends the request after {DEADLINE} s: {}; lower their timeoutSeconds",
            parts.join(", ")
        )
    }
}

// === impl Called ===

impl<'a> Called<'a> {
    fn all(
        configurations: &'a [Value],
        operation: &'a str,
    ) -> impl Iterator<Item = Called<'a>> + 'a {
        configurations.iter().flat_map(move |configuration| {
            let name = &configuration["metadata"]["name"];
            let called = items(&configuration["webhooks"])
                .iter()
                .filter(move |webhook| {
                    let mut rules = items(&webhook["rules"]).iter();
                    rules.any(|rule| is_of_pods(rule, operation))
                });
            called.map(move |webhook| Called {
                configuration: name.as_str().unwrap_or_default(),
                webhook,
            })
        })
    }

    fn seconds(&self) -> u64 {
        self.webhook["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT)
    }
}

fn is_of_pods(rule: &Value, operation: &str) -> bool {
    let one_of = |field: &str, wanted: &[&str]| {
        let mut texts = items(&rule[field]).iter().filter_map(Value::as_str);
        texts.any(|text| wanted.contains(&text))
    };
    one_of("operations", &["*", operation])
        && one_of("apiGroups", &["*", ""])
        && one_of("apiVersions", &["*", "v1"])
        && one_of("resources", &["*", "*/*", "pods", "pods/*"])
        && rule["scope"] != "Cluster"
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn webhook(name: &str, seconds: u64, operations: &[&str], resource: &str) -> Value {
        json!({
            "name": name, "timeoutSeconds": seconds, "failurePolicy": "Ignore",
            "rules": [{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "scope": "*"}],
        })
    }

    fn configuration(name: &str, webhooks: &[Value]) -> Value {
        json!({"metadata": {"name": name}, "webhooks": webhooks})
    }

    #[test]
    fn webhooks_that_change_pods_wait_in_turn_and_the_others_at_once() {
        let mutating = [
            configuration("mesh", &[webhook("inject", 10, &["CREATE"], "pods")]),
            configuration("policy", &[webhook("mutate", 10, &["*"], "*/*")]),
            configuration("other", &[webhook("services", 30, &["*"], "services")]),
        ];
        let validating = [configuration(
            "checks",
            &[
                webhook("quick", 5, &["CREATE"], "pods"),
                webhook("slow", 15, &["CREATE"], "*"),
                webhook("deletions", 30, &["DELETE"], "pods"),
            ],
        )];
        let longest = Longest::of(&mutating, &validating);
        assert!(longest.is_too_long());
        let text = longest.text();
        assert!(text.contains("hold DELETE of a Pod for 40 s"), "{text}");
        assert!(
            text.contains("policy/mutate 10 s (Ignore), checks/deletions 30 s (Ignore); lower"),
            "{text}"
        );
        let longest = Longest::of(&mutating, &[]);
        assert_eq!(
            longest.text(),
            "webhooks hold a write of a Pod for 20 s at most"
        );
    }

    #[test]
    fn a_webhook_that_is_called_again_counts_twice_and_one_without_a_time_has_the_default() {
        let mut again = webhook("again", 15, &["CREATE"], "pods");
        again["reinvocationPolicy"] = json!("IfNeeded");
        let mut unset = webhook("unset", 0, &["CREATE"], "pods");
        unset.as_object_mut().unwrap().remove("timeoutSeconds");
        let text = Longest::of(&[configuration("a", &[again, unset])], &[]).text();
        assert!(text.contains("for 40 s"), "{text}");
        assert!(
            text.contains("a/again 30 s (Ignore, called twice)"),
            "{text}"
        );
    }

    #[test]
    fn a_cluster_without_webhooks_for_pods_waits_for_none() {
        let text = Longest::of(&[], &[]).text();
        assert_eq!(text, "webhooks hold a write of a Pod for 0 s at most");
    }
}
