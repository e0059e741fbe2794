//! Questions to `fieldsV1` as they are stored, without reading them into a set.
//!
//! Most writes change few fields, and most entries of an object stay as they are. What is asked here takes the time of the
//! change, not that of the entry.

use serde_json::{Map, Value};

use super::super::path::Element;
use super::super::schema::{Atom, DEDUCED, ItemsBy, Schema, TypeId};
use super::super::set::Set;

/// The name of the mark of a member with members below it.
const SELF: &str = ".";

/// Encoded fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoded<'a>(&'a Map<String, Value>);

// === impl Encoded ===

impl<'a> Encoded<'a> {
    /// The fields of an entry. `None` if they are none.
    pub(super) fn of(fields: &'a Value) -> Option<Self> {
        fields.as_object().map(Self)
    }

    fn below(self, element: &Element) -> Option<Self> {
        let found = match element {
            Element::Field(name) => with_field_key(name, |key| self.0.get(key)),
            _ => self.0.get(&element.encode()),
        };
        found.and_then(Self::of)
    }

    /// Whether the element that these fields are of is a member itself.
    fn is_member(self) -> bool {
        self.0.is_empty() || self.0.contains_key(SELF)
    }

    /// Whether a member of `other` is one of these fields.
    pub(super) fn meets(self, other: &Set) -> bool {
        let has = |member| self.below(member).is_some_and(Self::is_member);
        other.members().any(has)
            || other.children().any(|(element, below)| {
                let fields = self.below(element);
                fields.is_some_and(|fields| fields.meets(below))
            })
    }

    /// Whether all members of `other` are.
    pub(super) fn has_all(self, other: &Set) -> bool {
        let mut members = other.members();
        let has = |member| self.below(member).is_some_and(Self::is_member);
        members.all(has)
            && other.children().all(|(element, below)| {
                let fields = self.below(element);
                fields.is_some_and(|fields| fields.has_all(below))
            })
    }

    /// Whether they are those of this schema: the set that they encode is the same after
    /// [`reconcile`](super::super::walk::reconcile).
    pub(super) fn fits(self, schema: &Schema, of: TypeId) -> bool {
        fits(schema, of, Some(self))
    }
}

/// `fields` are `None` for a leaf.
fn fits(schema: &Schema, of: TypeId, fields: Option<Encoded<'_>>) -> bool {
    let parts = |of: &dyn Fn(&str) -> Option<TypeId>| {
        let mut parts = fields.into_iter().flat_map(|fields| fields.0);
        parts.all(|(name, below)| {
            if name == SELF {
                return true;
            }
            let (Some(below), Some(of)) = (below.as_object(), of(name)) else {
                return below.is_object();
            };
            let is_leaf = below.keys().all(|name| name == SELF);
            fits(schema, of, (!is_leaf).then_some(Encoded(below)))
        })
    };
    match schema.atom(of) {
        Atom { map: Some(map), .. } => {
            let is_deduced = map.others == Some(DEDUCED) && map.fields.is_empty();
            match fields {
                _ if is_deduced => true,
                None => true,
                Some(_) if map.atomic => false,
                Some(_) => parts(&|name| match name.strip_prefix("f:") {
                    Some(name) => map.entry(name),
                    None => map.others,
                }),
            }
        }
        Atom {
            scalar: None,
            list: Some(list),
            ..
        } => match fields {
            None => true,
            Some(_) if list.by == ItemsBy::Nothing => false,
            Some(_) => parts(&|_| Some(list.items)),
        },
        _ => true,
    }
}

/// The key of a field, without an allocation for names of usual length.
fn with_field_key<T>(name: &str, then: impl FnOnce(&str) -> T) -> T {
    let mut buffer = [0; 64];
    let key = buffer.get_mut(..name.len() + 2).and_then(|key| {
        key[..2].copy_from_slice(b"f:");
        key[2..].copy_from_slice(name.as_bytes());
        std::str::from_utf8(key).ok()
    });
    match key {
        Some(key) => then(key),
        None => then(&["f:", name].concat()),
    }
}
