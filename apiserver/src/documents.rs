//! Paths that are not resources: version, health, discovery, OpenAPI.

use std::sync::Arc;

use http::header::{ACCEPT, VARY};
use http::{HeaderMap, Method, Response};
use serde_json::{Value, json};

use crate::core::Core;
use crate::discovery::{self, Form};
use crate::http::answer;
use crate::http::body::Body;
use crate::http::media::Encoding;
use crate::openapi;
use crate::registry::Served;
use crate::status::Status;

/// Paths in `/` beside those of groups.
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

/// Answers a path that is not a resource.
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
    if parts == ["openapi", "v2"] && !accept.contains("protobuf") {
        let content = core.open_api.v2(&served);
        return answer::bytes(200, Encoding::Json.content_type(), content);
    }
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
        ["version"] => Some(version(core.options.minor)),
        ["healthz" | "livez" | "readyz", ..] => return answer::text(200, "ok"),
        ["api"] => Some(discovery::core_versions(
            header(http::header::HOST).unwrap_or_default(),
        )),
        ["api", version] => match served.version("", version) {
            Some(version) => Some(discovery::resources(&served, "", version)),
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
            .map(|version| discovery::resources(&served, group, version)),
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

/// The version of the server in the form of Kubernetes.
pub(crate) fn git_version(minor: u32) -> String {
    format!("v1.{minor}.0+reeve")
}

pub(crate) fn version(minor: u32) -> Value {
    json!({
        "major": "1",
        "minor": minor.to_string(),
        "gitVersion": git_version(minor),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    })
}
