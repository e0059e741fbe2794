//! One step of admission.

use std::fmt::Debug;

use futures::future::{BoxFuture, FutureExt, ready};

use super::request::AdmissionRequest;
use super::server::Server;
use crate::status::Status;

/// The answer of a step: the refusal, if it is one.
pub(crate) type Answer<'a> = BoxFuture<'a, Result<(), Status>>;

/// A step of admission: an admission plugin of a real server.
///
/// A write that races with another one is admitted again, with the newer object.
pub(crate) trait Admission: Debug + Send + Sync {
    /// The name of the plugin, for logs.
    fn name(&self) -> &'static str;

    /// Whether the step has anything to do for a request. The others cost nothing.
    fn handles(&self, request: &AdmissionRequest<'_>) -> bool;

    /// Changes the object, or refuses it.
    fn mutate<'a>(&'a self, _: &'a Server<'_>, _: &'a mut AdmissionRequest<'_>) -> Answer<'a> {
        ready(Ok(())).boxed()
    }

    /// Refuses the object that would be stored.
    fn validate<'a>(&'a self, _: &'a Server<'_>, _: &'a AdmissionRequest<'_>) -> Answer<'a> {
        ready(Ok(())).boxed()
    }
}
