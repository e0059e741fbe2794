//! HorizontalPodAutoscalers of autoscaling/v1: their conversion to and from the stored form of v2.
//!
//! What v1 has no fields for is in annotations, with the names of Go for the behaviour.
//! (kubernetes: `pkg/apis/autoscaling/v1/conversion.go`.)

use serde_json::{Map, Value, json};

use crate::meta;
use crate::table::cells::{items, string};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// The names of the behaviour in v2; Go's begin with a capital letter.
const BEHAVIOR_NAMES: &[&str] = &[
    "scaleUp",
    "scaleDown",
    "stabilizationWindowSeconds",
    "selectPolicy",
    "policies",
    "tolerance",
    "type",
    "value",
    "periodSeconds",
];

/// The metric of processor use in percent.
pub(super) fn cpu(percent: i64) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
}

fn cpu_percent(metric: &Value, field: &str) -> Option<i64> {
    let resource = &metric["resource"];
    let is_cpu = metric["type"] == "Resource" && resource["name"] == "cpu";
    resource[field]["averageUtilization"]
        .as_i64()
        .filter(|_| is_cpu)
}

/// An autoscaler of either version in the form of v2.
pub(super) fn as_v2(object: &Value) -> Value {
    let mut object = object.clone();
    let mut annotation = |name: &str| -> Option<Value> {
        let annotations = object
            .pointer_mut("/metadata/annotations")?
            .as_object_mut()?;
        let text = annotations.remove(name)?;
        serde_json::from_str(text.as_str()?).ok()
    };
    let metrics = annotation(METRICS).filter(Value::is_array);
    // Go drops a behaviour without rules.
    let behavior = annotation(BEHAVIOR).map(|behavior| renamed(&behavior));
    let behavior =
        behavior.filter(|behavior| behavior.as_object().is_some_and(|map| !map.is_empty()));
    let current = annotation(CURRENT_METRICS).filter(Value::is_array);
    let conditions = annotation(CONDITIONS).filter(Value::is_array);
    meta_tidy(&mut object);
    let spec = meta::map_at(meta::object_mut(&mut object), "spec");
    let percent = spec
        .remove("targetCPUUtilizationPercentage")
        .and_then(|percent| percent.as_i64());
    if !spec.contains_key("metrics") {
        let mut all: Vec<Value> = items(&metrics.unwrap_or_default())
            .iter()
            .map(|metric| metric_to_v2(metric, "target"))
            .collect();
        all.extend(percent.map(cpu));
        if all.is_empty() {
            all.push(cpu(80));
        }
        spec.insert("metrics".to_owned(), all.into());
    }
    if let Some(behavior) = behavior {
        spec.insert("behavior".to_owned(), behavior);
    }
    let status = meta::map_at(meta::object_mut(&mut object), "status");
    let percent = status.remove("currentCPUUtilizationPercentage");
    if let Some(current) = current {
        let all = items(&current).iter();
        let all: Value = all.map(|metric| metric_to_v2(metric, "current")).collect();
        status.insert("currentMetrics".to_owned(), all);
    } else if let Some(percent) = percent {
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}});
        status.insert("currentMetrics".to_owned(), json!([metric]));
    }
    if let Some(conditions) = conditions {
        status.insert("conditions".to_owned(), conditions);
    }
    object
}

/// Removes the annotations with parts of the status.
pub(super) fn drop_status(object: &mut Value) {
    let annotations = object.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(CURRENT_METRICS);
        annotations.remove(CONDITIONS);
    }
    meta_tidy(object);
}

