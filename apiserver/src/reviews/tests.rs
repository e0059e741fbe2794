use std::sync::Arc;

use super::*;
use crate::authn::API_AUDIENCE;
use crate::authn::Settings;

fn policy() -> Policy {
    let role = json!({"metadata": {"name": "r1", "namespace": "a1"},
        "rules": [{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"]}]});
    let binding = json!({"metadata": {"name": "b1", "namespace": "a1"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"kind": "Role", "name": "r1"}});
    Policy::new([&role], [], [&binding], [])
}

fn question(verb: &str) -> Value {
    json!({"spec": {"user": "jane", "resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": "a1"}}})
}

fn account() -> Value {
    json!({"metadata": {"name": "sa", "namespace": "a1", "uid": "u-1"}})
}

fn context(account: &Value) -> TokenContext<'_> {
    TokenContext {
        account,
        bound_uid: None,
        now: "2026-01-01T00:00:00.5Z".parse().unwrap(),
        id: "j-1".to_owned(),
    }
}

#[test]
fn an_access_review_names_the_rule_that_allowed_it_and_a_refused_one_names_none() {
    let policy = policy();
    let answer = subject_access_review(&question("get"), Some(&policy)).unwrap();
    assert_eq!(
        answer["status"],
        json!({"allowed": true, "reason": r#"RBAC: allowed by RoleBinding "b1/a1" of Role "r1" to User "jane""#})
    );
    let jane = User::new("jane", ["system:authenticated"]);
    let answer = self_subject_access_review(&question("delete"), &jane, Some(&policy)).unwrap();
    assert_eq!(answer["status"], json!({"allowed": false}));
    let answer = self_subject_access_review(&question("delete"), &jane, None).unwrap();
    assert_eq!(
        answer["status"],
        json!({"allowed": true}),
        "without an authorizer everything is allowed"
    );
}

#[test]
fn a_review_that_asks_nothing_or_two_things_is_invalid() {
    let neither =
        self_subject_access_review(&json!({"spec": {}}), &User::admin(), None).unwrap_err();
    assert_eq!(
        neither.message,
        r#".authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"#
    );
    let mut both = question("get");
    both["spec"]["nonResourceAttributes"] = json!({"path": "/x", "verb": "get"});
    let both = self_subject_access_review(&both, &User::admin(), None).unwrap_err();
    assert_eq!(
        both.message,
        r#".authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: cannot be specified in combination with resourceAttributes"#
    );
    let without_user =
        json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "configmaps"}}});
    assert!(
        subject_access_review(&without_user, None)
            .unwrap_err()
            .message
            .contains("at least one of user or group")
    );
}

#[test]
fn a_local_review_is_about_its_own_namespace() {
    let policy = policy();
    assert!(local_subject_access_review(&question("get"), "a1", Some(&policy)).is_ok());
    let other = local_subject_access_review(&question("get"), "a2", Some(&policy)).unwrap_err();
    assert!(other.message.ends_with(
        r#"spec.resourceAttributes.namespace: Invalid value: "a1": must match metadata.namespace"#
    ));
}

#[test]
fn a_rules_review_lists_the_rules_of_the_namespace_asked_for() {
    let policy = policy();
    let jane = User::new("jane", ["system:authenticated"]);
    let answer =
        self_subject_rules_review(&json!({"spec": {"namespace": "a1"}}), &jane, Some(&policy))
            .unwrap();
    assert_eq!(
        answer["status"]["resourceRules"],
        json!([{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"]}])
    );
    let answer =
        self_subject_rules_review(&json!({"spec": {"namespace": "a2"}}), &jane, Some(&policy))
            .unwrap();
    assert_eq!(answer["status"]["resourceRules"], json!([]));
    assert_eq!(
        self_subject_rules_review(&json!({"spec": {}}), &jane, None)
            .unwrap_err()
            .code,
        400
    );
}

#[test]
fn a_requested_token_is_reviewed_as_its_account_for_its_audience_only() {
    let authenticator = Authenticator::new(Settings::new(b"key".to_vec()));
    let account = account();
    let context = context(&account);
    let answer = token_request(&json!({"spec": {}}), &authenticator, &context).unwrap();
    assert_eq!(
        answer["status"]["expirationTimestamp"],
        "2026-01-01T01:00:00Z"
    );
    assert_eq!(
        answer["metadata"]["creationTimestamp"],
        "2026-01-01T00:00:00Z"
    );
    let token = &answer["status"]["token"];
    let lives = |_: &str, _: &str, _: &str| Some(Arc::new(json!({"metadata": {"uid": "u-1"}})));
    let review = |spec: Value| {
        token_review(&json!({"spec": spec}), &authenticator, context.now, &lives).unwrap()
    };
    // The whole second of `nbf` lies before the half second of `now`.
    let good = review(json!({"token": token}));
    assert_eq!(good["status"]["authenticated"], true);
    assert_eq!(
        good["status"]["user"]["username"],
        "system:serviceaccount:a1:sa"
    );
    assert_eq!(good["status"]["audiences"], json!([API_AUDIENCE]));
    let other = review(json!({"token": token, "audiences": ["other"]}));
    assert_eq!(
        other["status"]["error"],
        "[invalid bearer token, token audiences [\"https://kubernetes.default.svc.cluster.local\"] is invalid for the target audiences [\"other\"]]"
    );
    assert_eq!(
        review(json!({"token": "nope"}))["status"],
        json!({"user": {}, "error": "invalid bearer token"})
    );
}

#[test]
fn a_token_lives_between_ten_minutes_and_2_to_the_32_seconds() {
    let authenticator = Authenticator::new(Settings::new(b"key".to_vec()));
    let account = account();
    for (seconds, text) in [
        (
            60,
            "Invalid value: 60: may not specify a duration less than 10 minutes",
        ),
        (
            4_294_967_297_i64,
            "Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
    ] {
        let body = json!({"spec": {"expirationSeconds": seconds}});
        let status = token_request(&body, &authenticator, &context(&account)).unwrap_err();
        assert_eq!(
            status.message,
            format!(
                "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: {text}"
            )
        );
    }
    let body = json!({"metadata": {"name": "other"}, "spec": {}});
    let status = token_request(&body, &authenticator, &context(&account)).unwrap_err();
    assert!(
        status
            .message
            .starts_with("TokenRequest.authentication.k8s.io \"sa\" is invalid: metadata.name")
    );
}

#[test]
fn a_token_cannot_be_bound_to_a_config_map() {
    let body =
        json!({"spec": {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}}});
    let status = bound_reference(&body).unwrap_err();
    assert_eq!(
        status.message,
        "cannot bind token to object of type /v1, Kind=ConfigMap"
    );
}
