//! Policies that change objects: one after the other.

use std::borrow::Cow;

use futures::future::FutureExt;
use serde_json::{Value, json};
use tokio::task::{spawn_blocking, yield_now};

use super::mutations::{Mutations, Patch};
use super::stored::{Invocation, Misconfigured, Policies, namespace_object};
use crate::admission::change::{accepted, decode, decode_strictly};
use crate::admission::view::View;
use crate::admission::{Admission, AdmissionRequest, Answer, Server};
use crate::apply;
use crate::cel::Variables;
use crate::field::quote;
use crate::ownership;
use crate::patch;
use crate::resource::ResourceInfo;
use crate::status::Status;
use crate::table::cells::string;

/// Asks mutating policies in the order of their names. (apiserver: admission plugin `MutatingAdmissionPolicy`.)
#[derive(Debug)]
pub(crate) struct MutatingPolicies(Policies<Mutations>);

/// Why a write is refused.
struct Denial {
    message: String,
    reason: &'static str,
}

// === impl MutatingPolicies ===

impl Default for MutatingPolicies {
    fn default() -> Self {
        Self(Policies::new(
            "mutatingadmissionpolicies.admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        ))
    }
}

impl MutatingPolicies {
    async fn ask_all(
        &self,
        server: &Server<'_>,
        asked: &mut AdmissionRequest<'_>,
    ) -> Result<(), Status> {
        let policies = self.0.current(server.store);
        if policies.is_empty() {
            return Ok(());
        }
        let old = asked.old_object();
        let old = old.as_ref();
        let mut invocations = Vec::new();
        let mut denials = Vec::new();
        for bound in &*policies {
            for step in bound.steps(server, asked, old).await {
                match step {
                    Ok(invocation) => invocations.push(invocation),
                    Err(broken) => denials.push(broken.into()),
                }
            }
        }
        if !invocations.is_empty() {
            let namespace = namespace_object(server, asked)?;
            let again = asked.reinvocation.is_second;
            let reinvoked = &mut asked.reinvocation.policies;
            if again && reinvoked.last.as_ref() != asked.object.as_deref() {
                reinvoked.require();
            }
            let mut is_dirty = false;
            for invocation in &invocations {
                // The time of the request may end between two policies, and other requests run.
                yield_now().await;
                let answer = ask(server, asked, old, namespace.as_ref(), invocation).await?;
                is_dirty |= answer.is_dirty;
                denials.extend(answer.denials);
            }
            // Even one that changed nothing, and the last one itself, are asked again.
            if is_dirty {
                asked.reinvocation.policies.require();
                asked.reinvocation.is_due = true;
            }
            asked.reinvocation.policies.last = asked.object.as_deref().cloned();
        }
        refusal(asked, denials).map_or(Ok(()), Err)
    }
}

/// The effect of one invocation.
#[derive(Default)]
struct Asked {
    /// Those that are not ignored.
    denials: Vec<Denial>,
    /// Whether a mutation was made, even if it changed nothing.
    is_dirty: bool,
}

/// Evaluates the mutations of one invocation, and changes the object.
async fn ask(
    server: &Server<'_>,
    asked: &mut AdmissionRequest<'_>,
    old: Option<&Value>,
    namespace: Option<&Value>,
    invocation: &Invocation<Mutations>,
) -> Result<Asked, Status> {
    let Invocation {
        policy,
        binding,
        info,
        parameter,
    } = invocation;
    let view = match View::of(server, asked, old, info).await {
        Ok(view) => view,
        Err(status) => {
            let broken = invocation.misconfigured(false, &status);
            return Ok(broken.map(Denial::from).into());
        }
    };
    let variables = view.variables(server, asked, info);
    let variables = match &policy.parameter_kind {
        Some(_) => variables.with("params", parameter.as_ref()),
        None => variables,
    };
    // Conditions do not get the namespace. (apiserver: `matchconditions/matcher.go`.)
    let of_conditions = variables.clone().with("namespaceObject", None);
    let variables = variables.with("namespaceObject", namespace);
    let denial = |why: String| Denial {
        message: denied(&policy.name, Some(&binding.name), &why),
        reason: "Invalid",
    };
    let met = if policy.is_deep() {
        let policy = policy.clone();
        let met = spawn_blocking(move || policy.conditions.hold(&of_conditions)).await;
        met.unwrap_or_else(|error| Err(error.to_string()))
    } else {
        policy.conditions.hold(&of_conditions)
    };
    match met {
        Ok(true) => {}
        Ok(false) => return Ok(Asked::default()),
        Err(_) if policy.ignores_failures => return Ok(Asked::default()),
        Err(why) => return Ok(Some(denial(why)).into()),
    }
    let parameter_name = parameter.as_ref().map(|one| {
        let metadata = &one["metadata"];
        format!("{}/{}", metadata["namespace"], metadata["name"])
    });
    let id = format!(
        "{}/{}/{}",
        policy.name,
        binding.name,
        parameter_name.unwrap_or_default()
    );
    let reinvocation = &asked.reinvocation;
    if reinvocation.is_second && !reinvocation.policies.due.contains(&id) {
        return Ok(Asked::default());
    }
    let mut answer = Asked::default();
    if let Some(object) = view.object {
        let mut object = Cow::into_owned(object);
        for at in 0..policy.mutations() {
            match mutated(invocation, at, &variables, &object).await? {
                Ok(new) => {
                    object = new.unwrap_or(object);
                    answer.is_dirty = true;
                }
                Err(_) if policy.ignores_failures => {}
                Err(why) => answer.denials.push(denial(why)),
            }
        }
        let changed = accepted(server, asked, info, object).await?;
        if let (Some(changed), Some(object)) = (changed, asked.object.as_deref_mut()) {
            *object = changed;
            asked.reinvocation.policies.require();
            asked.reinvocation.is_due = true;
        }
    }
    if policy.expressions.reinvoked {
        asked.reinvocation.policies.asked.insert(id);
    }
    Ok(answer)
}

/// The object after one mutation; `None` if its patch tests for something else.
///
/// # Errors
/// The inner one is that of the policy; the outer one refuses the write.
async fn mutated(
    invocation: &Invocation<Mutations>,
    at: usize,
    variables: &Variables,
    object: &Value,
) -> Result<Result<Option<Value>, String>, Status> {
    let Invocation { policy, info, .. } = invocation;
    let variables = variables.clone().with("object", Some(object));
    let patch = if policy.is_deep() {
        let policy = policy.clone();
        let patch = spawn_blocking(move || policy.patch(at, &variables)).await;
        patch.map_err(Status::internal)?
    } else {
        policy.patch(at, &variables)
    };
    let patch = match patch {
        Ok(patch) => patch,
        Err(why) => return Ok(Err(why)),
    };
    let is_json_patch = matches!(patch, Patch::Operations(_));
    let mut new = match patch {
        Patch::Merge(patch) => match merged(info, object, patch) {
            Ok(new) => new,
            Err(why) => return Ok(Err(format!("error applying patch: {why}"))),
        },
        Patch::Operations(operations) => {
            match patch::apply_json(object, json!(operations).to_string().as_bytes()) {
                Ok(new) => new,
                Err(error) if error.to_string().ends_with("failed: test failed") => {
                    return Ok(Ok(None));
                }
                Err(error) => return Ok(Err(format!("JSON Patch: {error}"))),
            }
        }
    };
    if new["kind"] == object["kind"] && new["apiVersion"] == object["apiVersion"] {
        if is_json_patch && new["kind"] == *info.kind {
            decode_strictly(info, &new)?;
        }
        if new["kind"] == *info.kind {
            decode(info, &mut new)?;
        }
    } else if !info.custom {
        let text = |field: &str| string(&new[field]).to_owned();
        return Err(Status::internal(format!(
            "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            quote(&text("kind")),
            quote(&text("apiVersion"))
        )));
    }
    Ok(Ok(Some(new)))
}

fn merged(info: &ResourceInfo, object: &Value, mut patch: Value) -> Result<Value, String> {
    let Some(schema) = ownership::schema(info) else {
        return Err(format!("no type converter for {}", info.kind));
    };
    for field in ["apiVersion", "kind"] {
        patch[field] = object[field].clone();
    }
    apply::patched(&schema, object, &patch)
}

/// The refusal of a write, with the first denial as its message.
fn refusal(asked: &AdmissionRequest<'_>, denials: Vec<Denial>) -> Option<Status> {
    let first = denials.first()?;
    let status = Status::forbidden(asked.request.resource(), asked.name(), "");
    let mut status = status.with_text(first.message.clone(), first.reason);
    for denial in denials {
        status = status.with_cause("", "", denial.message);
    }
    Some(status)
}

fn denied(policy: &str, binding: Option<&str>, why: &str) -> String {
    match binding {
        Some(binding) => {
            format!("policy '{policy}' with binding '{binding}' denied request: {why}")
        }
        None => format!("policy {} denied request: {why}", quote(policy)),
    }
}

// === impl Asked ===

impl From<Option<Denial>> for Asked {
    fn from(denial: Option<Denial>) -> Self {
        Self {
            denials: denial.into_iter().collect(),
            is_dirty: false,
        }
    }
}

// === impl Denial ===

impl From<Misconfigured> for Denial {
    fn from(broken: Misconfigured) -> Self {
        Self {
            message: denied(&broken.policy, broken.binding.as_deref(), &broken.why),
            reason: "Forbidden",
        }
    }
}

impl Admission for MutatingPolicies {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        super::policy::is_subject(&request.request.info)
    }

    fn mutate<'a>(
        &'a self,
        server: &'a Server<'_>,
        asked: &'a mut AdmissionRequest<'_>,
    ) -> Answer<'a> {
        self.ask_all(server, asked).boxed()
    }
}
