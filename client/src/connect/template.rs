//! The template of a request's path: without names, so that few different ones exist.

use std::fmt;

/// A path of the API server without the names in it: `/api/v1/namespaces/{namespace}/pods/{name}/status`.
///
/// The rules are those of kube-apiserver's `RequestInfoFactory`: a path of a resource is recognised by its position.
pub(super) struct Template<'a> {
    path: &'a str,
}

// === impl Template ===

impl<'a> Template<'a> {
    pub(super) fn of(path: &'a str) -> Self {
        Self { path }
    }
}

impl fmt::Display for Template<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut segments = self.path.split('/').filter(|segment| !segment.is_empty());
        let Some(root) = segments.next() else {
            return f.write_str("/");
        };
        write!(f, "/{root}")?;
        // The segments of the group and its version.
        let head = match root {
            "api" => 1,
            "apis" => 2,
            _ => {
                return match segments.next() {
                    Some(_) => f.write_str("/{path}"),
                    None => Ok(()),
                };
            }
        };
        for segment in segments.by_ref().take(head) {
            write!(f, "/{segment}")?;
        }
        let rest: Vec<&str> = segments.collect();
        match *rest {
            [] => Ok(()),
            ["namespaces"] => f.write_str("/namespaces"),
            ["namespaces", _] => f.write_str("/namespaces/{name}"),
            ["namespaces", _, subresource @ ("status" | "finalize")] => {
                write!(f, "/namespaces/{{name}}/{subresource}")
            }
            ["namespaces", _, ref of_namespace @ ..] => {
                f.write_str("/namespaces/{namespace}")?;
                resource(f, of_namespace)
            }
            ref of_cluster => resource(f, of_cluster),
        }
    }
}

/// Writes a resource, the place of its name, and its subresource.
fn resource(f: &mut fmt::Formatter<'_>, segments: &[&str]) -> fmt::Result {
    for (place, segment) in segments.iter().enumerate() {
        match place {
            0 | 2 => write!(f, "/{segment}")?,
            1 => f.write_str("/{name}")?,
            // The path behind a proxy.
            _ => return f.write_str("/{path}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_the_resource_and_no_names() {
        for (path, template) in [
            ("/api/v1/nodes", "/api/v1/nodes"),
            ("/api/v1/nodes/a", "/api/v1/nodes/{name}"),
            ("/api/v1/nodes/a/status", "/api/v1/nodes/{name}/status"),
            ("/api/v1/namespaces", "/api/v1/namespaces"),
            ("/api/v1/namespaces/a", "/api/v1/namespaces/{name}"),
            (
                "/api/v1/namespaces/a/finalize",
                "/api/v1/namespaces/{name}/finalize",
            ),
            (
                "/api/v1/namespaces/a/pods",
                "/api/v1/namespaces/{namespace}/pods",
            ),
            (
                "/apis/apps/v1/namespaces/a/deployments/b/scale",
                "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
            ),
            (
                "/api/v1/namespaces/a/services/b/proxy/secret/page",
                "/api/v1/namespaces/{namespace}/services/{name}/proxy/{path}",
            ),
            ("/apis/apps/v1", "/apis/apps/v1"),
            ("/apis", "/apis"),
            ("/version", "/version"),
            ("/openapi/v3/apis/apps/v1", "/openapi/{path}"),
            ("/", "/"),
        ] {
            assert_eq!(Template::of(path).to_string(), template, "{path}");
        }
    }
}
