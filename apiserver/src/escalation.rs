//! Escalation: a user may grant only rights that it holds. The check of roles and bindings with RBAC.
//!
//! (kubernetes: `pkg/registry/rbac/*/policybased`.)

use serde_json::Value;

use crate::access;
use crate::core::Core;
use crate::kinds::strategy::Grants;
use crate::meta;
use crate::rbac::{Attributes, MASTERS, Policy, Rule};
use crate::request::Request;
use crate::status::Status;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Checks a role or binding that is about to be written.
///
/// # Errors
/// 403 with the rules that the user does not hold.
pub(crate) fn check(
    core: &Core,
    request: &Request,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let info = &request.info;
    let Some(grants) = info.strategy.grants() else {
        return Ok(());
    };
    // The first start writes more than a hundred roles, and a policy is made again after each.
    if request.user.is_in(MASTERS) {
        return Ok(());
    }
    let Some(policy) = access::policy(core) else {
        return Ok(());
    };
    let namespace = request.namespace_of_object();
    let name = meta::text(object, "name");
    let granted = match grants {
        Grants::Rules => {
            if old.is_some_and(|old| differs_for_collectors_only(old, object)) {
                return Ok(());
            }
            if may(&policy, request, "escalate", &info.plural, &namespace, name) {
                return Ok(());
            }
            serde_json::from_value::<Vec<Rule>>(object["rules"].clone()).unwrap_or_default()
        }
        Grants::Role => {
            let reference = &object["roleRef"];
            let text = |field: &str| reference[field].as_str().unwrap_or_default();
            let plural = if text("kind") == "Role" {
                "roles"
            } else {
                "clusterroles"
            };
            let unchanged = old.is_some_and(|old| differs_for_collectors_only(old, object));
            if unchanged || may(&policy, request, "bind", plural, &namespace, text("name")) {
                return Ok(());
            }
            match policy.rules_of_role(text("kind"), &namespace, text("name")) {
                Some(rules) => rules.to_vec(),
                None => {
                    let resource = crate::status::GroupResource {
                        group: GROUP,
                        resource: plural,
                    };
                    return Err(Status::not_found(resource, text("name")));
                }
            }
        }
    };
    let missing = policy.uncovered(&request.user, &namespace, &granted);
    if missing.is_empty() {
        return match grants {
            Grants::Rules => refuse_aggregation(&policy, request, object, old),
            Grants::Role => Ok(()),
        };
    }
    let mut shown: Vec<String> = missing.iter().map(compact).collect();
    shown.sort();
    let groups: Vec<String> = request
        .user
        .groups
        .iter()
        .map(|group| format!("{group:?}"))
        .collect();
    Err(Status::forbidden(
        request.resource(),
        name,
        format_args!(
            "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            request.user.name,
            groups.join(" "),
            shown.join("\n")
        ),
    ))
}

/// Whether only fields of the garbage collector differ. (kubernetes: `IsOnlyMutatingGCFields`.)
fn differs_for_collectors_only(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        let metadata = meta::metadata_mut(&mut object);
        for field in [
            "ownerReferences",
            "finalizers",
            "managedFields",
            "resourceVersion",
        ] {
            metadata.remove(field);
        }
        object
    };
    rest(old) == rest(new)
}

/// A role that aggregates others may get any rights, whenever another role is labelled. (kubernetes:
/// `clusterrole/policybased`.)
fn refuse_aggregation(
    policy: &Policy,
    request: &Request,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let aggregates = |role: &Value| !role["aggregationRule"].is_null();
    if !aggregates(object) && !old.is_some_and(aggregates) {
        return Ok(());
    }
    let all = Rule::everything();
    if policy.uncovered(&request.user, "", &all).is_empty() {
        return Ok(());
    }
    Err(Status::forbidden(
        request.resource(),
        meta::text(object, "name"),
        "must have cluster-admin privileges to use the aggregationRule",
    ))
}

fn may(
    policy: &Policy,
    request: &Request,
    verb: &str,
    plural: &str,
    namespace: &str,
    name: &str,
) -> bool {
    let attributes = Attributes::resource(verb, GROUP, plural)
        .in_namespace(namespace)
        .named(name);
    policy.authorize(&request.user, &attributes).allowed
}

/// A rule in one line, in the format of kubectl and the server.
fn compact(rule: &Rule) -> String {
    let parts: Vec<String> = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ]
    .into_iter()
    .filter(|(_, values)| !values.is_empty())
    .map(|(name, values)| {
        let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        format!("{name}:[{}]", quoted.join(" "))
    })
    .collect();
    format!("{{{}}}", parts.join(", "))
}
