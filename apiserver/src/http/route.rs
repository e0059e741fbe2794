//! The target of a request, from its method, path and query.
//!
//! (apiserver: `request.RequestInfoFactory`.)

use http::Method;

use super::query::{Parameters, percent_decode};
use crate::rbac::Attributes;
use crate::selector::FieldSelector;

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Objects: `/api/v1/...`, `/apis/group/version/...`.
    Resource(ResourcePath),
    /// Anything else: discovery, health, OpenAPI; the path without a trailing slash.
    Other(String),
}

/// The parts of a path that names objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    /// Group; empty for core.
    pub(crate) group: String,
    /// Version.
    pub(crate) version: String,
    /// Namespace; empty when the path has none.
    pub(crate) namespace: String,
    /// Plural resource.
    pub(crate) resource: String,
    /// Name; empty for a collection.
    pub(crate) name: String,
    /// For a collection, the name in a field selector; for authorization only.
    pub(crate) selected_name: String,
    /// Subresource; empty for the object itself.
    pub(crate) subresource: String,
    /// Segments after the subresource.
    pub(crate) rest: Vec<String>,
    /// The verb in authorization and discovery.
    pub(crate) verb: &'static str,
}

// === impl Target ===

impl Target {
    /// Parses a request.
    pub(crate) fn of(method: &Method, path: &str, query: &Parameters) -> Self {
        // Decoded before it is split, as in Go: `a%2Fb` is two segments.
        let path = percent_decode(path);
        let mut parts: Vec<String> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect();
        let (group, version, skip) = match parts.first().map(String::as_str) {
            Some("api") if parts.len() >= 3 => (String::new(), parts[1].clone(), 2),
            Some("apis") if parts.len() >= 4 => (parts[1].clone(), parts[2].clone(), 3),
            _ => return Self::Other(format!("/{}", parts.join("/"))),
        };
        let mut parts = parts.split_off(skip).into_iter().peekable();
        // The legacy form of a watch: /api/v1/watch/pods.
        let watch_prefix = parts.next_if(|part| part == "watch").is_some();
        let mut parts: Vec<String> = parts.collect();
        let mut target = ResourcePath {
            group,
            version,
            ..ResourcePath::default()
        };
        if parts.first().is_some_and(|part| part == "namespaces") && parts.len() > 2 {
            // `status` and `finalize` below a namespace are its subresources, all else is inside it.
            if parts[2] != "status" && parts[2] != "finalize" {
                target.namespace = parts[1].clone();
                parts.drain(..2);
            }
        }
        let mut parts = parts.into_iter();
        target.resource = parts.next().unwrap_or_default();
        target.name = parts.next().unwrap_or_default();
        target.subresource = parts.next().unwrap_or_default();
        target.rest = parts.collect();
        // Below a namespace there are no namespaces: the path keeps its namespace, and is not found.
        if target.resource == "namespaces" && target.group.is_empty() && target.namespace.is_empty()
        {
            target.namespace.clone_from(&target.name);
        }
        let named = !target.name.is_empty();
        // A named object is read, whatever the query; only the legacy path form watches it.
        let watch = watch_prefix || (!named && query.flag("watch"));
        if !named && *method != Method::POST {
            // A list, watch or deletion with a field selector for one name has that name.
            let selector = query.get("fieldSelector").unwrap_or_default();
            target.selected_name = FieldSelector::parse(selector)
                .ok()
                .and_then(|fields| fields.required_value("metadata.name").map(str::to_owned))
                .unwrap_or_default();
        }
        target.verb = match *method {
            Method::GET | Method::HEAD if named && !watch => "get",
            Method::GET | Method::HEAD if watch => "watch",
            Method::GET | Method::HEAD => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if named => "delete",
            Method::DELETE => "deletecollection",
            _ => "",
        };
        Self::Resource(target)
    }

    /// The attributes for authorization.
    pub(crate) fn attributes(&self, method: &Method) -> Attributes {
        match self {
            Self::Resource(path) => Attributes {
                verb: path.verb.to_owned(),
                group: path.group.clone(),
                version: path.version.clone(),
                resource: path.resource.clone(),
                subresource: path.subresource.clone(),
                namespace: path.namespace.clone(),
                name: if path.name.is_empty() {
                    path.selected_name.clone()
                } else {
                    path.name.clone()
                },
                path: String::new(),
            },
            Self::Other(path) => Attributes::path(method.as_str().to_ascii_lowercase(), path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(method: &Method, path: &str, query: &str) -> ResourcePath {
        match Target::of(method, path, &Parameters::parse(query)) {
            Target::Resource(path) => path,
            Target::Other(path) => panic!("{path} is no resource"),
        }
    }

    #[test]
    fn paths_name_group_version_namespace_resource_name_and_subresource() {
        let cases = [
            ("/api/v1/pods", ("", "", "pods", "", "", "list")),
            ("/api/v1/namespaces", ("", "", "namespaces", "", "", "list")),
            (
                "/api/v1/namespaces/a",
                ("", "a", "namespaces", "a", "", "get"),
            ),
            (
                "/api/v1/namespaces/a/status",
                ("", "a", "namespaces", "a", "status", "get"),
            ),
            (
                "/api/v1/namespaces/a/pods/",
                ("", "a", "pods", "", "", "list"),
            ),
            (
                "/api/v1/namespaces/a/pods/b",
                ("", "a", "pods", "b", "", "get"),
            ),
            (
                "/apis/g.io/v1/namespaces/a/foos/b/scale",
                ("g.io", "a", "foos", "b", "scale", "get"),
            ),
            ("/apis/g.io/v1/foos/b", ("g.io", "", "foos", "b", "", "get")),
            ("/api/v1/watch/pods", ("", "", "pods", "", "", "watch")),
        ];
        for (path, expected) in cases {
            let found = resource(&Method::GET, path, "");
            let found = (
                found.group.as_str(),
                found.namespace.as_str(),
                found.resource.as_str(),
                found.name.as_str(),
                found.subresource.as_str(),
                found.verb,
            );
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn the_verb_follows_method_and_query() {
        assert_eq!(
            resource(&Method::GET, "/api/v1/pods", "watch=true").verb,
            "watch"
        );
        assert_eq!(
            resource(&Method::GET, "/api/v1/pods", "watch=false").verb,
            "list"
        );
        assert_eq!(
            resource(&Method::DELETE, "/api/v1/pods", "").verb,
            "deletecollection"
        );
        assert_eq!(
            resource(&Method::DELETE, "/api/v1/nodes/a", "").verb,
            "delete"
        );
    }

    #[test]
    fn discovery_and_health_are_not_resources() {
        for path in [
            "/",
            "/api",
            "/apis/",
            "/apis/g.io/v1",
            "/healthz",
            "/openapi/v3/api/v1",
        ] {
            let target = Target::of(&Method::GET, path, &Parameters::default());
            let trimmed = if path == "/" {
                "/"
            } else {
                path.trim_end_matches('/')
            };
            assert_eq!(target, Target::Other(trimmed.to_owned()));
        }
    }
}
