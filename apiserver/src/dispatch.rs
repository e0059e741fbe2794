//! Dispatch of a path of objects to its verb.

use std::iter;
use std::sync::Arc;

use futures::stream;
use http::header::CONTENT_TYPE;
use http::{Method, Response};
use tokio::time::{Instant, timeout_at};

use crate::connect;
use crate::core::Core;
use crate::crd;
use crate::definitions;
use crate::field::{FieldError, Path};
use crate::http::answer;
use crate::http::body::{self, Body};
use crate::http::media::{self, Accepted, Encoding, Objects, Shape};
use crate::http::query::Parameters;
use crate::http::route::ResourcePath;
use crate::http::warnings::Warnings;
use crate::registry::Served;
use crate::request::{FieldValidation, LONGEST, LONGEST_WRITE, Request};
use crate::resource::ResourceInfo;
use crate::service::{Call, accept, header, is_pretty};
use crate::status::Status;
use crate::verbs::present::{ListMeta, Presenter};
use crate::verbs::{
    Content, Written, assignment, create, delete, list, patch, prepare, read, scale, update, watch,
};

/// Answers a request for objects.
///
/// # Errors
/// For paths without a resource; other errors are answered in the negotiated encoding.
pub(crate) async fn resource(
    core: &Arc<Core>,
    path: &ResourcePath,
    call: &Call<'_>,
) -> Result<Response<Body>, Status> {
    let served = core.registry.served();
    let Some(info) = served.find(&path.group, &path.version, &path.resource) else {
        let definition = format!("{}.{}", path.resource, path.group);
        let definition = core.store.get(definitions::STORAGE, &definition);
        if definition.is_some_and(|definition| crd::lacks_authority(&definition.value())) {
            return Err(Status::internal("error resolving resource"));
        }
        return absent(&served, &path.group, &path.version);
    };
    if let Some(kind) = connect::Kind::of(&info, path) {
        return Ok(connect::answer(core, &info, kind, path, call).await);
    }
    let is_part = !path.subresource.is_empty() && !info.custom;
    if is_part && info.namespaced && path.namespace.is_empty() {
        return Err(Status::no_such_resource());
    }
    if *call.method == Method::HEAD {
        return Err(Status::method_not_supported_here());
    }
    let own_namespace =
        path.resource == "namespaces" && path.group.is_empty() && path.namespace == path.name;
    if !info.namespaced && !path.namespace.is_empty() && !own_namespace {
        return absent(&served, &path.group, &path.version);
    }
    let needs_namespace =
        !path.name.is_empty() || matches!(path.verb, "create" | "deletecollection");
    let needs_name = matches!(path.verb, "update" | "patch");
    if info.custom && info.namespaced && path.namespace.is_empty() && needs_namespace {
        return absent(&served, &path.group, &path.version);
    }
    if info.custom && needs_name && path.name.is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    if (info.namespaced && path.namespace.is_empty() && needs_namespace)
        || (needs_name && path.name.is_empty())
    {
        return Err(Status::method_not_supported_here());
    }
    let watch = path.verb == "watch";
    let accept = accept(call.headers);
    let objects = Objects {
        list: matches!(path.verb, "list" | "deletecollection"),
        watch,
        custom: info.custom,
    };
    let accepted = media::negotiate(accept.as_deref(), objects)?;
    let pretty = is_pretty(&call.query, &call.agent);
    let encoding = media::negotiate_errors(accept.as_deref());
    let warnings = Warnings::default();
    warnings.extend(info.deprecation.clone());
    let dispatched = dispatch(core, &info, path, call, accepted, &warnings).await;
    let mut response =
        dispatched.unwrap_or_else(|status| answer::failure(&status, encoding, pretty));
    answer::warn(&mut response, &warnings);
    Ok(response)
}

/// The answer for an unknown resource: its text differs between built-in groups and all others.
fn absent(served: &Served, group: &str, version: &str) -> Result<Response<Body>, Status> {
    let builtin = served
        .version(group, version)
        .is_some_and(|version| version.resources.values().any(|info| !info.custom));
    if builtin {
        return Err(Status::no_such_resource());
    }
    Ok(answer::text(404, "404 page not found\n"))
}

