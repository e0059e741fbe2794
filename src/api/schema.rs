//! The rules the API server enforces on its own, in CEL (Kubernetes 1.31 and later).
//!
//! An older server lacks `isIP` and refuses the whole definition: [`crd_without_rules`] is for it. The entries of a list
//! have no rules: one wrong entry must not refuse the others.
//! [`crate::decide`] checks all of them again.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use serde_json::{Value, json};

use super::ipblock::IPBlock;
use super::list::BlockList;

/// Every unit is bound in digits to about the hundred years that [`crate::duration::MAX`] allows; the exact sum is
/// left to the operator.
const DURATION: &str = "^(([0-9]{1,18}([.][0-9]{0,18})?|[.][0-9]{1,18})(ns|us|µs|μs|ms)\
|([0-9]{1,10}([.][0-9]{0,18})?|[.][0-9]{1,18})s\
|([0-9]{1,8}([.][0-9]{0,18})?|[.][0-9]{1,18})m\
|([0-9]{1,6}([.][0-9]{0,18})?|[.][0-9]{1,18})h\
|([0-9]{1,5}([.][0-9]{0,18})?|[.][0-9]{1,18})d\
|([0-9]{1,4}([.][0-9]{0,18})?|[.][0-9]{1,18})w)+$";

/// The definition of the IPBlock kind, as manifests/base/crd.yaml has it.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    cleaned(IPBlock::crd())
}

/// The definitions of both kinds, IPBlock and BlockList.
#[must_use]
pub fn crds() -> [CustomResourceDefinition; 2] {
    [crd(), cleaned(BlockList::crd())]
}

/// As [`crd`], without CEL rules, for Kubernetes before 1.31: the operator alone checks addresses and durations, and an
/// edited `spec.ip` moves the ban.
#[must_use]
pub fn crd_without_rules() -> CustomResourceDefinition {
    stripped(crd())
}

/// As [`crds`], without CEL rules.
#[must_use]
pub fn crds_without_rules() -> [CustomResourceDefinition; 2] {
    crds().map(stripped)
}

fn cleaned(derived: CustomResourceDefinition) -> CustomResourceDefinition {
    let plain = serde_json::to_value(&derived).map(plain);
    // The value was made from the same type, so this does not fail.
    plain.and_then(serde_json::from_value).unwrap_or(derived)
}

fn stripped(full: CustomResourceDefinition) -> CustomResourceDefinition {
    let stripped = serde_json::to_value(&full).map(without_rules);
    stripped.and_then(serde_json::from_value).unwrap_or(full)
}

fn without_rules(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(key, _)| key != "x-kubernetes-validations")
                .map(|(key, value)| (key, without_rules(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_rules).collect()),
        other => other,
    }
}

/// Without the nulls that stand for Rust's optional fields: to Kubernetes a field is absent, not null.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(key, value)| {
                    key != "nullable" && !(key == "default" && *value == json!(""))
                })
                .map(|(key, value)| (key, plain(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .filter(|item| !item.is_null())
                .map(plain)
                .collect(),
        ),
        other => other,
    }
}

/// `spec.ip` is an address or a range, and immutable.
pub(super) fn ip_rules() -> Value {
    json!([
        {
            "rule": "isIP(self) || isCIDR(self)",
            "message": "spec.ip must be an IP address or a CIDR range, for example 192.0.2.7, 2001:db8::7 or 192.0.2.0/24"
        },
        {
            "rule": "self == oldSelf",
            "message": "spec.ip is immutable; create another IPBlock for the other address and delete this one"
        }
    ])
}

/// `spec.duration` is one of Go's, or with days and weeks; more than zero and at most a hundred years.
pub(super) fn duration_rules() -> Value {
    duration_rules_of("duration")
}

/// As [`duration_rules`], for `spec.defaultDuration` of a list.
pub(super) fn list_duration_rules() -> Value {
    duration_rules_of("defaultDuration")
}

fn duration_rules_of(field: &str) -> Value {
    json!([
        {
            "rule": format!("self == '' || self.matches('{DURATION}')"),
            "message": format!("spec.{field} must be a duration of at most 100 years, for example 10m, 1h30m, 2d or 1w (units: ns, us, ms, s, m, h, d, w; no sign); leave it out for a ban without end")
        },
        {
            "rule": "self == '' || self.matches('[1-9]')",
            "message": format!("spec.{field} must be more than zero; leave it out for a ban without end")
        }
    ])
}

/// Engines are distinguished by their name.
pub(super) fn engine_keys() -> Value {
    json!(["name"])
}

/// Conditions are distinguished by their type.
pub(super) fn condition_keys() -> Value {
    json!(["type"])
}
