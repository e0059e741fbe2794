//! The outline of an object: names of fields and types of values, without the values.

use std::fmt::Write;

use serde_json::Value;

/// The longest outline, in bytes.
const LONGEST: usize = 512;

/// The number of elements of an array that are shown.
const ELEMENTS: usize = 2;

/// The names of the fields of a JSON document, and the types of their values: never a value, for it may be a
/// secret. Cut after 512 bytes; without `managedFields`; empty if the document is not JSON.
pub(super) fn outline(document: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(document) else {
        return String::new();
    };
    let mut text = String::new();
    write(&value, &mut text);
    if text.len() > LONGEST {
        let mut end = LONGEST;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

fn write(value: &Value, text: &mut String) {
    if text.len() > LONGEST {
        return;
    }
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(_) => text.push_str("bool"),
        Value::Number(_) => text.push_str("number"),
        Value::String(_) => text.push_str("string"),
        Value::Array(elements) => {
            text.push('[');
            for (place, element) in elements.iter().take(ELEMENTS).enumerate() {
                text.push_str(if place > 0 { ", " } else { "" });
                write(element, text);
            }
            if elements.len() > ELEMENTS {
                // Writing to a String does not fail.
                let _ = write!(text, ", … {} in all", elements.len());
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            let mut shown: Vec<_> = fields
                .iter()
                .filter(|(name, _)| *name != "managedFields")
                .collect();
            // The order of fields depends on a feature of serde_json that any other crate may enable.
            shown.sort_by_key(|(name, _)| *name);
            for (place, (name, value)) in shown.into_iter().enumerate() {
                if text.len() > LONGEST {
                    return;
                }
                text.push_str(if place > 0 { ", " } else { "" });
                let _ = write!(text, "{name}: ");
                write(value, text);
            }
            text.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outline_has_names_and_types_and_no_values() {
        let document = r#"{"metadata":{"name":"s","managedFields":[{"manager":"m"}]},
            "data":{"password":"hunter2"},"list":[1,2,3],"none":null,"yes":true}"#;
        assert_eq!(
            outline(document),
            "{data: {password: string}, list: [number, number, … 3 in all], metadata: {name: string}, none: null, yes: bool}"
        );
        assert_eq!(outline("{hunter2"), "");
    }

    #[test]
    fn an_outline_is_cut() {
        let fields: Vec<_> = (0..1000).map(|number| format!("\"é{number}\":1")).collect();
        let text = outline(&format!("{{{}}}", fields.join(",")));
        assert!(text.len() <= LONGEST + '…'.len_utf8(), "{}", text.len());
        assert!(text.ends_with('…'));
    }
}
