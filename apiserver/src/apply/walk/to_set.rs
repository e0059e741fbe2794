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
    let mut walk = Walk {
        schema,
        path: Vec::new(),
        set: Set::default(),
    };
    walk.visit(of, value)?;
    Ok(walk.set)
}

struct Walk<'a> {
    schema: &'a Schema,
    path: Vec<Element>,
    set: Set,
}

// === impl Walk ===

impl Walk<'_> {
    fn visit(&mut self, of: TypeId, value: &Value) -> Result<(), Problems> {
        let schema = self.schema;
        match shape(schema.atom(of), Some(value)).map_err(|problem| vec![problem])? {
            Shape::Scalar(_) => self.set.insert(&self.path),
            Shape::List(list) if list.by == ItemsBy::Nothing => self.set.insert(&self.path),
            Shape::List(list) => {
                if let Value::Array(items) = value {
                    self.visit_items(list, items)?;
                }
            }
            Shape::Map(map) if map.atomic => self.set.insert(&self.path),
            Shape::Map(map) => {
                if let Value::Object(fields) = value {
                    self.visit_fields(map, fields)?;
                }
            }
        }
        Ok(())
    }

    /// An identity that occurs twice is one member, without what is in its items.
    fn visit_items(&mut self, list: &List, items: &[Value]) -> Result<(), Problems> {
        let elements: Vec<Option<Element>> = items
            .iter()
            .map(|item| item::element(self.schema, list, item).ok())
            .collect();
        let mut seen = BTreeSet::new();
        let repeated: BTreeSet<&Element> = elements
            .iter()
            .flatten()
            .filter(|element| !seen.insert(*element))
            .collect();
        for (element, item) in elements.iter().zip(items) {
            let Some(element) = element else { continue };
            self.path.push(element.clone());
            if !repeated.contains(element) {
                self.visit(list.items, item)?;
            }
            self.set.insert(&self.path);
            self.path.pop();
        }
        Ok(())
    }

    fn visit_fields(
        &mut self,
        map: &Map,
        fields: &serde_json::Map<String, Value>,
    ) -> Result<(), Problems> {
        for (name, value) in fields {
            let Some(of) = map.entry(name) else { continue };
            self.path.push(Element::field(name.as_str()));
            self.visit(of, value)?;
            let is_empty =
                value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
            if is_empty || !map.fields.contains_key(name) {
                self.set.insert(&self.path);
            }
            self.path.pop();
        }
        Ok(())
    }
}
