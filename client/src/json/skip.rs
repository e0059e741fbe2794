//! The parts of an object that are skipped during deserialization.

use std::str::FromStr;

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
    pub(super) fn add(&mut self, path: &SkipPath) {
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
