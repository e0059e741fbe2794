//! Paths that are no resources: version, health, discovery, OpenAPI.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, VARY};
use http::{HeaderMap, Method, Response};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::core::Core;
use crate::discovery::{self, Form};
use crate::http::answer;
use crate::http::body::Body;
use crate::http::media::Encoding;
use crate::openapi;
use crate::registry::{Served, Version};
use crate::status::Status;

/// Paths that `/` lists beside those of groups.
const PATHS: &[&str] = &[
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/livez",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
];

/// OpenAPI documents by path, each kept until a resource of its group and version changes.
#[derive(Debug, Default)]
pub(crate) struct OpenApiCache(Mutex<HashMap<String, Document>>);

#[derive(Clone, Debug)]
struct Document {
    of: Version,
    content: Bytes,
    hash: String,
}

// === impl OpenApiCache ===

impl OpenApiCache {
    fn document(&self, group: &str, version: &Version) -> Document {
        let path = openapi::base_path(group, &version.name);
        if let Some(cached) = self.0.lock().get(&path)
            && same(&cached.of, version)
        {
            return cached.clone();
        }
        let value = openapi::document(group, version);
        let document = Document {
            of: version.clone(),
            content: Bytes::from(value.to_string().into_bytes()),
            hash: openapi::hash(&value),
        };
        self.0.lock().insert(path, document.clone());
        document
    }

    /// Where the document of each group and version is, with a hash that changes with it.
    fn index(&self, served: &Served) -> Value {
        let mut paths = Map::new();
        for group in &served.groups {
            for version in &group.versions {
                let path = openapi::base_path(&group.name, &version.name);
                let hash = self.document(&group.name, version).hash;
                let url = format!("/openapi/v3/{path}?hash={hash}");
                paths.insert(path, json!({"serverRelativeURL": url}));
            }
        }
        json!({"paths": paths})
    }
}

fn same(one: &Version, other: &Version) -> bool {
    one.resources.len() == other.resources.len()
        && one
            .resources
            .iter()
            .zip(&other.resources)
            .all(|((_, one), (_, other))| Arc::ptr_eq(one, other))
}

/// Answers a path that is no resource.
pub(crate) fn answer(
    core: &Arc<Core>,
    path: &str,
    method: &Method,
    headers: &HeaderMap,
) -> Response<Body> {
    if *method != Method::GET && *method != Method::HEAD {
        return answer::failure(&Status::method_not_supported_here(), Encoding::Json, false);
    }
    let served = core.registry.served();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let header = |name| {
        headers
            .get(name)
            .and_then(|value: &http::HeaderValue| value.to_str().ok())
    };
    let accept = header(ACCEPT).unwrap_or_default();
    if let Some(content) = open_api(core, &served, &parts) {
        return content;
    }
    if let (["api" | "apis"], Some(form)) = (parts.as_slice(), Form::accepted(accept)) {
        let document = discovery::aggregated(&served, form, parts[0] == "api");
        let mut response = answer::bytes(200, form.content_type(), document.to_string());
        answer::set(&mut response, VARY, "Accept");
        return response;
    }
    let found = match parts.as_slice() {
        ["version"] => Some(version(core)),
        ["healthz" | "livez" | "readyz", ..] => return answer::text(200, "ok"),
        ["api"] => Some(discovery::core_versions(
            header(http::header::HOST).unwrap_or_default(),
        )),
        ["api", version] => match served.version("", version) {
            Some(version) => Some(discovery::resources("", version)),
            None => {
                return answer::failure(&Status::no_such_resource(), Encoding::Json, false);
            }
        },
        ["apis"] => Some(discovery::groups(&served)),
        ["apis", group] => served
            .group(group)
            .filter(|group| !group.name.is_empty())
            .map(discovery::group),
        ["apis", group, version] => served
            .version(group, version)
            .map(|version| discovery::resources(group, version)),
        [] => Some(root(&served)),
        _ => None,
    };
    match found {
        Some(value) => answer::document(200, Encoding::Json, path == "/version", &value),
        None => answer::text(404, "404 page not found\n"),
    }
}

fn open_api(core: &Core, served: &Served, parts: &[&str]) -> Option<Response<Body>> {
    let (group, version) = match parts {
        ["openapi", "v2"] => {
            return Some(answer::bytes(
                200,
                openapi::V2_CONTENT_TYPE,
                openapi::V2_DOCUMENT,
            ));
        }
        ["openapi", "v3"] => {
            let index = core.open_api.index(served);
            return Some(answer::document(200, Encoding::Json, false, &index));
        }
        ["openapi", "v3", "api", version] => ("", *version),
        ["openapi", "v3", "apis", group, version] => (*group, *version),
        _ => return None,
    };
    let version = served.version(group, version)?;
    let document = core.open_api.document(group, version);
    Some(answer::bytes(
        200,
        Encoding::Json.content_type(),
        document.content,
    ))
}

/// The paths of `/`.
fn root(served: &Served) -> Value {
    let mut paths: Vec<String> = PATHS.iter().map(|&path| path.to_owned()).collect();
    for group in served.groups.iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        for version in &group.versions {
            paths.push(format!("/apis/{}/{}", group.name, version.name));
        }
    }
    paths.sort();
    json!({"paths": paths})
}

fn version(core: &Core) -> Value {
    let minor = core.options.minor;
    json!({
        "major": "1",
        "minor": minor.to_string(),
        "gitVersion": format!("v1.{minor}.0+reeve"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    })
}
