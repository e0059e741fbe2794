//! The objects and indexes of one moment, and all ways to read them: [`State`].

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_core::{Expression, Selector};

use super::bytes::StoreBytes;
use super::index::{Error, Index, NAMESPACE_INDEX};
use super::objects::{Objects, Slot};
use super::ordered::{Namespaces, Ordered};
use crate::object::{FieldSelector, FieldTerm, Stored, retain_labelled};
use reeve_client::ResourceVersion;
use reeve_client::{KeyRef, ObjectKey};

/// The name in [`State::parts`] of all namespaces that are not watched by themselves while others are. It is not a
/// valid name of a namespace.
pub(crate) const OTHERS: &str = "*";

/// The objects and indexes of one moment. A clone costs a few pointers for each thousand objects, and a change after
/// that copies what it changes.
pub(crate) struct State<S: ?Sized> {
    pub(super) objects: Objects<S>,
    pub(super) namespaces: Namespaces,
    pub(super) indexes: Vec<Arc<Index<S>>>,
    pub(super) resource_version: ResourceVersion,
    /// The version of each namespace that is watched by itself; empty before it was listed.
    pub(super) parts: Arc<BTreeMap<Arc<str>, ResourceVersion>>,
    /// The sum of the objects' [`Stored::owned_bytes`].
    pub(super) owned: usize,
}

/// The source of an object's values of a field.
pub(super) enum Field<'a, S: ?Sized> {
    Name,
    Namespace,
    /// The index whose name is the field's.
    Index(&'a Index<S>),
}

// === impl State ===

impl<S: ?Sized> Clone for State<S> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            namespaces: self.namespaces.clone(),
            indexes: self.indexes.clone(),
            resource_version: self.resource_version.clone(),
            parts: Arc::clone(&self.parts),
            owned: self.owned,
        }
    }
}

impl<S: Stored + ?Sized> State<S> {
    pub(super) fn new() -> Self {
        Self {
            objects: Objects::new(),
            namespaces: Namespaces::default(),
            indexes: Vec::new(),
            resource_version: ResourceVersion::default(),
            parts: Arc::default(),
            owned: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.objects.names.len()
    }

    /// The version up to which everything of `namespace` is here.
    pub(super) fn version_of(&self, namespace: Option<&str>) -> &ResourceVersion {
        let part = namespace.and_then(|namespace| {
            let own = self.parts.get(namespace);
            own.or_else(|| self.parts.get(OTHERS))
        });
        part.unwrap_or(&self.resource_version)
    }

    pub(super) fn bytes(&self) -> StoreBytes {
        // All are of one type, also where that is not known here.
        let entry = self.iter().next().map_or(0, |entry| size_of_val(&**entry));
        StoreBytes {
            // Two reference counts each.
            entries: self.len() * (entry + 2 * size_of::<usize>()),
            owned: self.owned,
            indexes: self.objects.bytes()
                + self.namespaces.bytes()
                + self
                    .indexes
                    .iter()
                    .map(|index| index.bytes())
                    .sum::<usize>(),
        }
    }

    pub(super) fn get(&self, key: KeyRef<'_>) -> Option<&Arc<S>> {
        let slot = self.objects.names.find(self.objects.names.hash(key), key)?;
        self.objects.get(slot)
    }

    /// The key of an object, which shares its namespace with the other keys.
    pub(super) fn key_of(&self, key: KeyRef<'_>) -> ObjectKey {
        self.namespaces.key_of(key)
    }

    /// Every key, in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = ObjectKey> {
        self.slots()
            .map(|slot| self.key_of(self.objects.names.key(slot)))
    }

