//! Field selectors.

use std::borrow::Cow;
use std::fmt;

use super::Error;

/// Requirements on the fields of an object. Empty selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    terms: Vec<FieldTerm>,
}

/// One part of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldTerm {
    /// Name of the field, such as `metadata.name`.
    pub(crate) field: String,
    /// The text to compare with.
    pub(crate) value: String,
    /// False for `!=`.
    pub(crate) equal: bool,
}
// === impl FieldSelector ===

impl FieldSelector {
    /// Reads the text form, `metadata.name=x,status.phase!=Running`.
    ///
    /// # Errors
    /// The part that is not a comparison, or an invalid escape.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, operator, value)) = split_term(part) else {
                return Err(Error(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            terms.push(FieldTerm {
                field: field.to_owned(),
                value: unescape(value)?,
                equal: operator != "!=",
            });
        }
        Ok(Self { terms })
    }

    /// Whether every object matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The parts; all must hold.
    pub(crate) fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// The one value that a field must equal, if there is one (`metadata.name=x`).
    pub(crate) fn required_value(&self, field: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.equal && term.field == field)
            .map(|term| term.value.as_str())
    }

    /// Whether the fields returned by `get` match; an absent field is the empty text.
    pub(crate) fn matches<'a>(&self, get: impl Fn(&str) -> Cow<'a, str>) -> bool {
        self.terms
            .iter()
            .all(|term| (get(&term.field) == term.value.as_str()) == term.equal)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            let operator = if term.equal { "=" } else { "!=" };
            write!(formatter, "{}{operator}", term.field)?;
            for character in term.value.chars() {
                if matches!(character, '\\' | ',' | '=') {
                    formatter.write_str("\\")?;
                }
                write!(formatter, "{character}")?;
            }
        }
        Ok(())
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, &'static str, &str)> {
    term.char_indices().find_map(|(index, _)| {
        let rest = &term[index..];
        let operator = ["!=", "==", "="]
            .into_iter()
            .find(|operator| rest.starts_with(operator))?;
        Some((&term[..index], operator, &rest[operator.len()..]))
    })
}

fn unescape(value: &str) -> Result<String, Error> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(meant @ ('\\' | ',' | '=')) => plain.push(meant),
                other => {
                    let tail = other.map(String::from).unwrap_or_default();
                    return Err(Error(format!(
                        "invalid field selector: invalid escape sequence: \\{tail}"
                    )));
                }
            },
            // The number is correct: Kubernetes prints the code point.
            ',' | '=' => {
                return Err(Error(format!(
                    "invalid field selector: unescaped character in value: {}",
                    character as u32
                )));
            }
            plain_character => plain.push(plain_character),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn field_selectors_match_on_text_and_absent_is_empty() {
        let get = |field: &str| match field {
            "metadata.name" => Cow::Borrowed("x"),
            "odd" => Cow::Borrowed("a,b=c\\"),
            _ => Cow::Borrowed(""),
        };
        let cases = [
            ("", true),
            ("metadata.name=x", true),
            ("metadata.name==x", true),
            ("metadata.name!=x", false),
            ("metadata.name=x,absent=", true),
            ("absent!=y", true),
            (r"odd=a\,b\=c\\", true),
            (",metadata.name=x,", true),
        ];
        for (selector, expected) in cases {
            let parsed = FieldSelector::parse(selector).unwrap();
            assert_eq!(parsed.matches(get), expected, "{selector}");
        }
    }

    #[test]
    fn a_required_value_is_known_only_from_equality() {
        let selector = FieldSelector::parse("metadata.name=x,spec.a!=b").unwrap();
        assert_eq!(selector.required_value("metadata.name"), Some("x"));
        assert_eq!(selector.required_value("spec.a"), None);
    }

    #[test]
    fn malformed_field_selectors_are_refused_in_kubernetes_words() {
        let cases = [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
            (
                r"a=\x",
                r"invalid field selector: invalid escape sequence: \x",
            ),
            (
                "a=b=c",
                "invalid field selector: unescaped character in value: 61",
            ),
        ];
        for (selector, expected) in cases {
            let error = FieldSelector::parse(selector).unwrap_err();
            assert_eq!(error.to_string(), expected, "{selector}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_fail_otherwise_than_by_an_error(text in ".{0,40}") {
            let _ = FieldSelector::parse(&text);
        }

        #[test]
        fn a_field_value_survives_its_escapes(value in "[a-c,=\\\\]{0,12}") {
            let selector = FieldSelector { terms: vec![FieldTerm { field: "f".into(), value, equal: true }] };
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector);
        }
    }
}
