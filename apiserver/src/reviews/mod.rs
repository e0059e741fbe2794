//! The review kinds: requests about users and rights that are answered, not stored.
//!
//! Each function takes the decoded body of the POST (its unknown fields already handled) and answers the body of the
//! 201, or the error. They are pure: the user, the policy, the time and the service accounts are passed in.
//!
//! | path | function |
//! |---|---|
//! | `POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews` | [`self_subject_access_review`] |
//! | `POST /apis/authorization.k8s.io/v1/subjectaccessreviews` | [`subject_access_review`] |
//! | `POST /apis/authorization.k8s.io/v1/namespaces/NS/localsubjectaccessreviews` | [`local_subject_access_review`] |
//! | `POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews` | [`self_subject_rules_review`] |
//! | `POST /apis/authentication.k8s.io/v1/selfsubjectreviews` | [`self_subject_review`] |
//! | `POST /apis/authentication.k8s.io/v1/tokenreviews` | [`token_review`] |
//! | `POST /api/v1/namespaces/NS/serviceaccounts/NAME/token` | [`token_request`] |
//!
//! Discovery lists all but the last under their groups with the one verb `create`; the last is the subresource
//! `serviceaccounts/token` of kind `TokenRequest`, group `authentication.k8s.io`, version `v1`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::authn::{API_AUDIENCE, AccountLookup, Authenticator, BoundObject, TokenSpec};
use crate::rbac::{Attributes, Decision, Policy, Rule, User};
use crate::status::{Details, Status};

const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// The policy that decides. `None`: authorization is off and everything is allowed.
pub(crate) type Authorizer<'a> = Option<&'a Policy>;

/// `SelfSubjectAccessReview`: whether the user may perform a request.
///
/// # Errors
/// 422 when the attributes are not those of one request.
pub(crate) fn self_subject_access_review(
    body: &Value,
    user: &User,
    policy: Authorizer<'_>,
) -> Result<Value, Status> {
    let mut errors = Vec::new();
    check_question(&body["spec"], &mut errors);
    check_metadata(body, &[], &mut errors);
    refuse(errors)?;
    Ok(answered(
        "SelfSubjectAccessReview",
        body,
        &decide(&body["spec"], user, policy),
    ))
}

/// `SubjectAccessReview`: whether another user may perform a request.
///
/// # Errors
/// 422 when the question is not one question, or names no subject.
pub(crate) fn subject_access_review(body: &Value, policy: Authorizer<'_>) -> Result<Value, Status> {
    let mut errors = Vec::new();
    check_subject(&body["spec"], &mut errors);
    check_metadata(body, &[], &mut errors);
    refuse(errors)?;
    let decision = decide(&body["spec"], &subject_of(&body["spec"]), policy);
    Ok(answered("SubjectAccessReview", body, &decision))
}

/// `LocalSubjectAccessReview`: whether another user may perform a request in `namespace` (of the path).
///
/// # Errors
/// 422 as for [`subject_access_review`], and when the request is for another namespace or for a path.
pub(crate) fn local_subject_access_review(
    body: &Value,
    namespace: &str,
    policy: Authorizer<'_>,
) -> Result<Value, Status> {
    let spec = &body["spec"];
    let mut errors = Vec::new();
    check_subject(spec, &mut errors);
    check_metadata(body, &["namespace"], &mut errors);
    if spec["resourceAttributes"].is_object() {
        let requested = spec["resourceAttributes"]["namespace"]
            .as_str()
            .unwrap_or_default();
        if requested != namespace {
            errors.push(Problem::invalid(
                "spec.resourceAttributes.namespace",
                &json!(requested),
                "must match metadata.namespace",
            ));
        }
    }
    if spec["nonResourceAttributes"].is_object() {
        errors.push(Problem::invalid(
            "spec.nonResourceAttributes",
            &shown_path(&spec["nonResourceAttributes"]),
            "disallowed on this kind of request",
        ));
    }
    refuse(errors)?;
    let mut answer = answered(
        "LocalSubjectAccessReview",
        body,
        &decide(spec, &subject_of(spec), policy),
    );
    answer["metadata"]["namespace"] = json!(namespace);
    Ok(answer)
}

