//! The options of a connection, from the query of its request.

use serde_json::{Map, Value, json};

use crate::field::quote;
use crate::http::query::Parameters;
use crate::http::route::ResourcePath;
use crate::json_text::Node;
use crate::resource::ResourceInfo;
use crate::status::Status;

/// A kind of options, which is the kind of the subresource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    name: &'static str,
    fields: &'static [(&'static str, Form)],
}

/// The form of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Flag,
    Text,
    /// A list that is null when it is empty.
    Texts,
    /// Numbers of 16 bits, separated by commas.
    Ports,
    /// The path after the subresource.
    Path,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "PodExecOptions",
        fields: &[
            ("stdin", Form::Flag),
            ("stdout", Form::Flag),
            ("stderr", Form::Flag),
            ("tty", Form::Flag),
            ("container", Form::Text),
            ("command", Form::Texts),
        ],
    },
    Kind {
        name: "PodAttachOptions",
        fields: &[
            ("stdin", Form::Flag),
            ("stdout", Form::Flag),
            ("stderr", Form::Flag),
            ("tty", Form::Flag),
            ("container", Form::Text),
        ],
    },
    Kind {
        name: "PodPortForwardOptions",
        fields: &[("ports", Form::Ports)],
    },
    Kind::of_proxy("PodProxyOptions"),
    Kind::of_proxy("ServiceProxyOptions"),
    Kind::of_proxy("NodeProxyOptions"),
];

// === impl Kind ===

impl Kind {
    const fn of_proxy(name: &'static str) -> Self {
        Self {
            name,
            fields: &[("path", Form::Path)],
        }
    }

    /// The kind of the options of a path; `None` if the path does not lead to a connection.
    pub(crate) fn of(info: &ResourceInfo, path: &ResourcePath) -> Option<&'static Self> {
        let mut subresources = info.subresources.iter();
        let subresource = subresources.find(|one| one.name == path.subresource)?;
        let kind = Self::named(subresource.kind)?;
        let is_placed = info.namespaced != path.namespace.is_empty() && !path.name.is_empty();
        (is_placed && (kind.is_proxy() || path.rest.is_empty())).then_some(kind)
    }

    /// The kind of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Whether the connection is a request of HTTP to the target, and not a stream.
    pub(super) fn is_proxy(&self) -> bool {
        matches!(self.fields, [(_, Form::Path)])
    }

    /// Reads the options of a request; `path` is the one after the subresource.
    ///
    /// # Errors
    /// 400 for a port that is not a number.
    pub(super) fn read(&self, query: &Parameters, path: &str) -> Result<Value, Status> {
        let mut options = Map::new();
        for (field, form) in self.fields {
            let all = query.all(field);
            let first = all.first().copied().unwrap_or_default();
            let value = match form {
                Form::Flag => json!(query.flag(field)),
                Form::Text => json!(first),
                Form::Texts => json!(all),
                Form::Ports => json!(ports(&all).map_err(Status::bad_request)?),
                Form::Path => json!(path),
            };
            options.insert((*field).to_owned(), value);
        }
        Ok(self.written(options))
    }

    /// The options as Go writes them.
    fn written(&self, mut options: Map<String, Value>) -> Value {
        for (field, form) in self.fields {
            let is_empty = match options.get(*field) {
                Some(Value::Array(items)) => items.is_empty(),
                Some(Value::String(text)) => text.is_empty(),
                Some(Value::Bool(flag)) => !flag,
                _ => true,
            };
            if is_empty && *form == Form::Texts {
                options.insert((*field).to_owned(), Value::Null);
            } else if is_empty {
                options.remove(*field);
            }
        }
        options.insert("kind".to_owned(), json!(self.name));
        options.insert("apiVersion".to_owned(), json!("v1"));
        Value::Object(options)
    }
}

