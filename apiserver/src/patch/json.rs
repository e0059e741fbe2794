//! JSON patch, RFC 6902, with the leniencies of the library of real servers.
//!
//! A `replace` of an absent member adds it, a `copy` of an absent one writes null, negative indexes
//! count from the end, and a missing value is null. (evanphx/json-patch v4.)

use serde_json::Value;

use super::error::Error;
use crate::json_text;

/// One operation; its parts are validated when it is applied.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    operator: Option<String>,
    path: Option<String>,
    from: Option<String>,
    value: Value,
}

/// Why an operation does not fit the document.
#[derive(Debug)]
enum Misfit {
    /// The container of its target does not exist.
    NoContainer,
    /// The problem inside of the container.
    Inside(String),
    /// The problem with the whole document.
    Whole(&'static str),
}

// === impl Operation ===

impl Operation {
    pub(super) fn read(mut operation: Value) -> Self {
        let text = |name: &str| operation[name].as_str().map(str::to_owned);
        Self {
            operator: text("op"),
            path: text("path"),
            from: text("from"),
            value: operation
                .get_mut("value")
                .map(Value::take)
                .unwrap_or_default(),
        }
    }
}

/// Bytes that all copies of a patch add to the document. (apiserver: `JSONPatchMaxCopyBytes`.)
const MAX_COPIED: usize = 3 << 20;

/// Levels of arrays and objects that an operation may lead to: copies of an object into itself double them. What is stored has
/// fewer. (Go's decoder allows 10,000, and the stack of this server fewer.)
const MAX_DEPTH: usize = 512;

const TOO_DEEP: &str = "exceeded max depth";

/// Whether `value` at `path` has more than [`MAX_DEPTH`] levels.
fn is_too_deep(path: &str, value: &Value) -> bool {
    let levels = MAX_DEPTH.checked_sub(path.matches('/').count());
    levels.is_none_or(|levels| json_text::is_deeper(value, levels))
}

/// `original` with all operations applied in order.
pub(super) fn apply(original: &Value, operations: &[Operation]) -> Result<Value, Error> {
    let mut document = original.clone();
    let mut copied = 0;
    for operation in operations {
        apply_one(&mut document, operation, &mut copied).map_err(Error::Unprocessable)?;
    }
    Ok(document)
}

fn apply_one(
    document: &mut Value,
    operation: &Operation,
    copied: &mut usize,
) -> Result<(), String> {
    let operator = operation.operator.as_deref().unwrap_or("unknown");
    let path = operation
        .path
        .as_deref()
        .ok_or_else(|| format!("{operator} operation failed to decode path: missing value"))?;
    let from = || {
        operation
            .from
            .as_deref()
            .ok_or_else(|| format!("{operator} operation lacks its from field"))
    };
    let place = |document: &mut Value, value: Value| {
        if is_too_deep(path, &value) {
            return Err(Misfit::Whole(TOO_DEEP));
        }
        add(document, path, value)
    };
    match operator {
        "add" => place(document, operation.value.clone())
            .map_err(|misfit| misfit.text("add", "doc is missing path", &quoted(path), path)),
        "remove" => remove(document, path)
            .map(drop)
            .map_err(|misfit| misfit.text("remove", "doc is missing path", &quoted(path), path)),
        "replace" if is_too_deep(path, &operation.value) => {
            Err(Misfit::Whole(TOO_DEEP).text("replace", "doc is missing path", path, path))
        }
        "replace" => replace(document, path, operation.value.clone())
            .map_err(|misfit| misfit.text("replace", "doc is missing path", path, path)),
        "move" => {
            let value = remove(document, from()?).map_err(|misfit| {
                let from = operation.from.as_deref().unwrap_or_default();
                let key = from.rsplit('/').next().unwrap_or_default();
                misfit.text("move", "doc is missing from path", from, key)
            })?;
            place(document, value).map_err(|misfit| {
                misfit.text("move", "doc is missing destination path", path, path)
            })
        }
        "copy" => {
            let from = from()?;
            let value = get(document, from)
                .map_err(|misfit| misfit.text("copy", "doc is missing from path", from, from))?
                .cloned()
                .unwrap_or_default();
            *copied += value.to_string().len();
            if *copied > MAX_COPIED {
                return Err(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
                ));
            }
            place(document, value).map_err(|misfit| {
                misfit.text("copy", "doc is missing destination path", path, path)
            })
        }
        "test" => {
            let found = if path.is_empty() {
                Some(&*document)
            } else {
                get(document, path)
                    .map_err(|misfit| misfit.text("test", "is missing path", path, path))?
            };
            if *found.unwrap_or(&Value::Null) == operation.value {
                Ok(())
            } else {
                Err(format!("testing value {path} failed: test failed"))
            }
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn quoted(path: &str) -> String {
    format!("\"{path}\"")
}

// === impl Misfit ===

impl Misfit {
    /// The text of the library: `missing` is followed by the shown path, other problems name the `place`.
    fn text(self, operator: &str, missing: &str, shown: &str, place: &str) -> String {
        match self {
            Self::NoContainer => {
                format!("{operator} operation does not apply: {missing}: {shown}: missing value")
            }
            Self::Inside(why) => {
                let (operator, of) = match operator {
                    "replace" => ("remove", "path"),
                    "copy" => ("copy", "from"),
                    operator => (operator, "path"),
                };
                format!("error in {operator} for {of}: '{place}': {why}")
            }
            Self::Whole(why) => why.to_owned(),
        }
    }

    fn index(key: &str) -> Self {
        Self::Inside(match key.parse::<i64>() {
            Ok(_) => format!("Unable to access invalid index: {key}: invalid index referenced"),
            Err(_) => format!("strconv.Atoi: parsing {}: invalid syntax", quoted(key)),
        })
    }
}

/// The container of a pointer's target, and the key in it.
fn container<'a>(document: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), Misfit> {
    let missing = || Misfit::NoContainer;
    // Text before the first slash is ignored, as in real servers.
    let (_, path_in) = path.split_once('/').ok_or_else(missing)?;
    let mut parts: Vec<String> = path_in
        .split('/')
        .map(|part| part.replace("~1", "/").replace("~0", "~"))
        .collect();
    let key = parts.pop().ok_or_else(missing)?;
    let mut place = document;
    for part in parts {
        place = match place {
            Value::Object(map) => map.get_mut(&part),
            Value::Array(items) => {
                position(&part, items.len()).and_then(|index| items.get_mut(index))
            }
            _ => None,
        }
        .ok_or_else(missing)?;
    }
    match place {
        Value::Object(_) | Value::Array(_) => Ok((place, key)),
        _ => Err(missing()),
    }
}

/// An index into a list of `length`; negative ones count from its end.
fn position(key: &str, length: usize) -> Option<usize> {
    let index: i64 = key.parse().ok()?;
    if index >= 0 {
        return usize::try_from(index).ok();
    }
    length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
}

fn get<'a>(document: &'a mut Value, path: &str) -> Result<Option<&'a Value>, Misfit> {
    let (place, key) = container(document, path)?;
    match place {
        Value::Array(items) => position(&key, items.len())
            .and_then(|index| items.get(index))
            .map(Some)
            .ok_or_else(|| Misfit::index(&key)),
        place => Ok(place.get(&key)),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), Misfit> {
    let (place, key) = container(document, path)?;
    match place {
        Value::Object(map) => {
            map.insert(key, value);
            Ok(())
        }
        Value::Array(items) => {
            let index = if key == "-" {
                Some(items.len())
            } else {
                position(&key, items.len() + 1)
            };
            match index {
                Some(index) if index <= items.len() => {
                    items.insert(index, value);
                    Ok(())
                }
                _ => Err(Misfit::index(&key)),
            }
        }
        _ => Err(Misfit::NoContainer),
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), Misfit> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(Misfit::Whole(
                "replace operation value must be object or array: %!w(<nil>)",
            ));
        }
        *document = value;
        return Ok(());
    }
    let (place, key) = container(document, path)?;
    match place {
        Value::Object(map) => {
            map.insert(key, value);
            Ok(())
        }
        Value::Array(items) => match position(&key, items.len()) {
            Some(index) if index < items.len() => {
                items[index] = value;
                Ok(())
            }
            _ => Err(Misfit::index(&key)),
        },
        _ => Err(Misfit::NoContainer),
    }
}

