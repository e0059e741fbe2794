//! Columns and cells that several kinds share.

use jiff::Timestamp;
use serde_json::Value;

pub(crate) use crate::meta::{items, string};

use super::{Now, count, number};
use crate::resource::{Column, ColumnSource};
use crate::selector::LabelSelector;

pub(crate) type Compute = fn(&Value, &Now) -> Value;

pub(crate) const NONE: &str = "<none>";

pub(crate) fn column(name: &str, kind: &str, priority: i64, compute: Compute) -> Column {
    Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: String::new(),
        description: String::new(),
        described_by: None,
        priority,
        source: ColumnSource::Computed(compute),
    }
}

pub(crate) fn text(name: &str, compute: Compute) -> Column {
    column(name, "string", 0, compute)
}

/// Columns of cells that are computed together.
pub(crate) fn together<const N: usize>(
    names: [&str; N],
    compute: fn(&Value, &Now) -> Vec<Value>,
) -> impl Iterator<Item = Column> {
    let columns = names.map(|name| text(name, |_, _| Value::Null));
    columns
        .into_iter()
        .enumerate()
        .map(move |(at, column)| Column {
            source: ColumnSource::Together(compute, at),
            ..column
        })
}

pub(crate) fn integer(name: &str, compute: Compute) -> Column {
    column(name, "integer", 0, compute)
}

pub(crate) fn boolean(name: &str, compute: Compute) -> Column {
    column(name, "boolean", 0, compute)
}

/// The age of the object.
pub(crate) fn aged() -> Column {
    described(
        text("Age", age),
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        "creationTimestamp",
    )
}

/// A column with the description of a field of a type.
pub(crate) fn described(column: Column, of: &'static str, field: &'static str) -> Column {
    Column {
        described_by: Some((of, field)),
        ..column
    }
}

/// Shown only with `-o wide`.
pub(crate) fn wide(name: &str, compute: Compute) -> Column {
    column(name, "string", 1, compute)
}

// === cells ===

pub(crate) fn plain(value: &Value) -> Value {
    string(value).into()
}

pub(crate) fn or_none(value: &Value) -> Value {
    match string(value) {
        "" => NONE.into(),
        text => text.into(),
    }
}

pub(crate) fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join(",")
}

/// Time since a timestamp; `<unknown>` when there is none.
pub(crate) fn ago(time: &Value, now: &Now) -> String {
    string(time)
        .parse::<Timestamp>()
        .map_or_else(|_| "<unknown>".to_owned(), |time| now.since(time))
}

pub(crate) fn age(value: &Value, now: &Now) -> Value {
    ago(&value["metadata"]["creationTimestamp"], now).into()
}

/// The number of entries of two maps.
pub(crate) fn number_of(one: &Value, other: &Value) -> Value {
    let size = |value: &Value| value.as_object().map_or(0, serde_json::Map::len);
    number(i64::try_from(size(one) + size(other)).unwrap_or(i64::MAX))
}

/// The number of items of a list.
pub(crate) fn length(value: &Value) -> Value {
    number(i64::try_from(items(value).len()).unwrap_or(i64::MAX))
}

/// The text of a field that may be absent.
pub(crate) fn or_unset(value: &Value) -> Value {
    value.as_str().unwrap_or("<unset>").into()
}

/// The first three of a list, and the number of the others.
pub(crate) fn first_three(all: &[String]) -> Value {
    match all.len() {
        0 => NONE.into(),
        1..=3 => all.join(",").into(),
        more => format!("{} + {} more...", all[..3].join(","), more - 3).into(),
    }
}

pub(crate) fn ready(value: &Value, field: &str) -> Value {
    format!(
        "{}/{}",
        count(&value["status"][field]),
        count(&value["spec"]["replicas"])
    )
    .into()
}

/// The columns of the containers of a Pod template.
pub(crate) fn template_columns() -> [Column; 2] {
    [
        wide("Containers", |value, _| {
            container_names(&value["spec"]["template"])
        }),
        wide("Images", |value, _| images(&value["spec"]["template"])),
    ]
}

pub(crate) fn container_names(template: &Value) -> Value {
    let containers = items(&template["spec"]["containers"]).iter();
    joined(containers.map(|container| string(&container["name"]))).into()
}

pub(crate) fn images(template: &Value) -> Value {
    let containers = items(&template["spec"]["containers"]).iter();
    joined(containers.map(|container| string(&container["image"]))).into()
}

/// A label selector as a text.
pub(crate) fn selector(value: &Value) -> Value {
    match LabelSelector::from_value(value) {
        Ok(selector) if selector.is_empty() => NONE.into(),
        Ok(selector) => selector.to_string().into(),
        Err(_) => "<error>".into(),
    }
}

/// Labels as `a=b,c=d`.
pub(crate) fn labels(value: &Value) -> Value {
    match value.as_object() {
        Some(map) if !map.is_empty() => map
            .iter()
            .map(|(key, value)| format!("{key}={}", string(value)))
            .collect::<Vec<_>>()
            .join(",")
            .into(),
        _ => NONE.into(),
    }
}
