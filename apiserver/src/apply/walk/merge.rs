//! The merge of an applied value into a live one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::super::path::Element;
use super::super::schema::{ItemsBy, List, Map, Schema, TypeId};
use super::item;
use super::problem::{Problems, problem, within};
use super::shape::{Shape, shapes};
use super::validate::scalar_problem;

/// Merges `applied` into `live`: the result has everything of both, and the values of `applied` where both have one.
///
/// Items of lists keep the order of `live` unless `applied` has another one for the items that both have.
///
/// # Errors
/// Parts that are not of their type in both, and duplicates in `applied`.
pub(crate) fn merge(
    schema: &Schema,
    of: TypeId,
    live: &Value,
    applied: &Value,
) -> Result<Value, Problems> {
    let mut problems = Problems::new();
    let merged = visit(schema, of, Some(live), Some(applied), &mut problems);
    if problems.is_empty() {
        Ok(merged.unwrap_or(Value::Null))
    } else {
        Err(problems)
    }
}

fn visit(
    schema: &Schema,
    of: TypeId,
    live: Option<&Value>,
    applied: Option<&Value>,
    problems: &mut Problems,
) -> Option<Value> {
    match shapes(schema.atom(of), live, applied) {
        Err(error) => {
            problems.push(error);
            None
        }
        Ok((first, last)) => {
            if let Some(first) = first {
                visit_shape(schema, first, live, applied, problems);
            }
            visit_shape(schema, last, live, applied, problems)
        }
    }
}

fn visit_shape(
    schema: &Schema,
    shape: Shape<'_>,
    live: Option<&Value>,
    applied: Option<&Value>,
    problems: &mut Problems,
) -> Option<Value> {
    let leaf = || applied.or(live).cloned();
    match shape {
        Shape::Scalar(scalar) => {
            let first = scalar_problem(scalar, live, "lhs: ");
            let second = scalar_problem(scalar, applied, "rhs: ");
            if let (Some(first), Some(second)) = (first, second) {
                problems.extend([problem(first), problem(second)]);
                return None;
            }
            leaf()
        }
        Shape::List(list) => {
            let none = Vec::new();
            let live_items = live.and_then(Value::as_array).unwrap_or(&none);
            let applied_items = applied.and_then(Value::as_array).unwrap_or(&none);
            // Empty and null differ: the applied one wins.
            if list.by == ItemsBy::Nothing || (live_items.is_empty() && applied_items.is_empty()) {
                return leaf();
            }
            merge_items(schema, list, live_items, applied_items, problems)
        }
        Shape::Map(map) => {
            let none = serde_json::Map::new();
            let live_fields = live.and_then(Value::as_object).unwrap_or(&none);
            let applied_fields = applied.and_then(Value::as_object).unwrap_or(&none);
            if map.atomic || (live_fields.is_empty() && applied_fields.is_empty()) {
                return leaf();
            }
            merge_fields(schema, map, live_fields, applied_fields, problems)
        }
    }
}

fn merge_fields(
    schema: &Schema,
    map: &Map,
    live: &serde_json::Map<String, Value>,
    applied: &serde_json::Map<String, Value>,
    problems: &mut Problems,
) -> Option<Value> {
    let mut merged = serde_json::Map::new();
    let new = applied.keys().filter(|name| !live.contains_key(*name));
    for name in live.keys().chain(new) {
        let (live, applied) = (live.get(name), applied.get(name));
        let Some(of) = map.entry(name) else {
            // Not declared any more: the value stays as it is.
            merged.extend(applied.or(live).map(|value| (name.clone(), value.clone())));
            continue;
        };
        let mut found = Problems::new();
        if let Some(value) = visit(schema, of, live, applied, &mut found) {
            merged.insert(name.clone(), value);
        }
        within(&Element::field(name.as_str()), &mut found);
        problems.extend(found);
    }
    (!merged.is_empty()).then_some(Value::Object(merged))
}

/// The items of a list with their identities.
struct Items<'a> {
    elements: Vec<Element>,
    /// The item of each identity; `None` if it occurs twice.
    by_element: BTreeMap<Element, Option<&'a Value>>,
}

fn index<'a>(
    schema: &Schema,
    list: &List,
    items: &'a [Value],
    may_repeat: bool,
    problems: &mut Problems,
) -> Items<'a> {
    let mut index = Items {
        elements: Vec::with_capacity(items.len()),
        by_element: BTreeMap::new(),
    };
    for (at, item) in items.iter().enumerate() {
        let element = match item::element(schema, list, item) {
            Ok(element) => element,
            Err(why) => {
                problems.push(problem(format!("element {at}: {why}")));
                continue;
            }
        };
        match index.by_element.get_mut(&element) {
            None => {
                index.by_element.insert(element.clone(), Some(item));
            }
            Some(known) if may_repeat => *known = None,
            Some(_) => {
                problems.push(problem(format!("duplicate entries for key {element}")));
                continue;
            }
        }
        index.elements.push(element);
    }
    index
}

fn merge_items(
    schema: &Schema,
    list: &List,
    live_items: &[Value],
    applied_items: &[Value],
    problems: &mut Problems,
) -> Option<Value> {
    let mut wrong = Problems::new();
    let applied = index(schema, list, applied_items, false, &mut wrong);
    let live = index(schema, list, live_items, true, &mut wrong);
    if !wrong.is_empty() {
        problems.extend(wrong);
        return None;
    }
    let mut shared: VecDeque<&Element> = applied
        .elements
        .iter()
        .filter(|element| live.by_element.contains_key(*element))
        .collect();
    let mut next_shared = shared.pop_front();
    let mut merged: BTreeSet<&Element> = BTreeSet::new();
    let mut out = Vec::with_capacity(live_items.len().max(applied_items.len()));
    let mut take = |element: &Element, live: Option<&Value>, applied: Option<&Value>| {
        let mut found = Problems::new();
        out.extend(visit(schema, list.items, live, applied, &mut found));
        within(element, &mut found);
        problems.extend(found);
    };
    // Duplicates in the live list do not merge: the applied item replaces them.
    let of_live = |element: &Element| {
        let item = live.by_element.get(element)?;
        Some(item.unwrap_or(&Value::Null))
    };
    let of_applied = |element: &Element| applied.by_element.get(element).copied().flatten();
    let (mut at, mut applied_at) = (0, 0);
    loop {
        let live_element = live.elements.get(at);
        let applied_element = applied.elements.get(applied_at);
        if live_element.is_none() && applied_element.is_none() {
            break;
        }
        if let (Some(element), Some(other)) = (live_element, applied_element) {
            if element == other {
                merged.insert(element);
                take(element, of_live(element), of_applied(element));
                at += 1;
                applied_at += 1;
                next_shared = shared.pop_front();
                continue;
            }
            let is_later = next_shared.is_some_and(|next| next != element);
            if applied.by_element.contains_key(element) && is_later {
                // Both have it, but it comes later in the applied list.
                at += 1;
                continue;
            }
        }
        if let Some(element) = live_element {
            if !applied.by_element.contains_key(element) {
                take(element, live_items.get(at), None);
                at += 1;
                continue;
            }
            if merged.contains(element) {
                at += 1;
            }
        }
        if let Some(element) = applied_element {
            merged.insert(element);
            take(element, of_live(element), of_applied(element));
            applied_at += 1;
            if next_shared == Some(element) {
                next_shared = shared.pop_front();
            }
        }
    }
    (!out.is_empty()).then_some(Value::Array(out))
}