/// Converts the stored form to v1.
pub(super) fn to_v1(object: &mut Value) {
    let mut annotations: Vec<(&str, String)> = Vec::new();
    let map = meta::object_mut(object);
    let spec = meta::map_at(map, "spec");
    let metrics = spec.remove("metrics").unwrap_or_default();
    if let Some(percent) = items(&metrics)
        .iter()
        .find_map(|metric| cpu_percent(metric, "target"))
    {
        spec.insert("targetCPUUtilizationPercentage".to_owned(), percent.into());
    }
    let others: Vec<String> = items(&metrics)
        .iter()
        .filter(|metric| cpu_percent(metric, "target").is_none())
        .map(|metric| metric_to_v1(metric, "target"))
        .collect();
    if !others.is_empty() {
        annotations.push((METRICS, format!("[{}]", others.join(","))));
    }
    // What an apply removes from a behaviour leaves a null, not a behaviour without rules.
    if let Some(behavior) = spec
        .remove("behavior")
        .filter(|behavior| !behavior.is_null())
    {
        annotations.push((BEHAVIOR, behavior_text(&behavior)));
    }
    let status = meta::map_at(map, "status");
    let current = status.remove("currentMetrics").unwrap_or_default();
    let percent = items(&current)
        .iter()
        .filter_map(|metric| cpu_percent(metric, "current"))
        .next_back();
    if let Some(percent) = percent {
        status.insert("currentCPUUtilizationPercentage".to_owned(), percent.into());
    }
    if !items(&current).is_empty() {
        let all = items(&current).iter();
        let all: Vec<String> = all.map(|metric| metric_to_v1(metric, "current")).collect();
        annotations.push((CURRENT_METRICS, format!("[{}]", all.join(","))));
    }
    if let Some(conditions) = status.remove("conditions")
        && !items(&conditions).is_empty()
    {
        let all = items(&conditions).iter();
        let all: Vec<String> = all.map(condition_text).collect();
        annotations.push((CONDITIONS, format!("[{}]", all.join(","))));
    }
    if !annotations.is_empty() {
        let into = meta::map_at(meta::metadata_mut(object), "annotations");
        for (name, text) in annotations {
            into.insert(name.to_owned(), text.into());
        }
    }
}

fn meta_tidy(object: &mut Value) {
    let metadata = meta::metadata_mut(object);
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    if annotations.is_some_and(Map::is_empty) {
        metadata.remove("annotations");
    }
}

