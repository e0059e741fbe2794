//! PodDisruptionBudgets, ResourceQuotas, LimitRanges, PriorityClasses and RuntimeClasses.

use k8s_openapi::api;
use serde_json::{Value, json};

use super::check;
use super::entry::Entry;
use super::pod_spec::tolerations;
use super::rbac::created_at;
use super::strategy::{Context, Strategy};
use super::workload_rules::{count_or_percent, not_more_than_all};
use super::{immutable, limit_rules, quota_rules, selectors};
use crate::field::{Errors, FieldError, Path};
use crate::labels::check_labels;
use crate::meta;
use crate::names;
use crate::resource::{Column, Generation, ResourceInfo};
use crate::table::cells::{aged, boolean, integer, items, plain, string, text};
use crate::table::{count, number};

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::of::<api::core::v1::LimitRange>("", "limitranges", &LimitRanges),
    Entry::of::<api::core::v1::ResourceQuota>("", "resourcequotas", &Quotas),
    Entry::of::<api::node::v1::RuntimeClass>("node.k8s.io", "runtimeclasses", &RuntimeClasses),
    Entry::of::<api::policy::v1::PodDisruptionBudget>("policy", "poddisruptionbudgets", &Budgets),
    Entry::of::<api::scheduling::v1::PriorityClass>(
        "scheduling.k8s.io",
        "priorityclasses",
        &PriorityClasses,
    ),
];

/// When Pods that are not ready may be evicted.
const EVICTION_POLICIES: &[&str] = &["AlwaysAllow", "IfHealthyBudget"];
/// The highest value of a PriorityClass of a user.
const HIGHEST: i64 = 1_000_000_000;
/// The classes of the system and their values.
const SYSTEM_CLASSES: &[(&str, i64, &str)] = &[
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

/// PodDisruptionBudgets.
#[derive(Debug)]
pub(super) struct Budgets;

/// ResourceQuotas.
#[derive(Debug)]
pub(super) struct Quotas;

/// LimitRanges.
#[derive(Debug)]
pub(super) struct LimitRanges;

/// PriorityClasses.
#[derive(Debug)]
pub(super) struct PriorityClasses;

/// RuntimeClasses.
#[derive(Debug)]
pub(super) struct RuntimeClasses;

// === impl Budgets ===

impl Strategy for Budgets {
    fn describe(&self, info: &mut ResourceInfo) {
        info.unconditional_update = false;
        info.generation = Generation::Spec;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Min Available", |value, _| {
                amount(&value["spec"]["minAvailable"])
            }),
            text("Max Unavailable", |value, _| {
                amount(&value["spec"]["maxUnavailable"])
            }),
            integer("Allowed Disruptions", |value, _| {
                number(count(&value["status"]["disruptionsAllowed"]))
            }),
            aged(),
        ]
    }

    fn validate(&self, _: &Context<'_>, budget: &Value, _: Option<&Value>, errors: &mut Errors) {
        let spec = &budget["spec"];
        if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
            errors.push(FieldError::invalid(
                &Path::new("spec"),
                spec.clone(),
                "minAvailable and maxUnavailable cannot be both set",
            ));
        }
        let path = Path::new("spec");
        for field in ["minAvailable", "maxUnavailable"] {
            count_or_percent(&spec[field], &path.child(field), errors);
            not_more_than_all(&spec[field], &path.child(field), errors);
        }
        selectors::validate(&spec["selector"], &path.child("selector"), errors);
        let policy = &spec["unhealthyPodEvictionPolicy"];
        if !policy.is_null() && !EVICTION_POLICIES.contains(&string(policy)) {
            errors.push(FieldError::not_supported(
                &path.child("unhealthyPodEvictionPolicy"),
                policy.clone(),
                EVICTION_POLICIES,
            ));
        }
    }
}

/// A number or a percentage.
fn amount(value: &Value) -> Value {
    match value {
        Value::Null => "N/A".into(),
        Value::String(text) => text.as_str().into(),
        number => number.to_string().into(),
    }
}

// === impl Quotas ===

impl Strategy for Quotas {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Request", |value, _| used(value, false)),
            text("Limit", |value, _| used(value, true)),
            aged(),
        ]
    }

    fn validate(&self, _: &Context<'_>, quota: &Value, old: Option<&Value>, errors: &mut Errors) {
        quota_rules::validate(quota, old, errors);
    }
}

/// What is used of a quota: of limits, or of all else.
fn used(quota: &Value, limits: bool) -> Value {
    let status = &quota["status"];
    let amount = |value: &Value| value.as_str().unwrap_or("0").to_owned();
    let all: Vec<String> = status["hard"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| {
            let used = amount(&status["used"][name.as_str()]);
            format!("{name}: {used}/{}", amount(hard))
        })
        .collect();
    all.join(", ").into()
}

