//! The steps of admission, in their order.

use std::sync::Arc;

use super::namespace_lifecycle::NamespaceLifecycle;
use super::request::AdmissionRequest;
use super::step::Admission;
use crate::status::Status;
use crate::store::Store;

/// The steps of admission, in their order. The first refusal ends a write.
#[derive(Debug)]
pub(crate) struct Chain(Vec<Arc<dyn Admission>>);

// === impl Chain ===

impl Chain {
    /// The steps of the server, and then `more`.
    pub(crate) fn of_server(more: Vec<Arc<dyn Admission>>) -> Self {
        let mut steps: Vec<Arc<dyn Admission>> = vec![Arc::new(NamespaceLifecycle)];
        steps.extend(more);
        Self(steps)
    }

    /// Lets each step change the object.
    ///
    /// # Errors
    /// The first refusal.
    pub(crate) async fn mutate(
        &self,
        store: &Store,
        request: &mut AdmissionRequest<'_>,
    ) -> Result<(), Status> {
        for step in &self.0 {
            if step.handles(request)
                && let Err(status) = step.mutate(store, request).await
            {
                return Err(refused(&**step, request, status));
            }
        }
        Ok(())
    }

    /// Asks each step about the object that would be stored.
    ///
    /// # Errors
    /// The first refusal.
    pub(crate) async fn validate(
        &self,
        store: &Store,
        request: &AdmissionRequest<'_>,
    ) -> Result<(), Status> {
        for step in &self.0 {
            if step.handles(request)
                && let Err(status) = step.validate(store, request).await
            {
                return Err(refused(&**step, request, status));
            }
        }
        Ok(())
    }
}

fn refused(step: &dyn Admission, request: &AdmissionRequest<'_>, status: Status) -> Status {
    tracing::debug!(
        plugin = step.name(),
        operation = ?request.operation,
        resource = request.request.info.plural,
        namespace = request.request.namespace,
        name = request.name(),
        %status,
        "admission refused a write"
    );
    status
}