fn remove(document: &mut Value, path: &str) -> Result<Value, Misfit> {
    let (place, key) = container(document, path)?;
    match place {
        Value::Object(map) => map.remove(&key).ok_or_else(|| {
            Misfit::Inside(format!(
                "Unable to remove nonexistent key: {key}: missing value"
            ))
        }),
        Value::Array(items) => match position(&key, items.len()) {
            Some(index) if index < items.len() => Ok(items.remove(index)),
            _ => Err(Misfit::index(&key)),
        },
        _ => Err(Misfit::NoContainer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(original: &Value, operations: Value) -> Result<Value, Error> {
        let Value::Array(operations) = operations else {
            unreachable!("tests pass lists")
        };
        let operations: Vec<Operation> = operations.into_iter().map(Operation::read).collect();
        apply(original, &operations)
    }

    #[test]
    fn operations_do_what_they_say() {
        let original = json!({"data": {"a": "1", "b/c~": "2"}, "list": [1, 2, 3]});
        let cases = [
            (
                "add",
                json!([{"op": "add", "path": "/data/n", "value": "x"}]),
                "/data/n",
                json!("x"),
            ),
            (
                "add without a value",
                json!([{"op": "add", "path": "/data/n"}]),
                "/data/n",
                json!(null),
            ),
            (
                "replace of an absent member",
                json!([{"op": "replace", "path": "/data/n", "value": 1}]),
                "/data/n",
                json!(1),
            ),
            (
                "escapes",
                json!([{"op": "replace", "path": "/data/b~1c~0", "value": 1}]),
                "/data/b~1c~0",
                json!(1),
            ),
            (
                "append",
                json!([{"op": "add", "path": "/list/-", "value": 4}]),
                "/list",
                json!([1, 2, 3, 4]),
            ),
            (
                "insert",
                json!([{"op": "add", "path": "/list/0", "value": 0}]),
                "/list",
                json!([0, 1, 2, 3]),
            ),
            (
                "negative index",
                json!([{"op": "remove", "path": "/list/-1"}]),
                "/list",
                json!([1, 2]),
            ),
            (
                "copy",
                json!([{"op": "copy", "from": "/data/a", "path": "/data/n"}]),
                "/data/n",
                json!("1"),
            ),
            (
                "copy of an absent member",
                json!([{"op": "copy", "from": "/data/x", "path": "/data/n"}]),
                "/data/n",
                json!(null),
            ),
            (
                "move",
                json!([{"op": "move", "from": "/data/a", "path": "/data/n"}]),
                "/data/a",
                json!(null),
            ),
            (
                "test and go on",
                json!([{"op": "test", "path": "/list/1", "value": 2}, {"op": "remove", "path": "/list/1"}]),
                "/list",
                json!([1, 3]),
            ),
            (
                "test of an absent member against null",
                json!([{"op": "test", "path": "/data/x", "value": null}]),
                "/data/a",
                json!("1"),
            ),
            (
                "whole document",
                json!([{"op": "replace", "path": "", "value": {"list": []}}]),
                "/list",
                json!([]),
            ),
        ];
        for (name, operations, pointer, expected) in cases {
            let patched = run(&original, operations).unwrap();
            let found = patched.pointer(pointer).cloned().unwrap_or_default();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn copies_that_double_the_document_end_before_it_is_large() {
        let original = json!({"data": {"a": "x".repeat(1000)}});
        let double = |at| json!({"op": "copy", "from": "/data", "path": format!("/data/x{at}")});
        let few: Vec<Value> = (0..10).map(double).collect();
        assert!(run(&original, json!(few)).is_ok());
        let many: Vec<Value> = (0..60).map(double).collect();
        let refused = run(&original, json!(many)).unwrap_err().to_string();
        assert!(
            refused.starts_with("Unable to complete the copy"),
            "{refused}"
        );
    }

    #[test]
    fn operations_that_do_not_fit_are_refused() {
        let original = json!({"data": {"a": "1"}, "list": [1]});
        let cases = [
            json!([{"op": "remove", "path": "/data/x"}]),
            json!([{"op": "replace", "path": "/nope/x", "value": 1}]),
            json!([{"op": "add", "path": "/nope/x", "value": 1}]),
            json!([{"op": "add", "path": "/data/a/b", "value": 1}]),
            json!([{"op": "remove", "path": "/nope/x"}]),
            json!([{"op": "test", "path": "/data/a", "value": "2"}]),
            json!([{"op": "test", "path": "/data/x", "value": "2"}]),
            json!([{"op": "test", "path": "/data/a"}]),
            json!([{"op": "foo", "path": "/data/a"}]),
            json!([{"path": "/data/a"}]),
            json!([{"op": "add", "value": 1}]),
            json!([{"op": "add", "path": "", "value": 1}]),
            json!([{"op": "copy", "from": "/nope/x", "path": "/data/y"}]),
            json!([{"op": "copy", "path": "/data/y"}]),
            json!([{"op": "move", "from": "/data/x", "path": "/data/y"}]),
            json!([{"op": "move", "from": "/data/a", "path": "/nope/y"}]),
            json!([{"op": "add", "path": "/list/3", "value": 1}]),
            json!([{"op": "replace", "path": "/list/1", "value": 1}]),
            json!([{"op": "remove", "path": "/list/-2"}]),
            json!([{"op": "add", "path": "/list/x", "value": 1}]),
        ];
        for operations in cases {
            let shown = operations.to_string();
            assert!(
                matches!(run(&original, operations), Err(Error::Unprocessable(_))),
                "{shown}"
            );
        }
    }
}
