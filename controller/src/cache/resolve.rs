//! From the options to the parameters of the requests: one pure function.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reeve_informer::{FieldSelector, NamespaceSet, Scope, Selection, SkipPath};

use super::options::{Namespaces, Selected, Transform, Which};
use super::store::{StoreForm, Transforms};
use super::{CacheOptions, Kind, label_selector};

/// The cached selection of a kind in one place.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Resolved {
    /// The selection of the requests.
    pub selection: Selection,
    /// The skipped paths of each object, beside `managedFields`.
    pub skip: Vec<SkipPath>,
    /// The transform of each object.
    pub(super) transform: Option<Transform>,
}

/// Options that contradict each other, or the kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The options name namespaces for a kind that has none.
    #[error(
        "the cache options of {kind} name namespaces, and the kind has none: remove in_namespace and in_all_others \
         from its KindOptions; a label or field selector chooses among its objects"
    )]
    ClusterScoped {
        /// The kind.
        kind: String,
    },
    /// A namespace has an empty or invalid name.
    #[error(
        "the cache options of {of} name the namespace {namespace:?}, which is not a valid name"
    )]
    Namespace {
        /// The kind of the options.
        of: String,
        /// The name.
        namespace: String,
    },
    /// A label selector is invalid.
    #[error("the cache options of {of} have the label selector {selector:?}: {problem}")]
    Labels {
        /// The kind of the options.
        of: String,
        /// The selector.
        selector: String,
        /// The cause.
        problem: String,
    },
    /// A field selector is invalid.
    #[error("the cache options of {of} have the field selector {selector:?}: {problem}")]
    Fields {
        /// The kind of the options.
        of: String,
        /// The selector.
        selector: String,
        /// The cause.
        problem: String,
    },
    /// A transform needs objects that are not decoded when they are stored.
    #[error(
        "the cache options of {of} store {form:?} and have a transform, which needs the object decoded: store it as \
         StoreForm::Typed, skip paths instead, or set no_transform for it"
    )]
    Transform {
        /// The kind of the options.
        of: String,
        /// The form.
        form: StoreForm,
    },
}

/// The cached selection of `kind` in `scope`: a namespace that is watched by itself, or [`Scope::Cluster`] for all that
/// are watched as one, which are all but those of `named`. See [`CacheOptions`] for the table.
///
/// A field selector with `metadata.namespace=x` in all namespaces as one resolves to that namespace.
///
/// It does not decide whether the namespace is watched at all: that may change at run time.
///
/// # Errors
/// [`OptionsError::ClusterScoped`].
pub fn resolve(
    options: &CacheOptions,
    kind: &Kind,
    scope: &Scope,
    named: &BTreeSet<Arc<str>>,
) -> Result<Resolved, OptionsError> {
    let mut place = place(options, kind, scope, named)?;
    let selection = &mut place.selection;
    if !kind.is_namespaced() || *scope != Scope::Cluster || !named.is_empty() {
        return Ok(place);
    }
    // The path selects the namespace, for which a Role of the namespace is enough.
    let term = terms(&selection.fields).find_map(|term| equal_to(term, "metadata.namespace"));
    if let Some(name) = term.map(Arc::<str>::from) {
        selection.fields = without_namespace(&selection.fields, &name);
        selection.scope = Scope::Namespace(name);
    }
    Ok(place)
}

/// As [`resolve`], for a kind that is known to be watched in `scope`.
pub(super) fn place(
    options: &CacheOptions,
    kind: &Kind,
    scope: &Scope,
    named: &BTreeSet<Arc<str>>,
) -> Result<Resolved, OptionsError> {
    let namespace = match scope {
        Scope::Namespace(name) => Some(&**name),
        Scope::Cluster => None,
    };
    let own = options.of(kind);
    let in_force = options.namespaces_of(kind)?;
    // The options of all others are not those of every namespace as one.
    let has_entries = match namespace {
        Some(_) => kind.is_namespaced(),
        None => in_force.is_some_and(|namespaces| !namespaces.is_every()),
    };
    let entry_of = |namespaces: Option<&Namespaces>| {
        let entry = namespaces.filter(|_| has_entries)?.entry(namespace);
        entry.cloned()
    };
    let levels = [
        own.and_then(|own| entry_of(own.namespaces.as_ref())),
        own.map(|own| own.selected.clone()),
        entry_of(options.namespaces.as_ref()),
        Some(options.selected.clone()),
    ];
    let mut merged = Selected::default();
    for level in levels.into_iter().flatten() {
        merged.labels = merged.labels.or(level.labels);
        merged.fields = merged.fields.or(level.fields);
        merged.skip = merged.skip.or(level.skip);
        merged.transform = merged.transform.or(level.transform);
    }
    let fields = merged.fields.unwrap_or_default();
    let mut fields = terms(&fields).collect::<Vec<_>>().join(",");
    if kind.is_namespaced() {
        match scope {
            Scope::Namespace(name) => fields = without_namespace(&fields, name),
            Scope::Cluster => {
                let others = named
                    .iter()
                    .map(|name| format!("metadata.namespace!={name}"));
                let own = terms(&fields).map(str::to_owned);
                fields = own.chain(others).collect::<Vec<_>>().join(",");
            }
        }
    }
    Ok(Resolved {
        selection: Selection {
            scope: scope.clone(),
            labels: merged.labels.unwrap_or_default(),
            fields,
        },
        skip: merged.skip.unwrap_or_default(),
        transform: merged
            .transform
            .filter(|transform| *transform != Transform::None),
    })
}

