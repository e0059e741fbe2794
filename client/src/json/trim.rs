//! What a reader leaves out of an object, and adds to it: [`Trimming`].
//!
//! `metadata.managedFields` is always left out: it is often a third of an object, nothing here reads it, and it would cost
//! a tree of JSON values an object. The reader compares the names of fields only on the path to one that is left out.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error, Visitor};

use super::skip::{Skip, SkipPath};

/// What is left out of an object while it is read, and the type that an object without one gets.
#[derive(Clone, Debug, Default)]
pub struct Trimming {
    pub(super) skip: Skip,
    api_version: Option<Given>,
    kind: Option<Given>,
    /// Refuses an object that names another type than these.
    guarded: bool,
}

/// A text that is added where the document has none.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) text: Box<str>,
    /// As JSON.
    pub(super) quoted: Box<str>,
}

/// How the next value is trimmed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trim<'a> {
    /// It is the object itself.
    Object(&'a Trimming),
    /// It is a part of the object.
    Part(&'a Skip),
}

/// Fields that every object has.
const API_VERSION: &str = "apiVersion";
const KIND: &str = "kind";

// === impl Trimming ===

impl Trimming {
    /// Adds these to an object without `apiVersion` and `kind`, as the items of a built-in kind's list are. Empty and
    /// null count as missing, as in Go.
    #[must_use]
    pub fn of(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            api_version: Some(Given::of(api_version.into())),
            kind: Some(Given::of(kind.into())),
            ..Self::default()
        }
    }

    /// Refuses objects that name another type (client-go: the type guard of `NewReflector`).
    #[must_use]
    pub fn guarded(mut self) -> Self {
        self.guarded = true;
        self
    }

    /// Leaves out `path`, too.
    #[must_use]
    pub fn skip(mut self, path: &SkipPath) -> Self {
        self.skip.add(path);
        self
    }

    /// The rule for the fields of the object.
    #[must_use]
    pub fn skipped(&self) -> &Skip {
        &self.skip
    }

    /// The `apiVersion` of objects without one.
    #[must_use]
    pub fn api_version(&self) -> Option<&str> {
        self.api_version.as_ref().map(|given| &*given.text)
    }

    /// The `kind` of objects without one.
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_ref().map(|given| &*given.text)
    }

    /// Refuses a field that has another value than `given`, if objects of other types are refused.
    pub(super) fn check_given<E: Error>(&self, given: &Given, value: &str) -> Result<(), E> {
        if self.guarded && *given.text != *value {
            return Err(another(&given.text));
        }
        Ok(())
    }

    /// The value of the field `name` for an object that has none, and whether no other value is accepted.
    #[must_use]
    pub fn required(&self, name: &str) -> Option<(&str, bool)> {
        self.given(name).map(|given| (&*given.text, self.guarded))
    }

    /// The value of the field `name` for an object that has none.
    pub(super) fn given(&self, name: &str) -> Option<&Given> {
        match name {
            API_VERSION => self.api_version.as_ref(),
            KIND => self.kind.as_ref(),
            _ => None,
        }
    }
}

impl Given {
    fn of(text: String) -> Self {
        Self {
            quoted: serde_json::Value::from(text.as_str()).to_string().into(),
            text: text.into(),
        }
    }
}

/// The error of an object of another type than `required`.
pub fn another<E: Error>(required: &str) -> E {
    E::custom(format_args!(
        "invalid type: another type of object, expected {required}"
    ))
}

/// The fields of an object that its document has.
#[derive(Debug, Default)]
pub(super) struct Seen {
    api_version: bool,
    kind: bool,
}

impl Seen {
    pub(super) fn add(&mut self, name: &str) {
        match name {
            API_VERSION => self.api_version = true,
            KIND => self.kind = true,
            _ => {}
        }
    }

    /// The next field to add, its name as JSON.
    pub(super) fn missing<'de>(&mut self, of: &'de Trimming) -> Option<(&'static str, &'de Given)> {
        if !std::mem::replace(&mut self.api_version, true)
            && let Some(given) = &of.api_version
        {
            return Some(("\"apiVersion\"", given));
        }
        if !std::mem::replace(&mut self.kind, true)
            && let Some(given) = &of.kind
        {
            return Some(("\"kind\"", given));
        }
        None
    }
}

/// A text of a document, such as a name, borrowed from the document where it has no escapes.
#[derive(Debug)]
pub struct Plain<'de>(pub Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Plain<'de> {
    fn deserialize<D: Deserializer<'de>>(document: D) -> Result<Self, D::Error> {
        struct PlainVisitor;
        impl<'de> Visitor<'de> for PlainVisitor {
            type Value = Plain<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Plain<'de>, E> {
                Ok(Plain(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Plain<'de>, E> {
                Ok(Plain(Cow::Owned(text.to_owned())))
            }
        }
        document.deserialize_str(PlainVisitor)
    }
}
