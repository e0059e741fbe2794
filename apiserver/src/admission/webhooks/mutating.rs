//! Webhooks that change objects: one after the other.

use futures::future::FutureExt;
use serde_json::Value;

use super::call::{self, Failure};
use super::conditions::meets_conditions;
use super::hook::Hook;
use super::hooks::Hooks;
use super::review::{self, Verdict};
use super::subject::is_subject;
use crate::admission::change::{accepted, check_type};
use crate::admission::view::View;
use crate::admission::{Admission, AdmissionRequest, Answer, Server};
use crate::apply;
use crate::field::quote;
use crate::meta;
use crate::patch;
use crate::resource::ResourceInfo;
use crate::status::Status;

/// Asks mutating webhooks in the order of their configurations. (apiserver: admission plugin `MutatingAdmissionWebhook`.)
#[derive(Debug)]
pub(crate) struct Mutating(Hooks);

// === impl Mutating ===

impl Default for Mutating {
    fn default() -> Self {
        Self(Hooks::new(
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        ))
    }
}

impl Mutating {
    async fn ask_all(
        &self,
        server: &Server<'_>,
        asked: &mut AdmissionRequest<'_>,
    ) -> Result<(), Status> {
        let hooks = self.0.current(server.store);
        if hooks.is_empty() {
            return Ok(());
        }
        let managers = asked.object.as_deref().map(managed_fields).cloned();
        let old = asked.old_object();
        let old = old.as_ref();
        let again = asked.reinvocation.is_second;
        let reinvoked = &mut asked.reinvocation.webhooks;
        if again && reinvoked.last.as_ref() != asked.object.as_deref() {
            reinvoked.require();
        }
        for hook in &*hooks {
            let Some(info) = hook.matcher.resource_for(server, asked, old)? else {
                continue;
            };
            let view = View::of(server, asked, old, &info).await?;
            if !meets_conditions(server, hook, asked, &info, &view).await? {
                continue;
            }
            let id = format!("{}/{}", hook.configuration, hook.name);
            if again && !asked.reinvocation.webhooks.due.contains(&id) {
                continue;
            }
            let changed = match changed(server, hook, asked, &info, view).await {
                Ok(changed) => changed,
                Err(failure) => {
                    call::failed(hook, asked, failure)?;
                    None
                }
            };
            let reinvocation = &mut asked.reinvocation;
            if let (Some(changed), Some(object)) = (changed, asked.object.as_deref_mut()) {
                *object = changed;
                reinvocation.webhooks.require();
                reinvocation.is_due = true;
            }
            if hook.reinvoked {
                reinvocation.webhooks.asked.insert(id);
            }
        }
        restore_invalid(asked, managers);
        asked.reinvocation.webhooks.last = asked.object.as_deref().cloned();
        Ok(())
    }
}

fn managed_fields(object: &Value) -> &Value {
    &object["metadata"]["managedFields"]
}

/// Restores the owners of fields if a webhook left them invalid. (apiserver: `fieldmanager/admission.go`.)
fn restore_invalid(asked: &mut AdmissionRequest<'_>, managers: Option<Value>) {
    let Some(object) = asked.object.as_deref_mut() else {
        return;
    };
    if let Some(why) = apply::managers_problem(managed_fields(object)) {
        asked.request.warnings.add(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {why}"
        ));
        meta::set_managers(object, managers.filter(Value::is_array));
    }
}

/// Asks one webhook, and returns the object if it changed it.
async fn changed(
    server: &Server<'_>,
    hook: &Hook,
    asked: &AdmissionRequest<'_>,
    info: &ResourceInfo,
    view: View<'_>,
) -> Result<Option<Value>, Failure> {
    let verdict = call::ask(server, hook, asked, info, &view, true).await?;
    if !verdict.is_allowed {
        let denied = review::denied(&hook.name, &verdict.status);
        return Err(Failure::Refused(denied));
    }
    let Some(mut object) = patched(hook, &view, &verdict)? else {
        return Ok(None);
    };
    if let Some(before) = view.object.as_deref() {
        check_type(server, info, before, &mut object).map_err(Failure::Refused)?;
    }
    let object = accepted(server, asked, info, object).await;
    object.map_err(Failure::Refused)
}

/// The object with the patch of an answer; `None` without one.
fn patched(hook: &Hook, view: &View<'_>, verdict: &Verdict) -> Result<Option<Value>, Failure> {
    let internal = |why: &dyn std::fmt::Display| Failure::Refused(Status::internal(why));
    if verdict.patch.is_empty() {
        return Ok(None);
    }
    let undecodable = |why: String| {
        Failure::Call(format!(
            "received undecodable patch in webhook response: {why}"
        ))
    };
    if patch::operations(&verdict.patch).map_err(undecodable)? == 0 {
        return Ok(None);
    }
    let Some(object) = &view.object else {
        return Err(internal(&format_args!(
            "admission webhook {} attempted to modify the object, which is not supported for this operation",
            quote(&hook.name)
        )));
    };
    if verdict.patch_type != "JSONPatch" {
        return Err(Failure::Call(format!(
            "unsupported patch type {}",
            quote(&verdict.patch_type)
        )));
    }
    match patch::apply_json(object, &verdict.patch) {
        Ok(new) => Ok(Some(new)),
        Err(patch::Error::Malformed(why)) => Err(undecodable(why)),
        Err(error) => Err(internal(&error)),
    }
}

impl Admission for Mutating {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        is_subject(&request.request.info)
    }

    fn mutate<'a>(
        &'a self,
        server: &'a Server<'_>,
        asked: &'a mut AdmissionRequest<'_>,
    ) -> Answer<'a> {
        self.ask_all(server, asked).boxed()
    }
}
