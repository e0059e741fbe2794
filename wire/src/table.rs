//! The messages and their fields, from `table.txt`, which has what the wire does not show: names, pointers, fields that
//! are left out when empty, and messages that are inlined in the outer one.

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
pub(crate) struct Table {
    /// apiVersion and kind, and the message.
    roots: HashMap<(&'static str, &'static str), usize>,
    messages: Vec<Message>,
}

/// The description of a message: the fields of one kind, or of a part of it.
#[derive(Debug)]
pub struct Message {
    pub(crate) name: &'static str,
    pub(crate) union: Option<Union>,
    /// By number, ascending.
    pub(crate) fields: Vec<Field>,
    /// For each number up to the highest: the index of its field, and one more; zero for none.
    numbers: Box<[u8]>,
    /// The indices of the fields that are in the object when they are not on the wire.
    pub(crate) always: Box<[usize]>,
}

/// The JSON form of a message that is written as one of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Union {
    /// A schema or a list of them.
    Array,
    /// A schema or whether it is allowed.
    Bool,
    /// A schema or a list of texts.
    Texts,
}

/// A field.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// In JSON; `None` for a message whose fields are inlined in the outer one.
    pub(crate) name: Option<&'static str>,
    pub(crate) shape: Shape,
    pub(crate) of: Type,
    pub(crate) omit_empty: bool,
    pub(crate) omit_zero: bool,
}

/// The number of values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
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
pub(crate) enum Type {
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
    pub(crate) fn get() -> &'static Self {
        &TABLE
    }

    /// The message of a kind.
    pub(crate) fn root(&self, api_version: &str, kind: &str) -> Option<&Message> {
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
    pub(crate) fn message(&self, index: usize) -> &Message {
        &self.messages[index]
    }

    /// A message by its name. The table is in the order of the names.
    #[cfg(feature = "k8s-openapi")]
    pub(crate) fn find(&self, name: &str) -> Option<&Message> {
        let index = self.messages.binary_search_by_key(&name, |one| one.name);
        index.ok().map(|index| &self.messages[index])
    }

    /// Parses a table.
    ///
    /// # Errors
    /// The first invalid line.
    pub(crate) fn parse(text: &'static str) -> Result<Self, String> {
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
    /// The message of a kind, such as `apps/v1` and `Deployment`; `None` for a kind that is not in the table, such as a
    /// custom resource. `DeleteOptions` belongs to every group version.
    #[must_use]
    pub fn of(api_version: &str, kind: &str) -> Option<&'static Self> {
        Table::get().root(api_version, kind)
    }

    /// Package and name, such as `apps.v1.Deployment`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The index of the field of this name in JSON.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let mut fields = self.fields.iter();
        fields.position(|field| field.name == Some(name))
    }

    /// Whether it has a member of this name, inlined or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields
            .iter()
            .any(|field| match (field.name, field.of) {
                (Some(known), _) => known == name,
                (None, Type::Message(index)) => Table::get().message(index).has(name),
                (None, _) => false,
            })
    }

    /// The field of this name in JSON.
    pub(crate) fn named(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == Some(name))
    }

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
        let highest = fields.last().map_or(0, |field| field.number as usize);
        let mut numbers = vec![0; highest + 1].into_boxed_slice();
        for (index, field) in fields.iter().enumerate() {
            numbers[field.number as usize] = u8::try_from(index + 1).ok()?;
        }
        let always = fields.iter().enumerate();
        let always = always.filter(|(_, field)| field.is_always_shown());
        Some(Self {
            name,
            union,
            always: always.map(|(index, _)| index).collect(),
            fields,
            numbers,
        })
    }

    /// The index of the field of this number.
    #[inline]
    pub(crate) fn field(&self, number: u32) -> Option<usize> {
        let index = self.numbers.get(number as usize)?;
        usize::from(*index).checked_sub(1)
    }
}

// === impl Type ===

impl Type {
    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::Bool | Self::Int32 | Self::Int64 | Self::Double)
    }

    pub(crate) fn is_scalar(self) -> bool {
        self.is_number() || matches!(self, Self::Text | Self::Bytes)
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
        let is_time = matches!(of, Type::Time | Type::MicroTime) && shape == Shape::Plain;
        (is_known && (is_time || !field.omit_zero)).then_some(field)
    }

    /// Whether the object has it when it is not on the wire, or may have it: an inlined message has fields of its own.
    fn is_always_shown(&self) -> bool {
        let is_zero_left_out = self.omit_empty && self.of.is_scalar() || self.omit_zero;
        match self.shape {
            Shape::Plain => !is_zero_left_out,
            Shape::Pointer | Shape::Repeated | Shape::Map => !self.omit_empty,
        }
    }

    /// The name in Go, with few exceptions.
    pub(crate) fn go_name(&self) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_not_whole_is_refused() {
        for line in [
            "m 1:a",
            "m x:a:s",
            "m 1:a:other",
            "m @odd 1:a:s",
            "m 2:a:s 1:b:s",
            "m 1:-:s",
            "m 1:a:s!",
            "= v1 Kind",
            "= v1 Kind m",
        ] {
            assert!(Table::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn every_kind_of_the_core_is_in_the_table() {
        for (api_version, kind) in [
            ("v1", "Pod"),
            ("v1", "PodList"),
            ("v1", "Status"),
            ("v1", "DeleteOptions"),
            ("apps/v1", "DeleteOptions"),
            ("autoscaling/v1", "Scale"),
            ("policy/v1", "Eviction"),
            ("v1", "Binding"),
            ("authentication.k8s.io/v1", "TokenRequest"),
            ("authorization.k8s.io/v1", "SubjectAccessReview"),
            ("meta.k8s.io/v1", "PartialObjectMetadata"),
            ("meta.k8s.io/v1", "PartialObjectMetadataList"),
            ("meta.k8s.io/v1beta1", "PartialObjectMetadataList"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinitionList"),
            ("apiregistration.k8s.io/v1", "APIService"),
        ] {
            assert!(
                Message::of(api_version, kind).is_some(),
                "{api_version} {kind}"
            );
        }
        assert!(Message::of("v1", "Nonsense").is_none());
    }
}