    /// The objects in `slots`.
    pub(super) fn at<'a>(
        &'a self,
        slots: impl Iterator<Item = Slot> + 'a,
    ) -> impl Iterator<Item = &'a Arc<S>> + 'a {
        slots.filter_map(|slot| self.objects.get(slot))
    }

    /// Every slot that is taken, in the order of the keys.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.namespaces.slots()
    }

    /// Every slot that is taken, and its object, in the order of the keys, for an index that knows none of them. See
    /// [`Index::rebuilt`].
    pub(super) fn new_entries(&self) -> impl Iterator<Item = (Slot, &S, Option<Slot>)> {
        self.slots()
            .filter_map(|slot| Some((slot, &**self.objects.get(slot)?, None)))
    }

    /// Every object, in the order of the keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<S>> {
        self.at(self.slots())
    }

    /// The objects after `after` of one namespace or of all, in the order of the keys.
    pub(super) fn range<'a>(
        &'a self,
        namespace: Option<&'a str>,
        after: Option<KeyRef<'a>>,
    ) -> impl Iterator<Item = &'a Arc<S>> + 'a {
        self.at(self.namespaces.range(&self.objects.names, namespace, after))
    }

    pub(super) fn index(&self, name: &str) -> Option<&Arc<Index<S>>> {
        self.indexes.iter().find(|index| &*index.name == name)
    }

    pub(super) fn index_names(&self) -> Vec<Arc<str>> {
        let named = self.indexes.iter().map(|index| Arc::clone(&index.name));
        std::iter::once(Arc::from(NAMESPACE_INDEX))
            .chain(named)
            .collect()
    }

    /// The index called `name`; `None` for that of namespaces.
    pub(super) fn known_index(&self, name: &str) -> Result<Option<&Index<S>>, Error> {
        match self.index(name) {
            Some(index) => Ok(Some(index)),
            None if name == NAMESPACE_INDEX => Ok(None),
            None => Err(Error::Unknown {
                name: name.into(),
                known: self.index_names(),
            }),
        }
    }

    /// The objects with `value` in the index called `name`; `None` if there are none.
    pub(super) fn part(&self, name: &str, value: &str) -> Result<Option<&Ordered>, Error> {
        Ok(match self.known_index(name)? {
            Some(index) => index.value(value),
            None => self.namespace(value),
        })
    }

    pub(super) fn namespace(&self, namespace: &str) -> Option<&Ordered> {
        self.namespaces.get(namespace)
    }

    /// The values of `object` in the index called `name`, whether it is here or not.
    pub(super) fn values_of(&self, name: &str, object: &S) -> Result<Vec<Arc<str>>, Error> {
        match self.known_index(name)? {
            Some(index) => index.values_of(object).map_err(|error| Error::Function {
                name: Arc::clone(&index.name),
                error,
            }),
            None => Ok(vec![Arc::from(object.namespace().unwrap_or_default())]),
        }
    }

    /// The objects that share a value with `object` in the index called `name`, in the order of the keys.
    pub(super) fn index_of(&self, name: &str, object: &S) -> Result<Vec<Arc<S>>, Error> {
        let values = self.values_of(name, object)?;
        let mut parts = Vec::with_capacity(values.len());
        for value in &values {
            parts.extend(self.part(name, value)?);
        }
        Ok(self.union(&parts))
    }

    /// The objects of all `parts`, each once, in the order of the keys.
    fn union(&self, parts: &[&Ordered]) -> Vec<Arc<S>> {
        let slots = self.objects.names.union(parts);
        self.at(slots.into_iter()).cloned().collect()
    }

    /// The objects of one namespace, or of all, that satisfy both selectors, in the order of the keys.
    pub(super) fn select(
        &self,
        namespace: Option<&str>,
        labels: &Selector,
        fields: &FieldSelector,
    ) -> Result<Vec<Arc<S>>, Error> {
        let fields = fields
            .terms
            .iter()
            .map(|term| Ok((term, self.field(&term.field)?)));
        let fields = fields.collect::<Result<Vec<_>, Error>>()?;
        // Nothing is cloned before it is selected.
        let mut objects = self.candidates(namespace, labels, &fields);
        retain_labelled(&mut objects, labels);
        if !fields.is_empty() {
            objects.retain(|object| {
                let mut terms = fields.iter();
                terms.all(|(term, field)| match field {
                    Field::Name => term.accepts(&[object.name()]),
                    Field::Namespace => term.accepts(&[object.namespace().unwrap_or_default()]),
                    Field::Index(index) => {
                        term.accepts(&index.values_of(object).unwrap_or_default())
                    }
                })
            });
        }
        Ok(objects.into_iter().cloned().collect())
    }

    /// The source of the values of a field.
    fn field(&self, field: &str) -> Result<Field<'_, S>, Error> {
        let mut indexes = self.indexes.iter().filter(|index| index.label.is_none());
        match field {
            "metadata.name" => Ok(Field::Name),
            "metadata.namespace" => Ok(Field::Namespace),
            _ => match indexes.find(|index| &*index.name == field) {
                Some(index) => Ok(Field::Index(index)),
                None => {
                    let built_in = ["metadata.name", "metadata.namespace"].map(Arc::from);
                    let named = self.indexes.iter().filter(|index| index.label.is_none());
                    let named = named.map(|index| Arc::clone(&index.name));
                    Err(Error::UnknownField {
                        field: field.to_owned(),
                        known: built_in.into_iter().chain(named).collect(),
                    })
                }
            },
        }
    }

    /// The fewest objects known to hold all that are selected: those of the namespace, or those that an index of
    /// a label or of a field finds. In the order of the keys.
    pub(super) fn candidates(
        &self,
        namespace: Option<&str>,
        labels: &Selector,
        fields: &[(&FieldTerm, Field<'_, S>)],
    ) -> Vec<&Arc<S>> {
        let of_namespace = namespace.map(|name| self.namespace(name).into_iter().collect());
        let of_labels = labels.clone().into_iter();
        let of_labels = of_labels.filter_map(|expression| self.labelled(&expression));
        // An object without a value is not in the index.
        let found = fields
            .iter()
            .filter(|(term, _)| term.equal && !term.value.is_empty());
        let of_fields = found.filter_map(|(term, field)| match field {
            Field::Name => None,
            Field::Namespace => Some(self.namespace(&term.value).into_iter().collect()),
            Field::Index(index) => Some(index.value(&term.value).into_iter().collect()),
        });
        let ways: Vec<Vec<&Ordered>> = of_namespace
            .into_iter()
            .chain(of_labels)
            .chain(of_fields)
            .collect();
        let size = |parts: &Vec<&Ordered>| parts.iter().map(|part| part.len()).sum::<usize>();
        let Some(parts) = ways.iter().min_by_key(|parts| size(parts)) else {
            return self.iter().collect();
        };
        let slots = self.objects.names.union(parts);
        let mut objects: Vec<_> = self.at(slots.into_iter()).collect();
        objects.retain(|object| {
            namespace.is_none_or(|name| object.namespace().unwrap_or_default() == name)
        });
        objects
    }

    /// The objects that satisfy `expression`, if an index of its label can find them.
    fn labelled(&self, expression: &Expression) -> Option<Vec<&Ordered>> {
        let index = |label: &str| {
            let of_label = |index: &&Arc<Index<S>>| index.label.as_deref() == Some(label);
            self.indexes.iter().find(of_label)
        };
        match expression {
            Expression::Equal(label, value) => {
                Some(index(label)?.value(value).into_iter().collect())
            }
            Expression::In(label, values) => {
                let index = index(label)?;
                Some(
                    values
                        .iter()
                        .filter_map(|value| index.value(value))
                        .collect(),
                )
            }
            _ => None,
        }
    }
}