/// `SelfSubjectRulesReview`: the rights of the user in a namespace.
///
/// # Errors
/// 400 without a namespace.
pub(crate) fn self_subject_rules_review(
    body: &Value,
    user: &User,
    policy: Authorizer<'_>,
) -> Result<Value, Status> {
    let namespace = body["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let everything = [
        Rule {
            verbs: vec!["*".to_owned()],
            api_groups: vec!["*".to_owned()],
            resources: vec!["*".to_owned()],
            ..Rule::default()
        },
        Rule {
            verbs: vec!["*".to_owned()],
            non_resource_urls: vec!["*".to_owned()],
            ..Rule::default()
        },
    ];
    let (rules, error) = match policy {
        Some(policy) => policy.rules_for(user, namespace),
        None => (everything.to_vec(), None),
    };
    let (paths, resources): (Vec<&Rule>, Vec<&Rule>) = rules
        .iter()
        .partition(|rule| !rule.non_resource_urls.is_empty());
    let resources: Vec<Value> = resources.into_iter().map(resource_rule).collect();
    let paths: Vec<Value> = paths
        .into_iter()
        .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}))
        .collect();
    let mut status =
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if let Some(error) = error {
        status["evaluationError"] = json!(error);
    }
    Ok(json!({
        "kind": "SelfSubjectRulesReview",
        "apiVersion": format!("{AUTHORIZATION}/v1"),
        "metadata": {},
        "spec": {},
        "status": status,
    }))
}

/// `SelfSubjectReview`: the user of the request.
#[must_use]
pub(crate) fn self_subject_review(user: &User, now: Timestamp) -> Value {
    json!({
        "kind": "SelfSubjectReview",
        "apiVersion": format!("{AUTHENTICATION}/v1"),
        "metadata": {"creationTimestamp": seconds(now)},
        "status": {"userInfo": user.to_value()},
    })
}

/// `TokenReview`: the user of a token.
///
/// # Errors
/// 400 without a token. An invalid token is an answer, not an error.
pub(crate) fn token_review(
    body: &Value,
    authenticator: &Authenticator,
    now: Timestamp,
    accounts: AccountLookup<'_>,
) -> Result<Value, Status> {
    let token = body["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let requested = strings(&body["spec"]["audiences"]);
    let wanted = if requested.is_empty() {
        vec![API_AUDIENCE.to_owned()]
    } else {
        requested
    };
    let status = match authenticator.authenticate_bearer(token, now, accounts) {
        Ok(authenticated) => {
            let common: Vec<&String> = wanted
                .iter()
                .filter(|one| authenticated.audiences.contains(one))
                .collect();
            if common.is_empty() {
                let list = |audiences: &[String]| {
                    let quoted: Vec<String> =
                        audiences.iter().map(|one| format!("{one:?}")).collect();
                    quoted.join(" ")
                };
                let error = format!(
                    "[invalid bearer token, token audiences [{}] is invalid for the target audiences [{}]]",
                    list(&authenticated.audiences),
                    list(&wanted),
                );
                json!({"user": {}, "error": error})
            } else {
                json!({"authenticated": true, "user": authenticated.user.to_value(), "audiences": common})
            }
        }
        Err(error) => json!({"user": {}, "error": error.to_string()}),
    };
    Ok(json!({
        "kind": "TokenReview",
        "apiVersion": format!("{AUTHENTICATION}/v1"),
        "metadata": own_metadata(body),
        "spec": body["spec"],
        "status": status,
    }))
}

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
        vec![API_AUDIENCE.to_owned()]
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

/// The subject of a `spec` with `user`, `groups`, `uid` and `extra`.
fn subject_of(spec: &Value) -> User {
    let text = |key: &str| spec[key].as_str().unwrap_or_default().to_owned();
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text("user"),
        uid: text("uid"),
        groups: strings(&spec["groups"]),
        extra: extra
            .map(|(key, values)| (key.clone(), strings(values)))
            .collect::<BTreeMap<_, _>>(),
    }
}

