//! JSON with the order of members and with repeated ones, and Go's texts for
//! its errors.
//!
//! `serde_json::Value` drops both; field validation must report every repeated field, in the order
//! of the text, and clients show the decoder's message.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

/// Maximum depth of arrays and objects. Go's decoder allows 10,000; `serde_json` stops here, and a
/// thread's stack overflows soon after.
pub(crate) const MAX_DEPTH: usize = 126;

/// Maximum depth of a stored object. The owners of its fields nest four levels deeper than the fields, a list two more, and
/// a line of the data directory one: `serde_json` has to read all of them.
pub(crate) const MAX_STORED_DEPTH: usize = 120;

/// Whether arrays and objects nest deeper than `levels`.
pub(crate) fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(rest) = levels.checked_sub(1) else {
        return value.is_array() || value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, rest)),
        Value::Object(members) => members.values().any(|member| is_deeper(member, rest)),
        _ => false,
    }
}

/// A JSON text, in the order it was written. Its texts are those of the source, unless they were escaped there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as written.
    Number(Cow<'a, str>),
    /// A string.
    String(Cow<'a, str>),
    /// Items.
    Array(Vec<Node<'a>>),
    /// Members, repeated ones too.
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

/// A text that is not JSON, in the words of Go's `encoding/json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SyntaxError(String);

// === impl Node ===

impl<'a> Node<'a> {
    /// The name of this type in Go's decoder.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// The node of a value.
    pub(crate) fn from_value(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(bool) => Self::Bool(*bool),
            Value::Number(number) => Self::Number(number.to_string().into()),
            Value::String(text) => Self::String(text.into()),
            Value::Array(items) => Self::Array(items.iter().map(Self::from_value).collect()),
            Value::Object(map) => Self::Object(
                map.iter()
                    .map(|(name, member)| (name.into(), Self::from_value(member)))
                    .collect(),
            ),
        }
    }

    /// The value; the last of repeated members counts.
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(bool) => Value::Bool(*bool),
            // Go reads it as an integer.
            Self::Number(text) if text == "-0" => Value::from(0),
            Self::Number(text) => match text.parse::<i64>() {
                Ok(number) => Value::from(number),
                Err(_) => serde_json::from_str(text).unwrap_or_default(),
            },
            Self::String(text) => Value::from(&**text),
            Self::Array(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Self::Object(members) => Value::Object(
                members
                    .iter()
                    .map(|(name, member)| (name.as_ref().to_owned(), member.to_value()))
                    .collect(),
            ),
        }
    }

    /// The node apart from its source.
    pub(crate) fn into_owned(self) -> Node<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Null => Node::Null,
            Self::Bool(bool) => Node::Bool(bool),
            Self::Number(text) => Node::Number(owned(text)),
            Self::String(text) => Node::String(owned(text)),
            Self::Array(items) => Node::Array(items.into_iter().map(Node::into_owned).collect()),
            Self::Object(members) => Node::Object(
                members
                    .into_iter()
                    .map(|(name, member)| (owned(name), member.into_owned()))
                    .collect(),
            ),
        }
    }
}

/// Parses a whole text.
///
/// # Errors
/// The first invalid character, or the unexpected end.
pub(crate) fn parse(text: &[u8]) -> Result<Node<'_>, SyntaxError> {
    let mut reader = Reader { text, position: 0 };
    reader.skip_blanks();
    let node = reader.value(0)?;
    reader.skip_blanks();
    match reader.peek() {
        None => Ok(node),
        Some(byte) => Err(invalid(byte, "after top-level value")),
    }
}

/// Finds members whose name an earlier one has. Objects of a few members, which most are, need no memory for it.
#[derive(Default)]
pub(crate) struct Repeats<'a>(HashSet<&'a str>);

impl<'a> Repeats<'a> {
    /// Whether an earlier one of `members` has the name of that at `index`. Asked for each index in turn.
    pub(crate) fn at(&mut self, members: &'a [(Cow<'_, str>, Node<'_>)], index: usize) -> bool {
        const FEW: usize = 32;
        let name = &*members[index].0;
        if members.len() <= FEW {
            members[..index].iter().any(|(earlier, _)| earlier == name)
        } else {
            !self.0.insert(name)
        }
    }
}

/// The paths of repeated fields (`spec.ports[0].name`), in the order of the text.
pub(crate) fn duplicate_fields(node: &Node<'_>) -> Vec<String> {
    let mut found = Vec::new();
    walk_duplicates(node, &Trail::Root, &mut found);
    let mut seen = HashSet::new();
    found.retain(|path| seen.insert(path.clone()));
    found
}

