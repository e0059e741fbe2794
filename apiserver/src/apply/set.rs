//! Sets of fields, as trees.
//!
//! A path can be a member of the set, its descendants can be members, or both. A member does not contain
//! its descendants. (structured-merge-diff: `fieldpath.Set`.)

use serde_json::{Map, Value};

use super::path::{Element, ElementError};
use super::schema::{Schema, TypeId};

/// A set of fields.
///
/// A sorted vector costs less to make and to free than a tree does, and a write of a large object is largely that. Parts that come
/// in another order than theirs are collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(Vec<Part>);

/// An element that is a member, has members below it, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    element: Element,
    is_member: bool,
    below: Set,
}

// === impl Part ===

impl Part {
    fn is_empty(&self) -> bool {
        !self.is_member && self.below.is_empty()
    }

    fn add(&mut self, is_member: bool, below: Set) {
        self.is_member |= is_member;
        if !below.is_empty() {
            self.below = below;
        }
    }
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

    /// Where the element is, or where it belongs.
    fn place(&self, element: &Element) -> Result<usize, usize> {
        match self.0.last() {
            Some(last) if last.element >= *element => {
                self.0.binary_search_by(|part| part.element.cmp(element))
            }
            _ => Err(self.0.len()),
        }
    }

    fn part(&self, element: &Element) -> Option<&Part> {
        self.place(element).ok().map(|at| &self.0[at])
    }

    /// The part of the element, which is made empty if there is none.
    fn part_mut(&mut self, element: Element) -> &mut Part {
        let at = match self.place(&element) {
            Ok(at) => at,
            Err(at) => {
                let part = Part {
                    element,
                    is_member: false,
                    below: Self::default(),
                };
                self.0.insert(at, part);
                at
            }
        };
        &mut self.0[at]
    }

    /// Adds a path; the path of the whole object is ignored.
    pub(crate) fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => self.part_mut(last.clone()).is_member = true,
            [first, rest @ ..] => self.part_mut(first.clone()).below.insert(rest),
        }
    }

    /// Adds an element: it is a member if `is_member`, and has `below` in place of what was below it.
    pub(crate) fn attach(&mut self, element: Element, is_member: bool, below: Self) {
        if !is_member && below.is_empty() {
            return;
        }
        self.part_mut(element).add(is_member, below);
    }

    /// Whether the path is a member.
    pub(crate) fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.has_member(last),
            [first, rest @ ..] => self.below(first).is_some_and(|below| below.has(rest)),
        }
    }

    /// Whether the element itself is a member.
    pub(crate) fn has_member(&self, element: &Element) -> bool {
        self.part(element).is_some_and(|part| part.is_member)
    }

    /// The elements that are members themselves.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Element> {
        let members = self.0.iter().filter(|part| part.is_member);
        members.map(|part| &part.element)
    }

    /// The elements with members below them.
    pub(crate) fn children(&self) -> impl Iterator<Item = (&Element, &Set)> {
        let children = self.0.iter().filter(|part| !part.below.is_empty());
        children.map(|part| (&part.element, &part.below))
    }

    /// The paths below `element`, without it.
    pub(crate) fn below(&self, element: &Element) -> Option<&Set> {
        let part = self.part(element)?;
        (!part.below.is_empty()).then_some(&part.below)
    }

    /// Whether it has no member.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The paths in order: at each level members first, then what is below.
    pub(crate) fn paths(&self) -> Vec<Vec<Element>> {
        fn visit(set: &Set, prefix: &mut Vec<Element>, found: &mut Vec<Vec<Element>>) {
            for member in set.members() {
                prefix.push(member.clone());
                found.push(prefix.clone());
                prefix.pop();
            }
            for (element, child) in set.children() {
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
        self.clone().joined(other.clone())
    }

    /// The members of either set.
    pub(crate) fn joined(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut joined = Vec::with_capacity(self.0.len().max(other.0.len()));
        let mut others = other.0.into_iter().peekable();
        for mut part in self.0 {
            while let Some(before) = others.next_if(|other| other.element < part.element) {
                joined.push(before);
            }
            if let Some(same) = others.next_if(|other| other.element == part.element) {
                part.is_member |= same.is_member;
                part.below = part.below.joined(same.below);
            }
            joined.push(part);
        }
        joined.extend(others);
        Self(joined)
    }

    /// The members of both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let both = pairs(self, other).filter_map(|(one, other)| {
            let part = Part {
                element: one.element.clone(),
                is_member: one.is_member && other.is_member,
                below: one.below.intersection(&other.below),
            };
            (!part.is_empty()).then_some(part)
        });
        Self(both.collect())
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

    /// [`Set::recursive_difference`] in place.
    pub(crate) fn without(mut self, other: &Self) -> Self {
        self.remove_below(other);
        self
    }

    fn remove_below(&mut self, other: &Self) {
        self.change_parts(other, |part, other| {
            if other.is_member {
                part.is_member = false;
                part.below = Self::default();
            } else {
                part.below.remove_below(&other.below);
            }
        });
    }

    /// Removes the members of `other`, and leaves what is below them.
    pub(crate) fn remove(&mut self, other: &Self) {
        self.change_parts(other, |part, other| {
            part.is_member &= !other.is_member;
            part.below.remove(&other.below);
        });
    }

    /// Changes each part that both sets have, and drops those that are empty then.
    fn change_parts(&mut self, other: &Self, change: impl Fn(&mut Part, &Part)) {
        if self.is_empty() {
            return;
        }
        let mut is_emptied = false;
        for other in &other.0 {
            if let Ok(at) = self.place(&other.element) {
                change(&mut self.0[at], other);
                is_emptied |= self.0[at].is_empty();
            }
        }
        if is_emptied {
            self.0.retain(|part| !part.is_empty());
        }
    }

    /// Whether a member of `other` is one of this set.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        pairs(self, other)
            .any(|(one, other)| (one.is_member && other.is_member) || one.below.meets(&other.below))
    }

    /// The set with the declared fields that have members below as members, too.
    ///
    /// A field of a struct belongs to the type: its owners own what is in it. For removing, it goes with its
    /// contents.
    pub(crate) fn with_named_fields(&self, schema: &Schema, of: Option<TypeId>) -> Self {
        let atom = of.map(|of| schema.atom(of));
        let map = atom.and_then(|atom| atom.map.as_ref());
        let list = atom.and_then(|atom| atom.list.as_ref());
        let parts = self.0.iter().map(|part| {
            if part.below.is_empty() {
                return part.clone();
            }
            let (is_declared, below) = match &part.element {
                Element::Field(name) => {
                    let field = map.and_then(|map| map.fields.get(name));
                    let others = map.and_then(|map| map.others);
                    (field.is_some(), field.map(|field| field.of).or(others))
                }
                Element::Key(_) => (false, list.map(|list| list.items)),
                Element::Value(_) | Element::Index(_) => (false, None),
            };
            Part {
                element: part.element.clone(),
                is_member: part.is_member || is_declared,
                below: part.below.with_named_fields(schema, below),
            }
        });
        Self(parts.collect())
    }

    /// The `fieldsV1` of the set.
    pub(crate) fn encode(&self) -> Value {
        let fields = self.0.iter().map(|part| {
            let mut below = part.below.encode();
            if part.is_member && !part.below.is_empty() {
                below["."] = Value::Object(Map::new());
            }
            (part.element.encode(), below)
        });
        Value::Object(fields.collect())
    }

    /// Reads `fieldsV1`. Elements of unknown types are skipped.
    ///
    /// # Errors
    /// The text of the first element that is malformed.
    pub(crate) fn decode(encoded: &Value) -> Result<Self, String> {
        let fields = match encoded {
            Value::Object(fields) => fields,
            Value::Null => return Ok(Self::default()),
            _ => return Err("the fields are not an object".to_owned()),
        };
        let mut parts = Vec::with_capacity(fields.len());
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
            let is_member = child.is_empty() || below.get(".").is_some();
            parts.push((element, is_member, child));
        }
        Ok(parts.into_iter().collect())
    }
}

