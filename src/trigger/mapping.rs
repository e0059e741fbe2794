//! The mapping of a `generic` trigger: where the parts of a ban are in a JSON document.

use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::duration;

/// Longest regular expression, in characters.
const LONGEST_PATTERN: usize = 1000;

/// The memory that a regular expression may take, in bytes.
const LARGEST_PATTERN: usize = 1024 * 1024;

/// The group of the pattern that holds the address.
pub(super) const GROUP: &str = "ip";

/// The field `mapping` of a trigger. Pointers are JSON pointers (`/labels/src`), into one element; where a field takes
/// several, the first that leads to a text counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawMapping {
    /// The elements: a pointer to an array, or to one object. Default: the body, an array or one object.
    #[serde(default)]
    pub items: String,
    /// The address: a text with one or several, or an array of texts.
    pub ip: Pointers,
    /// A regular expression that finds addresses in the text at `ip`, with a group named `ip`.
    #[serde(default)]
    pub pattern: Option<String>,
    /// How long the ban lasts, in Go's notation (`1h30m`).
    #[serde(default)]
    pub duration: Pointers,
    /// Why.
    #[serde(default)]
    pub reason: Pointers,
    /// The person or system that requests it.
    #[serde(default)]
    pub by: Pointers,
    /// A text that distinguishes this alert from others about the address, for `resolved: lift`.
    #[serde(default)]
    pub id: Pointers,
    /// Whether the alert fires. Default: each element fires.
    #[serde(default)]
    pub status: Pointers,
    /// The values of `status` that ban. Default `firing`.
    #[serde(default)]
    pub firing: Vec<String>,
    /// The values of `status` that mean that the alert is over. Default `resolved`.
    #[serde(default)]
    pub resolved: Vec<String>,
    /// The values of an element that has none of its own.
    #[serde(default)]
    pub defaults: Defaults,
}

/// Literal values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Defaults {
    /// How long a ban lasts; default: the ConfigMap's `defaultDuration`.
    #[serde(default)]
    pub duration: Option<String>,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// The person or system that requests it.
    #[serde(default)]
    pub by: Option<String>,
}

/// One JSON pointer, or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Pointers {
    /// One.
    One(String),
    /// The first that leads to a text counts.
    Several(Vec<String>),
}

/// A mapping that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub(super) raw: RawMapping,
    pub(super) pattern: Option<Pattern>,
}

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub(super) struct Pattern(pub(super) Regex);

/// Why a mapping cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// No address.
    #[error(
        "mapping.ip is missing: set it to the JSON pointer of the address, for example /labels/ip"
    )]
    NoAddress,
    /// Not a JSON pointer.
    #[error(
        "mapping.{field}: {pointer:?} is not a JSON pointer; it begins with /, as in /labels/ip"
    )]
    Pointer {
        /// The field.
        field: &'static str,
        /// Its value.
        pointer: String,
    },
    /// The regular expression cannot be used.
    #[error("mapping.pattern: {0}")]
    Pattern(String),
    /// The default duration is none.
    #[error("mapping.defaults.duration: {0}")]
    Duration(String),
    /// One value has both meanings.
    #[error("mapping: the status {0:?} is both firing and resolved")]
    Status(String),
    /// Values of a status without the place of the status.
    #[error("mapping: firing and resolved need status, the JSON pointer of the status")]
    NoStatus,
}

// === impl Pointers ===

impl Pointers {
    pub(crate) fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
}

