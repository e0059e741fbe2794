//! Resources that answer a request instead of storing an object: reviews and tokens.

use bytes::Bytes;
use http::Response;
use serde_json::Value;

use crate::access;
use crate::admission::Operation;
use crate::core::Core;
use crate::http::answer;
use crate::http::body::Body;
use crate::meta;
use crate::request::Request;
use crate::reviews;
use crate::status::{GroupResource, Status};
use crate::verbs::pipeline::admit;
use crate::verbs::prepare;

/// Answers a POST of a review.
pub(crate) fn review(
    core: &Core,
    request: &Request,
    verb: &str,
    body: Bytes,
    content_type: Option<&str>,
) -> Result<Response<Body>, Status> {
    if !request.name.is_empty() {
        return Err(Status::no_such_resource());
    }
    if verb != "create" {
        return Err(Status::method_not_supported_here());
    }
    let object = prepare::decode(core, request, content_type, &body)?;
    let policy = access::policy(core);
    let policy = policy.as_deref();
    let objects = |resource: &str, namespace: &str, name: &str| {
        access::object_of_token(core, resource, namespace, name)
    };
    let answered: Value = match request.info.kind.as_str() {
        "SelfSubjectAccessReview" => {
            reviews::self_subject_access_review(&object, &request.user, policy)?
        }
        "SubjectAccessReview" => reviews::subject_access_review(&object, policy)?,
        "LocalSubjectAccessReview" => {
            reviews::local_subject_access_review(&object, &request.namespace, policy)?
        }
        "SelfSubjectRulesReview" => {
            reviews::self_subject_rules_review(&object, &request.user, policy)?
        }
        "SelfSubjectReview" => reviews::self_subject_review(&request.user, request.now),
        "TokenReview" => {
            reviews::token_review(&object, &core.authenticator, request.now, &objects)?
        }
        _ => return Err(Status::no_such_resource()),
    };
    Ok(answer::document(
        201,
        request.accepted.encoding,
        false,
        &answered,
    ))
}

/// Answers a POST to the `token` subresource of a ServiceAccount.
///
/// Admission is asked about the request of the token.
pub(crate) async fn token(
    core: &Core,
    request: &Request,
    body: Bytes,
    content_type: Option<&str>,
) -> Result<Response<Body>, Status> {
    let (mut object, _) = prepare::read(request, content_type, &body)?;
    let map = meta::object_mut(&mut object);
    map.entry("apiVersion")
        .or_insert_with(|| "authentication.k8s.io/v1".into());
    map.entry("kind").or_insert_with(|| "TokenRequest".into());
    let account = core
        .store
        .get("serviceaccounts", request.key().as_str())
        .ok_or_else(|| request.not_found())?;
    admit(core, request, Operation::Create, &mut object, |_| Ok(())).await?;
    let bound_uid = match reviews::bound_reference(&object)? {
        None => None,
        Some((kind, name)) => {
            let plural = match kind.as_str() {
                "Pod" => "pods",
                "Node" => "nodes",
                _ => "secrets",
            };
            let key = if plural == "nodes" {
                name.clone()
            } else {
                format!("{}/{name}", request.namespace)
            };
            let resource = GroupResource {
                group: "",
                resource: plural,
            };
            let found = core
                .store
                .get(plural, &key)
                .ok_or_else(|| Status::not_found(resource, &name))?;
            found.uid().map(str::to_owned)
        }
    };
    let context = reviews::TokenContext {
        account: &account.value(),
        bound_uid,
        now: request.now,
        id: meta::uid(&core.clock),
    };
    let answered = reviews::token_request(&object, &core.authenticator, &context)?;
    Ok(answer::document(
        201,
        request.accepted.encoding,
        false,
        &answered,
    ))
}
