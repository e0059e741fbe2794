//! Errors of fields of an object, with Kubernetes' texts and order.
//!
//! A list of these becomes the message and the `details.causes` of a 422 `Invalid` answer.
//! (apimachinery: `field.Error`, `field.ErrorList`, `errors.NewInvalid`.)

use std::fmt;

use serde_json::{Value, json};

/// The path of a field in an object: `spec.ports[0].name`, `metadata.labels[app]`.
///
/// The empty path is the object itself; Kubernetes prints it as `<nil>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Path(String);

/// The kind of error; decides the text and the machine-readable reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ErrorKind {
    /// A required value is missing.
    Required,
    /// The target of a reference does not exist.
    NotFound,
    /// A value that must be unique occurs twice.
    Duplicate,
    /// A value is malformed or out of range.
    Invalid,
    /// A value is not one of an enumeration.
    NotSupported,
    /// The value may not be set here, or not by this caller.
    Forbidden,
    /// A string is longer than allowed.
    TooLong,
    /// A list has more items than allowed.
    TooMany,
    /// The value has another type than in the schema.
    TypeInvalid,
}

/// One error of one field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    /// The kind of error.
    pub(crate) kind: ErrorKind,
    /// The path.
    pub(crate) path: Path,
    /// The invalid value, where the message shows it.
    pub(crate) value: Option<Value>,
    /// The text; may be empty.
    pub(crate) detail: String,
}

/// Errors in the order they were found.
pub(crate) type Errors = Vec<FieldError>;

// === impl Path ===

impl Path {
    /// The object itself.
    pub(crate) fn root() -> Self {
        Self::default()
    }

    /// A path from the name of a first field.
    pub(crate) fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The field `name` of this.
    pub(crate) fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            return Self(name.to_owned());
        }
        Self([&self.0, ".", name].concat())
    }

    /// The item at `index` of this list.
    pub(crate) fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// The entry `key` of this map.
    pub(crate) fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// Whether this is the object itself.
    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The text, without the `<nil>` of the root.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            formatter.write_str("<nil>")
        } else {
            formatter.write_str(&self.0)
        }
    }
}

// === impl ErrorKind ===

impl ErrorKind {
    /// The start of the message.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::NotFound => "Not found",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }

    /// The `reason` of a cause.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::NotFound => "FieldValueNotFound",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }
}

// === impl FieldError ===

impl FieldError {
    /// An error of any kind; the constructors below are shorter.
    pub(crate) fn new(
        kind: ErrorKind,
        path: &Path,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            path: path.clone(),
            value,
            detail: detail.into(),
        }
    }

    /// The value is malformed or out of range.
    pub(crate) fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, path, Some(value.into()), detail)
    }

    /// The value has another type than in the schema.
    pub(crate) fn type_invalid(
        path: &Path,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(ErrorKind::TypeInvalid, path, Some(value.into()), detail)
    }

    /// The field must be set.
    pub(crate) fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Required, path, None, detail)
    }

    /// The target of the reference does not exist.
    pub(crate) fn not_found(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(ErrorKind::NotFound, path, Some(value.into()), "")
    }

    /// The value is already in the list.
    pub(crate) fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(ErrorKind::Duplicate, path, Some(value.into()), "")
    }

    /// The field may not be set, or not changed.
    pub(crate) fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, path, None, detail)
    }

    /// The value is not one of `supported`.
    pub(crate) fn not_supported<S: AsRef<str>>(
        path: &Path,
        value: impl Into<Value>,
        supported: &[S],
    ) -> Self {
        let mut detail = String::new();
        if !supported.is_empty() {
            let quoted: Vec<String> = supported.iter().map(|item| quote(item.as_ref())).collect();
            detail = format!("supported values: {}", quoted.join(", "));
        }
        Self::new(ErrorKind::NotSupported, path, Some(value.into()), detail)
    }

    /// The string is longer than `maximum` bytes; a negative maximum is not shown.
    pub(crate) fn too_long(path: &Path, maximum: i64) -> Self {
        let detail = match maximum {
            1 => "may not be more than 1 byte".to_owned(),
            0.. => format!("may not be more than {maximum} bytes"),
            _ => "value is too long".to_owned(),
        };
        Self::new(ErrorKind::TooLong, path, None, detail)
    }

    /// The list has `actual` items where `maximum` are allowed.
    pub(crate) fn too_many(path: &Path, actual: usize, maximum: u64) -> Self {
        let noun = if maximum == 1 { "item" } else { "items" };
        let detail = format!("must have at most {maximum} {noun}");
        Self::new(ErrorKind::TooMany, path, Some(json!(actual)), detail)
    }

    /// The message without the path, for a cause.
    pub(crate) fn body(&self) -> String {
        let shown = match (&self.value, self.kind) {
            (None, _) | (_, ErrorKind::Required | ErrorKind::Forbidden | ErrorKind::TooLong) => {
                self.kind.text().to_owned()
            }
            (Some(value), kind) => format!("{}: {}", kind.text(), show(value)),
        };
        if self.detail.is_empty() {
            shown
        } else {
            format!("{shown}: {}", self.detail)
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.body())
    }
}

