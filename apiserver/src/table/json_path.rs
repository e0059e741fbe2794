//! The JSONPath of columns, selectable fields and scale paths.
//!
//! Fields (`.a`, `.a\.b`, `['a.b']`), positions (`[0]`, `[-1]`), slices, `[*]`, filters
//! (`[?(@.type=="Ready")]`) and `..`. (client-go: `util/jsonpath`, what fits a single path.)

use serde_json::Value;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath {
    steps: Vec<Step>,
}

/// An invalid path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Error(String);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Position(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    /// Every value at and below this one.
    Descend,
    Filter(Vec<Step>, Comparison, Value),
    /// `[?(@.a)]`: the field exists.
    Exists(Vec<Step>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The most filters of a path: one within another takes a part of the stack.
const MAX_FILTERS: usize = 32;

// === impl JsonPath ===

impl JsonPath {
    /// Parses a path of the CRD form: it starts with a dot or a bracket, braces are allowed around it.
    ///
    /// # Errors
    /// The unexpected character.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let inner = text.trim();
        let inner = inner
            .strip_prefix('{')
            .and_then(|inner| inner.strip_suffix('}'))
            .unwrap_or(inner);
        let inner = inner.strip_prefix('$').unwrap_or(inner);
        if inner.matches("?(").count() > MAX_FILTERS {
            return Err(Error(format!("more than {MAX_FILTERS} filters")));
        }
        Ok(Self {
            steps: steps(inner)?,
        })
    }

    /// All values at the path, in order.
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        walk(&self.steps, value)
    }

    /// The first value at the path.
    pub(crate) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.find(value).into_iter().next()
    }

    /// The fields' names when the path consists of fields only (`.spec.replicas`).
    pub(crate) fn fields(&self) -> Option<Vec<&str>> {
        self.steps
            .iter()
            .map(|step| match step {
                Step::Field(name) => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }
}

/// A value as text: strings bare, null as `<no value>`, lists and objects as JSON.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn walk<'a>(steps: &[Step], value: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![value];
    for step in steps {
        found = found
            .into_iter()
            .flat_map(|value| step.apply(value))
            .collect();
    }
    found
}

// === impl Step ===

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Self::Position(index), Value::Array(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { index + length } else { *index };
                usize::try_from(index)
                    .ok()
                    .and_then(|index| items.get(index))
                    .into_iter()
                    .collect()
            }
            (Self::Slice(start, end), Value::Array(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let place = |index: i64| {
                    let index = if index < 0 { index + length } else { index };
                    usize::try_from(index.clamp(0, length)).unwrap_or_default()
                };
                let (start, end) = (place(start.unwrap_or(0)), place(end.unwrap_or(length)));
                items.get(start..end).into_iter().flatten().collect()
            }
            (Self::All, Value::Array(items)) => items.iter().collect(),
            (Self::All, Value::Object(map)) => map.values().collect(),
            (Self::Descend, value) => {
                let mut found = Vec::new();
                descend(value, &mut found);
                found
            }
            (Self::Filter(path, comparison, literal), Value::Array(items)) => items
                .iter()
                .filter(|item| {
                    walk(path, item)
                        .first()
                        .is_some_and(|value| comparison.holds(value, literal))
                })
                .collect(),
            (Self::Exists(path), Value::Array(items)) => items
                .iter()
                .filter(|item| !walk(path, item).is_empty())
                .collect(),
            _ => Vec::new(),
        }
    }
}

fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    found.push(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| descend(item, found)),
        Value::Object(map) => map.values().for_each(|item| descend(item, found)),
        _ => {}
    }
}

// === impl Comparison ===

impl Comparison {
    fn holds(self, value: &Value, literal: &Value) -> bool {
        let order = match (value, literal) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Number(left), Value::Number(right)) => left
                .as_f64()
                .zip(right.as_f64())
                .and_then(|(left, right)| left.partial_cmp(&right)),
            (left, right) => (left == right).then_some(std::cmp::Ordering::Equal),
        };
        match self {
            Self::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
            Self::NotEqual => !order.is_some_and(std::cmp::Ordering::is_eq),
            Self::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Self::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Self::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Self::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

fn steps(text: &str) -> Result<Vec<Step>, Error> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match first {
            '.' => {
                rest = &rest[1..];
                if let Some(after) = rest.strip_prefix('.') {
                    found.push(Step::Descend);
                    rest = after;
                }
                if rest.is_empty() || rest.starts_with('[') {
                    continue;
                }
                let (name, after) = field(rest)?;
                found.push(if name == "*" {
                    Step::All
                } else {
                    Step::Field(name)
                });
                rest = after;
            }
            '[' => {
                let (inside, after) = bracket(rest)?;
                found.push(bracketed(inside)?);
                rest = after;
            }
            other => {
                return Err(Error(format!(
                    "unrecognized character in action: {other:?}"
                )));
            }
        }
    }
    Ok(found)
}

/// A field's name up to the next dot or bracket; a backslash escapes the next character.
fn field(text: &str) -> Result<(String, &str), Error> {
    let mut name = String::new();
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => {
                name.push(character);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => return checked(name, &text[index..]),
            ' ' | '{' | '}' | '$' | '@' | ']' | '(' | ')' | '?' | ',' | '|' => {
                return Err(Error(format!(
                    "unrecognized character in action: {character:?}"
                )));
            }
            plain => name.push(plain),
        }
    }
    if escaped {
        return Err(Error("unterminated escape".to_owned()));
    }
    checked(name, "")
}

