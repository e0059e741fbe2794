//! A write on its way.

use std::sync::Arc;

use serde_json::Value;

use crate::admission::{AdmissionRequest, Old, Operation, Reinvocation};
use crate::meta;
use crate::request::Request;
use crate::resource::{Conversion, ResourceInfo};
use crate::store::{Expected, Key, Object};

/// A write on its way, with what each step found.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// The stored object that was loaded.
    pub(crate) live: Option<Arc<Object>>,
    /// The tree of its content, so that the steps of a change parse it once.
    pub(crate) tree: Option<Arc<Value>>,
    /// The same in the version of the request.
    pub(crate) shown: Option<Arc<Object>>,
    /// The same with its type, for a write that changes it.
    pub(crate) old: Option<Value>,
    /// The object to store; `None` to remove it.
    pub(crate) new: Option<Value>,
    /// The key of a new object, and whether its name is generated.
    pub(crate) key: Option<Key>,
    pub(crate) generated: bool,
    /// The part that the request shows in a type of its own, such as a Scale.
    pub(crate) part: Option<Part>,
    /// The request changes only owners; admission may change more.
    pub(crate) keeps: bool,
}

/// A part of an object, in a type of its own.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) old: Value,
    pub(crate) new: Value,
}

/// What the last step does.
#[derive(Debug)]
pub(crate) enum Commit {
    /// Nothing changes: no version, no event.
    Nothing,
    /// Stores this.
    Put(Value),
    /// Removes the object.
    Remove,
    /// Stores this, and removes the object at once.
    PutAndRemove(Value),
}

// === impl Commit ===

impl Commit {
    /// Stores `new`, with its `apiVersion`, unless that is what is stored.
    pub(crate) fn change(live: &Object, mut new: Value) -> Self {
        let map = meta::object_mut(&mut new);
        map.remove("kind");
        let api_version = map.remove("apiVersion").unwrap_or_default();
        // A write without a change moves an object to a new storage version.
        if new == *live.value() && api_version == live.api_version() {
            return Self::Nothing;
        }
        meta::object_mut(&mut new).insert("apiVersion".to_owned(), api_version);
        Self::Put(new)
    }
}

// === impl Draft ===

impl Draft {
    /// The question to admission.
    pub(super) fn asked<'a>(
        &'a mut self,
        operation: Operation,
        request: &'a Request,
        options: Value,
    ) -> AdmissionRequest<'a> {
        let untyped = self.shown.as_deref().map(Old::Untyped);
        let (object, old) = match &mut self.part {
            Some(part) => (Some(&mut part.new), Some(Old::Shown(&part.old))),
            None if operation == Operation::Delete => (None, untyped),
            None => (self.new.as_mut(), self.old.as_ref().map(Old::Shown)),
        };
        AdmissionRequest {
            operation,
            request,
            object,
            old,
            options,
            reinvocation: Reinvocation::default(),
        }
    }

    /// The stored form of `new` after an apply that changed at most the owners, `None` after any other write. Such an apply
    /// does not convert the object, and so keeps what the version of the request has no field for.
    pub(super) fn kept(&self, info: &ResourceInfo) -> Option<Value> {
        let (live, old, new) = (self.live.as_ref()?, self.old.as_ref()?, self.new.as_ref()?);
        let converts = info.conversion == Conversion::BuiltIn
            && live.api_version() == info.stored_in
            && info.api_version() != info.stored_in;
        if !self.keeps || !converts || !differ_in_owners(old, new) {
            return None;
        }
        let mut stored = live.to_value();
        meta::set_managers(&mut stored, new["metadata"].get("managedFields").cloned());
        meta::object_mut(&mut stored).insert("apiVersion".to_owned(), live.api_version().into());
        Some(stored)
    }

    /// The precondition of the commit: the object is as it was loaded.
    pub(crate) fn expected(&self) -> Expected {
        match &self.live {
            Some(live) => Expected::Version(live.version()),
            None => Expected::Absent,
        }
    }
}

/// Whether two objects are equal but for the owners of their fields.
fn differ_in_owners(one: &Value, other: &Value) -> bool {
    let without_owners = |object: &Value| {
        let mut object = object.clone();
        meta::set_managers(&mut object, None);
        object
    };
    without_owners(one) == without_owners(other)
}
