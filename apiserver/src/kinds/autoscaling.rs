//! HorizontalPodAutoscalers: stored in the form of autoscaling/v2, and converted to and from v1.

use k8s_openapi::api;
use schemars::generate::SchemaGenerator;
use serde_json::{Value, json};

use super::autoscaling_v1::{as_v2, cpu, drop_status, source, to_v1};
use super::entry::{Entry, texts};
use super::strategy::{Context, Strategy};
use super::{autoscaling_rules, canonical, data};
use crate::field::Errors;
use crate::meta;
use crate::resource::{Column, ResourceInfo};
use crate::table::cells::{NONE, aged, items, string, text};
use crate::table::{count, number};

fn both_texts(generator: &mut SchemaGenerator) {
    texts::<api::autoscaling::v1::HorizontalPodAutoscaler>(generator);
    texts::<api::autoscaling::v2::HorizontalPodAutoscaler>(generator);
}

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[Entry::new(
    "autoscaling",
    "horizontalpodautoscalers",
    &Autoscalers,
    both_texts,
)];

/// HorizontalPodAutoscalers.
#[derive(Debug)]
pub(super) struct Autoscalers;

// === impl Autoscalers ===

impl Strategy for Autoscalers {
    fn describe(&self, info: &mut ResourceInfo) {
        info.storage_version = info.version == "v2";
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Reference", |value, _| {
                let target = &value["spec"]["scaleTargetRef"];
                format!("{}/{}", string(&target["kind"]), string(&target["name"])).into()
            }),
            text("Targets", |value, _| targets(&as_v2(value)).into()),
            text("MinPods", |value, _| {
                let minimum = value["spec"]["minReplicas"].as_i64();
                minimum.map_or_else(|| "<unset>".into(), |minimum| minimum.to_string().into())
            }),
            text("MaxPods", |value, _| {
                number(count(&value["spec"]["maxReplicas"]))
            }),
            text("Replicas", |value, _| {
                number(count(&value["status"]["currentReplicas"]))
            }),
            aged(),
        ]
    }

    fn prepare_create(&self, context: &Context<'_>, object: &mut Value) {
        if context.info.version == "v1" {
            drop_status(object);
        }
    }

    fn default(&self, info: &ResourceInfo, object: &mut Value) {
        let spec = meta::map_at(meta::object_mut(object), "spec");
        spec.entry("minReplicas").or_insert_with(|| 1.into());
        if info.version != "v2" {
            return;
        }
        if items(spec.get("metrics").unwrap_or(&Value::Null)).is_empty() {
            spec.insert("metrics".to_owned(), json!([cpu(80)]));
        }
        if let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) {
            let policy =
                |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
            let up = json!([policy("Pods", 4), policy("Percent", 100)]);
            let down = json!([policy("Percent", 100)]);
            for (direction, policies) in [("scaleUp", up), ("scaleDown", down)] {
                let rules = meta::map_at(behavior, direction);
                rules.entry("selectPolicy").or_insert_with(|| "Max".into());
                rules.entry("policies").or_insert(policies);
                if direction == "scaleUp" {
                    rules
                        .entry("stabilizationWindowSeconds")
                        .or_insert_with(|| 0.into());
                }
            }
        }
    }

    fn validate(&self, _: &Context<'_>, object: &Value, _: Option<&Value>, errors: &mut Errors) {
        autoscaling_rules::validate(&as_v2(object)["spec"], errors);
    }

    fn encoded(&self, info: &ResourceInfo, object: &Value) -> Option<Value> {
        (info.version == "v1").then(|| {
            let mut object = as_v2(object);
            to_v1(&mut object);
            object
        })
    }

    fn convert_to_stored(&self, info: &ResourceInfo, object: &mut Value) {
        if info.version == "v1" {
            *object = as_v2(object);
            if let Some(of) = data::root("autoscaling", "v2", &info.kind) {
                canonical::write(of, object);
            }
        }
    }

    fn convert_from_stored(&self, info: &ResourceInfo, object: &mut Value) {
        if info.version == "v1" {
            to_v1(object);
            if let Some(of) = info.of {
                canonical::write(of, object);
            }
        }
    }
}

// === cells ===

/// The metrics with their current values, two at most.
fn targets(object: &Value) -> String {
    let metrics = items(&object["spec"]["metrics"]);
    let current = items(&object["status"]["currentMetrics"]);
    if metrics.is_empty() {
        return NONE.to_owned();
    }
    let shown: Vec<String> = metrics
        .iter()
        .enumerate()
        .map(|(at, metric)| target(metric, current.get(at).unwrap_or(&Value::Null)))
        .collect();
    match shown.len() {
        0..=2 => shown.join(", "),
        more => format!("{} + {} more...", shown[..2].join(", "), more - 2),
    }
}

fn target(metric: &Value, status: &Value) -> String {
    let source = source(metric);
    let wanted = &metric[source.as_str()]["target"];
    let current = &status[source.as_str()]["current"];
    let amount = |field: &str| current[field].as_str().unwrap_or("<unknown>").to_owned();
    let average = wanted["averageValue"].as_str();
    match (source.as_str(), average) {
        ("resource" | "containerResource", Some(average)) => {
            let name = string(&metric[source.as_str()]["name"]);
            format!("{name}: {}/{average}", amount("averageValue"))
        }
        ("resource" | "containerResource", None) => {
            let name = string(&metric[source.as_str()]["name"]);
            let percent = |value: &Value, absent: &str| {
                let percent = value["averageUtilization"].as_i64();
                percent.map_or_else(|| absent.to_owned(), |percent| format!("{percent}%"))
            };
            format!(
                "{name}: {}/{}",
                percent(current, "<unknown>"),
                percent(wanted, "<auto>")
            )
        }
        ("pods", _) => format!("{}/{}", amount("averageValue"), average.unwrap_or_default()),
        ("object" | "external", Some(average)) => {
            format!("{}/{average} (avg)", amount("averageValue"))
        }
        ("object" | "external", None) => {
            format!("{}/{}", amount("value"), string(&wanted["value"]))
        }
        _ => "<unknown type>".to_owned(),
    }
}
