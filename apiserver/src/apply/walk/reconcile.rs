//! Field sets that were written under another schema.

use super::super::path::Element;
use super::super::schema::{Atom, DEDUCED, ItemsBy, List, Map, Schema, TypeId};
use super::super::set::Set;

/// The set under this schema: where a type has become atomic, its path takes the place of what is below. Where one
/// has become granular, the set stays as it is.
///
/// `None` if it is the same.
pub(crate) fn reconcile(schema: &Schema, of: TypeId, set: &Set) -> Option<Set> {
    let mut walk = Walk {
        schema,
        path: Vec::new(),
        replaced: Set::default(),
    };
    walk.visit(of, Some(set), false);
    if walk.replaced.is_empty() {
        return None;
    }
    let rest = set.recursive_difference(&walk.replaced);
    Some(rest.joined(walk.replaced))
}

struct Walk<'a> {
    schema: &'a Schema,
    path: Vec<Element>,
    /// The paths that take the place of what is below them.
    replaced: Set,
}

// === impl Walk ===

impl Walk<'_> {
    /// Visits the paths below the present one; it is a `leaf` if there are none.
    fn visit(&mut self, of: TypeId, set: Option<&Set>, leaf: bool) {
        match self.schema.atom(of) {
            Atom { map: Some(map), .. } => self.visit_map(map, set, leaf),
            Atom {
                scalar: None,
                list: Some(list),
                ..
            } => self.visit_list(list, set, leaf),
            _ => {}
        }
    }

    fn visit_map(&mut self, map: &Map, set: Option<&Set>, leaf: bool) {
        let is_deduced = map.others == Some(DEDUCED) && map.fields.is_empty();
        let Some(set) = set.filter(|_| !is_deduced) else {
            return;
        };
        if map.atomic {
            if !leaf {
                self.replaced.insert(&self.path);
            }
            return;
        }
        self.visit_parts(set, |element| match element {
            Element::Field(name) => map.entry(name),
            _ => map.others,
        });
    }

    fn visit_list(&mut self, list: &List, set: Option<&Set>, leaf: bool) {
        if list.by == ItemsBy::Nothing {
            if !leaf {
                self.replaced.insert(&self.path);
            }
            return;
        }
        if let Some(set) = set {
            self.visit_parts(set, |_| Some(list.items));
        }
    }

    fn visit_parts(&mut self, set: &Set, of: impl Fn(&Element) -> Option<TypeId>) {
        let leaves = set.members().filter(|member| set.below(member).is_none());
        let parts = set
            .children()
            .map(|(element, below)| (element, Some(below)));
        for (element, below) in parts.chain(leaves.map(|member| (member, None))) {
            let Some(of) = of(element) else { continue };
            self.path.push(element.clone());
            self.visit(of, below, below.is_none());
            self.path.pop();
        }
    }
}
