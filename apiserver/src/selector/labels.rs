//! Label selectors.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::Error;
use super::text::Parser;
use crate::field::quote;
use crate::names;

/// Requirements on the labels of an object. Empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// One part of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    /// The label's key.
    pub(crate) key: String,
    /// The requirement on its value.
    pub(crate) operator: Operator,
    /// The values of the operator, in order; empty for the two existence operators.
    pub(crate) values: BTreeSet<String>,
}

/// The operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    /// `in`, and `=`, `==` with one value.
    In,
    /// `notin` and `!=`; an absent label passes.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The value is an integer above the given one.
    GreaterThan,
    /// The value is an integer below the given one.
    LessThan,
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Reads the text form, `app=x,tier in (a,b),!old`.
    ///
    /// # Errors
    /// The unexpected token, or the malformed key or value.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let requirements = Parser::new(text).parse()?;
        Ok(Self { requirements })
    }

    /// Reads the object form, `{matchLabels: {..}, matchExpressions: [..]}`.
    ///
    /// # Errors
    /// An unknown operator or a malformed key or value.
    pub(crate) fn from_value(selector: &Value) -> Result<Self, Error> {
        let mut requirements = Vec::new();
        if let Some(labels) = selector["matchLabels"].as_object() {
            for (key, value) in labels {
                let value = value.as_str().unwrap_or_default();
                requirements.push(Requirement::new(
                    key,
                    Operator::In,
                    [value.to_owned()].into(),
                    Written::Exact,
                )?);
            }
        }
        for expression in selector["matchExpressions"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let operator = match expression["operator"].as_str().unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(Error(format!(
                        "{} is not a valid label selector operator",
                        quote(other)
                    )));
                }
            };
            let values = expression["values"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|value| value.as_str().map(str::to_owned))
                .collect();
            let key = expression["key"].as_str().unwrap_or_default();
            requirements.push(Requirement::new(key, operator, values, Written::Set)?);
        }
        Ok(Self { requirements })
    }

    /// Whether every object matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the labels returned by `get` match.
    pub(crate) fn matches<T: AsRef<str>>(&self, get: impl Fn(&str) -> Option<T>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = get(&requirement.key);
            requirement.matches(value.as_ref().map(T::as_ref))
        })
    }

    /// Whether an object's `metadata.labels` match.
    pub(crate) fn matches_object(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.matches(|key| labels.get(key).and_then(Value::as_str))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            requirement.fmt(formatter)?;
        }
        Ok(())
    }
}

// === impl Requirement ===

/// The notation of a requirement: decides the rule for its number of values.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Written {
    Set,
    Exact,
}

impl Requirement {
    pub(super) fn new(
        key: &str,
        operator: Operator,
        values: BTreeSet<String>,
        written: Written,
    ) -> Result<Self, Error> {
        let mut wrong = Vec::new();
        let bad_key = names::qualified_name(key);
        if !bad_key.is_empty() {
            wrong.push(format!(
                "key: Invalid value: {}: {}",
                quote(key),
                bad_key.join("; ")
            ));
        }
        let list: Vec<&String> = values.iter().collect();
        let shown = serde_json::to_string(&list).unwrap_or_default();
        let rule = match operator {
            Operator::In | Operator::NotIn if written == Written::Exact && list.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Operator::In | Operator::NotIn if list.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Exists | Operator::DoesNotExist if !list.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan if list.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(rule) = rule {
            wrong.push(format!("values: Invalid value: {shown}: {rule}"));
        }
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (index, value) in list.iter().enumerate() {
                if value.parse::<i64>().is_err() {
                    wrong.push(format!(
                        "values[{index}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                        quote(value)
                    ));
                }
            }
        }
        for (index, value) in list.iter().enumerate() {
            let bad_value = names::label_value(value);
            if !bad_value.is_empty() {
                wrong.push(format!(
                    "values[{index}][{key}]: Invalid value: {}: {}",
                    quote(value),
                    bad_value.join("; ")
                ));
            }
        }
        match wrong.as_slice() {
            [] => Ok(Self {
                key: key.to_owned(),
                operator,
                values,
            }),
            [one] => Err(Error(one.clone())),
            several => Err(Error(format!("[{}]", several.join(", ")))),
        }
    }

