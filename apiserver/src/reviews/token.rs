//! `TokenRequest`: the tokens of ServiceAccounts.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::problem::{Problem, invalid};
use super::{AUTHENTICATION, seconds, strings};
use crate::authn::{Authenticator, BoundObject, TokenSpec};
use crate::status::Status;

/// The context of [`token_request`].
#[derive(Debug)]
pub(crate) struct TokenContext<'a> {
    /// The ServiceAccount of the path, as stored.
    pub(crate) account: &'a Value,
    /// The uid of the Pod or Secret that the request binds the token to (see [`bound_reference`]).
    pub(crate) bound_uid: Option<String>,
    /// Now.
    pub(crate) now: Timestamp,
    /// A fresh uid for the token.
    pub(crate) id: String,
}

/// The kind and name of the object to which a TokenRequest binds the token; the caller looks it up in the account's
/// namespace, answers 404 when it does not exist, and passes its uid in [`TokenContext`].
///
/// # Errors
/// 400 for a kind that tokens cannot be bound to.
pub(crate) fn bound_reference(body: &Value) -> Result<Option<(String, String)>, Status> {
    let reference = &body["spec"]["boundObjectRef"];
    if !reference.is_object() {
        return Ok(None);
    }
    let text = |key: &str| reference[key].as_str().unwrap_or_default().to_owned();
    match (text("apiVersion").as_str(), text("kind").as_str()) {
        ("v1", "Pod" | "Secret" | "Node") => Ok(Some((text("kind"), text("name")))),
        (version, kind) => {
            // The format of a GroupVersionKind in Go: "group/version, Kind=kind".
            let version = if version.contains('/') {
                version.to_owned()
            } else {
                format!("/{version}")
            };
            Err(Status::bad_request(format!(
                "cannot bind token to object of type {version}, Kind={kind}"
            )))
        }
    }
}

/// `TokenRequest`: a token for a ServiceAccount.
///
/// # Errors
/// 422 for a duration under ten minutes or over 2^32 seconds, or another name or namespace than the account's;
/// 409 when the bound object has another uid.
pub(crate) fn token_request(
    body: &Value,
    authenticator: &Authenticator,
    context: &TokenContext<'_>,
) -> Result<Value, Status> {
    let text = |pointer: &str| {
        context
            .account
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (name, namespace, uid) = (
        text("/metadata/name"),
        text("/metadata/namespace"),
        text("/metadata/uid"),
    );
    let spec = &body["spec"];
    for (key, own) in [("name", name), ("namespace", namespace)] {
        let sent = body["metadata"][key].as_str().unwrap_or_default();
        if !sent.is_empty() && sent != own {
            let detail = format!("must match the service account {key} if specified");
            let problem = Problem::invalid(&format!("metadata.{key}"), &json!(sent), &detail);
            return Err(invalid(AUTHENTICATION, "TokenRequest", name, vec![problem]));
        }
    }
    let wanted = spec["expirationSeconds"].as_i64().unwrap_or(3600);
    let complaint = if wanted < 600 {
        Some("may not specify a duration less than 10 minutes")
    } else if wanted > 1 << 32 {
        Some("may not specify a duration larger than 2^32 seconds")
    } else {
        None
    };
    if let Some(complaint) = complaint {
        let problem = Problem::invalid("spec.expirationSeconds", &json!(wanted), complaint);
        return Err(invalid(AUTHENTICATION, "TokenRequest", "", vec![problem]));
    }
    let bound = bound_object(spec, context)?;
    let requested = strings(&spec["audiences"]);
    let audiences = if requested.is_empty() {
        authenticator.audiences()[..1].to_vec()
    } else {
        requested
    };
    let expires = context
        .now
        .saturating_add(SignedDuration::from_secs(wanted))
        .unwrap_or(Timestamp::MAX);
    let token = authenticator.sign(&TokenSpec {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        audiences: audiences.clone(),
        issued: context.now,
        expires: Some(expires),
        id: context.id.clone(),
        bound,
    });
    Ok(json!({
        "kind": "TokenRequest",
        "apiVersion": format!("{AUTHENTICATION}/v1"),
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "creationTimestamp": seconds(context.now),
        },
        "spec": {"audiences": audiences, "expirationSeconds": wanted, "boundObjectRef": spec["boundObjectRef"]},
        "status": {"token": token, "expirationTimestamp": seconds(expires)},
    }))
}

fn bound_object(spec: &Value, context: &TokenContext<'_>) -> Result<Option<BoundObject>, Status> {
    let (Some((kind, name)), Some(uid)) = (
        bound_reference(&json!({"spec": spec}))?,
        context.bound_uid.clone(),
    ) else {
        return Ok(None);
    };
    let wanted = spec["boundObjectRef"]["uid"].as_str().unwrap_or_default();
    if !wanted.is_empty() && wanted != uid {
        let message = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Status::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {}s {name:?}: {message}",
                kind.to_lowercase()
            ),
        ));
    }
    Ok(Some(BoundObject { kind, name, uid }))
}
