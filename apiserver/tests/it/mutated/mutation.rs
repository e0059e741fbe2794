//! Random changes of a manifest.

use fastrand::Rng;
use serde_json::{Map, Value, json};

/// A changed manifest.
pub struct Mutation {
    pub manifest: Value,
    pub kind: String,
    /// The changed fields, with `[]` for any item.
    pub changes: Vec<String>,
}

/// `manifest` with one change, sometimes two.
pub fn of(manifest: &Value, random: &mut Rng) -> Mutation {
    let mut mutation = Mutation {
        manifest: manifest.clone(),
        kind: manifest["kind"].as_str().unwrap_or_default().to_owned(),
        changes: Vec::new(),
    };
    let count = if random.u8(..4) == 0 { 2 } else { 1 };
    while mutation.changes.len() < count {
        let mut paths = Vec::new();
        collect(&mutation.manifest, String::new(), &mut paths);
        let Some(path) = random.choice(&paths).cloned() else {
            break;
        };
        let others: Vec<Value> = paths
            .iter()
            .filter_map(|path| mutation.manifest.pointer(path))
            .filter(|value| !value.is_object() && !value.is_array())
            .cloned()
            .collect();
        if let Some(what) = change(&mut mutation.manifest, &path, &others, random) {
            let change = format!("{} {what}", shown(&path));
            mutation.changes.push(change);
        }
    }
    mutation
}

/// The JSON pointers of all fields and items except the type and the name, which are in the path of the request.
fn collect(value: &Value, at: String, paths: &mut Vec<String>) {
    let skipped = ["/apiVersion", "/kind", "/metadata/name", "/metadata", ""];
    if !skipped.contains(&at.as_str()) {
        paths.push(at.clone());
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect(field, format!("{at}/{name}"), paths);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, format!("{at}/{index}"), paths);
            }
        }
        _ => {}
    }
}

/// A pointer as a path without the positions of items.
fn shown(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        if part.parse::<usize>().is_ok() {
            path.push_str("[]");
        } else {
            path.push('.');
            path.push_str(&part.replace("~1", "/").replace("~0", "~"));
        }
    }
    path
}

/// Changes the value at `path`; returns what was done, or nothing if the change does not fit.
fn change(manifest: &mut Value, path: &str, others: &[Value], random: &mut Rng) -> Option<String> {
    if random.u8(..5) == 0 {
        let (parent, name) = path.rsplit_once('/')?;
        match manifest.pointer_mut(parent)? {
            Value::Object(fields) => {
                let name = name.replace("~1", "/").replace("~0", "~");
                fields.remove(&name);
            }
            Value::Array(items) => {
                items.remove(name.parse().ok()?);
            }
            _ => return None,
        }
        return Some("removed".to_owned());
    }
    let value = manifest.pointer_mut(path)?;
    let other = match value {
        Value::String(text) => other_text(text, others, random),
        Value::Number(_) => other_number(random),
        Value::Bool(set) => json!(!*set),
        Value::Array(items) => return other_list(items, random),
        Value::Object(fields) => return other_fields(fields, random),
        Value::Null => return None,
    };
    if other == *value {
        return None;
    }
    let text = other.to_string();
    *value = other;
    Some(match text.char_indices().nth(60) {
        Some((end, _)) => format!("= {}… ({} bytes)", &text[..end], text.len()),
        None => format!("= {text}"),
    })
}

fn other_text(text: &str, others: &[Value], random: &mut Rng) -> Value {
    match random.u8(..16) {
        0 => json!(""),
        1 => json!(text.to_uppercase()),
        2 => json!(format!("{text}_b")),
        3 => json!(format!("-{text}")),
        4 => json!(format!("{text}-")),
        5 => json!("a".repeat(64)),
        6 => json!("a".repeat(254)),
        7 => json!(format!("{text} {text}")),
        8 => json!(format!("{text}.{text}")),
        9 => json!(format!("{text}/{text}")),
        10 => json!(7),
        11 => json!("é"),
        12 => json!("5"),
        13 => json!("-1"),
        14 => Value::Null,
        _ => random.choice(others).cloned().unwrap_or_default(),
    }
}

fn other_number(random: &mut Rng) -> Value {
    match random.u8(..10) {
        0 => json!(-1),
        1 => json!(0),
        2 => json!(1),
        3 => json!(101),
        4 => json!(65_535),
        5 => json!(65_536),
        6 => json!(2_147_483_647_i64),
        7 => json!(2_147_483_648_i64),
        8 => json!(1.5),
        _ => json!("text"),
    }
}

fn other_list(items: &mut Vec<Value>, random: &mut Rng) -> Option<String> {
    match random.u8(..4) {
        0 => items.clear(),
        1 => items.push(items.first()?.clone()),
        2 => items.push(Value::Null),
        _ => items.push(json!("text")),
    }
    Some(match items.last() {
        None => "emptied".to_owned(),
        Some(Value::Null) => "with null".to_owned(),
        Some(last) if items.first() == Some(last) => "with its first item again".to_owned(),
        Some(_) => "with a text".to_owned(),
    })
}

fn other_fields(fields: &mut Map<String, Value>, random: &mut Rng) -> Option<String> {
    let added = match random.u8(..6) {
        0 => {
            fields.clear();
            return Some("emptied".to_owned());
        }
        1 => ("Bad_key!", json!("x")),
        2 => ("example.com/a/b", json!("x")),
        3 => ("extra", json!("x")),
        4 => ("extra", json!(1)),
        _ => ("key", json!("not a label!")),
    };
    fields.insert(added.0.to_owned(), added.1.clone());
    Some(format!("with {} = {}", added.0, added.1))
}
