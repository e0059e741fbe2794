//! What a request is about.

use http::Method;

/// The object or collection of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    /// The path of the collection in all namespaces.
    pub(super) collection: String,
    /// `pods`, `pods/status`.
    pub(super) resource: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
}

/// Requests of these resources are no effects: leases and Events are no state that a controller works on, and reviews are
/// questions.
const NO_EFFECTS: [&str; 6] = [
    "leases",
    "events",
    "tokenreviews",
    "subjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
];

// === impl Target ===

impl Target {
    /// `None` for paths that are not of resources.
    pub(super) fn of(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let prefix = match parts.next()? {
            "api" => format!("/api/{}", parts.next()?),
            "apis" => format!("/apis/{}/{}", parts.next()?, parts.next()?),
            _ => return None,
        };
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..]
                if !rest.is_empty() && *rest != ["status"] && *rest != ["finalize"] =>
            {
                (Some((*namespace).to_owned()), rest)
            }
            rest => (None, rest),
        };
        let (resource, rest) = rest.split_first()?;
        let (name, sub) = match rest {
            [] => (None, None),
            [name] => (Some((*name).to_owned()), None),
            [name, sub, ..] => (Some((*name).to_owned()), Some(*sub)),
        };
        Some(Self {
            collection: format!("{prefix}/{resource}"),
            resource: sub.map_or_else(|| (*resource).to_owned(), |sub| format!("{resource}/{sub}")),
            namespace,
            name,
        })
    }

    /// Whether writes and events of the resource are no part of what is explored.
    pub(super) fn is_plain(&self) -> bool {
        let plain = self.resource.split('/').next().unwrap_or_default();
        NO_EFFECTS.contains(&plain)
    }

    /// `default/a`, or `a`.
    pub(super) fn object(&self, name: &str) -> String {
        let namespace = self.namespace.as_deref();
        namespace.map_or_else(
            || name.to_owned(),
            |namespace| format!("{namespace}/{name}"),
        )
    }

    /// The verb of a request that writes; `None`: it reads, or it is no effect.
    pub(super) fn effect(&self, method: &Method) -> Option<&'static str> {
        if self.is_plain() {
            return None;
        }
        match (method, &self.name) {
            (&Method::POST, None) => Some("create"),
            (&Method::POST, Some(_)) => Some("post"),
            (&Method::PUT, _) => Some("update"),
            (&Method::PATCH, _) => Some("patch"),
            (&Method::DELETE, Some(_)) => Some("delete"),
            (&Method::DELETE, None) => Some("deletecollection"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_resources_and_objects() {
        for (path, collection, resource, object) in [
            ("/api/v1/pods", "/api/v1/pods", "pods", ""),
            (
                "/api/v1/namespaces/a",
                "/api/v1/namespaces",
                "namespaces",
                "a",
            ),
            (
                "/api/v1/namespaces/a/status",
                "/api/v1/namespaces",
                "namespaces/status",
                "a",
            ),
            (
                "/api/v1/namespaces/a/pods/b/status",
                "/api/v1/pods",
                "pods/status",
                "a/b",
            ),
            (
                "/apis/x.io/v1/namespaces/a/things/b",
                "/apis/x.io/v1/things",
                "things",
                "a/b",
            ),
            (
                "/apis/x.io/v1/wholes/b",
                "/apis/x.io/v1/wholes",
                "wholes",
                "b",
            ),
        ] {
            let target = Target::of(path).unwrap();
            assert_eq!(target.collection, collection, "{path}");
            assert_eq!(target.resource, resource, "{path}");
            let found = target.name.as_deref().map(|name| target.object(name));
            assert_eq!(found.unwrap_or_default(), object, "{path}");
        }
        assert_eq!(Target::of("/version"), None);
        assert_eq!(Target::of("/apis"), None);
    }

    #[test]
    fn leases_and_events_are_no_effects() {
        let effect = |path: &str, method| Target::of(path).unwrap().effect(&method);
        assert_eq!(
            effect("/api/v1/namespaces/a/pods", Method::POST),
            Some("create")
        );
        assert_eq!(
            effect("/api/v1/namespaces/a/pods/b", Method::DELETE),
            Some("delete")
        );
        assert_eq!(effect("/api/v1/namespaces/a/pods/b", Method::GET), None);
        assert_eq!(
            effect(
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
                Method::PUT
            ),
            None
        );
        assert_eq!(
            effect("/apis/events.k8s.io/v1/namespaces/a/events", Method::POST),
            None
        );
    }
}