/// The terms of a field selector, unparsed.
pub(super) fn terms(fields: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    let parts = fields.split(move |character| {
        let splits = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        splits
    });
    parts.filter(|term| !term.is_empty())
}

/// The field selector without the term that the path covers, too.
fn without_namespace(fields: &str, name: &str) -> String {
    let rest = terms(fields).filter(|term| equal_to(term, "metadata.namespace") != Some(name));
    rest.collect::<Vec<_>>().join(",")
}

/// The value of a term `field=value` or `field==value`.
pub(super) fn equal_to<'a>(term: &'a str, field: &str) -> Option<&'a str> {
    let value = term.strip_prefix(field)?.strip_prefix('=')?;
    Some(value.strip_prefix('=').unwrap_or(value))
}

impl CacheOptions {
    /// Whether the options are valid and consistent, as far as that is known before a kind is watched.
    ///
    /// # Errors
    /// The first error.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let all = || "all kinds".to_owned();
        check(&all, &self.selected, self.namespaces.as_ref())?;
        for (which, options) in &self.kinds {
            let gvk = which.gvk();
            let of = || format!("{} ({})", gvk.kind, gvk.api_version());
            check(&of, &options.selected, options.namespaces.as_ref())?;
            if let Which::Typed(kind) = which {
                self.validate_for(kind)?;
            }
        }
        Ok(())
    }

    /// The transform for objects of each namespace of a kind; `None` if there is none for any.
    pub(super) fn transforms_of(
        &self,
        kind: &Kind,
        set: Option<NamespaceSet>,
    ) -> Option<Transforms> {
        let of = |scope: &Scope| {
            let resolved = resolve(self, kind, scope, &BTreeSet::new());
            resolved.ok().and_then(|resolved| resolved.transform)
        };
        let own = self.of(kind).and_then(|own| own.namespaces.as_ref());
        let named = [own, self.namespaces.as_ref()].into_iter().flatten();
        let named: BTreeMap<Arc<str>, Option<Transform>> = named
            .flat_map(|namespaces| namespaces.named.keys())
            .map(|name| (Arc::clone(name), of(&Scope::Namespace(Arc::clone(name)))))
            .collect();
        let whole = of(&Scope::Cluster);
        // A namespace with an empty name, which has no options of its own.
        let unnamed = of(&Scope::namespace(""));
        let all = named.values().chain([&whole, &unnamed]);
        all.flatten().next()?;
        Some(Arc::new(move |namespace| {
            let by_itself = namespace.filter(|name| {
                let set = set.as_ref();
                set.is_some_and(|set| set.is_named(name))
            });
            match by_itself {
                Some(name) => named.get(name).unwrap_or(&unnamed).clone(),
                None => whole.clone(),
            }
        }))
    }

    /// Whether the options are valid for a kind.
    pub(super) fn validate_for(&self, kind: &Kind) -> Result<(), OptionsError> {
        let namespaces = self.namespaces_of(kind)?;
        let form = self.form_of(kind).unwrap_or(StoreForm::Typed);
        let named = namespaces.iter().flat_map(|namespaces| {
            let named = namespaces.named.keys();
            named.map(|name| Scope::Namespace(Arc::clone(name)))
        });
        for scope in named.chain([Scope::Cluster]) {
            let transform = resolve(self, kind, &scope, &BTreeSet::new())?.transform;
            let fits = match transform {
                None => true,
                Some(Transform::Typed(_)) => form == StoreForm::Typed,
                Some(_) => form != StoreForm::Compact,
            };
            if !fits {
                return Err(OptionsError::Transform {
                    of: kind.to_string(),
                    form,
                });
            }
        }
        Ok(())
    }
}

fn check(
    of: &dyn Fn() -> String,
    selected: &Selected,
    namespaces: Option<&Namespaces>,
) -> Result<(), OptionsError> {
    let named = namespaces.iter().flat_map(|namespaces| &namespaces.named);
    for (name, _) in named.clone() {
        if !is_namespace_name(name) {
            return Err(OptionsError::Namespace {
                of: of(),
                namespace: name.to_string(),
            });
        }
    }
    let entries = named.map(|(_, selected)| selected);
    let others = namespaces.and_then(|namespaces| namespaces.others.as_ref());
    for selected in [selected].into_iter().chain(entries).chain(others) {
        if let Some(selector) = &selected.labels {
            label_selector::parse(selector).map_err(|problem| OptionsError::Labels {
                of: of(),
                selector: selector.clone(),
                problem,
            })?;
        }
        if let Some(selector) = &selected.fields {
            selector
                .parse::<FieldSelector>()
                .map_err(|error| OptionsError::Fields {
                    of: of(),
                    selector: selector.clone(),
                    problem: error.to_string(),
                })?;
        }
    }
    Ok(())
}

/// A DNS label (Kubernetes: `ValidateNamespaceName`).
fn is_namespace_name(name: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let bytes = name.as_bytes();
    bytes.len() <= 63
        && end(bytes.first())
        && end(bytes.last())
        && bytes
            .iter()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
