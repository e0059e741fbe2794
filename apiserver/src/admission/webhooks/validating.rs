//! Webhooks that check objects: all at once.

use futures::future::{FutureExt, join_all};

use super::call;
use super::conditions::meets_conditions;
use super::hooks::Hooks;
use super::review;
use super::subject::is_subject;
use crate::admission::view::View;
use crate::admission::{Admission, AdmissionRequest, Answer, Server};
use crate::status::Status;

/// Asks validating webhooks about the object that would be stored. (apiserver: admission plugin
/// `ValidatingAdmissionWebhook`.)
#[derive(Debug)]
pub(crate) struct Validating(Hooks);

// === impl Validating ===

impl Default for Validating {
    fn default() -> Self {
        Self(Hooks::new(
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
        ))
    }
}

impl Validating {
    async fn ask_all(
        &self,
        server: &Server<'_>,
        asked: &AdmissionRequest<'_>,
    ) -> Result<(), Status> {
        let hooks = self.0.current(server.store);
        if hooks.is_empty() {
            return Ok(());
        }
        let old = asked.old_object();
        let old = old.as_ref();
        let mut questions = Vec::new();
        for hook in &*hooks {
            let Some(info) = hook.matcher.resource_for(server, asked, old)? else {
                continue;
            };
            let view = View::of(server, asked, old, &info).await?;
            if meets_conditions(server, hook, asked, &info, &view).await? {
                questions.push((hook, info, view));
            }
        }
        let asking = questions.iter().map(|(hook, info, view)| async move {
            match call::ask(server, hook, asked, info, view, false).await {
                Ok(verdict) if verdict.is_allowed => Ok(()),
                Ok(verdict) => Err(review::denied(&hook.name, &verdict.status)),
                Err(failure) => call::failed(hook, asked, failure),
            }
        });
        // The first refusal in the order of the configurations, whichever came first.
        join_all(asking).await.into_iter().collect()
    }
}

impl Admission for Validating {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        is_subject(&request.request.info)
    }

    fn validate<'a>(
        &'a self,
        server: &'a Server<'_>,
        asked: &'a AdmissionRequest<'_>,
    ) -> Answer<'a> {
        self.ask_all(server, asked).boxed()
    }
}
