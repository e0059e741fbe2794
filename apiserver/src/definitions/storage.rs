//! How definitions are stored: their resource, and the finalizer that keeps them.

/// The resource of definitions in the store.
pub(crate) const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
