//! Label selectors in kubectl's syntax: terms joined by commas, of the forms `a`, `!a`, `a=b`, `a==b`, `a!=b`, `a in
//! (b,c)`, `a notin (b,c)`.

use std::collections::BTreeSet;

use kube_core::{Expression, Selector};

/// The part of a term after the name of a label, and the rest of the text.
type Term<'a> = (Expression, &'a str);

/// Parses a selector; the empty text selects everything.
pub(super) fn parse(text: &str) -> Result<Selector, String> {
    let mut selector = Selector::default();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (expression, after) = match rest.strip_prefix('!') {
            Some(after) => {
                let (name, after) = label_name(after.trim_start())?;
                (Expression::DoesNotExist(name.to_owned()), after)
            }
            None => {
                let (name, after) = label_name(rest)?;
                term(name, after.trim_start())?
            }
        };
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(next) if next.trim().is_empty() => {
                return Err("expected a term after the last comma".to_owned());
            }
            Some(next) => next.trim_start(),
            None if after.is_empty() => "",
            None => {
                let name = label_name(rest.trim_start_matches(['!', ' ']))?.0;
                return Err(format!("expected a comma after {name:?}, found {after:?}"));
            }
        };
        selector.extend(expression);
    }
    Ok(selector)
}

fn label_name(text: &str) -> Result<(&str, &str), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let end = text.find(|c| !legal(c)).unwrap_or(text.len());
    if end == 0 {
        return Err(format!("expected the name of a label, found {text:?}"));
    }
    Ok(text.split_at(end))
}

/// The term that begins with the label `name`; `text` is the part after the name.
fn term<'a>(name: &str, text: &'a str) -> Result<Term<'a>, String> {
    for operator in ["==", "!=", "="] {
        if let Some(text) = text.strip_prefix(operator) {
            let (value, rest) = label_value(text)?;
            let make = match operator {
                "!=" => Expression::NotEqual,
                _ => Expression::Equal,
            };
            return Ok((make(name.to_owned(), value.to_owned()), rest));
        }
    }
    for operator in ["in", "notin"] {
        let list = text.strip_prefix(operator).map(str::trim_start);
        let Some(mut rest) = list.and_then(|list| list.strip_prefix('(')) else {
            continue;
        };
        let mut values = BTreeSet::new();
        loop {
            let (value, after) = label_value(rest)?;
            values.insert(value.to_owned());
            rest = match (after.strip_prefix(','), after.strip_prefix(')')) {
                (Some(next), _) => next,
                (_, Some(end)) => {
                    let make = match operator {
                        "in" => Expression::In,
                        _ => Expression::NotIn,
                    };
                    return Ok((make(name.to_owned(), values), end));
                }
                _ => return Err(format!("expected a ) after the values of {name:?}")),
            };
        }
    }
    Ok((Expression::Exists(name.to_owned()), text))
}

fn label_value(text: &str) -> Result<(&str, &str), String> {
    let end = text.find([',', ')']).unwrap_or(text.len());
    let (value, rest) = text.split_at(end);
    let value = value.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if value.chars().all(legal) && value.len() <= 63 {
        Ok((value, rest))
    } else {
        Err(format!("{value:?} is not a valid label value"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube_core::SelectorExt;

    use super::*;

    #[test]
    fn a_selector_is_read_as_what_it_says() {
        let of = |labels: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            labels.iter().map(owned).collect()
        };
        let places = [
            of(&[]),
            of(&[("a", "")]),
            of(&[("a", "b")]),
            of(&[("a", "c")]),
            of(&[("a", "b"), ("x/y", "z")]),
        ];
        for (selector, selected) in [
            ("", [1, 1, 1, 1, 1]),
            ("a", [0, 1, 1, 1, 1]),
            ("!a", [1, 0, 0, 0, 0]),
            ("! a", [1, 0, 0, 0, 0]),
            ("a=b", [0, 0, 1, 0, 1]),
            ("a == b", [0, 0, 1, 0, 1]),
            ("a=", [0, 1, 0, 0, 0]),
            ("a!=b", [1, 1, 0, 1, 0]),
            ("a in (b, c)", [0, 0, 1, 1, 1]),
            ("a in (b,)", [0, 1, 1, 0, 1]),
            ("a notin (b,c)", [1, 1, 0, 0, 0]),
            ("a in (b),x/y", [0, 0, 0, 0, 1]),
            ("a, !x/y, a!=c", [0, 1, 1, 0, 0]),
        ] {
            let read = parse(selector).unwrap();
            let found = places
                .each_ref()
                .map(|labels| i32::from(read.matches(labels)));
            assert_eq!(found, selected, "{selector}");
        }
    }
}