fn checked(name: String, rest: &str) -> Result<(String, &str), Error> {
    if name.is_empty() {
        return Err(Error("a field has no name".to_owned()));
    }
    Ok((name, rest))
}

/// The content of the bracket at the start of `text`, and the rest.
fn bracket(text: &str) -> Result<(&str, &str), Error> {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        match (quote, character) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Ok((&text[1..index], &text[index + 1..]));
                }
            }
            _ => {}
        }
    }
    Err(Error("unterminated array".to_owned()))
}

fn bracketed(inside: &str) -> Result<Step, Error> {
    let inside = inside.trim();
    if inside == "*" {
        return Ok(Step::All);
    }
    if let Some(condition) = inside.strip_prefix("?(") {
        let condition = condition
            .strip_suffix(')')
            .ok_or_else(|| Error("unterminated filter".to_owned()))?;
        return filter(condition.trim());
    }
    if let Some(name) = unquoted(inside) {
        return Ok(Step::Field(name));
    }
    let number = |text: &str| -> Result<Option<i64>, Error> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        text.trim()
            .parse()
            .map(Some)
            .map_err(|_| Error(format!("invalid array index {inside}")))
    };
    if let Some((start, end)) = inside.split_once(':') {
        let (end, step) = end.split_once(':').unwrap_or((end, "1"));
        if number(step)?.is_some_and(|step| step != 1) {
            return Err(Error("slices with a step are not supported".to_owned()));
        }
        return Ok(Step::Slice(number(start)?, number(end)?));
    }
    number(inside)?
        .map(Step::Position)
        .ok_or_else(|| Error("invalid array index".to_owned()))
}

fn unquoted(text: &str) -> Option<String> {
    let inner = ['\'', '"']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))?;
    let mut plain = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => characters.next()?,
            other => other,
        });
    }
    Some(plain)
}

fn filter(condition: &str) -> Result<Step, Error> {
    let operators = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let path = |text: &str| {
        let text = text.trim();
        steps(text.strip_prefix('@').unwrap_or(text))
    };
    let split = operators
        .into_iter()
        .filter_map(|(text, comparison)| Some((condition.find(text)?, text, comparison)))
        .min_by_key(|(index, text, _)| (*index, std::cmp::Reverse(text.len())));
    let Some((index, operator, comparison)) = split else {
        return Ok(Step::Exists(path(condition)?));
    };
    let literal = condition[index + operator.len()..].trim();
    let literal = match unquoted(literal) {
        Some(text) => Value::String(text),
        None => serde_json::from_str(literal)
            .map_err(|_| Error(format!("cannot compare with {literal}")))?,
    };
    Ok(Step::Filter(
        path(&condition[..index])?,
        comparison,
        literal,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn filters_within_filters_without_end_are_refused() {
        let nested = |count: usize| format!("{}{}", ".a[?(@".repeat(count), ")]".repeat(count));
        assert!(JsonPath::parse(&nested(MAX_FILTERS)).is_ok());
        assert!(JsonPath::parse(&nested(100_000)).is_err());
    }

    #[test]
    fn paths_lead_where_they_say() {
        let value = json!({
            "a": {"b.c": 1, "d": [10, 20, 30]},
            "l": [{"t": "x", "n": 1, "v": "first"}, {"t": "y", "n": 2, "v": "second"}, {"n": 3}],
        });
        let cases = [
            (".a.d", json!([[10, 20, 30]])),
            (r".a.b\.c", json!([1])),
            (".a['b.c']", json!([1])),
            (".a[\"b.c\"]", json!([1])),
            ("{.a.d[1]}", json!([20])),
            ("$.a.d[-1]", json!([30])),
            (".a.d[1:]", json!([20, 30])),
            (".a.d[:-1]", json!([10, 20])),
            (".a.d[*]", json!([10, 20, 30])),
            (".l[?(@.t=='y')].v", json!(["second"])),
            (".l[?(@.t != \"y\")].v", json!(["first"])),
            (".l[?(@.n>=2)].n", json!([2, 3])),
            (".l[?(@.n<2)].n", json!([1])),
            (".l[?(@.t)].n", json!([1, 2])),
            ("..t", json!(["x", "y"])),
            (".l[7]", json!([])),
            (".a.x.y", json!([])),
            (".a.d.x", json!([])),
        ];
        for (path, expected) in cases {
            let parsed = JsonPath::parse(path).unwrap();
            let found: Vec<Value> = parsed.find(&value).into_iter().cloned().collect();
            assert_eq!(Value::Array(found), expected, "{path}");
        }
    }

    #[test]
    fn broken_paths_are_refused() {
        for path in [
            ".a[",
            ".a[x]",
            ".a b",
            "a.b",
            ".a[?(@.b==x)]",
            r".a\",
            ".a[0:3:2]",
            ".a[?(@.b",
        ] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_path_lists_its_fields() {
        let fields = |path: &str| {
            JsonPath::parse(path)
                .unwrap()
                .fields()
                .map(|names| names.join("/"))
        };
        assert_eq!(fields(".spec.replicas"), Some("spec/replicas".to_owned()));
        assert_eq!(fields(".spec.l[0]"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_fail_otherwise_than_by_an_error(text in r#"[.\[\]a-c'"?()@=<>\\*:0-9$\{\} -]{0,24}"#) {
            if let Ok(path) = JsonPath::parse(&text) {
                let _ = path.find(&json!({"a": [{"b": 1}, "c"], "b": {"c": [1, 2, 3]}}));
            }
        }
    }
}
