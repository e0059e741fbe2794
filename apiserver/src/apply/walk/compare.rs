//! What differs between two values.

use serde_json::Value;

use super::super::literal;
use super::super::path::Element;
use super::super::schema::{ItemsBy, List, Map, Schema, TypeId};
use super::super::set::Set;
use super::item;
use super::problem::{Problems, problem, within};
use super::shape::{Shape, shapes};
use super::validate::scalar_problem;

/// The paths that differ between an old and a new value. A path is in one of the sets only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Only the old value has them.
    pub(crate) removed: Set,
    /// Both have them, with other values.
    pub(crate) modified: Set,
    /// Only the new value has them.
    pub(crate) added: Set,
}

/// The depth down to which parts are first tested for equality.
const EQUAL_DEPTH: usize = 3;

/// Compares `old` with `new`.
///
/// # Errors
/// Parts that differ and are not of their type in both.
pub(crate) fn compare(
    schema: &Schema,
    of: TypeId,
    old: &Value,
    new: &Value,
) -> Result<Comparison, Problems> {
    let mut walk = Walk {
        schema,
        depth: 0,
        found: Found::default(),
    };
    let problems = walk.visit(of, Some(old), Some(new));
    if problems.is_empty() {
        Ok(walk.found.below)
    } else {
        Err(problems)
    }
}

// === impl Comparison ===

impl Comparison {
    /// The comparison without these fields and what is below them.
    pub(crate) fn without(self, ignored: &Set) -> Self {
        Self {
            removed: self.removed.without(ignored),
            modified: self.modified.without(ignored),
            added: self.added.without(ignored),
        }
    }
}

struct Walk<'a> {
    schema: &'a Schema,
    depth: usize,
    /// What differs in the part at hand.
    found: Found,
}

/// What differs in one part: itself, and what is below it.
#[derive(Default)]
struct Found {
    is_removed: bool,
    is_modified: bool,
    is_added: bool,
    below: Comparison,
}

// === impl Found ===

impl Found {
    /// Adds what differs in the part `element` of this one.
    fn attach(&mut self, element: Element, part: Self) {
        let (whole, below) = (&mut self.below, part.below);
        let sets = [
            (&mut whole.removed, part.is_removed, below.removed),
            (&mut whole.modified, part.is_modified, below.modified),
            (&mut whole.added, part.is_added, below.added),
        ];
        let mut left = sets
            .into_iter()
            .filter(|(_, is_member, below)| *is_member || !below.is_empty())
            .peekable();
        let mut element = Some(element);
        while let Some((set, is_member, below)) = left.next() {
            // Most parts differ in one way, so that nothing is copied.
            let own = match left.peek() {
                Some(_) => element.clone(),
                None => element.take(),
            };
            if let Some(own) = own {
                set.attach(own, is_member, below);
            }
        }
    }
}

// === impl Walk ===