/// The field of a metric that its type selects: `resource` of `Resource`.
pub(super) fn source(metric: &Value) -> String {
    let kind = string(&metric["type"]);
    let mut letters = kind.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// Names of a metric in v1: the metric, its selector, its value and its average, and the described object.
fn names(source: &str, side: &str) -> [&'static str; 4] {
    match (source, side) {
        ("object", "target") => ["metricName", "selector", "targetValue", "averageValue"],
        ("object", _) => ["metricName", "selector", "currentValue", "averageValue"],
        ("external", "target") => [
            "metricName",
            "metricSelector",
            "targetValue",
            "targetAverageValue",
        ],
        ("external", _) => [
            "metricName",
            "metricSelector",
            "currentValue",
            "currentAverageValue",
        ],
        ("pods", "target") => ["metricName", "selector", "", "targetAverageValue"],
        ("pods", _) => ["metricName", "selector", "", "currentAverageValue"],
        (_, "target") => ["", "", "targetAverageUtilization", "targetAverageValue"],
        (_, _) => ["", "", "currentAverageUtilization", "currentAverageValue"],
    }
}

fn metric_to_v2(metric: &Value, side: &str) -> Value {
    let source = source(metric);
    let old = &metric[source.as_str()];
    let [name, selector, value, average] = names(&source, side);
    let is_resource = name.is_empty();
    let mut new = Map::new();
    let mut amounts = Map::new();
    let copy = |into: &mut Map<String, Value>, from: &str, to: &str| {
        if let Some(found) = old
            .get(from)
            .filter(|found| !from.is_empty() && !found.is_null())
        {
            into.insert(to.to_owned(), found.clone());
        }
    };
    copy(
        &mut amounts,
        value,
        if is_resource {
            "averageUtilization"
        } else {
            "value"
        },
    );
    copy(&mut amounts, average, "averageValue");
    if is_resource {
        copy(&mut new, "name", "name");
        copy(&mut new, "container", "container");
    } else {
        let mut named = Map::new();
        copy(&mut named, name, "name");
        copy(&mut named, selector, "selector");
        copy(&mut new, "target", "describedObject");
        new.insert("metric".to_owned(), named.into());
    }
    if side == "target" {
        let kind = if amounts.contains_key("averageUtilization") {
            "Utilization"
        } else if amounts.contains_key("averageValue") {
            // The value of an object is zero then.
            amounts.remove("value");
            "AverageValue"
        } else {
            "Value"
        };
        amounts.insert("type".to_owned(), kind.into());
    }
    new.insert(side.to_owned(), amounts.into());
    json!({"type": metric["type"], source: new})
}

/// A metric in the encoding of v1, with the fields in the order of Go.
fn metric_to_v1(metric: &Value, side: &str) -> String {
    let source = source(metric);
    let old = &metric[source.as_str()];
    let [name, selector, value, average] = names(&source, side);
    let amounts = &old[side];
    let zero = json!("0");
    // Go has no absent quantity where v1 has no pointer.
    let quantity = |name: &str| amounts.get(name).unwrap_or(&zero);
    let current = side == "current";
    let average_value = |is_pointer: bool| {
        if is_pointer {
            &amounts["averageValue"]
        } else {
            quantity("averageValue")
        }
    };
    let mut fields: Vec<(&str, &Value)> = match source.as_str() {
        "object" => vec![
            (name, &old["metric"]["name"]),
            (value, quantity("value")),
            (selector, &old["metric"]["selector"]),
            (average, average_value(true)),
        ],
        "pods" => vec![
            (name, &old["metric"]["name"]),
            (average, average_value(false)),
            (selector, &old["metric"]["selector"]),
        ],
        "external" => vec![
            (name, &old["metric"]["name"]),
            (selector, &old["metric"]["selector"]),
            (
                value,
                if current {
                    quantity("value")
                } else {
                    &amounts["value"]
                },
            ),
            (average, average_value(true)),
        ],
        _ => vec![
            ("name", &old["name"]),
            (value, &amounts["averageUtilization"]),
            (average, average_value(!current)),
            ("container", &old["container"]),
        ],
    };
    fields.retain(|(_, value)| !value.is_null());
    let mut texts: Vec<(&str, String)> = Vec::new();
    if source == "object" {
        let target = &old["describedObject"];
        let target = ["kind", "name", "apiVersion"].map(|name| (name, &target[name]));
        texts.push(("target", ordered_values(&target)));
    }
    texts.extend(
        fields
            .iter()
            .map(|(name, value)| (*name, value.to_string())),
    );
    ordered(&[
        ("type", metric["type"].to_string()),
        (source.as_str(), ordered(&texts)),
    ])
}

fn condition_text(condition: &Value) -> String {
    let names = ["type", "status", "lastTransitionTime", "reason", "message"];
    // Go's encoder has the time also if it is null.
    let present = |name: &&str| *name == "lastTransitionTime" || !condition[*name].is_null();
    let texts: Vec<(&str, String)> = names
        .into_iter()
        .filter(present)
        .map(|name| (name, condition[name].to_string()))
        .collect();
    ordered(&texts)
}

fn ordered_values(fields: &[(&str, &Value)]) -> String {
    let present = fields.iter().filter(|(_, value)| !value.is_null());
    let texts: Vec<(&str, String)> = present
        .map(|(name, value)| (*name, value.to_string()))
        .collect();
    ordered(&texts)
}

fn ordered(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, text)| format!("{}:{text}", json!(name)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// The behaviour with the names and the order of Go; absent fields are null.
fn behavior_text(behavior: &Value) -> String {
    let rules = |rules: &Value| {
        if rules.is_null() {
            return "null".to_owned();
        }
        let policies: Vec<String> = items(&rules["policies"])
            .iter()
            .map(|policy| {
                ordered(&[
                    ("Type", policy["type"].to_string()),
                    ("Value", policy["value"].to_string()),
                    ("PeriodSeconds", policy["periodSeconds"].to_string()),
                ])
            })
            .collect();
        ordered(&[
            (
                "StabilizationWindowSeconds",
                rules["stabilizationWindowSeconds"].to_string(),
            ),
            ("SelectPolicy", rules["selectPolicy"].to_string()),
            ("Policies", format!("[{}]", policies.join(","))),
            ("Tolerance", rules["tolerance"].to_string()),
        ])
    };
    ordered(&[
        ("ScaleUp", rules(&behavior["scaleUp"])),
        ("ScaleDown", rules(&behavior["scaleDown"])),
    ])
}

/// The behaviour with the names of v2, without nulls.
fn renamed(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| {
                let known = BEHAVIOR_NAMES
                    .iter()
                    .find(|known| known.eq_ignore_ascii_case(name));
                let name = known.map_or(name.as_str(), |known| known);
                (name.to_owned(), renamed(value))
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(all) => all.iter().map(renamed).collect(),
        other => other.clone(),
    }
}
