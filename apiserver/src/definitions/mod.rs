//! CustomResourceDefinitions as resources: a definition that is accepted becomes a resource of the server.
//!
//! What a definition may hold is checked by [`crd`](crate::crd); its objects are deleted with it by
//! [`lifecycle`](crate::lifecycle).

mod former;
mod installed;
mod serving;
mod storage;
mod versions;

pub(crate) use former::former_versions;
pub(crate) use installed::Installed;
pub(crate) use serving::{after_write, serve_stored, settle};
pub(crate) use storage::{CLEANUP, STORAGE};
