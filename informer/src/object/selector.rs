//! Label and field selectors, matched against entries.

use std::str::FromStr;
use std::sync::Arc;

use kube_core::{Expression, Selector};

use super::stored::Stored;

/// Keeps the objects whose labels satisfy `labels`. The labels of each are read once.
pub(crate) fn retain_labelled<S: Stored + ?Sized>(objects: &mut Vec<&Arc<S>>, labels: &Selector) {
    let wanted: Vec<Expression> = labels.clone().into_iter().collect();
    if wanted.is_empty() {
        return;
    }
    let absent: Vec<bool> = wanted.iter().map(|wanted| accepts(wanted, None)).collect();
    let mut satisfied = absent.clone();
    objects.retain(|object| {
        satisfied.copy_from_slice(&absent);
        object.each_label(&mut |name, value| {
            for (satisfied, wanted) in satisfied.iter_mut().zip(&wanted) {
                if label_of(wanted) == name {
                    *satisfied = accepts(wanted, Some(value));
                }
            }
        });
        !satisfied.contains(&false)
    });
}

fn label_of(wanted: &Expression) -> &str {
    match wanted {
        Expression::In(name, _)
        | Expression::NotIn(name, _)
        | Expression::Equal(name, _)
        | Expression::NotEqual(name, _)
        | Expression::Exists(name)
        | Expression::DoesNotExist(name) => name,
    }
}

/// True if a label with this value satisfies the expression. `notin` and `!=` accept an absent label.
fn accepts(wanted: &Expression, label: Option<&str>) -> bool {
    match wanted {
        Expression::In(_, values) => label.is_some_and(|value| values.contains(value)),
        Expression::NotIn(_, values) => label.is_none_or(|value| !values.contains(value)),
        Expression::Equal(_, value) => label == Some(value),
        Expression::NotEqual(_, value) => label != Some(value),
        Expression::Exists(_) => label.is_some(),
        Expression::DoesNotExist(_) => label.is_none(),
    }
}

/// A field selector as kubectl writes it: `spec.nodeName=n1,status.phase!=Running`.
///
/// Terms are joined by commas, and all must hold; `==` is `=`. In a value, `\,`, `\=` and `\\` stand for the
/// character itself. Empty selects everything. A field that an object does not have is empty, so `spec.nodeName=`
/// selects the objects without one (Kubernetes: `fields.ParseSelector`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    pub(crate) terms: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldTerm {
    pub(crate) field: String,
    pub(crate) value: String,
    /// `=`, or `!=`.
    pub(crate) equal: bool,
}

/// A text that is not a [`FieldSelector`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{term:?} is not a term of a field selector: {problem}, as in status.phase!=Running")]
pub struct FieldSelectorError {
    /// The term.
    pub term: String,
    /// The problem.
    pub problem: &'static str,
}

// === impl FieldSelector ===

impl FieldSelector {
    /// Selects the objects whose `field` is `value`.
    #[must_use]
    pub fn equal(field: impl Into<String>, value: impl Into<String>) -> Self {
        Self::default().and(field.into(), value.into(), true)
    }

    /// Selects the objects whose `field` is not `value`.
    #[must_use]
    pub fn not_equal(field: impl Into<String>, value: impl Into<String>) -> Self {
        Self::default().and(field.into(), value.into(), false)
    }

    fn and(mut self, field: String, value: String, equal: bool) -> Self {
        self.terms.push(FieldTerm {
            field,
            value,
            equal,
        });
        self
    }
}

impl FromStr for FieldSelector {
    type Err = FieldSelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let terms = unescaped(text, ',').filter(|term| !term.is_empty());
        terms
            .map(FieldTerm::parse)
            .collect::<Result<_, _>>()
            .map(|terms| Self { terms })
    }
}

impl FieldTerm {
    fn parse(term: &str) -> Result<Self, FieldSelectorError> {
        let wrong = |problem| FieldSelectorError {
            term: term.to_owned(),
            problem,
        };
        let at = term
            .find('=')
            .ok_or_else(|| wrong("expected =, == or !="))?;
        let (field, value) = (&term[..at], &term[at + 1..]);
        let (field, value, equal) = match field.strip_suffix('!') {
            Some(field) => (field, value, false),
            None => (field, value.strip_prefix('=').unwrap_or(value), true),
        };
        if field.is_empty() {
            return Err(wrong("expected the name of a field first"));
        }
        let mut plain = String::with_capacity(value.len());
        let mut characters = value.chars();
        while let Some(character) = characters.next() {
            plain.push(match character {
                '\\' => match characters.next() {
                    Some(escaped @ ('\\' | ',' | '=')) => escaped,
                    _ => return Err(wrong("expected \\, = or , after a \\")),
                },
                '=' => return Err(wrong("expected \\= for a = in a value")),
                character => character,
            });
        }
        Ok(Self {
            field: field.to_owned(),
            value: plain,
            equal,
        })
    }

    /// True if a field with these values satisfies the term. A field without values is empty.
    pub(crate) fn accepts(&self, values: &[impl AsRef<str>]) -> bool {
        let among = if values.is_empty() {
            self.value.is_empty()
        } else {
            values.iter().any(|value| value.as_ref() == self.value)
        };
        among == self.equal
    }
}

/// The parts of `text` between those `separator`s that no `\` precedes.
fn unescaped(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |character| {
        let splits = character == separator && !escaped;
        escaped = character == '\\' && !escaped;
        splits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_selectors_are_read_as_an_api_server_reads_them() {
        let of = |terms: &[(&str, &str, bool)]| {
            terms.iter().fold(
                FieldSelector::default(),
                |selector, (field, value, equal)| {
                    selector.and((*field).to_owned(), (*value).to_owned(), *equal)
                },
            )
        };
        for (text, terms) in [
            ("", &[][..]),
            ("a=b", &[("a", "b", true)]),
            ("a==b,", &[("a", "b", true)]),
            ("a.b!=c,d=", &[("a.b", "c", false), ("d", "", true)]),
            (
                r"a=b\,c\=d\\,e=f",
                &[("a", r"b,c=d\", true), ("e", "f", true)],
            ),
        ] {
            assert_eq!(text.parse(), Ok(of(terms)), "{text}");
        }
        for text in ["a", "=b", "!=b", "a=b=c", r"a=b\c", r"a=b\", "a=b,c"] {
            let error = text.parse::<FieldSelector>().unwrap_err();
            assert!(text.ends_with(&error.term), "{error}");
        }
    }
}
