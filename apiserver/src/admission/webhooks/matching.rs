//! Which webhooks a write asks.

use std::sync::Arc;

use serde_json::Value;

use super::hook::{Hook, Rule, Scope};
use crate::admission::{AdmissionRequest, Operation, Server};
use crate::resource::ResourceInfo;
use crate::selector::LabelSelector;
use crate::status::{GroupResource, Status};

/// Objects of this group that configure admission are not subject to it, so that nothing locks itself out.
const CONFIGURES: &str = "admissionregistration.k8s.io";
const NAMESPACES: GroupResource<'static> = GroupResource {
    group: "",
    resource: "namespaces",
};

/// Whether a webhook may be asked about a resource.
pub(super) fn is_subject(info: &ResourceInfo) -> bool {
    !(info.group == CONFIGURES
        && matches!(
            info.kind.as_str(),
            "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        ))
}

/// The resource under which a webhook is asked about a write, if its rules and selectors match.
///
/// # Errors
/// 404 for an absent namespace whose labels are needed, 500 for a selector that cannot be read.
pub(super) fn resource_for(
    server: &Server<'_>,
    hook: &Hook,
    asked: &AdmissionRequest<'_>,
    old: Option<&Value>,
) -> Result<Option<Arc<ResourceInfo>>, Status> {
    let Some(info) = matched(server, hook, asked) else {
        return Ok(None);
    };
    let is_selected = selects_namespace(server, hook, asked)? && selects_object(hook, asked, old)?;
    Ok(is_selected.then_some(info))
}

/// The resource that a rule matches: that of the request, or another version of it. Earlier rules come first.
fn matched(
    server: &Server<'_>,
    hook: &Hook,
    asked: &AdmissionRequest<'_>,
) -> Option<Arc<ResourceInfo>> {
    let info = &asked.request.info;
    if hook.rules.iter().any(|rule| rule.matches(asked, info)) {
        return Some(info.clone());
    }
    if !hook.is_equivalent || hook.rules.is_empty() || info.storage.is_empty() {
        return None;
    }
    let served = server.registry.served();
    let others: Vec<_> = served
        .all()
        .filter(|other| other.storage == info.storage && other.api_version() != info.api_version())
        .collect();
    hook.rules.iter().find_map(|rule| {
        let equivalent = others.iter().find(|other| rule.matches(asked, other));
        equivalent.map(|&other| other.clone())
    })
}

fn selects_namespace(
    server: &Server<'_>,
    hook: &Hook,
    asked: &AdmissionRequest<'_>,
) -> Result<bool, Status> {
    let namespace = asked.namespace();
    let is_namespace = is_namespaces(&asked.request.info);
    if namespace.is_empty() && !is_namespace {
        return Ok(true);
    }
    let selector = read(&hook.namespaces)?;
    if selector.is_empty() {
        return Ok(true);
    }
    let writes = asked.request.subresource.is_empty() && asked.operation != Operation::Delete;
    if is_namespace && writes {
        let object = asked.object.as_deref();
        return Ok(object.is_some_and(|object| selector.matches_object(object)));
    }
    let found = server.store.get(NAMESPACES.resource, namespace);
    let found = found.ok_or_else(|| Status::not_found(NAMESPACES, namespace))?;
    Ok(selector.matches_object(found.value()))
}

fn selects_object(
    hook: &Hook,
    asked: &AdmissionRequest<'_>,
    old: Option<&Value>,
) -> Result<bool, Status> {
    let selector = read(&hook.objects)?;
    let matches = |object: &Value| selector.matches_object(object);
    Ok(selector.is_empty()
        || asked.object.as_deref().is_some_and(matches)
        || old.is_some_and(matches))
}

fn read(selector: &Result<LabelSelector, String>) -> Result<&LabelSelector, Status> {
    selector.as_ref().map_err(Status::internal)
}

fn is_namespaces(info: &ResourceInfo) -> bool {
    info.group_resource() == NAMESPACES
}

// === impl Rule ===

impl Rule {
    /// Whether the rule matches a write, if it were one of `info`.
    pub(super) fn matches(&self, asked: &AdmissionRequest<'_>, info: &ResourceInfo) -> bool {
        let one_of =
            |texts: &[String], wanted: &str| texts.iter().any(|text| text == "*" || text == wanted);
        let in_scope = match self.scope {
            Scope::All => true,
            Scope::Namespaced => !is_namespaces(info) && !asked.namespace().is_empty(),
            Scope::Cluster => is_namespaces(info) || asked.namespace().is_empty(),
        };
        let of_resource = |pattern: &String| {
            let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
            let is_any = |pattern: &str, wanted: &str| pattern == "*" || pattern == wanted;
            is_any(resource, &info.plural) && is_any(subresource, &asked.request.subresource)
        };
        in_scope
            && one_of(&self.operations, asked.operation.name())
            && one_of(&self.groups, &info.group)
            && one_of(&self.versions, &info.version)
            && self.resources.iter().any(of_resource)
    }
}
