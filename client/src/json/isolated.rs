//! Reads that may panic: the panic of a type costs the one object at which it panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::redacted::redacted;

/// The error of a type that panics at an object. The message of the panic may hold values of the object.
const PANICKED: &str = "its type panicked as it was read";

/// The result of `read`; `None` if it fails or panics.
pub fn attempt<T, E>(read: impl FnOnce() -> Result<T, E>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(read)).ok()?.ok()
}

/// Reads one object by itself.
///
/// # Errors
/// The error without any of the object's content; also if its type panics.
pub fn read_alone<T>(read: impl FnOnce() -> Result<T, serde_json::Error>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|error| redacted(&error)),
        Err(_) => Err(PANICKED.to_owned()),
    }
}