fn walk_duplicates(node: &Node<'_>, at: &Trail<'_>, found: &mut Vec<String>) {
    match node {
        Node::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk_duplicates(item, &at.item(index), found);
            }
        }
        Node::Object(members) => {
            let mut repeats = Repeats::default();
            for (index, (name, member)) in members.iter().enumerate() {
                let child = at.field(name);
                if repeats.at(members, index) {
                    found.push(child.to_string());
                }
                walk_duplicates(member, &child, found);
            }
        }
        _ => {}
    }
}

/// `path.name`, or `name` at the top.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        [path, ".", name].concat()
    }
}

/// The place of a walk in a document. It becomes text only where it is shown: `spec.ports[0].name`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trail<'a> {
    /// The document.
    Root,
    /// A field of an object.
    Field(&'a Trail<'a>, &'a str),
    /// An item of a list.
    Item(&'a Trail<'a>, usize),
}

// === impl Trail ===

impl<'a> Trail<'a> {
    /// The field `name` of this place.
    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    /// The item of this place at `index`.
    pub(crate) fn item(&'a self, index: usize) -> Self {
        Self::Item(self, index)
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(of, name) => write!(f, "{of}.{name}"),
            Self::Item(of, index) => write!(f, "{of}[{index}]"),
        }
    }
}

// === the reader ===