async fn dispatch(
    core: &Arc<Core>,
    info: &Arc<ResourceInfo>,
    path: &ResourcePath,
    call: &Call<'_>,
    accepted: Accepted,
    warnings: &Warnings,
) -> Result<Response<Body>, Status> {
    let mut request = Request {
        info: info.clone(),
        namespace: path.namespace.clone(),
        name: path.name.clone(),
        subresource: path.subresource.clone(),
        query: call.query.clone(),
        accepted,
        user: call.user.clone(),
        agent: call.agent.clone(),
        now: core.clock.now(),
        deadline: deadline(&call.query, path.verb)?,
        dry_run: false,
        validation: FieldValidation::Warn,
        warnings: warnings.clone(),
        stale: call.stale,
        decision: None,
    };
    if matches!(accepted.shape, Shape::Table(_)) {
        request.include_object()?;
    }
    if matches!(request.name.as_str(), "." | "..") {
        let name = crate::field::quote(&request.name);
        return Err(Status::bad_request(format!(
            "Name parameter invalid: {name}: may not be '{}'",
            request.name
        )));
    }
    let writes = matches!(
        path.verb,
        "create" | "update" | "patch" | "delete" | "deletecollection"
    );
    if writes {
        request.dry_run = dry_run(&call.query, path.verb)?;
        request.validation = validation(&call.query)?;
        check_field_manager(&call.query, path.verb)?;
    }
    let answered = perform(core, &request, path, call);
    if path.verb == "watch" {
        return answered.await;
    }
    match timeout_at(request.deadline, answered).await {
        Ok(answer) => answer,
        Err(_) if writes => Err(Status::timeout()),
        Err(_) => Err(Status::read_timeout()),
    }
}

/// The end of the time of a request; a watch has a time of its own. (apiserver: `WithRequestDeadline`, and
/// `requestTimeoutUpperBound` of the verbs that have it.)
fn deadline(query: &Parameters, verb: &str) -> Result<Instant, Status> {
    let longest = match verb {
        "create" | "update" | "patch" | "delete" => LONGEST_WRITE,
        _ => LONGEST,
    };
    let wanted = match verb {
        "watch" => None,
        _ => query.timeout()?,
    };
    Ok(Instant::now() + wanted.map_or(longest, |wanted| wanted.min(longest)))
}

