//! Access: reviews, tokens, service accounts.

use serde_json::{Value, json};

use super::cases;

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";

cases! { "access";
    ["E-3"] "a wrong token is not authorized" => |t| {
        t.send("GET", "{cm}", &[("authorization", "Bearer wrong")], Value::Null).await;
    }
    ["AUTH-1"] "a self access review of an administrator" => |t| {
        t.post(&format!("{AUTHORIZATION}/selfsubjectaccessreviews"), json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "delete", "resource": "configmaps", "namespace": "{ns}"}}})).await;
    }
    ["AUTH-1"] "a self access review with no attributes, or with both kinds" => |t| {
        t.post(&format!("{AUTHORIZATION}/selfsubjectaccessreviews"), json!({"spec": {}})).await;
        t.post(&format!("{AUTHORIZATION}/selfsubjectaccessreviews"), json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}, "nonResourceAttributes": {"verb": "get", "path": "/x"}}})).await;
    }
    ["AUTH-1"] "a subject access review needs a subject" => |t| {
        t.post(&format!("{AUTHORIZATION}/subjectaccessreviews"), json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})).await;
    }
    ["AUTH-1"] "a subject access review of a master" => |t| {
        t.post(&format!("{AUTHORIZATION}/subjectaccessreviews"), json!({"spec": {"user": "root", "groups": ["system:masters"], "resourceAttributes": {"verb": "get", "resource": "pods"}}})).await;
    }
    ["AUTH-1"] "a local review is restricted to its namespace" => |t| {
        let path = format!("{AUTHORIZATION}/namespaces/{{ns}}/localsubjectaccessreviews");
        t.post(&path, json!({"spec": {"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "other"}}})).await;
        t.post(&path, json!({"spec": {"user": "jane", "groups": ["system:masters"], "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "{ns}"}}})).await;
        t.post(&path, json!({"spec": {"user": "jane", "nonResourceAttributes": {"verb": "get", "path": "/x"}}})).await;
    }
    ["AUTH-1"] "reviews are only created" => |t| {
        t.get(&format!("{AUTHORIZATION}/selfsubjectaccessreviews")).await;
        t.get(&format!("{AUTHENTICATION}/tokenreviews/x")).await;
    }
    ["AUTH-1"] "a rules review needs a namespace" => |t| {
        t.post(&format!("{AUTHORIZATION}/selfsubjectrulesreviews"), json!({"spec": {}})).await;
    }
    ["AUTH-1"] "a self review names the user" => |t| {
        let answer = t.setup("POST", &format!("{AUTHENTICATION}/selfsubjectreviews"), json!({})).await;
        t.note("kind", json!([answer.body["kind"], answer.body["apiVersion"]]));
        t.note("groups", answer.body["status"]["userInfo"]["groups"].clone());
    }
    ["AUTH-1"] "an administrator may impersonate another user" => |t| {
        let answer = t.setup_any("POST", &format!("{AUTHENTICATION}/selfsubjectreviews"), &[("impersonate-user", "jane"), ("impersonate-group", "system:masters"), ("impersonate-extra-why", "test")], json!({})).await;
        t.note("jane", answer.body["status"].clone());
        t.send("GET", "{cm}", &[("impersonate-group", "g")], Value::Null).await;
    }
    ["AUTH-1"] "a token request and its review" => |t| {
        t.make("/api/v1/namespaces/{ns}/serviceaccounts", json!({"metadata": {"name": "sa"}})).await;
        let answer = t.post("/api/v1/namespaces/{ns}/serviceaccounts/sa/token", json!({"spec": {"expirationSeconds": 700}})).await;
        let token = answer.text("/status/token");
        let review = t.setup("POST", &format!("{AUTHENTICATION}/tokenreviews"), json!({"spec": {"token": token}})).await;
        let status = &review.body["status"];
        t.note("review", json!([status["authenticated"], status["user"]["username"], status["user"]["groups"], status["audiences"]]));
        let bearer = format!("Bearer {token}");
        let review = t.setup_any("POST", &format!("{AUTHENTICATION}/selfsubjectreviews"), &[("authorization", &bearer)], json!({})).await;
        t.note("user", review.body["status"]["userInfo"]["username"].clone());
        let review = t.setup("POST", &format!("{AUTHENTICATION}/tokenreviews"), json!({"spec": {"token": token, "audiences": ["other"]}})).await;
        t.note("for another audience", review.body["status"].clone());
    }
    ["AUTH-1"] "token requests that are refused" => |t| {
        t.make("/api/v1/namespaces/{ns}/serviceaccounts", json!({"metadata": {"name": "sa"}})).await;
        let path = "/api/v1/namespaces/{ns}/serviceaccounts/sa/token";
        t.post(path, json!({"spec": {"expirationSeconds": 60}})).await;
        t.post(path, json!({"spec": {"expirationSeconds": 4_294_967_297_i64}})).await;
        t.post(path, json!({"metadata": {"name": "other"}, "spec": {}})).await;
        t.post(path, json!({"spec": {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "nothing"}}})).await;
        t.post(path, json!({"spec": {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "nothing"}}})).await;
        t.post("/api/v1/namespaces/{ns}/serviceaccounts/nobody/token", json!({"spec": {}})).await;
    }
    ["AUTH-1"] "a review of a malformed token" => |t| {
        let review = t.setup("POST", &format!("{AUTHENTICATION}/tokenreviews"), json!({"spec": {"token": "nonsense"}})).await;
        t.note("status", review.body["status"].clone());
        t.post(&format!("{AUTHENTICATION}/tokenreviews"), json!({"spec": {}})).await;
    }
    ["AUTH-1"] "roles and bindings are validated" => |t| {
        let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles";
        t.post(roles, json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]})).await;
        t.post(roles, json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]})).await;
        let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings";
        t.post(bindings, json!({"metadata": {"name": "b"}, "roleRef": {"kind": "Chair", "name": "r"}, "subjects": [{"kind": "User"}]})).await;
    }
    ["AUTH-1"] "the role of a binding does not change" => |t| {
        let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings";
        let binding = |role: &str| json!({"metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}, "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "{ns}"}]});
        t.post(bindings, binding("r")).await;
        t.put(&format!("{bindings}/b"), binding("other")).await;
    }
}
