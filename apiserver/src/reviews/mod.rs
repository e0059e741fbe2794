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

mod problem;
mod token;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::problem::{Problem, check_metadata, check_question, check_subject, refuse, shown_path};
pub(crate) use self::token::{TokenContext, bound_reference, token_request};
use crate::authn::{Authenticator, ObjectLookup};
use crate::rbac::{Attributes, Decision, Policy, Rule, User};
use crate::status::Status;

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
    objects: ObjectLookup<'_>,
) -> Result<Value, Status> {
    let token = body["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let requested = strings(&body["spec"]["audiences"]);
    let wanted = if requested.is_empty() {
        authenticator.audiences().to_vec()
    } else {
        requested
    };
    let status = match authenticator.authenticate_bearer(token, now, objects) {
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

#[cfg(test)]
mod tests;