async fn perform(
    core: &Arc<Core>,
    request: &Request,
    path: &ResourcePath,
    call: &Call<'_>,
) -> Result<Response<Body>, Status> {
    let info = &request.info;
    let review = info.storage.is_empty();
    if info.storage.is_empty() && path.verb == "list" && info.verbs.contains(&"list") {
        // The server has no components with a status of their own.
        return many(request, Vec::new(), &ListMeta::default());
    }
    if info.storage.is_empty() && path.verb == "get" && info.verbs.contains(&"get") {
        return Err(request.not_found());
    }
    if review && path.resource == "bindings" && path.verb == "create" {
        let (body, _) = prepare::read(request, content_type(call), &call.body)?;
        return bound(core, request, body).await;
    }
    if review {
        return crate::questions::review(
            core,
            request,
            path.verb,
            call.body.clone(),
            content_type(call),
        );
    }
    match path.subresource.as_str() {
        "" => {}
        // The path after the subresource does not matter either.
        "status" if info.status && (path.rest.is_empty() || info.custom) => {
            return subresource(core, request, path, call).await;
        }
        "approval" | "ephemeralcontainers" | "resize"
            if has_subresource(info, &path.subresource) && path.rest.is_empty() =>
        {
            return subresource(core, request, path, call).await;
        }
        "binding" | "eviction" if path.resource == "pods" && path.verb == "create" => {
            let (body, _) = prepare::read(request, content_type(call), &call.body)?;
            let done = if path.subresource == "binding" {
                assignment::bind(core, request, body).await?
            } else {
                assignment::evict(core, request, body).await?
            };
            return written(request, done);
        }
        "scale" if info.scale.is_some() && path.rest.is_empty() => {
            return subresource(core, request, path, call).await;
        }
        "finalize" if path.resource == "namespaces" && path.verb == "update" => {}
        "token" if path.resource == "serviceaccounts" && path.verb == "create" => {
            let body = call.body.clone();
            return crate::questions::token(core, request, body, content_type(call)).await;
        }
        _ if info.custom => return Err(request.not_found()),
        _ => return Err(Status::no_such_resource()),
    }
    if !info.verbs.contains(&path.verb) {
        return Err(Status::method_not_supported_here());
    }
    match path.verb {
        "get" => {
            let object = read::get(core, request).await?;
            one(request, 200, &object)
        }
        "list" => {
            let (objects, meta) = list::list(core, request).await?;
            many(request, objects, &meta)
        }
        "watch" => {
            let watch = watch::watch(core, request).await?;
            let mut response = Response::new(body::stream(watch.frames()));
            // The requested shape does not matter.
            let content_type = match request.accepted.encoding {
                Encoding::Protobuf => media::PROTOBUF_WATCH,
                other => other.content_type(),
            };
            answer::set(&mut response, CONTENT_TYPE, content_type);
            answer::set(
                &mut response,
                http::header::CACHE_CONTROL,
                "no-cache, private",
            );
            Ok(response)
        }
        // The handler of custom resources ignores the name.
        "create" if !path.name.is_empty() && !info.custom => {
            Err(Status::method_not_supported_here())
        }
        "create" => {
            let body = prepare::decode(core, request, content_type(call), &call.body)?;
            written(request, create::create(core, request, body).await?)
        }
        "update" => {
            let body = prepare::decode(core, request, content_type(call), &call.body)?;
            written(request, update::replace(core, request, body).await?)
        }
        "patch" => {
            let patched = patch::patch(core, request, content_type(call), &call.body).await?;
            written(request, patched)
        }
        "delete" => {
            let options = delete::Options::read(&request.query, content_type(call), &call.body)?;
            written(request, delete::delete(core, request, &options).await?)
        }
        "deletecollection" => {
            let options = delete::Options::read(&request.query, content_type(call), &call.body)?;
            let (objects, meta) = delete::delete_collection(core, request, &options).await?;
            many(request, objects, &meta)
        }
        _ => Err(Status::method_not_supported_here()),
    }
}

/// POST of a Binding, which names its Pod.
async fn bound(
    core: &Core,
    request: &Request,
    binding: serde_json::Value,
) -> Result<Response<Body>, Status> {
    let Some(info) = core.registry.of_storage("pods") else {
        return Err(Status::no_such_resource());
    };
    let of_pod = Request {
        info,
        name: crate::meta::text(&binding, "name").to_owned(),
        subresource: "binding".to_owned(),
        ..request.clone()
    };
    let done = assignment::bind(core, &of_pod, binding).await?;
    written(request, done)
}

fn has_subresource(info: &ResourceInfo, name: &str) -> bool {
    info.subresources.iter().any(|one| one.name == name)
}

/// `status`, `scale`, and the subresources that change a part of the object.
async fn subresource(
    core: &Arc<Core>,
    request: &Request,
    path: &ResourcePath,
    call: &Call<'_>,
) -> Result<Response<Body>, Status> {
    let scale = request
        .info
        .scale
        .as_ref()
        .filter(|_| path.subresource == "scale");
    match (path.verb, scale) {
        ("get", None) => {
            let object = read::get(core, request).await?;
            one(request, 200, &object)
        }
        ("update", None) => {
            let body = prepare::decode(core, request, content_type(call), &call.body)?;
            written(request, update::replace(core, request, body).await?)
        }
        ("patch", None) => {
            let patched = patch::patch(core, request, content_type(call), &call.body).await?;
            written(request, patched)
        }
        ("get", Some(scale)) => {
            let document = scale::get(core, request, scale).await?;
            written(request, Written::document(200, document))
        }
        ("update", Some(scale)) => {
            let (body, _) = prepare::read(request, content_type(call), &call.body)?;
            written(request, scale::replace(core, request, scale, &body).await?)
        }
        ("patch", Some(scale)) => {
            let patched =
                scale::patch(core, request, scale, content_type(call), &call.body).await?;
            written(request, patched)
        }
        ("create" | "delete", _) if request.info.custom => {
            Err(Status::method_not_allowed(request.resource(), path.verb))
        }
        _ => Err(Status::method_not_supported_here()),
    }
}

fn content_type<'a>(call: &'a Call<'_>) -> Option<&'a str> {
    header(call.headers, CONTENT_TYPE.as_str())
}

