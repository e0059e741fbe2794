//! The types that the walks read: what is one value, and what has parts with owners of their own.
//!
//! (structured-merge-diff: package `schema`; kube-openapi: `schemaconv`.)

use std::collections::BTreeMap;

use serde_json::Value;

/// Types that refer to each other by [`TypeId`].
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    atoms: Vec<Atom>,
    root: TypeId,
}

/// The place of a type in its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypeId(usize);

/// What a value of a type can be: the value at hand chooses among more than one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Atom {
    /// A scalar of this type.
    pub(crate) scalar: Option<Scalar>,
    /// A list.
    pub(crate) list: Option<List>,
    /// A map or an object.
    pub(crate) map: Option<Map>,
}

/// The type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    /// An integer or a fraction.
    Number,
    /// A text.
    Text,
    /// `true` or `false`.
    Boolean,
    /// Any of them.
    Any,
}

/// A list.
#[derive(Clone, Debug)]
pub(crate) struct List {
    /// The type of its items.
    pub(crate) items: TypeId,
    /// What identifies an item.
    pub(crate) by: ItemsBy,
}

/// What identifies an item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ItemsBy {
    /// Nothing: the list is one value.
    Nothing,
    /// Its value (a set of scalars).
    Value,
    /// These of its fields.
    Keys(Vec<String>),
}

/// A map, or an object with declared fields.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// Whether it is one value.
    pub(crate) atomic: bool,
    /// The declared fields.
    pub(crate) fields: BTreeMap<String, Field>,
    /// The type of all other fields; `None` where they are errors.
    pub(crate) others: Option<TypeId>,
}

/// A declared field.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Its type.
    pub(crate) of: TypeId,
    /// Its value in a list item that omits it, where it is a key of the list.
    pub(crate) default: Option<Value>,
}

/// One value of any type.
pub(crate) const UNTYPED: TypeId = TypeId(0);

/// A value without a declared type: the entries of maps have their own owners, a list is one value.
pub(crate) const DEDUCED: TypeId = TypeId(1);

// === impl Schema ===

impl Schema {
    /// A schema with the two types that exist always; its root is [`DEDUCED`].
    pub(crate) fn new() -> Self {
        let list = || List {
            items: UNTYPED,
            by: ItemsBy::Nothing,
        };
        let map = |of, atomic| Map {
            atomic,
            fields: BTreeMap::new(),
            others: Some(of),
        };
        let atom = |of, atomic| Atom {
            scalar: Some(Scalar::Any),
            list: Some(list()),
            map: Some(map(of, atomic)),
        };
        Self {
            atoms: vec![atom(UNTYPED, true), atom(DEDUCED, false)],
            root: DEDUCED,
        }
    }

    /// Adds a type.
    pub(crate) fn add(&mut self, atom: Atom) -> TypeId {
        self.atoms.push(atom);
        TypeId(self.atoms.len() - 1)
    }

    /// Replaces a type, which may refer to itself.
    pub(crate) fn set(&mut self, of: TypeId, atom: Atom) {
        self.atoms[of.0] = atom;
    }

    /// The same types with another root.
    pub(crate) fn with_root(mut self, root: TypeId) -> Self {
        self.root = root;
        self
    }

    /// The type of the whole object.
    pub(crate) fn root(&self) -> TypeId {
        self.root
    }

    /// A type.
    pub(crate) fn atom(&self, of: TypeId) -> &Atom {
        &self.atoms[of.0]
    }
}

// === impl Map ===

impl Map {
    /// The type of the entry `name`.
    pub(crate) fn entry(&self, name: &str) -> Option<TypeId> {
        self.fields.get(name).map(|field| field.of).or(self.others)
    }
}