/// All errors in one line: a single one as it is, several in brackets, equal ones once.
pub(crate) fn aggregate(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// The message of a 422 `Invalid`: `CronTab.stable.example.com "x" is invalid: spec: Required value`.
///
/// `group` is empty for the core group.
pub(crate) fn invalid_message(
    group: &str,
    kind: &str,
    name: &str,
    errors: &[FieldError],
) -> String {
    let qualified = if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}.{group}")
    };
    let subject = format!("{qualified} {} is invalid", quote(name));
    if errors.is_empty() {
        return subject;
    }
    format!("{subject}: {}", aggregate(errors))
}

fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        other => json_text(other),
    }
}

/// A value in the format of Go's `json.Marshal`, with escapes for HTML.
pub(crate) fn json_text(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A string in double quotes with the escapes of Go's `%q`.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            low if (low as u32) < 0x20 || low as u32 == 0x7f => {
                quoted.push_str(&format!("\\x{:02x}", low as u32));
            }
            wide if wide.is_control() || (wide.is_whitespace() && wide != ' ') => {
                quoted.push_str(&format!("\\u{:04x}", wide as u32));
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_worded_as_kubernetes_words_it() {
        let path = Path::new("spec").child("ports").index(2).child("name");
        let cases: Vec<(&str, FieldError, &str, &str)> = vec![
            (
                "required without detail",
                FieldError::required(&path, ""),
                "spec.ports[2].name: Required value",
                "FieldValueRequired",
            ),
            (
                "invalid string",
                FieldError::invalid(&path, "a\"b", "must be good"),
                r#"spec.ports[2].name: Invalid value: "a\"b": must be good"#,
                "FieldValueInvalid",
            ),
            (
                "invalid number",
                FieldError::invalid(&path, -1, "must be good"),
                "spec.ports[2].name: Invalid value: -1: must be good",
                "FieldValueInvalid",
            ),
            (
                "unsupported",
                FieldError::not_supported(&path, "x", &["a", "b"]),
                r#"spec.ports[2].name: Unsupported value: "x": supported values: "a", "b""#,
                "FieldValueNotSupported",
            ),
            (
                "duplicate",
                FieldError::duplicate(&path, "x"),
                r#"spec.ports[2].name: Duplicate value: "x""#,
                "FieldValueDuplicate",
            ),
            (
                "forbidden",
                FieldError::forbidden(&path, "may not change"),
                "spec.ports[2].name: Forbidden: may not change",
                "FieldValueForbidden",
            ),
            (
                "too long",
                FieldError::too_long(&path, 63),
                "spec.ports[2].name: Too long: may not be more than 63 bytes",
                "FieldValueTooLong",
            ),
            (
                "too many",
                FieldError::too_many(&path, 3, 2),
                "spec.ports[2].name: Too many: 3: must have at most 2 items",
                "FieldValueTooMany",
            ),
        ];
        for (name, error, text, reason) in cases {
            assert_eq!(error.to_string(), text, "{name}");
            assert_eq!(error.kind.reason(), reason, "{name}");
        }
    }

    #[test]
    fn the_object_itself_is_printed_as_nil() {
        let error = FieldError::invalid(&Path::root(), "x", "no");
        assert_eq!(error.to_string(), r#"<nil>: Invalid value: "x": no"#);
    }

    #[test]
    fn several_errors_stand_in_brackets_and_equal_ones_once() {
        let one = FieldError::required(&Path::new("a"), "");
        let two = FieldError::required(&Path::new("b"), "");
        assert_eq!(aggregate(std::slice::from_ref(&one)), "a: Required value");
        assert_eq!(
            aggregate(&[one.clone(), two, one]),
            "[a: Required value, b: Required value]"
        );
    }

    #[test]
    fn the_message_names_kind_with_group() {
        let errors = [FieldError::required(&Path::new("spec"), "")];
        assert_eq!(
            invalid_message("stable.example.com", "CronTab", "x", &errors),
            r#"CronTab.stable.example.com "x" is invalid: spec: Required value"#
        );
        assert_eq!(
            invalid_message("", "Pod", "x", &[]),
            r#"Pod "x" is invalid"#
        );
    }
}
