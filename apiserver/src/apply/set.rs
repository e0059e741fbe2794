//! Sets of fields, as trees.
//!
//! A path can be a member of the set, its descendants can be members, or both. A member does not contain
//! its descendants. (structured-merge-diff: `fieldpath.Set`.)

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::path::{Element, ElementError};
use super::schema::{Schema, TypeId};

/// A set of fields. No child is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    members: BTreeSet<Element>,
    children: BTreeMap<Element, Set>,
}

// === impl Set ===

impl Set {
    /// The set with these paths of field names.
    pub(crate) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|name| Element::field(*name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Adds a path; the path of the whole object is ignored.
    pub(crate) fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => {
                if let Some(child) = self.children.get_mut(first) {
                    child.insert(rest);
                } else {
                    self.children.entry(first.clone()).or_default().insert(rest);
                }
            }
        }
    }

    /// Adds an element of which nothing is in the set: it is a member if `is_member`, and has `below`.
    pub(crate) fn attach(&mut self, element: Element, is_member: bool, below: Self) {
        match (is_member, below.is_empty()) {
            (false, true) => {}
            (true, true) => {
                self.members.insert(element);
            }
            (false, false) => {
                self.children.insert(element, below);
            }
            (true, false) => {
                self.members.insert(element.clone());
                self.children.insert(element, below);
            }
        }
    }

    /// Whether the path is a member.
    pub(crate) fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self
                .children
                .get(first)
                .is_some_and(|child| child.has(rest)),
        }
    }

    /// Whether the element itself is a member.
    pub(crate) fn has_member(&self, element: &Element) -> bool {
        self.members.contains(element)
    }

    /// The elements that are members themselves.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Element> {
        self.members.iter()
    }

    /// The elements with members below them.
    pub(crate) fn children(&self) -> impl Iterator<Item = (&Element, &Set)> {
        self.children.iter()
    }

    /// The paths below `element`, without it.
    pub(crate) fn below(&self, element: &Element) -> Option<&Set> {
        self.children.get(element)
    }

    /// Whether it has no member.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// The paths in order: at each level members first, then what is below.
    pub(crate) fn paths(&self) -> Vec<Vec<Element>> {
        fn visit(set: &Set, prefix: &mut Vec<Element>, found: &mut Vec<Vec<Element>>) {
            for member in &set.members {
                prefix.push(member.clone());
                found.push(prefix.clone());
                prefix.pop();
            }
            for (element, child) in &set.children {
                prefix.push(element.clone());
                visit(child, prefix, found);
                prefix.pop();
            }
        }
        let mut found = Vec::new();
        visit(self, &mut Vec::new(), &mut found);
        found
    }

    /// The members of either set.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.extend(other);
        union
    }

    /// The members of either set.
    pub(crate) fn joined(mut self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        self.members.extend(other.members);
        for (element, child) in other.children {
            let own = self.children.remove(&element).unwrap_or_default();
            self.children.insert(element, own.joined(child));
        }
        self
    }

    fn extend(&mut self, other: &Self) {
        self.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            match self.children.get_mut(element) {
                Some(own) => own.extend(child),
                None => {
                    self.children.insert(element.clone(), child.clone());
                }
            }
        }
    }

    /// The members of both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: self.map_children(|element, child| {
                let other = other.children.get(element)?;
                Some(child.intersection(other))
            }),
        }
    }

    /// The members that `other` does not have.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.remove(other);
        rest
    }

    /// The members that `other` has neither itself nor by one of their ancestors.
    pub(crate) fn recursive_difference(&self, other: &Self) -> Self {
        self.clone().without(other)
    }

    /// [`Set::recursive_difference`] in place: its time is that of the smaller set.
    pub(crate) fn without(mut self, other: &Self) -> Self {
        self.remove_below(other);
        self
    }

    fn remove_below(&mut self, other: &Self) {
        if self.is_empty() {
            return;
        }
        for member in &other.members {
            self.members.remove(member);
            self.children.remove(member);
        }
        self.change_children(other, Self::remove_below);
    }

    /// Removes the members of `other`, and leaves what is below them.
    pub(crate) fn remove(&mut self, other: &Self) {
        if self.is_empty() {
            return;
        }
        for member in &other.members {
            self.members.remove(member);
        }
        self.change_children(other, Self::remove);
    }

    /// Changes each child that both sets have, and drops those that are empty then.
    fn change_children(&mut self, other: &Self, change: impl Fn(&mut Self, &Self)) {
        for (element, below) in &other.children {
            let Some(child) = self.children.get_mut(element) else {
                continue;
            };
            change(child, below);
            if child.is_empty() {
                self.children.remove(element);
            }
        }
    }

    /// Whether a member of `other` is one of this set.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        other
            .members
            .iter()
            .any(|member| self.members.contains(member))
            || other.children.iter().any(|(element, below)| {
                let child = self.children.get(element);
                child.is_some_and(|child| child.meets(below))
            })
    }

    /// The children that `change` keeps, except empty ones.
    fn map_children(
        &self,
        change: impl Fn(&Element, &Set) -> Option<Set>,
    ) -> BTreeMap<Element, Set> {
        let changed = self.children.iter().filter_map(|(element, child)| {
            let changed = change(element, child).filter(|set| !set.is_empty())?;
            Some((element.clone(), changed))
        });
        changed.collect()
    }

    /// The set with the declared fields that have members below as members, too.
    ///
    /// A field of a struct belongs to the type: its owners own what is in it. For removing, it goes with its
    /// contents.
    pub(crate) fn with_named_fields(&self, schema: &Schema, of: Option<TypeId>) -> Self {
        let atom = of.map(|of| schema.atom(of));
        let map = atom.and_then(|atom| atom.map.as_ref());
        let list = atom.and_then(|atom| atom.list.as_ref());
        let mut members = self.members.clone();
        let mut children = BTreeMap::new();
        for (element, child) in &self.children {
            let below = match element {
                Element::Field(name) => {
                    let field = map.and_then(|map| map.fields.get(name));
                    if field.is_some() {
                        members.insert(element.clone());
                    }
                    field
                        .map(|field| field.of)
                        .or_else(|| map.and_then(|map| map.others))
                }
                Element::Key(_) => list.map(|list| list.items),
                Element::Value(_) | Element::Index(_) => None,
            };
            children.insert(element.clone(), child.with_named_fields(schema, below));
        }
        Self { members, children }
    }

    /// The `fieldsV1` of the set.
    pub(crate) fn encode(&self) -> Value {
        let mut encoded = Map::new();
        self.encode_into(&mut encoded);
        Value::Object(encoded)
    }

    fn encode_into(&self, encoded: &mut Map<String, Value>) {
        for (element, child) in &self.children {
            let mut below = Map::new();
            if self.members.contains(element) {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            child.encode_into(&mut below);
            encoded.insert(element.encode(), Value::Object(below));
        }
        for member in &self.members {
            if !self.children.contains_key(member) {
                encoded.insert(member.encode(), Value::Object(Map::new()));
            }
        }
    }

    /// Reads `fieldsV1`. Elements of unknown types are skipped.
    ///
    /// # Errors
    /// The text of the first element that is malformed.
    pub(crate) fn decode(encoded: &Value) -> Result<Self, String> {
        let mut set = Self::default();
        let fields = match encoded {
            Value::Object(fields) => fields,
            Value::Null => return Ok(set),
            _ => return Err("the fields are not an object".to_owned()),
        };
        for (name, below) in fields {
            if name == "." {
                continue;
            }
            let element = match Element::decode(name) {
                Ok(element) => element,
                Err(ElementError::UnknownType) => continue,
                Err(error) => return Err(format!("parsing key as path element: {error}")),
            };
            let child = Self::decode(below)?;
            if child.is_empty() || below.get(".").is_some() {
                set.members.insert(element.clone());
            }
            if !child.is_empty() {
                set.children.insert(element, child);
            }
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::super::literal::Literal;
    use super::super::path::PathText;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(encoded: Value) -> Set {
        Set::decode(&encoded).unwrap()
    }

    fn texts(set: &Set) -> Vec<String> {
        set.paths()
            .iter()
            .map(|path| PathText(path).to_string())
            .collect()
    }

    #[test]
    fn a_member_with_members_below_has_a_dot() {
        let encoded = json!({
            "f:a": {},
            "f:b": {".": {}, "f:c": {}, "k:{\"name\":\"x\"}": {".": {}, "f:image": {}}},
            "f:d": {"f:e": {"v:1": {}, "v:\"x\"": {}}},
        });
        let set = read(encoded.clone());
        assert_eq!(
            texts(&set),
            [
                ".a",
                ".b",
                ".b.c",
                ".b[name=\"x\"]",
                ".b[name=\"x\"].image",
                ".d.e[=1]",
                ".d.e[=\"x\"]",
            ]
        );
        assert_eq!(set.encode(), encoded);
    }

    #[test]
    fn unknown_elements_are_skipped_and_malformed_ones_refused() {
        let set = read(json!({"f:a": {}, "z:b": {"f:c": {}}, "f:d": {"z:e": {}}}));
        assert_eq!(texts(&set), [".a", ".d"]);
        assert!(Set::decode(&json!({"f:a": {"v:{": {}}})).is_err());
        assert!(Set::decode(&json!({"f:a": 1})).is_err());
        assert_eq!(Set::decode(&Value::Null), Ok(Set::default()));
    }

    #[test]
    fn a_difference_treats_an_element_and_what_is_below_apart() {
        let both = read(json!({"f:a": {".": {}, "f:b": {".": {}, "f:c": {}}}}));
        let a = Set::of(&[&["a"]]);
        let b = Set::of(&[&["a", "b"]]);
        assert_eq!(texts(&both.difference(&a)), [".a.b", ".a.b.c"]);
        assert_eq!(texts(&both.difference(&b)), [".a", ".a.b.c"]);
        assert_eq!(texts(&both.recursive_difference(&a)), Vec::<String>::new());
        assert_eq!(texts(&both.recursive_difference(&b)), [".a"]);
        assert_eq!(texts(&both.intersection(&b)), [".a.b"]);
        assert_eq!(texts(&a.union(&b)), [".a", ".a.b"]);
    }

    fn element() -> impl Strategy<Value = Element> {
        let value = || {
            prop_oneof![
                (0..3).prop_map(Value::from),
                "[ab\"]".prop_map(Value::from),
                any::<bool>().prop_map(Value::from),
            ]
        };
        prop_oneof![
            "[a-c:.]".prop_map(Element::Field),
            value().prop_map(|value| Element::key([("n", value)])),
            value().prop_map(|value| Element::Value(Literal(value))),
            (0i64..3).prop_map(Element::Index),
        ]
    }

    fn any_set() -> impl Strategy<Value = Set> {
        let path = prop::collection::vec(element(), 1..4);
        prop::collection::vec(path, 0..8).prop_map(|paths| {
            let mut set = Set::default();
            for path in paths {
                set.insert(&path);
            }
            set
        })
    }

    proptest! {
        #[test]
        fn a_set_survives_its_json(set in any_set()) {
            prop_assert_eq!(Set::decode(&set.encode()), Ok(set));
        }

        #[test]
        fn union_intersection_and_difference_agree_with_the_members(one in any_set(), other in any_set()) {
            let union = one.union(&other);
            let both = one.intersection(&other);
            let without = one.difference(&other);
            for path in union.paths() {
                let (first, second) = (one.has(&path), other.has(&path));
                prop_assert!(first || second);
                prop_assert_eq!(both.has(&path), first && second);
                prop_assert_eq!(without.has(&path), first && !second);
            }
            prop_assert_eq!(both.union(&without), one.clone());
            prop_assert_eq!(one.meets(&other), !both.is_empty());
            prop_assert_eq!(one.clone().joined(other.clone()), union.clone());
            prop_assert_eq!(&union.difference(&one), &other.difference(&one));
            prop_assert_eq!(union, other.union(&one));
        }

        #[test]
        fn a_recursive_difference_keeps_what_has_no_ancestor_in_the_other(one in any_set(), other in any_set()) {
            let rest = one.recursive_difference(&other);
            for path in one.paths() {
                let is_covered = (1..=path.len()).any(|length| other.has(&path[..length]));
                prop_assert_eq!(rest.has(&path), !is_covered);
            }
        }
    }
}