/// Reads `dryRun`.
fn dry_run(query: &Parameters, verb: &str) -> Result<bool, Status> {
    let values: Vec<&str> = query
        .all("dryRun")
        .into_iter()
        .filter(|value| !value.is_empty())
        .collect();
    if values.iter().all(|&value| value == "All") {
        return Ok(!values.is_empty());
    }
    let kind = match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => "DeleteOptions",
    };
    let error =
        FieldError::not_supported(&Path::new("dryRun"), serde_json::json!(values), &["All"]);
    Err(Status::invalid("meta.k8s.io", kind, "", &[error]))
}

/// A field manager has a name of at most 128 bytes, all printable. (apimachinery: `ValidateFieldManager`.)
fn check_field_manager(query: &Parameters, verb: &str) -> Result<(), Status> {
    const LONGEST: usize = 128;
    let kind = match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => return Ok(()),
    };
    let name = query.get("fieldManager").unwrap_or_default();
    let path = Path::new("fieldManager");
    let mut errors = Vec::new();
    if name.len() > LONGEST {
        errors.push(FieldError::too_long(&path, 128));
    }
    for (at, character) in name.char_indices() {
        if character.is_control() || (character.is_whitespace() && character != ' ') {
            let code = u32::from(character);
            let wrong = format!("invalid character U+{code:04X} (at position {at})");
            errors.push(FieldError::invalid(&path, name, wrong));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("meta.k8s.io", kind, "", &errors))
}

/// Reads `fieldValidation`.
fn validation(query: &Parameters) -> Result<FieldValidation, Status> {
    match query.get("fieldValidation") {
        None | Some("Warn") => Ok(FieldValidation::Warn),
        Some("Ignore") => Ok(FieldValidation::Ignore),
        Some("Strict") => Ok(FieldValidation::Strict),
        Some(other) => {
            let path = Path::new("fieldValidation");
            let error = FieldError::not_supported(&path, other, &["", "Ignore", "Strict", "Warn"]);
            Err(Status::invalid(
                "meta.k8s.io",
                "CreateOptions",
                "",
                &[error],
            ))
        }
    }
}

fn presenter(request: &Request) -> Presenter {
    Presenter::new(
        &request.info,
        request.accepted.shape,
        // It was parsed before the verb ran.
        request.include_object().unwrap_or_default(),
        request.now,
    )
}

fn one(
    request: &Request,
    code: u16,
    object: &crate::store::Object,
) -> Result<Response<Body>, Status> {
    let presenter = presenter(request);
    if request.accepted.encoding == Encoding::Protobuf {
        let content = presenter.one_in_protobuf(object)?;
        return Ok(answer::bytes(code, media::PROTOBUF, content));
    }
    Ok(answer::encoded(
        code,
        request.accepted.encoding,
        is_pretty(&request.query, &request.agent),
        presenter.one(object),
    ))
}

fn many(
    request: &Request,
    objects: Vec<Arc<crate::store::Object>>,
    meta: &ListMeta,
) -> Result<Response<Body>, Status> {
    let presenter = presenter(request);
    let encoding = request.accepted.encoding;
    let is_pretty = is_pretty(&request.query, &request.agent);
    let mut pieces = match encoding {
        Encoding::Protobuf => presenter.list_in_protobuf(&objects, meta)?,
        _ => presenter.list(objects, meta),
    };
    if encoding == Encoding::Yaml || (encoding == Encoding::Json && is_pretty) {
        return Ok(answer::encoded(200, encoding, is_pretty, pieces.whole()));
    }
    let first = pieces.next().unwrap_or_default();
    // A list of one piece has a length.
    let body = match pieces.is_over() {
        true => body::full(first),
        false => body::stream(stream::iter(iter::once(first).chain(pieces).map(Ok))),
    };
    Ok(answer::of_body(200, encoding.content_type(), body))
}

fn written(request: &Request, written: Written) -> Result<Response<Body>, Status> {
    match &written.content {
        Content::Object(object) => one(request, written.code, object),
        Content::Document(document) => Ok(answer::document(
            written.code,
            request.accepted.encoding,
            is_pretty(&request.query, &request.agent),
            document,
        )),
    }
}
