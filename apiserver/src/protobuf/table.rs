//! The messages and their fields, from `table.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The output of `tools/protobuf`; its head explains it.
const TEXT: &str = include_str!("table.txt");

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    // A test reads the same text.
    Table::parse(TEXT).expect("the committed table is whole")
});

/// Every known message.
#[derive(Debug)]
pub(super) struct Table {
    /// apiVersion and kind, and the message.
    roots: HashMap<(&'static str, &'static str), usize>,
    messages: Vec<Message>,
}

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: &'static str,
    pub(super) union: Option<Union>,
    /// By number, ascending.
    pub(super) fields: Vec<Field>,
}

/// The JSON form of a message that is written as one of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Union {
    /// A schema or a list of them.
    Array,
    /// A schema or whether it is allowed.
    Bool,
    /// A schema or a list of texts.
    Texts,
}

/// A field.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// In JSON; `None` for a message whose fields are inlined in the outer one.
    pub(super) name: Option<&'static str>,
    pub(super) shape: Shape,
    pub(super) of: Type,
    pub(super) omit_empty: bool,
    pub(super) omit_zero: bool,
}

/// The number of values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One, zero if it is not on the wire.
    Plain,
    /// One or none.
    Pointer,
    /// Any number.
    Repeated,
    /// Any number, with text keys.
    Map,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Time,
    MicroTime,
    /// JSON text.
    Raw,
    Quantity,
    IntOrString,
    /// A list of texts that is a message of its own.
    Texts,
    /// The message of this index.
    Message(usize),
}

// === impl Table ===

impl Table {
    pub(super) fn get() -> &'static Self {
        &TABLE
    }

    /// The message of a kind.
    pub(super) fn root(&self, api_version: &str, kind: &str) -> Option<&Message> {
        // It belongs to every group version, and the table has it once.
        let api_version = if kind == "DeleteOptions" {
            "v1"
        } else {
            api_version
        };
        let index = self.roots.get(&(api_version, kind))?;
        self.messages.get(*index)
    }

    /// A message by its index.
    pub(super) fn message(&self, index: usize) -> &Message {
        &self.messages[index]
    }

    /// Parses a table.
    ///
    /// # Errors
    /// The first invalid line.
    pub(super) fn parse(text: &'static str) -> Result<Self, String> {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let described = lines().filter(|line| !line.starts_with("= "));
        let indices: HashMap<&str, usize> = described
            .clone()
            .enumerate()
            .map(|(index, line)| (line.split(' ').next().unwrap_or_default(), index))
            .collect();
        let mut table = Self {
            roots: HashMap::new(),
            messages: Vec::new(),
        };
        for line in described {
            let message = Message::parse(line, &indices).ok_or_else(|| line.to_owned())?;
            table.messages.push(message);
        }
        for line in lines().filter_map(|line| line.strip_prefix("= ")) {
            let [api_version, kind, message] = line.split(' ').collect::<Vec<_>>()[..] else {
                return Err(line.to_owned());
            };
            let index = indices.get(message).ok_or_else(|| line.to_owned())?;
            table.roots.insert((api_version, kind), *index);
        }
        Ok(table)
    }
}

// === impl Message ===

impl Message {
    fn parse(line: &'static str, indices: &HashMap<&str, usize>) -> Option<Self> {
        let mut words = line.split(' ').peekable();
        let name = words.next()?;
        let union = match words.next_if(|word| word.starts_with('@')) {
            None => None,
            Some("@array") => Some(Union::Array),
            Some("@bool") => Some(Union::Bool),
            Some("@texts") => Some(Union::Texts),
            Some(_) => return None,
        };
        let fields: Option<Vec<Field>> = words.map(|word| Field::parse(word, indices)).collect();
        let fields = fields.filter(|fields| fields.is_sorted_by_key(|field| field.number))?;
        Some(Self {
            name,
            union,
            fields,
        })
    }

    /// The index of the field of this number.
    pub(super) fn field(&self, number: u32) -> Option<usize> {
        self.fields
            .binary_search_by_key(&number, |field| field.number)
            .ok()
    }
}

// === impl Field ===

impl Field {
    fn parse(word: &'static str, indices: &HashMap<&str, usize>) -> Option<Self> {
        let [number, name, of] = word.split(':').collect::<Vec<_>>()[..] else {
            return None;
        };
        let bare = of.trim_end_matches(['?', '!']);
        let ends = &of[bare.len()..];
        let (shape, bare) = match bare.split_at_checked(1)? {
            ("*", rest) => (Shape::Pointer, rest),
            ("[", rest) => (Shape::Repeated, rest),
            ("{", rest) => (Shape::Map, rest),
            _ => (Shape::Plain, bare),
        };
        let of = match bare {
            "s" => Type::Text,
            "y" => Type::Bytes,
            "b" => Type::Bool,
            "i" => Type::Int32,
            "l" => Type::Int64,
            "d" => Type::Double,
            "@time" => Type::Time,
            "@microtime" => Type::MicroTime,
            "@raw" => Type::Raw,
            "@quantity" => Type::Quantity,
            "@intorstring" => Type::IntOrString,
            "@texts" => Type::Texts,
            message => Type::Message(*indices.get(message)?),
        };
        let field = Self {
            number: number.parse().ok()?,
            name: (name != "-").then_some(name),
            shape,
            of,
            omit_empty: ends.contains('?'),
            omit_zero: ends.contains('!'),
        };
        let is_message = matches!(of, Type::Message(_)) && shape == Shape::Plain;
        let is_known = field.name.is_some() || is_message;
        (is_known && !(is_message && field.omit_zero)).then_some(field)
    }

    /// The name in Go, with few exceptions.
    pub(super) fn go_name(&self) -> String {
        let name = match self.name {
            None => "embedded message",
            Some("metadata") => "ObjectMeta",
            Some(name) => name,
        };
        let mut letters = name.chars();
        letters
            .next()
            .into_iter()
            .flat_map(char::to_uppercase)
            .chain(letters)
            .collect()
    }
}
