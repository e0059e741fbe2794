//! The keys that a controller reconciles.

use std::fmt;
use std::hash::Hash;

use reeve_informer::ObjectKey;

/// The default request of a controller: the key of an object.
pub type Request = ObjectKey;

/// A small value that names one piece of work. Every type with these bounds implements it.
///
/// Logs show it with `Display`.
pub trait RequestKey:
    Hash + Eq + Clone + fmt::Debug + fmt::Display + Send + Sync + 'static
{
}

impl<T> RequestKey for T where
    T: Hash + Eq + Clone + fmt::Debug + fmt::Display + Send + Sync + 'static
{
}