// === impl LimitRanges ===

impl Strategy for LimitRanges {
    fn describe(&self, info: &mut ResourceInfo) {
        info.create_on_update = true;
    }

    fn columns(&self) -> Vec<Column> {
        vec![created_at()]
    }

    fn default(&self, _: &ResourceInfo, range: &mut Value) {
        let limits = range.pointer_mut("/spec/limits");
        let limits = limits.and_then(Value::as_array_mut);
        for limit in limits.into_iter().flatten() {
            if limit["type"] != "Container" {
                continue;
            }
            let limit = meta::object_mut(limit);
            for (from, to) in [
                ("max", "default"),
                ("default", "defaultRequest"),
                ("min", "defaultRequest"),
            ] {
                let amounts = limit.get(from).and_then(Value::as_object).cloned();
                if let Some(amounts) = amounts {
                    let into = meta::map_at(limit, to);
                    for (name, amount) in amounts {
                        into.entry(name).or_insert(amount);
                    }
                }
            }
        }
    }

    fn validate(&self, _: &Context<'_>, range: &Value, _: Option<&Value>, errors: &mut Errors) {
        limit_rules::validate(range, errors);
    }
}

// === impl PriorityClasses ===

impl Strategy for PriorityClasses {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::First;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            integer("Value", |value, _| number(count(&value["value"]))),
            boolean("Global-Default", |value, _| {
                (value["globalDefault"] == true).into()
            }),
            aged(),
            text("PreemptionPolicy", |value, _| {
                plain(&value["preemptionPolicy"])
            }),
        ]
    }

    fn default(&self, _: &ResourceInfo, class: &mut Value) {
        let class = meta::object_mut(class);
        class
            .entry("preemptionPolicy")
            .or_insert_with(|| "PreemptLowerPriority".into());
    }

    fn validate(&self, _: &Context<'_>, class: &Value, old: Option<&Value>, errors: &mut Errors) {
        let value = count(&class["value"]);
        let name = meta::text(class, "name");
        let known = SYSTEM_CLASSES
            .iter()
            .any(|(known, amount, _)| *known == name && *amount == value);
        if name.starts_with("system-") && !known {
            errors.push(FieldError::forbidden(
                &Path::new("metadata").child("name"),
                format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
                ),
            ));
        } else if value > HIGHEST && !known {
            errors.push(FieldError::forbidden(
                &Path::new("value"),
                format!("maximum allowed value of a user defined priority is {HIGHEST}"),
            ));
        }
        let (policy, path) = (&class["preemptionPolicy"], Path::new("preemptionPolicy"));
        check::one_of(policy, &path, check::PREEMPTION_POLICIES, errors);
        let Some(old) = old else { return };
        if old["value"] != class["value"] {
            errors.push(FieldError::forbidden(
                &Path::new("value"),
                "may not be changed in an update.",
            ));
        }
        immutable::field(policy, &old["preemptionPolicy"], &path, errors);
    }
}

/// The PriorityClasses that every cluster has.
pub(crate) fn system_classes() -> impl Iterator<Item = Value> {
    SYSTEM_CLASSES.iter().map(|(name, value, description)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "description": description,
        })
    })
}

// === impl RuntimeClasses ===

impl Strategy for RuntimeClasses {
    fn describe(&self, info: &mut ResourceInfo) {
        info.create_on_update = true;
        info.unconditional_update = false;
    }

    fn columns(&self) -> Vec<Column> {
        vec![text("Handler", |value, _| plain(&value["handler"])), aged()]
    }

    fn validate(&self, _: &Context<'_>, class: &Value, old: Option<&Value>, errors: &mut Errors) {
        let path = Path::new("handler");
        if let Some(old) = old {
            immutable::field(&class["handler"], &old["handler"], &path, errors);
        }
        check::name(&class["handler"], names::dns_label, &path, errors);
        let overhead = class["overhead"]["podFixed"].as_object();
        for (name, amount) in overhead.into_iter().flatten() {
            let path = Path::new("overhead").child("limits").key(name);
            check::container_resource(name, &path, errors);
            check::resource_amount(amount, &path, errors);
        }
        let (scheduling, path) = (&class["scheduling"], Path::new("scheduling"));
        check_labels(
            &scheduling["nodeSelector"],
            &path.child("nodeSelector"),
            errors,
        );
        tolerations(scheduling, &path, errors);
        let all = items(&scheduling["tolerations"]);
        let key = |one: &Value| {
            let fields = ["key", "operator", "value", "effect"];
            fields.map(|field| string(&one[field]).to_owned())
        };
        for (at, one) in all.iter().enumerate() {
            if all[..at].iter().any(|other| key(other) == key(one)) {
                let path = path.child("tolerations").index(at);
                errors.push(FieldError::duplicate(&path, one.clone()));
            }
        }
    }
}
