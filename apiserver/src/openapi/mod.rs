//! OpenAPI documents for `kubectl create`, `apply`, `edit` and `explain`.
//!
//! kubectl searches for a `patch` operation of the kind with a parameter `fieldValidation`, and then
//! leaves validation to the server. Strategic merge patch is not among the request bodies on purpose:
//! with it, kubectl computes patches from merge keys in the schemas; without it, it uses the
//! types it was compiled with. `explain` reads the component schemas. (kube-openapi: `handler3`.)

mod cache;
mod components;
pub(crate) mod descriptions;
mod document;
mod v2;

pub(crate) use cache::OpenApiCache;
pub(crate) use document::{V2_CONTENT_TYPE, V2_DOCUMENT};
