//! The work that a write leaves for the background task.

use super::object::Key;

/// A chore of the background task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Chore {
    /// The owner of this uid is gone, or waits for its dependents: look at them.
    Owner(String),
    /// Check whether the owners of an object exist.
    Dependent(String, Key),
    /// An object with a finalizer of the garbage collector.
    Finalize(String, Key),
    /// A new namespace, or a terminating one that lost an object.
    Namespace(String),
    /// A terminating CustomResourceDefinition, by its storage.
    Definition(String),
    /// An object that every cluster has, by its place in the list of them.
    Initial(usize),
}