impl Walk<'_> {
    fn visit(&mut self, of: TypeId, old: Option<&Value>, new: Option<&Value>) -> Problems {
        // Most parts of an object stay as they are. Deeper the time of the test would be spent again at each level.
        if (1..=EQUAL_DEPTH).contains(&self.depth) && old.is_some() && old == new {
            return Problems::new();
        }
        let schema = self.schema;
        let mut problems = Problems::new();
        match shapes(schema.atom(of), old, new) {
            Err(problem) => problems.push(problem),
            Ok((first, last)) => {
                if let Some(first) = first {
                    problems.extend(self.visit_shape(first, old, new));
                }
                problems.extend(self.visit_shape(last, old, new));
            }
        }
        if old.is_none() {
            self.found.is_added = true;
        } else if new.is_none() {
            self.found.is_removed = true;
        }
        problems
    }

    fn visit_shape(
        &mut self,
        shape: Shape<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Problems {
        match shape {
            Shape::Scalar(scalar) => {
                let first = scalar_problem(scalar, old, "lhs: ");
                let second = scalar_problem(scalar, new, "rhs: ");
                if let (Some(first), Some(second)) = (first, second) {
                    return vec![problem(first), problem(second)];
                }
                self.leaf(old, new);
                Problems::new()
            }
            Shape::List(list) => {
                let none = Vec::new();
                let old_items = old.and_then(Value::as_array).unwrap_or(&none);
                let new_items = new.and_then(Value::as_array).unwrap_or(&none);
                let is_empty = old_items.is_empty() && new_items.is_empty();
                if list.by == ItemsBy::Nothing || is_empty {
                    self.leaf(old, new);
                    return Problems::new();
                }
                self.visit_items(list, old_items, new_items)
            }
            Shape::Map(map) => {
                let none = serde_json::Map::new();
                let old_fields = old.and_then(Value::as_object).unwrap_or(&none);
                let new_fields = new.and_then(Value::as_object).unwrap_or(&none);
                if map.atomic || (old_fields.is_empty() && new_fields.is_empty()) {
                    self.leaf(old, new);
                    return Problems::new();
                }
                self.visit_fields(map, old_fields, new_fields)
            }
        }
    }

    /// A value that is one whole.
    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        if let (Some(old), Some(new)) = (old, new)
            && !literal::equal(old, new)
        {
            self.found.is_modified = true;
        }
    }

    fn visit_fields(
        &mut self,
        map: &Map,
        old: &serde_json::Map<String, Value>,
        new: &serde_json::Map<String, Value>,
    ) -> Problems {
        let mut problems = Problems::new();
        let added = new.keys().filter(|name| !old.contains_key(*name));
        for name in old.keys().chain(added) {
            let Some(of) = map.entry(name) else { continue };
            let element = Element::field(name.as_str());
            problems.extend(self.visit_part(of, element, old.get(name), new.get(name)));
        }
        problems
    }

    fn visit_part(
        &mut self,
        of: TypeId,
        element: Element,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Problems {
        self.depth += 1;
        let whole = std::mem::take(&mut self.found);
        let mut problems = self.visit(of, old, new);
        let part = std::mem::replace(&mut self.found, whole);
        self.depth -= 1;
        within(&element, &mut problems);
        self.found.attach(element, part);
        problems
    }

    fn visit_items(&mut self, list: &List, old: &[Value], new: &[Value]) -> Problems {
        let mut problems = Problems::new();
        let mut items = Vec::with_capacity(old.len() + new.len());
        for (of, is_new) in [(old, false), (new, true)] {
            for (at, item) in of.iter().enumerate() {
                match item::element(self.schema, list, item) {
                    Ok(element) => items.push((element, is_new, item)),
                    Err(why) => problems.push(problem(format!("element {at}: {why}"))),
                }
            }
        }
        // Those of one identity stay in their order.
        items.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let mut items = items.into_iter().peekable();
        let (mut old, mut new) = (Vec::new(), Vec::new());
        while let Some((element, is_new, item)) = items.next() {
            old.clear();
            new.clear();
            let mut group = Some((is_new, item));
            while let Some((is_new, item)) = group {
                let side = if is_new { &mut new } else { &mut old };
                side.push(item);
                let next = items.next_if(|(next, ..)| *next == element);
                group = next.map(|(_, is_new, item)| (is_new, item));
            }
            problems.extend(self.visit_group(list, element, &old, &new));
        }
        problems
    }

    /// The items of one identity. Duplicates are one value.
    fn visit_group(
        &mut self,
        list: &List,
        element: Element,
        old: &[&Value],
        new: &[&Value],
    ) -> Problems {
        // What differs in the item itself.
        let itself = |found: &mut Found, mark: fn(&mut Found)| {
            let mut part = Found::default();
            mark(&mut part);
            found.attach(element.clone(), part);
        };
        match (old, new) {
            ([] | [_], [] | [_]) => {
                let (old, new) = (old.first().copied(), new.first().copied());
                self.visit_part(list.items, element, old, new)
            }
            ([_, _, ..], [_, _, ..]) => {
                let same = old.len() == new.len()
                    && old
                        .iter()
                        .zip(new)
                        .all(|(old, new)| literal::equal(old, new));
                if !same {
                    itself(&mut self.found, |part| part.is_modified = true);
                }
                Problems::new()
            }
            ([_, _, ..], new) => {
                itself(&mut self.found, |part| part.is_removed = true);
                match new.first() {
                    Some(new) => self.visit_part(list.items, element, None, Some(*new)),
                    None => Problems::new(),
                }
            }
            (old, _) => {
                itself(&mut self.found, |part| part.is_added = true);
                match old.first() {
                    Some(old) => self.visit_part(list.items, element, Some(*old), None),
                    None => Problems::new(),
                }
            }
        }
    }
}
