//! The steps of admission, in their order.

use std::sync::Arc;

use super::namespace_lifecycle::NamespaceLifecycle;
use super::policies::{MutatingPolicies, ValidatingPolicies};
use super::request::AdmissionRequest;
use super::server::Server;
use super::step::Admission;
use super::webhooks::{Mutating, Validating};
use crate::status::Status;

/// The steps of admission, in their order. The first refusal ends a write.
#[derive(Debug)]
pub(crate) struct Chain(Vec<Arc<dyn Admission>>);

// === impl Chain ===

impl Chain {
    /// The steps of the server except the plugins in `without`, with `more` before policies and webhooks.
    pub(crate) fn of_server(more: Vec<Arc<dyn Admission>>, without: &[String]) -> Self {
        let mut steps: Vec<Arc<dyn Admission>> = vec![Arc::new(NamespaceLifecycle)];
        steps.extend(more);
        steps.push(Arc::new(MutatingPolicies::default()));
        steps.push(Arc::new(Mutating::default()));
        steps.push(Arc::new(ValidatingPolicies::default()));
        steps.push(Arc::new(Validating::default()));
        steps.retain(|step| !without.iter().any(|name| name == step.name()));
        Self(steps)
    }

    /// Lets each step change the object; a second time, if a webhook changed it.
    ///
    /// # Errors
    /// The first refusal.
    pub(crate) async fn mutate(
        &self,
        server: &Server<'_>,
        request: &mut AdmissionRequest<'_>,
    ) -> Result<(), Status> {
        self.mutate_once(server, request).await?;
        if !request.reinvocation.is_due {
            return Ok(());
        }
        request.reinvocation.is_second = true;
        self.mutate_once(server, request).await
    }

    async fn mutate_once(
        &self,
        server: &Server<'_>,
        request: &mut AdmissionRequest<'_>,
    ) -> Result<(), Status> {
        for step in &self.0 {
            if step.handles(request)
                && let Err(status) = step.mutate(server, request).await
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
        server: &Server<'_>,
        request: &AdmissionRequest<'_>,
    ) -> Result<(), Status> {
        for step in &self.0 {
            if step.handles(request)
                && let Err(status) = step.validate(server, request).await
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
