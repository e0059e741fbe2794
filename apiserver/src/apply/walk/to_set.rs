//! The fields of a value.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::path::Element;
use super::super::schema::{ItemsBy, List, Map, Schema, TypeId};
use super::super::set::Set;
use super::item;
use super::problem::Problems;
use super::shape::{Shape, shape};

/// The paths of all parts of `value` that have owners: scalars, items of lists, entries of maps, nulls and empty
/// maps. A declared field with parts is not a member itself.
///
/// # Errors
/// Types that no value can have.
pub(crate) fn to_set(schema: &Schema, of: TypeId, value: &Value) -> Result<Set, Problems> {
    Walk { schema }.visit(of, value).map(|(_, below)| below)
}

struct Walk<'a> {
    schema: &'a Schema,
}

/// Whether a value is a member itself, and what is below it.
type Fields = (bool, Set);

// === impl Walk ===

impl Walk<'_> {
    fn visit(&self, of: TypeId, value: &Value) -> Result<Fields, Problems> {
        let schema = self.schema;
        match shape(schema.atom(of), Some(value)).map_err(|problem| vec![problem])? {
            Shape::Scalar(_) => Ok((true, Set::default())),
            Shape::List(list) if list.by == ItemsBy::Nothing => Ok((true, Set::default())),
            Shape::List(list) => match value {
                Value::Array(items) => Ok((false, self.visit_items(list, items)?)),
                _ => Ok((false, Set::default())),
            },
            Shape::Map(map) if map.atomic => Ok((true, Set::default())),
            Shape::Map(map) => match value {
                Value::Object(fields) => Ok((false, self.visit_fields(map, fields)?)),
                _ => Ok((false, Set::default())),
            },
        }
    }

    /// An identity that occurs twice is one member, without what is in its items.
    fn visit_items(&self, list: &List, items: &[Value]) -> Result<Set, Problems> {
        let elements: Vec<Option<Element>> = items
            .iter()
            .map(|item| item::element(self.schema, list, item).ok())
            .collect();
        let mut seen = BTreeSet::new();
        let repeated: BTreeSet<Element> = elements
            .iter()
            .flatten()
            .filter(|element| !seen.insert(*element))
            .cloned()
            .collect();
        let parts = elements.into_iter().zip(items);
        let parts = parts.filter_map(|(element, item)| {
            let element = element?;
            Some(match repeated.contains(&element) {
                true => Ok((element, true, Set::default())),
                false => self
                    .visit(list.items, item)
                    .map(|(_, below)| (element, true, below)),
            })
        });
        parts.collect()
    }

    fn visit_fields(
        &self,
        map: &Map,
        fields: &serde_json::Map<String, Value>,
    ) -> Result<Set, Problems> {
        let mut set = Set::default();
        for (name, value) in fields {
            let Some(of) = map.entry(name) else { continue };
            let (is_leaf, below) = self.visit(of, value)?;
            let is_empty =
                value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
            let is_member = is_leaf || is_empty || !map.fields.contains_key(name);
            set.attach(Element::field(name.as_str()), is_member, below);
        }
        Ok(set)
    }
}
