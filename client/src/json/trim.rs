//! What a reader leaves out of an object ([`SkipPath`], [`Skip`]), and adds to it: [`Trimming`].
//!
//! `metadata.managedFields` is always left out: it is often a third of an object, nothing here reads it, and it would cost
//! a tree of JSON values an object. The reader compares the names of fields only on the path to one that is left out.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error, Visitor};

/// A part of an object that is not kept: a path as kubectl writes it, `.status`, `.data`,
/// `.spec.containers[*].env`, `.metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`.
///
/// `["…"]` is a field whose name has dots; `[*]` is every element of an array. A path that leads nowhere, in some
/// objects or in all, skips nothing.
///
/// Fields that identify an object, or are read without decoding it, cannot be skipped: `apiVersion`, `kind`, and of
/// `metadata` the name, namespace, uid, resourceVersion, labels and ownerReferences. A field that the type requires can
/// be skipped, but then no object decodes as that type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Each,
}

/// A text that is not a [`SkipPath`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkipPathError {
    /// The syntax is wrong.
    #[error(
        "{path:?} is not a path to skip: expected {expected} at character {at}, as in \
         .metadata.annotations[\"example.org/note\"] or .spec.containers[*].env"
    )]
    Syntax {
        /// The text.
        path: String,
        /// The expected text.
        expected: &'static str,
        /// Its place, counted in bytes from 0.
        at: usize,
    },
    /// The path leads to a field that is needed, or away with one.
    #[error("{path:?} cannot be skipped: {needed} is what objects are found by")]
    Needed {
        /// The text.
        path: String,
        /// The needed field.
        needed: &'static str,
    },
}

/// Paths as a tree: the rule for one value of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Skips the whole value.
    pub whole: bool,
    fields: Vec<(Box<str>, Skip)>,
    each: Option<Box<Skip>>,
}

const NEEDED: [(&str, &[&str]); 8] = [
    ("apiVersion", &["apiVersion"]),
    ("kind", &["kind"]),
    ("metadata.name", &["metadata", "name"]),
    ("metadata.namespace", &["metadata", "namespace"]),
    ("metadata.uid", &["metadata", "uid"]),
    ("metadata.resourceVersion", &["metadata", "resourceVersion"]),
    ("metadata.labels", &["metadata", "labels"]),
    ("metadata.ownerReferences", &["metadata", "ownerReferences"]),
];

// === impl SkipPath ===

impl FromStr for SkipPath {
    type Err = SkipPathError;

    fn from_str(path: &str) -> Result<Self, Self::Err> {
        let steps = steps(path).map_err(|(rest, expected)| SkipPathError::Syntax {
            path: path.to_owned(),
            expected,
            at: path.len() - rest.len(),
        })?;
        // Whether one path is a prefix of the other.
        let meets = |needed: &[&str]| {
            let mut both = steps.iter().zip(needed);
            both.all(|(step, name)| matches!(step, Step::Field(field) if field == name))
        };
        match NEEDED.into_iter().find(|(_, needed)| meets(needed)) {
            Some((needed, _)) => Err(SkipPathError::Needed {
                path: path.to_owned(),
                needed,
            }),
            None => Ok(Self(steps)),
        }
    }
}

/// Reads the steps of a path. The error is the rest of the text, and the expectation at its begin.
fn steps(path: &str) -> Result<Vec<Step>, (&str, &'static str)> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("[*]") {
            steps.push(Step::Each);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("[\"") {
            let (name, after) = after.split_once("\"]").ok_or(("", "\"]"))?;
            steps.push(Step::Field(name.to_owned()));
            rest = after;
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after
                .find(['.', '[', ']', '"', '\\'])
                .unwrap_or(after.len());
            if end == 0 {
                return Err((after, "the name of a field"));
            }
            steps.push(Step::Field(after[..end].to_owned()));
            rest = &after[end..];
        } else {
            return Err((rest, "a dot, [\"a name\"] or [*]"));
        }
    }
    if steps.is_empty() {
        return Err(("", "a dot"));
    }
    Ok(steps)
}

// === impl Skip ===

impl Skip {
    const NOTHING: Self = Self {
        whole: false,
        fields: Vec::new(),
        each: None,
    };

