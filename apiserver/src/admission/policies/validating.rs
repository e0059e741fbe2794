//! Policies that check objects.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use futures::future::FutureExt;
use tokio::task::{spawn_blocking, yield_now};

use super::binding::Action;
use super::stored::{Invocation, Policies, namespace_object};
use super::validations::{Objection, Validations};
use crate::admission::view::View;
use crate::admission::{Admission, AdmissionRequest, Answer, Server};
use crate::status::Status;

/// Asks validating policies about the object that would be stored. (apiserver: admission plugin
/// `ValidatingAdmissionPolicy`.)
#[derive(Debug)]
pub(crate) struct ValidatingPolicies(Policies<Validations>);

/// Why a write is refused.
struct Denial {
    message: String,
    reason: String,
}

// === impl ValidatingPolicies ===

impl Default for ValidatingPolicies {
    fn default() -> Self {
        Self(Policies::new(
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        ))
    }
}

impl ValidatingPolicies {
    async fn ask_all(
        &self,
        server: &Server<'_>,
        asked: &AdmissionRequest<'_>,
    ) -> Result<(), Status> {
        let policies = self.0.current(server.store);
        if policies.is_empty() {
            return Ok(());
        }
        let old = asked.old_object();
        let mut first = None;
        // The objects in each version in which a policy reads them.
        let mut views = BTreeMap::new();
        for bound in &*policies {
            for step in bound.steps(server, asked, old.as_ref()).await {
                // The time of the request may end between two policies, and other requests run.
                yield_now().await;
                let step = match step {
                    Ok(invocation) => {
                        let version = invocation.info.api_version();
                        let view = match views.entry(version) {
                            Entry::Occupied(known) => known.into_mut(),
                            Entry::Vacant(new) => {
                                let view = View::of(server, asked, old.as_ref(), &invocation.info);
                                new.insert(view.await)
                            }
                        };
                        match view {
                            Ok(view) => Ok((invocation, view)),
                            Err(status) => {
                                let why = format!("failed to convert object version: {status}");
                                match invocation.misconfigured(true, &why) {
                                    Some(broken) => Err(broken),
                                    None => continue,
                                }
                            }
                        }
                    }
                    Err(broken) => Err(broken),
                };
                let denial = match step {
                    Ok((invocation, view)) => ask(server, asked, view, &invocation).await?,
                    Err(broken) => Some(Denial {
                        message: denied(&broken.policy, broken.binding.as_deref(), &broken.why),
                        reason: String::new(),
                    }),
                };
                first = first.or(denial);
            }
        }
        match first {
            Some(denial) => Err(denial.into_status(asked)),
            None => Ok(()),
        }
    }
}

/// The denial of one invocation, if it is one; its warnings reach the client.
async fn ask(
    server: &Server<'_>,
    asked: &AdmissionRequest<'_>,
    view: &View<'_>,
    invocation: &Invocation<Validations>,
) -> Result<Option<Denial>, Status> {
    let Invocation {
        policy,
        binding,
        info,
        parameter,
    } = invocation;
    let namespace = namespace_object(server, asked)?;
    let variables = view.variables(server, asked, info);
    let variables = variables.with("namespaceObject", namespace.as_ref());
    let variables = match &policy.parameter_kind {
        Some(_) => variables.with("params", parameter.as_ref()),
        None => variables,
    };
    let objections = if policy.is_deep() {
        let policy = policy.clone();
        let checked = spawn_blocking(move || policy.check(&variables)).await;
        checked.map_err(Status::internal)?
    } else {
        policy.check(&variables)
    };
    let mut first = None;
    for Objection {
        message,
        reason,
        is_final,
    } in objections
    {
        if binding.actions.contains(&Action::Warn) && !is_final {
            asked.request.warnings.add(format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                policy.name, binding.name
            ));
        }
        if (is_final || binding.actions.contains(&Action::Deny)) && first.is_none() {
            first = Some(Denial {
                message: denied(&policy.name, Some(&binding.name), &message),
                reason,
            });
        }
    }
    Ok(first)
}

fn denied(policy: &str, binding: Option<&str>, why: &str) -> String {
    match binding {
        Some(binding) => format!(
            "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {why}"
        ),
        None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {why}"),
    }
}

// === impl Denial ===

impl Denial {
    fn into_status(self, asked: &AdmissionRequest<'_>) -> Status {
        let (code, reason) = match self.reason.as_str() {
            "Unauthorized" => (401, "Unauthorized"),
            "Forbidden" => (403, "Forbidden"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        let status = Status::forbidden(asked.request.resource(), asked.name(), &self.message);
        status
            .with_code(code, reason)
            .with_cause("", "", self.message)
    }
}

impl Admission for ValidatingPolicies {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        super::policy::is_subject(&request.request.info)
    }

    fn validate<'a>(
        &'a self,
        server: &'a Server<'_>,
        asked: &'a AdmissionRequest<'_>,
    ) -> Answer<'a> {
        self.ask_all(server, asked).boxed()
    }
}