/// The set of parts in any order. Those of one element are one, as by [`Set::attach`].
impl FromIterator<(Element, bool, Set)> for Set {
    fn from_iter<I: IntoIterator<Item = (Element, bool, Set)>>(parts: I) -> Self {
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let mut set = Self::default();
        for (element, is_member, below) in parts {
            set.attach(element, is_member, below);
        }
        set
    }
}

/// The parts that both sets have.
fn pairs<'a>(one: &'a Set, other: &'a Set) -> impl Iterator<Item = (&'a Part, &'a Part)> {
    let mut others = other.0.iter().peekable();
    one.0.iter().filter_map(move |part| {
        while others
            .next_if(|other| other.element < part.element)
            .is_some()
        {}
        let same = others.next_if(|other| other.element == part.element)?;
        Some((part, same))
    })
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

    fn check(set: &Set) -> Result<(), TestCaseError> {
        prop_assert!(set.0.is_sorted_by(|one, other| one.element < other.element));
        for part in &set.0 {
            prop_assert!(!part.is_empty(), "{set:?}");
            check(&part.below)?;
        }
        Ok(())
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
            for path in one.paths().iter().chain(&other.paths()) {
                prop_assert!(union.has(path));
            }
            prop_assert_eq!(&union.difference(&one), &other.difference(&one));
            prop_assert_eq!(union, other.union(&one));
        }

        #[test]
        fn every_set_is_sorted_and_has_no_empty_part(one in any_set(), other in any_set()) {
            let mut attached = one.clone();
            for part in &other.0 {
                attached.attach(part.element.clone(), part.is_member, part.below.clone());
            }
            let mut parts: Vec<_> = one.0.iter().chain(&other.0).map(|part| (part.element.clone(), part.is_member, part.below.clone())).collect();
            let collected: Set = parts.clone().into_iter().collect();
            prop_assert_eq!(&collected, &attached);
            parts.truncate(one.0.len());
            parts.reverse();
            prop_assert_eq!(parts.into_iter().collect::<Set>(), one.clone());
            for set in [attached, one.union(&other), one.intersection(&other), one.difference(&other), one.recursive_difference(&other)] {
                check(&set)?;
            }
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