    /// Adds a path.
    fn add(&mut self, path: &SkipPath) {
        let mut at = self;
        for step in &path.0 {
            at = match step {
                Step::Each => at.each.get_or_insert_with(|| Box::new(Self::NOTHING)),
                Step::Field(name) => {
                    let known = at.fields.iter().position(|(field, _)| **field == **name);
                    let index = known.unwrap_or_else(|| {
                        at.fields.push((name.as_str().into(), Self::NOTHING));
                        at.fields.len() - 1
                    });
                    &mut at.fields[index].1
                }
            };
        }
        at.whole = true;
    }

    /// The rule for the field called `name`; `None` if all of it is kept.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        let found = self.fields.iter().find(|(field, _)| **field == *name);
        found.map(|(_, skip)| skip)
    }

    /// Adds each path to `trim`, from `steps` on; false if one leads into a value that protobuf does not describe.
    fn add_to<'a>(
        &'a self,
        steps: &mut Vec<reeve_wire::Step<'a>>,
        trim: &mut reeve_wire::Trim,
    ) -> bool {
        if self.whole {
            return trim.skip(steps.iter().copied());
        }
        let fields = self.fields.iter();
        let fields = fields.map(|(name, skip)| (reeve_wire::Step::Field(name), skip));
        let each = self.each().map(|skip| (reeve_wire::Step::Each, skip));
        for (step, skip) in fields.chain(each) {
            steps.push(step);
            let added = skip.add_to(steps, trim);
            steps.pop();
            if !added {
                return false;
            }
        }
        true
    }

    /// The rule for each element.
    #[must_use]
    pub fn each(&self) -> Option<&Self> {
        self.each.as_deref()
    }
}

impl Default for Skip {
    /// `managedFields`: often a third of an object, and never read here.
    fn default() -> Self {
        let mut skip = Self::NOTHING;
        let managed = ["metadata", "managedFields"].map(|name| Step::Field(name.to_owned()));
        skip.add(&SkipPath(managed.to_vec()));
        skip
    }
}

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

    /// The same for objects in protobuf; `None` if a path leads into a value that protobuf does not describe, such as
    /// JSON text.
    #[must_use]
    pub fn of_protobuf(&self, message: &'static reeve_wire::Message) -> Option<reeve_wire::Trim> {
        let mut trim = reeve_wire::Trim::new(message);
        let added = self.skip.add_to(&mut Vec::new(), &mut trim);
        added.then_some(trim)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_kubectl_writes_them() {
        let field = |name: &str| Step::Field(name.to_owned());
        for (text, steps) in [
            (".status", vec![field("status")]),
            (".data[\"a.b/c\"]", vec![field("data"), field("a.b/c")]),
            ("[\"data\"].x", vec![field("data"), field("x")]),
            (
                ".spec.containers[*].env",
                vec![field("spec"), field("containers"), Step::Each, field("env")],
            ),
            (
                ".metadata.annotations",
                vec![field("metadata"), field("annotations")],
            ),
        ] {
            assert_eq!(text.parse(), Ok(SkipPath(steps)), "{text}");
        }
    }

    #[test]
    fn a_path_that_is_none_is_refused_with_the_place_where_it_ends() {
        for (text, place) in [
            ("", 0),
            ("status", 0),
            (".", 1),
            (".a..b", 3),
            (".a[0]", 2),
            (".a[\"b", 5),
            (".a\\.b", 2),
            ("$.a", 0),
        ] {
            let error = text.parse::<SkipPath>().unwrap_err();
            assert!(
                matches!(error, SkipPathError::Syntax { at, .. } if at == place),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn what_identifies_an_object_cannot_be_skipped() {
        for (text, named) in [
            (".metadata", "metadata.name"),
            (".metadata.name", "metadata.name"),
            (".metadata[\"uid\"]", "metadata.uid"),
            (".metadata.labels.app", "metadata.labels"),
            (".kind", "kind"),
        ] {
            let error = text.parse::<SkipPath>().unwrap_err();
            assert!(
                matches!(error, SkipPathError::Needed { needed, .. } if needed == named),
                "{text}: {error}"
            );
        }
    }
}