struct Reader<'a> {
    text: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    fn next(&mut self) -> Result<u8, SyntaxError> {
        let byte = self.peek().ok_or_else(ends_early)?;
        self.position += 1;
        Ok(byte)
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.position += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node<'a>, SyntaxError> {
        if depth > MAX_DEPTH {
            return Err(SyntaxError("exceeded max depth".to_owned()));
        }
        match self.next()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(Node::String),
            b't' => self.literal("true").map(|()| Node::Bool(true)),
            b'f' => self.literal("false").map(|()| Node::Bool(false)),
            b'n' => self.literal("null").map(|()| Node::Null),
            first @ (b'-' | b'0'..=b'9') => self.number(first).map(Node::Number),
            other => Err(invalid(other, "looking for beginning of value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node<'a>, SyntaxError> {
        let mut members = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.position += 1;
            return Ok(Node::Object(members));
        }
        loop {
            self.skip_blanks();
            match self.next()? {
                b'"' => {}
                other => {
                    return Err(invalid(other, "looking for beginning of object key string"));
                }
            }
            let name = self.string()?;
            self.skip_blanks();
            match self.next()? {
                b':' => {}
                other => return Err(invalid(other, "after object key")),
            }
            self.skip_blanks();
            let member = self.value(depth + 1)?;
            members.push((name, member));
            self.skip_blanks();
            match self.next()? {
                b',' => {}
                b'}' => return Ok(Node::Object(members)),
                other => return Err(invalid(other, "after object key:value pair")),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Node<'a>, SyntaxError> {
        let mut items = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.position += 1;
            return Ok(Node::Array(items));
        }
        loop {
            self.skip_blanks();
            items.push(self.value(depth + 1)?);
            self.skip_blanks();
            match self.next()? {
                b',' => {}
                b']' => return Ok(Node::Array(items)),
                other => return Err(invalid(other, "after array element")),
            }
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), SyntaxError> {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                let place = format!("in literal {word} (expecting '{}')", char::from(expected));
                return Err(invalid(byte, &place));
            }
        }
        Ok(())
    }

    fn number(&mut self, first: u8) -> Result<Cow<'a, str>, SyntaxError> {
        let start = self.position - 1;
        let mut lead = first;
        if lead == b'-' {
            lead = self.next()?;
            if !lead.is_ascii_digit() {
                return Err(invalid(lead, "in numeric literal"));
            }
        }
        if lead != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.position += 1;
            self.one_digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.position += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.position += 1;
            }
            self.one_digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(String::from_utf8_lossy(&self.text[start..self.position]))
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.position += 1;
        }
    }

    fn one_digit(&mut self, place: &str) -> Result<(), SyntaxError> {
        match self.next()? {
            b'0'..=b'9' => Ok(()),
            other => Err(invalid(other, place)),
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxError> {
        let rest = &self.text[self.position..];
        let plain = rest
            .iter()
            .position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
        let plain = &rest[..plain.unwrap_or(rest.len())];
        self.position += plain.len();
        if self.peek() == Some(b'"') {
            self.position += 1;
            return Ok(String::from_utf8_lossy(plain));
        }
        let mut bytes = plain.to_vec();
        loop {
            match self.next()? {
                b'"' => return Ok(String::from_utf8_lossy(&bytes).into_owned().into()),
                b'\\' => {
                    let character = self.escape()?;
                    let mut buffer = [0; 4];
                    bytes.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
                }
                control @ 0..0x20 => return Err(invalid(control, "in string literal")),
                byte => bytes.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        Ok(match self.next()? {
            plain @ (b'"' | b'\\' | b'/') => char::from(plain),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.hexadecimal()?;
                let pair = self.text.get(self.position..self.position + 2) == Some(b"\\u");
                if (0xd800..0xdc00).contains(&high) && pair {
                    let before = self.position;
                    self.position += 2;
                    let low = self.hexadecimal()?;
                    if (0xdc00..0xe000).contains(&low) {
                        let point = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                        return Ok(char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    self.position = before;
                }
                char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            other => return Err(invalid(other, "in string escape code")),
        })
    }

    fn hexadecimal(&mut self) -> Result<u32, SyntaxError> {
        let mut number = 0;
        for _ in 0..4 {
            let byte = self.next()?;
            let digit = char::from(byte)
                .to_digit(16)
                .ok_or_else(|| invalid(byte, "in \\u hexadecimal character escape"))?;
            number = number * 16 + digit;
        }
        Ok(number)
    }
}

fn ends_early() -> SyntaxError {
    SyntaxError("unexpected end of JSON input".to_owned())
}

fn invalid(byte: u8, place: impl fmt::Display) -> SyntaxError {
    let shown = match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        // Go shows a byte as the character of that number.
        other => format!("'{}'", char::from(other)),
    };
    SyntaxError(format!("invalid character {shown} {place}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn repeated_fields_are_named_with_their_paths_in_the_order_of_the_text() {
        let text = br#"{"data":{"a":"1","a":"2"},"list":[{"x":1,"x":2,"x":3}],"data":{}}"#;
        let node = parse(text).unwrap();
        assert_eq!(duplicate_fields(&node), ["data.a", "list[0].x", "data"]);
    }

    #[test]
    fn repeated_fields_are_found_among_many_without_a_comparison_of_each_pair() {
        let names = (0..100_000).chain([7, 99_999, 7]);
        let members: Vec<String> = names.map(|name| format!(r#""{name}":0"#)).collect();
        let text = format!("{{{}}}", members.join(","));
        let node = parse(text.as_bytes()).unwrap();
        assert_eq!(duplicate_fields(&node), ["7", "99999"]);
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_go() {
        let cases = [
            ("", "unexpected end of JSON input"),
            (
                "nope",
                "invalid character 'o' in literal null (expecting 'u')",
            ),
            ("{}x", "invalid character 'x' after top-level value"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            (
                "{\"a\":1 \"b\"}",
                "invalid character '\"' after object key:value pair",
            ),
            (
                "{a}",
                "invalid character 'a' looking for beginning of object key string",
            ),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            (
                "[1,]",
                "invalid character ']' looking for beginning of value",
            ),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            (
                "\"\\u12g4\"",
                "invalid character 'g' in \\u hexadecimal character escape",
            ),
            ("-a", "invalid character 'a' in numeric literal"),
            (
                "1.a",
                "invalid character 'a' after decimal point in numeric literal",
            ),
            (
                "1ea",
                "invalid character 'a' in exponent of numeric literal",
            ),
            ("{\"a\":", "unexpected end of JSON input"),
        ];
        for (text, expected) in cases {
            assert_eq!(
                parse(text.as_bytes()).unwrap_err().to_string(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn what_nests_too_deep_is_refused_before_the_stack_ends() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(126).as_bytes()).is_ok());
        assert!(serde_json::from_str::<Value>(&nested(126)).is_ok());
        assert_eq!(
            parse(nested(100_000).as_bytes()).unwrap_err().to_string(),
            "exceeded max depth"
        );
    }

    #[test]
    fn depth_counts_arrays_and_objects() {
        let value = serde_json::json!({"a": [{"b": 1}], "c": 2});
        assert!(is_deeper(&value, 2));
        assert!(!is_deeper(&value, 3));
        assert!(!is_deeper(&Value::from(1), 0));
    }

    #[test]
    fn strings_are_unescaped() {
        assert_eq!(
            parse(br#""a\n\u00e9\ud83d\ude00\"""#).unwrap(),
            Node::String("a\n\u{e9}\u{1f600}\"".into())
        );
    }

    proptest! {
        #[test]
        fn it_accepts_what_serde_json_accepts(text in r#"[\{\}\[\],:"a1.e\-\\ntrufls ]{0,16}"#) {
            let ours = parse(text.as_bytes());
            let theirs = serde_json::from_str::<Value>(&text);
            prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs);
        }

        #[test]
        fn it_reads_what_serde_json_wrote(value in any_json()) {
            let text = value.to_string();
            let node = parse(text.as_bytes()).unwrap();
            prop_assert_eq!(&node.to_value(), &value);
            prop_assert_eq!(&Node::from_value(&value), &node);
            prop_assert!(duplicate_fields(&node).is_empty());
            prop_assert_eq!(&node.clone().into_owned(), &node);
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }
}
