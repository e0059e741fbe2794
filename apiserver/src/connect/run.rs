//! The way of a request for a connection.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, LOCATION};
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use tokio::time::Instant;

use super::options::Kind;
use super::target::{self, unavailable};
use crate::access;
use crate::admission::Operation;
use crate::core::Core;
use crate::http::answer;
use crate::http::body::{self, Body};
use crate::http::media::{self, Accepted, Encoding, Shape};
use crate::http::route::ResourcePath;
use crate::http::warnings::Warnings;
use crate::rbac::Attributes;
use crate::request::{FieldValidation, Request};
use crate::resource::ResourceInfo;
use crate::service::{Call, accept, is_pretty};
use crate::status::{GroupResource, Status};
use crate::table::cells::string;
use crate::verbs::pipeline::admit;

/// The time of a connection, which a real server does not limit.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Answers a request for a connection.
pub(crate) async fn answer(
    core: &Arc<Core>,
    info: &Arc<ResourceInfo>,
    kind: &Kind,
    path: &ResourcePath,
    call: &Call<'_>,
) -> Response<Body> {
    let request = Request {
        info: info.clone(),
        namespace: path.namespace.clone(),
        name: path.name.clone(),
        subresource: path.subresource.clone(),
        query: call.query.clone(),
        accepted: Accepted {
            encoding: Encoding::Json,
            shape: Shape::Whole,
        },
        user: call.user.clone(),
        agent: call.agent.clone(),
        now: core.clock.now(),
        deadline: Instant::now() + LONGEST,
        dry_run: false,
        validation: FieldValidation::Warn,
        warnings: Warnings::default(),
        stale: call.stale,
        decision: None,
    };
    let connected = connect(core, &request, kind, path, call).await;
    let mut response = connected.unwrap_or_else(|status| {
        let encoding = media::negotiate_errors(accept(call.headers).as_deref());
        answer::failure(&status, encoding, is_pretty(&call.query, &call.agent))
    });
    answer::warn(&mut response, &request.warnings);
    response
}

/// (apiserver: `ConnectResource`.)
async fn connect(
    core: &Core,
    request: &Request,
    kind: &Kind,
    path: &ResourcePath,
    call: &Call<'_>,
) -> Result<Response<Body>, Status> {
    let is_proxy = kind.is_proxy();
    if !takes(is_proxy, call.method) {
        return Err(Status::method_not_supported_here());
    }
    if call.query.has("dryRun") {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let after = after(path, call.uri);
    let mut options = kind.read(&call.query, &after)?;
    admit(core, request, Operation::Connect, &mut options, |_| Ok(())).await?;
    if !is_proxy {
        check_create(core, request)?;
    }
    let (container, after) = (string(&options["container"]), string(&options["path"]));
    match (request.info.plural.as_str(), path.subresource.as_str()) {
        (_, "portforward") => stream(&target::of_stream(core, request, None)?, call.headers),
        (_, "exec" | "attach") => {
            let kubelet = target::of_stream(core, request, Some(container))?;
            stream(&kubelet, call.headers)
        }
        ("services", _) => proxy(&target::of_service(core, request)?, after, call),
        ("nodes", _) => proxy(&target::of_node(core, request)?, after, call),
        _ => proxy(&target::of_pod(core, request)?, after, call),
    }
}

/// Whether the subresource has the method. A stream takes GET for the sake of WebSockets.
fn takes(is_proxy: bool, method: &Method) -> bool {
    let of_proxies = [
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
    ];
    matches!(*method, Method::GET | Method::POST) || (is_proxy && of_proxies.contains(method))
}

/// The path after the subresource. (apiserver: `getRequestOptions`.)
fn after(path: &ResourcePath, uri: &Uri) -> String {
    let mut after: String = path.rest.iter().map(|part| format!("/{part}")).collect();
    if uri.path().ends_with('/') && !after.ends_with('/') {
        after.push('/');
    }
    after
}

/// A stream needs the right to create one, also when it is requested with GET. (kubernetes:
/// `AuthorizePodWebsocketUpgradeCreatePermission`.)
fn check_create(core: &Core, request: &Request) -> Result<(), Status> {
    let info = &request.info;
    let Some(policy) = access::policy(core) else {
        return Ok(());
    };
    let attributes = Attributes {
        verb: "create".to_owned(),
        group: info.group.clone(),
        version: info.version.clone(),
        resource: info.plural.clone(),
        subresource: request.subresource.clone(),
        namespace: request.namespace.clone(),
        name: request.name.clone(),
        path: String::new(),
    };
    let decision = policy.authorize(&request.user, &attributes);
    if decision.allowed {
        return Ok(());
    }
    let resource = GroupResource {
        group: &info.group,
        resource: &info.plural,
    };
    Err(Status::forbidden(resource, &request.name, decision.reason))
}

/// The failure of a stream to a kubelet.
fn stream(kubelet: &str, headers: &HeaderMap) -> Result<Response<Body>, Status> {
    if !is_upgrade(headers) {
        return Err(Status::bad_request("Upgrade request required"));
    }
    Err(Status::internal_text(unreachable(kubelet)))
}

/// (apimachinery: `httpstream.IsUpgradeRequest`.)
fn is_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter();
    let mut texts = values.filter_map(|value| value.to_str().ok());
    texts.any(|text| text.to_ascii_lowercase().contains("upgrade"))
}

/// The failure of a request to a Pod or a node, or the redirection to its root. (apimachinery: `UpgradeAwareHandler`.)
fn proxy(host: &str, after: &str, call: &Call<'_>) -> Result<Response<Body>, Status> {
    if is_upgrade(call.headers) {
        return Err(Status::internal_text(unreachable(host)));
    }
    if after.is_empty() && matches!(*call.method, Method::GET | Method::HEAD) {
        let query = call.uri.query().map(|query| format!("?{query}"));
        let root = format!("{}/{}", call.uri.path(), query.unwrap_or_default());
        let mut response = Response::new(body::full(""));
        *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
        answer::set(&mut response, LOCATION, &root);
        return Ok(response);
    }
    Err(unavailable(format!(
        "error trying to reach service: {}",
        unreachable(host)
    )))
}

fn unreachable(host: &str) -> String {
    format!("dial tcp {host}: this server has no network to nodes and Pods")
}
