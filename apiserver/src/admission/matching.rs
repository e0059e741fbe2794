//! Which writes a webhook, a policy or a binding is about.

use std::sync::Arc;

use serde_json::Value;

use super::request::{AdmissionRequest, Operation};
use super::server::Server;
use crate::resource::ResourceInfo;
use crate::selector::LabelSelector;
use crate::status::{GroupResource, Status};
use crate::table::cells::{items, string};

const NAMESPACES: GroupResource<'static> = GroupResource {
    group: "",
    resource: "namespaces",
};

/// The writes that a webhook, a policy or a binding is about. (apiserver: `policy/matching`, `webhook/generic`.)
#[derive(Debug)]
pub(super) struct Matcher {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// Whether a write matches without any rule.
    matches_without_rules: bool,
    /// Whether rules also match the other versions of their resources.
    is_equivalent: bool,
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
}

/// Operations and resources.
#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// `RESOURCE` or `RESOURCE/SUBRESOURCE`.
    resources: Vec<String>,
    /// Empty for all names.
    names: Vec<String>,
    scope: Scope,
}

/// The scope of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Namespaced,
    Cluster,
}

/// Whether a write is one of a Namespace.
pub(super) fn is_namespaces(info: &ResourceInfo) -> bool {
    info.group_resource() == NAMESPACES
}

// === impl Matcher ===

impl Matcher {
    /// That of an entry of a webhook configuration.
    pub(super) fn of_webhook(source: &Value) -> Self {
        Self::read(source, "rules", false)
    }

    /// That of `matchConstraints` or `matchResources`.
    pub(super) fn of_policy(source: &Value) -> Self {
        Self::read(source, "resourceRules", true)
    }

    fn read(source: &Value, rules: &str, matches_without_rules: bool) -> Self {
        let selector = |field: &str| {
            LabelSelector::from_value(&source[field]).map_err(|error| error.to_string())
        };
        let read = |field: &str| items(&source[field]).iter().map(Rule::read).collect();
        Self {
            rules: read(rules),
            excluded: read("excludeResourceRules"),
            matches_without_rules,
            is_equivalent: source["matchPolicy"] != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// The resource under which a write matches: its own, or another version of it.
    ///
    /// # Errors
    /// 404 for an absent namespace whose labels are needed, 500 for a selector that cannot be read.
    pub(super) fn resource_for(
        &self,
        server: &Server<'_>,
        asked: &AdmissionRequest<'_>,
        old: Option<&Value>,
    ) -> Result<Option<Arc<ResourceInfo>>, Status> {
        if matched(server, &self.excluded, self.is_equivalent, asked).is_some() {
            return Ok(None);
        }
        let info = if self.rules.is_empty() && self.matches_without_rules {
            asked.request.info.clone()
        } else {
            match matched(server, &self.rules, self.is_equivalent, asked) {
                Some(info) => info,
                None => return Ok(None),
            }
        };
        // A selector that does not match decides, even if the other one cannot be read.
        let (namespace, object) = (
            self.selects_namespace(server, asked),
            self.selects_object(asked, old),
        );
        if matches!(namespace, Ok(false)) || matches!(object, Ok(false)) {
            return Ok(None);
        }
        Ok((namespace? && object?).then_some(info))
    }

    fn selects_namespace(
        &self,
        server: &Server<'_>,
        asked: &AdmissionRequest<'_>,
    ) -> Result<bool, Status> {
        let namespace = asked.namespace();
        let is_namespace = is_namespaces(&asked.request.info);
        if namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let selector = readable(&self.namespaces)?;
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
        Ok(selector.matches_object(&found.value()))
    }

    fn selects_object(
        &self,
        asked: &AdmissionRequest<'_>,
        old: Option<&Value>,
    ) -> Result<bool, Status> {
        let selector = readable(&self.objects)?;
        // The options of a connection have no labels, not even none of them.
        let has_labels = asked.operation != Operation::Connect;
        let matches = |object: &Value| has_labels && selector.matches_object(object);
        Ok(selector.is_empty()
            || asked.object.as_deref().is_some_and(matches)
            || old.is_some_and(matches))
    }
}

/// The resource that a rule matches: that of the request, or another version of it. Earlier rules come first.
fn matched(
    server: &Server<'_>,
    rules: &[Rule],
    is_equivalent: bool,
    asked: &AdmissionRequest<'_>,
) -> Option<Arc<ResourceInfo>> {
    let info = &asked.request.info;
    if rules.iter().any(|rule| rule.matches(asked, info)) {
        return Some(info.clone());
    }
    if !is_equivalent || rules.is_empty() || info.storage.is_empty() {
        return None;
    }
    let served = server.registry.served();
    let others: Vec<_> = served
        .all()
        .filter(|other| other.storage == info.storage && other.api_version() != info.api_version())
        .collect();
    rules.iter().find_map(|rule| {
        let equivalent = others.iter().find(|other| rule.matches(asked, other));
        equivalent.map(|&other| other.clone())
    })
}

fn readable(selector: &Result<LabelSelector, String>) -> Result<&LabelSelector, Status> {
    selector.as_ref().map_err(Status::internal)
}

// === impl Rule ===

impl Rule {
    fn read(source: &Value) -> Self {
        let texts = |field: &str| {
            let texts = items(&source[field]).iter();
            texts.map(|text| string(text).to_owned()).collect()
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            scope: match string(&source["scope"]) {
                "Namespaced" => Scope::Namespaced,
                "Cluster" => Scope::Cluster,
                _ => Scope::All,
            },
        }
    }

    /// Whether the rule matches a write, if it were one of `info`.
    fn matches(&self, asked: &AdmissionRequest<'_>, info: &ResourceInfo) -> bool {
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
            && (self.names.is_empty() || self.names.iter().any(|name| name == asked.name()))
    }
}