fn decide(spec: &Value, user: &User, policy: Authorizer<'_>) -> Decision {
    let text = |of: &str, key: &str| spec[of][key].as_str().unwrap_or_default().to_owned();
    let attributes = if spec["resourceAttributes"].is_object() {
        let text = |key: &str| text("resourceAttributes", key);
        Attributes {
            verb: text("verb"),
            group: text("group"),
            version: text("version"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            path: String::new(),
        }
    } else {
        Attributes::path(
            text("nonResourceAttributes", "verb"),
            text("nonResourceAttributes", "path"),
        )
    };
    match policy {
        Some(policy) => policy.authorize(user, &attributes),
        None => Decision {
            allowed: true,
            reason: String::new(),
        },
    }
}

fn answered(kind: &str, body: &Value, decision: &Decision) -> Value {
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    json!({
        "kind": kind,
        "apiVersion": format!("{AUTHORIZATION}/v1"),
        "metadata": own_metadata(body),
        "spec": body["spec"],
        "status": status,
    })
}

fn own_metadata(body: &Value) -> Value {
    body.get("metadata")
        .filter(|metadata| metadata.is_object())
        .cloned()
        .unwrap_or_else(|| json!({}))
}

fn resource_rule(rule: &Rule) -> Value {
    let mut map = Map::new();
    map.insert("verbs".to_owned(), json!(rule.verbs));
    map.insert("apiGroups".to_owned(), json!(rule.api_groups));
    map.insert("resources".to_owned(), json!(rule.resources));
    if !rule.resource_names.is_empty() {
        map.insert("resourceNames".to_owned(), json!(rule.resource_names));
    }
    Value::Object(map)
}

fn strings(value: &Value) -> Vec<String> {
    let values = value.as_array().into_iter().flatten();
    values
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// API times have whole seconds.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

// === validation ===

struct Problem {
    field: String,
    text: String,
}

impl Problem {
    fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        Self {
            field: field.to_owned(),
            text: format!("Invalid value: {value}: {detail}"),
        }
    }
}

fn check_question(spec: &Value, errors: &mut Vec<Problem>) {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() && path.is_object() {
        errors.push(Problem::invalid(
            "spec.nonResourceAttributes",
            &shown_path(path),
            "cannot be specified in combination with resourceAttributes",
        ));
    } else if !resource.is_object() && !path.is_object() {
        errors.push(Problem::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ));
    }
}

/// In Go's format of the struct: with the names of its fields.
fn shown_path(attributes: &Value) -> Value {
    json!({"Path": attributes["path"], "Verb": attributes["verb"]})
}

fn check_subject(spec: &Value, errors: &mut Vec<Problem>) {
    check_question(spec, errors);
    if spec["user"].as_str().unwrap_or_default().is_empty() && strings(&spec["groups"]).is_empty() {
        errors.push(Problem::invalid(
            "spec.user",
            &json!(""),
            "at least one of user or group must be specified",
        ));
    }
}

/// Reviews have no metadata except managedFields, and `allowed`.
fn check_metadata(body: &Value, allowed: &[&str], errors: &mut Vec<Problem>) {
    let metadata = &body["metadata"];
    let own = metadata.as_object().into_iter().flatten();
    let unwanted = own
        .filter(|(key, value)| {
            *key != "managedFields" && !allowed.contains(&key.as_str()) && !value.is_null()
        })
        .count();
    if unwanted > 0 {
        errors.push(Problem::invalid("metadata", metadata, "must be empty"));
    }
}

fn refuse(errors: Vec<Problem>) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    // The real server has no kind here.
    Err(invalid(AUTHORIZATION, "", "", errors))
}

fn invalid(group: &str, kind: &str, name: &str, problems: Vec<Problem>) -> Status {
    let texts: Vec<String> = problems
        .iter()
        .map(|problem| format!("{}: {}", problem.field, problem.text))
        .collect();
    let text = match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let mut status = Status::new(
        422,
        "Invalid",
        format!("{kind}.{group} \"{name}\" is invalid: {text}"),
    )
    .with_details(Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        ..Details::default()
    });
    for problem in problems {
        status = status.with_cause("FieldValueInvalid", problem.field, problem.text);
    }
    status
}

#[cfg(test)]
mod tests;
