//! The stored policies with their bindings, and those that a write invokes.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::binding::Binding;
use super::policy::{Expressions, Policy};
use crate::admission::matching::is_namespaces;
use crate::admission::{AdmissionRequest, Server};
use crate::meta;
use crate::resource::ResourceInfo;
use crate::status::{GroupResource, Status};
use crate::store::{Object, Store};

/// The policies of one kind that have bindings, by name, read again after a change.
#[derive(Debug)]
pub(super) struct Policies<E> {
    policies: &'static str,
    bindings: &'static str,
    read: Mutex<Option<Read<E>>>,
}

/// The last changes of policies and of bindings, and what was read then.
type Read<E> = ((u64, u64), All<E>);

type All<E> = Arc<[Bound<E>]>;

/// A policy with its bindings, by name.
#[derive(Debug)]
pub(super) struct Bound<E> {
    stored: Arc<Object>,
    policy: Arc<Policy<E>>,
    bindings: Vec<Arc<Binding>>,
}

/// A policy that is evaluated for a write, with one binding and one parameter.
#[derive(Debug)]
pub(super) struct Invocation<E> {
    pub(super) policy: Arc<Policy<E>>,
    pub(super) binding: Arc<Binding>,
    /// The resource under which the policy matches the write.
    pub(super) info: Arc<ResourceInfo>,
    /// `None` for a policy or a binding without parameters.
    pub(super) parameter: Option<Value>,
}

/// A policy or binding that cannot be used, and whose failures are not ignored.
#[derive(Debug)]
pub(super) struct Misconfigured {
    pub(super) policy: String,
    /// `None` if the policy is the cause.
    pub(super) binding: Option<String>,
    pub(super) why: String,
}

/// What a policy does in a write.
pub(super) type Step<E> = Result<Invocation<E>, Misconfigured>;

// === impl Invocation ===

impl<E> Invocation<E> {
    /// That the policy cannot be evaluated, and whether its binding is named as the cause; `None` if its failures are
    /// ignored.
    pub(super) fn misconfigured(
        &self,
        of_binding: bool,
        why: &impl std::fmt::Display,
    ) -> Option<Misconfigured> {
        let binding = of_binding.then_some(&*self.binding);
        misconfigured(&self.policy, binding, why)
    }
}

// === impl Policies ===

impl<E: Expressions> Policies<E> {
    /// Those of the objects in `policies` and `bindings`.
    pub(super) fn new(policies: &'static str, bindings: &'static str) -> Self {
        Self {
            policies,
            bindings,
            read: Mutex::default(),
        }
    }

    /// The current policies. One that did not change stays the same, with its compiled expressions.
    pub(super) fn current(&self, store: &Store) -> All<E> {
        let version = (
            store.last_change(self.policies),
            store.last_change(self.bindings),
        );
        // Expressions are compiled without the lock. Two writers may do it at once: the next compares the versions again.
        let read = self.read.lock().clone();
        if let Some((of, all)) = &read
            && *of == version
        {
            return all.clone();
        }
        let mut bindings = store.list(self.bindings, "").1;
        bindings.sort_by(|one, other| name(one).cmp(name(other)));
        let mut policies = store.list(self.policies, "").1;
        policies.sort_by(|one, other| name(one).cmp(name(other)));
        let bound = |stored: Arc<Object>| {
            let of_policy = bindings
                .iter()
                .filter(|binding| binding.value()["spec"]["policyName"] == *name(&stored));
            let bindings: Vec<_> = of_policy
                .map(|binding| Arc::new(Binding::read(&binding.value())))
                .collect();
            if bindings.is_empty() {
                return None;
            }
            let mut before = read.iter().flat_map(|(_, all)| &**all);
            let same = before.find(|before| before.stored.version() == stored.version());
            let policy = match same {
                Some(same) => same.policy.clone(),
                None => Arc::new(Policy::read(&stored.value())),
            };
            Some(Bound {
                stored,
                policy,
                bindings,
            })
        };
        let all: All<E> = policies.into_iter().filter_map(bound).collect();
        *self.read.lock() = Some((version, all.clone()));
        all
    }
}

fn name(object: &Object) -> &str {
    object.name()
}

// === impl Bound ===

impl<E> Bound<E> {
    /// What the policy does in a write.
    pub(super) async fn steps(
        &self,
        server: &Server<'_>,
        asked: &AdmissionRequest<'_>,
        old: Option<&Value>,
    ) -> Vec<Step<E>> {
        let info = match self.policy.matcher.resource_for(server, asked, old) {
            Ok(Some(info)) => info,
            Ok(None) => return Vec::new(),
            Err(status) => return self.misconfigured(None, &status).into_iter().collect(),
        };
        let of_parameters = self.policy.parameter_kind.as_ref();
        let of_parameters = match of_parameters.map(|kind| kind.resource(server)).transpose() {
            Ok(info) => info,
            Err(why) => return self.misconfigured(None, &why).into_iter().collect(),
        };
        let mut steps = Vec::new();
        for binding in &self.bindings {
            let matched = binding.matcher.as_ref();
            let matched = matched.map(|matcher| matcher.resource_for(server, asked, old));
            match matched {
                None | Some(Ok(Some(_))) => {}
                Some(Ok(None)) => continue,
                Some(Err(status)) => {
                    steps.extend(self.misconfigured(Some(binding), &status));
                    continue;
                }
            }
            let parameters = match (&of_parameters, &binding.parameters) {
                (Some(of), Some(reference)) => reference
                    .resolve(server, asked, of)
                    .await
                    .map(|found| found.into_iter().map(Some).collect()),
                _ => Ok(vec![None]),
            };
            match parameters {
                Ok(parameters) => steps.extend(parameters.into_iter().map(|parameter| {
                    Ok(Invocation {
                        policy: self.policy.clone(),
                        binding: binding.clone(),
                        info: info.clone(),
                        parameter,
                    })
                })),
                Err(why) => steps.extend(self.misconfigured(Some(binding), &why)),
            }
        }
        steps
    }

    fn misconfigured(
        &self,
        binding: Option<&Binding>,
        why: &impl std::fmt::Display,
    ) -> Option<Step<E>> {
        misconfigured(&self.policy, binding, why).map(Err)
    }
}

fn misconfigured<E>(
    policy: &Policy<E>,
    binding: Option<&Binding>,
    why: &impl std::fmt::Display,
) -> Option<Misconfigured> {
    let of = if binding.is_some() {
        "binding"
    } else {
        "policy"
    };
    (!policy.ignores_failures).then(|| Misconfigured {
        policy: policy.name.clone(),
        binding: binding.map(|binding| binding.name.clone()),
        why: format!("failed to configure {of}: {why}"),
    })
}

/// The namespace of a write, as expressions see it; `None` for what is in none.
///
/// # Errors
/// 404 for an absent namespace.
pub(super) fn namespace_object(
    server: &Server<'_>,
    asked: &AdmissionRequest<'_>,
) -> Result<Option<Value>, Status> {
    let namespace = asked.namespace();
    if namespace.is_empty() || is_namespaces(&asked.request.info) {
        return Ok(None);
    }
    let found = server.store.get("namespaces", namespace);
    let resource = GroupResource {
        group: "",
        resource: "namespaces",
    };
    let found = found.ok_or_else(|| Status::not_found(resource, namespace))?;
    let mut value = found.to_value();
    for field in ["managedFields", "ownerReferences"] {
        meta::object_mut(&mut value["metadata"]).remove(field);
    }
    Ok(Some(value))
}