impl Default for Pointers {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

// === impl Pattern ===

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

// === impl RawMapping ===

impl RawMapping {
    /// Checks pointers and compiles the pattern.
    ///
    /// # Errors
    /// See [`MappingError`].
    pub fn define(&self) -> Result<Mapping, MappingError> {
        if self.ip.is_empty() {
            return Err(MappingError::NoAddress);
        }
        let items = Pointers::One(self.items.clone());
        for (field, pointers) in [
            ("items", &items),
            ("ip", &self.ip),
            ("duration", &self.duration),
            ("reason", &self.reason),
            ("by", &self.by),
            ("id", &self.id),
            ("status", &self.status),
        ] {
            let wrong = |pointer: &&String| !pointer.is_empty() && !pointer.starts_with('/');
            if let Some(pointer) = pointers.all().iter().find(wrong) {
                let pointer = pointer.clone();
                return Err(MappingError::Pointer { field, pointer });
            }
        }
        let mut raw = self.clone();
        if raw.status.is_empty() && !(raw.firing.is_empty() && raw.resolved.is_empty()) {
            return Err(MappingError::NoStatus);
        }
        if raw.firing.is_empty() {
            raw.firing.push("firing".into());
        }
        if raw.resolved.is_empty() {
            raw.resolved.push("resolved".into());
        }
        if let Some(both) = raw.firing.iter().find(|it| raw.resolved.contains(it)) {
            return Err(MappingError::Status(both.clone()));
        }
        if let Some(text) = &raw.defaults.duration {
            duration::parse(text).map_err(|error| MappingError::Duration(error.to_string()))?;
        }
        let pattern = raw.pattern.as_deref().map(compile).transpose()?;
        Ok(Mapping { raw, pattern })
    }
}

/// The expressions of this engine take time in proportion to the text, whatever they are.
fn compile(text: &str) -> Result<Pattern, MappingError> {
    if text.chars().count() > LONGEST_PATTERN {
        let why = format!("it is longer than {LONGEST_PATTERN} characters");
        return Err(MappingError::Pattern(why));
    }
    let regex = RegexBuilder::new(text)
        .size_limit(LARGEST_PATTERN)
        .dfa_size_limit(LARGEST_PATTERN)
        .build()
        // The error draws the expression over several lines; the last one has the reason.
        .map_err(|error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim();
            MappingError::Pattern(last.trim_start_matches("error: ").to_owned())
        })?;
    if !regex.capture_names().flatten().any(|name| name == GROUP) {
        let why = format!("it has no group named {GROUP}; write (?<{GROUP}>…) around the address");
        return Err(MappingError::Pattern(why));
    }
    Ok(Pattern(regex))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn define(yaml: &str) -> Result<Mapping, MappingError> {
        serde_saphyr::from_str::<RawMapping>(yaml).unwrap().define()
    }

    #[test]
    fn a_mapping_needs_an_address_and_has_defaults_for_the_rest() {
        let mapping = define("{ip: /src}").unwrap();
        assert_eq!(mapping.raw.firing, ["firing"]);
        assert_eq!(mapping.raw.resolved, ["resolved"]);
        assert_eq!(mapping.pattern, None);
        assert_eq!(define("{ip: []}"), Err(MappingError::NoAddress));
        assert!(serde_saphyr::from_str::<RawMapping>("{items: /a}").is_err());
        let several = define("{ip: [/src, /client], items: /alerts}").unwrap();
        assert_eq!(several.raw.ip.all().len(), 2);
    }

    #[test]
    fn each_wrong_part_is_named() {
        for (yaml, part) in [
            ("{ip: src}", "mapping.ip: \"src\""),
            ("{ip: /a, duration: [/b, c]}", "mapping.duration: \"c\""),
            ("{ip: /a, items: alerts}", "mapping.items: \"alerts\""),
            ("{ip: /a, pattern: 'from (\\S+)'}", "no group named ip"),
            (
                "{ip: /a, pattern: '(?<ip>'}",
                "mapping.pattern: unclosed group",
            ),
            (
                "{ip: /a, pattern: '(?<ip>(\\w{1000}){1000})'}",
                "mapping.pattern: ",
            ),
            (
                "{ip: /a, defaults: {duration: soon}}",
                "mapping.defaults.duration",
            ),
            (
                "{ip: /a, status: /s, firing: [x], resolved: [x]}",
                "both firing and resolved",
            ),
            ("{ip: /a, firing: [open]}", "need status"),
        ] {
            let error = define(yaml).expect_err(yaml).to_string();
            assert!(error.contains(part), "{yaml}: {error}");
        }
        let long = format!("{{ip: /a, pattern: '(?<ip>{})'}}", "a".repeat(1000));
        assert!(define(&long).is_err());
    }
}