/// (apimachinery: `Convert_Slice_string_To_Slice_int32`.)
fn ports(texts: &[&str]) -> Result<Vec<u16>, String> {
    let read = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let why = if is_number {
            "value out of range"
        } else {
            "invalid syntax"
        };
        let port = text.parse().ok().filter(|_| is_number);
        port.ok_or_else(|| {
            let text = quote(text);
            format!("cannot convert to []int32: strconv.ParseUint: parsing {text}: {why}")
        })
    };
    texts
        .iter()
        .flat_map(|text| text.split(','))
        .map(read)
        .collect()
}

/// Reads options that a webhook changed, as Go reads their type. Objects of other kinds stay as they are.
///
/// # Errors
/// 500 for a field of another type.
pub(crate) fn decode(object: &mut Value) -> Result<(), Status> {
    let Some(kind) = Kind::named(object["kind"].as_str().unwrap_or_default()) else {
        return Ok(());
    };
    let mut options = Map::new();
    for (field, form) in kind.fields {
        let value = object[*field].take();
        let wrong = match (form, &value) {
            (_, Value::Null)
            | (Form::Flag, Value::Bool(_))
            | (Form::Text | Form::Path, Value::String(_)) => None,
            (Form::Flag, other) => Some((other, "bool")),
            (Form::Text | Form::Path, other) => Some((other, "string")),
            (Form::Texts, Value::Array(items)) => items
                .iter()
                .find(|item| !item.is_string())
                .map(|item| (item, "string")),
            (Form::Texts, other) => Some((other, "[]string")),
            (Form::Ports, Value::Array(items)) => items
                .iter()
                .find(|item| {
                    item.as_i64()
                        .is_none_or(|port| i32::try_from(port).is_err())
                })
                .map(|item| (item, "int32")),
            (Form::Ports, other) => Some((other, "[]int32")),
        };
        if let Some((found, wanted)) = wrong {
            return Err(Status::internal(format!(
                "json: cannot unmarshal {} into Go struct field {}.{field} of type {wanted}",
                Node::from_value(found).go_type(),
                kind.name
            )));
        }
        options.insert((*field).to_owned(), value);
    }
    *object = kind.written(options);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &str, query: &str) -> Result<Value, Status> {
        let kind = Kind::named(kind).unwrap();
        kind.read(&Parameters::parse(query), "")
    }

    #[test]
    fn fields_come_from_the_query_and_zero_ones_are_left_out() {
        let options = read(
            "PodExecOptions",
            "stdin=true&stdout=0&tty=&container=c&container=d&command=sh&command=-c&x=y",
        );
        assert_eq!(
            options.unwrap(),
            json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdin": true, "tty": true, "container": "c", "command": ["sh", "-c"]})
        );
        assert_eq!(
            read("PodExecOptions", "").unwrap(),
            json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": null})
        );
    }

    #[test]
    fn ports_are_numbers_of_sixteen_bits() {
        let options = read("PodPortForwardOptions", "ports=80,443&ports=8080").unwrap();
        assert_eq!(options["ports"], json!([80, 443, 8080]));
        for (text, why) in [
            ("x", "\"x\": invalid syntax"),
            ("", "\"\": invalid syntax"),
            ("%2B1", "\"+1\": invalid syntax"),
            ("65536", "\"65536\": value out of range"),
        ] {
            let refused = read("PodPortForwardOptions", &format!("ports={text}")).unwrap_err();
            assert_eq!(refused.code, 400);
            assert!(refused.message.ends_with(why), "{}", refused.message);
        }
    }

    #[test]
    fn changed_options_are_read_as_their_type() {
        let mut options = json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["sh"], "tty": false, "other": 1});
        decode(&mut options).unwrap();
        assert_eq!(
            options,
            json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["sh"]})
        );
        for wrong in [
            json!({"command": "sh"}),
            json!({"command": [1]}),
            json!({"tty": "yes"}),
        ] {
            let mut options = wrong.clone();
            options["kind"] = json!("PodExecOptions");
            assert_eq!(decode(&mut options).unwrap_err().code, 500, "{wrong}");
        }
        let mut pod = json!({"kind": "Pod", "command": "sh"});
        decode(&mut pod).unwrap();
        assert_eq!(pod, json!({"kind": "Pod", "command": "sh"}));
    }
}