    /// Whether a label of this value, or its absence, satisfies the requirement.
    pub(crate) fn matches(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compares(value, |label, bound| label > bound),
            Operator::LessThan => self.compares(value, |label, bound| label < bound),
        }
    }

    fn compares(&self, value: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let label = value.and_then(|value| value.parse().ok());
        let bound = self.values.first().and_then(|bound| bound.parse().ok());
        match (label, bound) {
            (Some(label), Some(bound)) => holds(label, bound),
            _ => false,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        let values = values.join(",");
        match (self.operator, self.values.len()) {
            (Operator::In, 1) => write!(formatter, "{key}={values}"),
            (Operator::In, _) => write!(formatter, "{key} in ({values})"),
            (Operator::NotIn, 1) => write!(formatter, "{key}!={values}"),
            (Operator::NotIn, _) => write!(formatter, "{key} notin ({values})"),
            (Operator::Exists, _) => formatter.write_str(key),
            (Operator::DoesNotExist, _) => write!(formatter, "!{key}"),
            (Operator::GreaterThan, _) => write!(formatter, "{key}>{values}"),
            (Operator::LessThan, _) => write!(formatter, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn matches(selector: &str, labels: &Value) -> bool {
        let object = json!({"metadata": {"labels": labels}});
        LabelSelector::parse(selector)
            .unwrap()
            .matches_object(&object)
    }

    #[test]
    fn label_selectors_match_as_the_operators_say() {
        let labels = json!({"app": "x", "tier": "back", "size": "10", "empty": ""});
        let cases = [
            ("", true),
            ("app=x", true),
            ("app==x", true),
            ("app = x , tier=back", true),
            ("app=y", false),
            ("app!=y", true),
            ("app!=x", false),
            ("absent!=x", true),
            ("app in (x,y)", true),
            ("app in (y)", false),
            ("app notin (y)", true),
            ("absent notin (y)", true),
            ("app notin (x)", false),
            ("app", true),
            ("!app", false),
            ("!absent", true),
            ("absent", false),
            ("size>9", true),
            ("size>10", false),
            ("size<11", true),
            ("absent<11", false),
            ("app>1", false),
            ("empty=", true),
            ("empty in (,)", true),
            ("empty in ()", true),
            ("app=x,!absent,tier in (back)", true),
            ("in=x", false),
            ("app=in", false),
            ("app in (in,notin)", false),
        ];
        for (selector, expected) in cases {
            assert_eq!(matches(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn an_object_without_labels_matches_what_asks_for_absence() {
        let object = json!({"metadata": {}});
        for (selector, expected) in [("!a", true), ("a!=b", true), ("a", false), ("a=b", false)] {
            let parsed = LabelSelector::parse(selector).unwrap();
            assert_eq!(parsed.matches_object(&object), expected, "{selector}");
        }
    }

    #[test]
    fn malformed_label_selectors_are_refused_in_kubernetes_words() {
        let cases = [
            (
                ",a",
                "found ',', expected: !, identifier, or 'end of string'",
            ),
            ("a,", "found '', expected: identifier after ','"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            (
                "a in b",
                "unable to parse requirement: found 'b' expected: '('",
            ),
            (
                "a in (",
                "unable to parse requirement: found '', expected: ',', ')' or identifier",
            ),
            (
                "a in (b",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            (
                "a=(",
                "unable to parse requirement: found '(', expected: identifier",
            ),
            (
                "!",
                "unable to parse requirement: found '', expected: identifier",
            ),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            (
                "a=b@c",
                "unable to parse requirement: values[0][a]: Invalid value: \"b@c\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
            (
                "a@=b",
                "unable to parse requirement: <nil>: Invalid value: \"a@\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ),
        ];
        for (selector, expected) in cases {
            let error = LabelSelector::parse(selector).unwrap_err();
            assert_eq!(error.to_string(), expected, "{selector}");
        }
    }

    #[test]
    fn the_object_form_means_the_same() {
        let selector = LabelSelector::from_value(&json!({
            "matchLabels": {"app": "x"},
            "matchExpressions": [
                {"key": "tier", "operator": "NotIn", "values": ["front"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        assert_eq!(selector.to_string(), "app=x,tier!=front,!old");
        let error = LabelSelector::from_value(
            &json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}),
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"Near\" is not a valid label selector operator"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_fail_otherwise_than_by_an_error(text in ".{0,40}") {
            let _ = LabelSelector::parse(&text);
        }

        #[test]
        fn a_label_selector_printed_and_read_again_is_the_same(
            text in "(!?[a-c]|[a-c](=|!=|==)[x-z]?|[a-c] (not)?in \\([x-z]?(,[x-z])*\\)|[a-c][<>][0-9])(,[d-f](=[x-z]?)?)?"
        ) {
            if let Ok(selector) = LabelSelector::parse(&text) {
                let again = LabelSelector::parse(&selector.to_string()).unwrap();
                prop_assert_eq!(selector, again);
            }
        }
    }
}
