//! RBAC: the texts of refusals.

use serde_json::{Value, json};

use super::{cases, config_map};
use crate::conformance::case::{Case, MERGE};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

/// The case's own user, which gets no rights from other cases.
const JANE: &str = "jane";

/// Lets `subject` do `rules` in the case's namespace.
async fn grant(t: &Case, name: &str, subject: Value, rules: Value) {
    let roles = format!("{RBAC}/namespaces/{{ns}}/roles");
    t.make(&roles, json!({"metadata": {"name": name}, "rules": rules}))
        .await;
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let bindings = format!("{RBAC}/namespaces/{{ns}}/rolebindings");
    t.make(
        &bindings,
        json!({"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}),
    )
    .await;
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

/// Reads ConfigMaps.
fn reader() -> Value {
    json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}])
}

async fn as_jane(t: &mut Case, method: &str, path: &str, body: Value) {
    t.send(method, path, &[("impersonate-user", JANE)], body)
        .await;
}

cases! { "rights";
    ["E-3"] "the refusal of a user without rights names the request" => |t| {
        as_jane(t, "GET", "{cm}", Value::Null).await;
        as_jane(t, "GET", "{cm}/a", Value::Null).await;
        as_jane(t, "GET", "/api/v1/configmaps", Value::Null).await;
        as_jane(t, "POST", "{cm}", config_map("a", "1")).await;
        as_jane(t, "PUT", "{cm}/a", config_map("a", "1")).await;
        as_jane(t, "DELETE", "{cm}/a", Value::Null).await;
        as_jane(t, "DELETE", "{cm}", Value::Null).await;
        as_jane(t, "GET", "{cm}?watch=true", Value::Null).await;
        as_jane(t, "GET", "{cm}?fieldSelector=metadata.name%3Da", Value::Null).await;
        t.send("PATCH", "{cm}/a", &[("impersonate-user", JANE), ("content-type", MERGE)], json!({})).await;
    }
    ["E-3"] "a refusal names subresources, groups, namespaces and paths" => |t| {
        as_jane(t, "GET", "{w}/a/status", Value::Null).await;
        as_jane(t, "GET", "{g}/a", Value::Null).await;
        as_jane(t, "GET", "/api/v1/namespaces/{ns}", Value::Null).await;
        as_jane(t, "GET", "/api/v1/namespaces", Value::Null).await;
        as_jane(t, "GET", "/apis/nothing.example.com/v1/things", Value::Null).await;
        as_jane(t, "GET", "/metrics", Value::Null).await;
        as_jane(t, "GET", "/nothing", Value::Null).await;
    }
    ["E-3"] "a client without credentials is anonymous, and may read only health and version" => |t| {
        let anonymous = [("authorization", "Basic eDp5")];
        t.send("GET", "{cm}", &anonymous, Value::Null).await;
        t.send("GET", "/apis", &anonymous, Value::Null).await;
        t.send("GET", "/healthz", &anonymous, Value::Null).await;
        t.send("POST", &format!("{AUTHORIZATION}/selfsubjectaccessreviews"), &anonymous, json!({"spec": {}})).await;
    }
    ["AUTH-1"] "every authenticated user may use discovery and self reviews" => |t| {
        let answer = t.setup_any("GET", "/apis", &[("impersonate-user", JANE)], Value::Null).await;
        t.note("/apis", json!(answer.code));
        let answer = t.setup_any("GET", "/openapi/v3", &[("impersonate-user", JANE)], Value::Null).await;
        t.note("/openapi/v3", json!(answer.code));
        as_jane(t, "POST", &format!("{AUTHORIZATION}/selfsubjectaccessreviews"), json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "{ns}"}}})).await;
        as_jane(t, "POST", &format!("{AUTHORIZATION}/subjectaccessreviews"), json!({"spec": {"user": "joe", "resourceAttributes": {"verb": "get", "resource": "secrets"}}})).await;
    }
    ["AUTH-1"] "a role grants its rights only in its namespace" => |t| {
        grant(t, "reader", user("{me}"), reader()).await;
        t.allowed_within("{me}", "list").await;
        let me = t.fill("{me}");
        let mine = [("impersonate-user", me.as_str())];
        t.send("GET", "{cm}", &mine, Value::Null).await;
        t.send("GET", "{cm}/a", &mine, Value::Null).await;
        t.send("DELETE", "{cm}/a", &mine, Value::Null).await;
        t.send("GET", "/api/v1/namespaces/default/configmaps", &mine, Value::Null).await;
        t.send("GET", "/api/v1/configmaps", &mine, Value::Null).await;
    }
    ["AUTH-1"] "an access review names the binding that allows the request" => |t| {
        grant(t, "reader", user("{me}"), reader()).await;
        t.allowed_within("{me}", "get").await;
        let question = |verb: &str| json!({"spec": {"user": "{me}", "resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": "{ns}"}}});
        t.post(&format!("{AUTHORIZATION}/subjectaccessreviews"), question("get")).await;
        t.post(&format!("{AUTHORIZATION}/subjectaccessreviews"), question("delete")).await;
        t.post(&format!("{AUTHORIZATION}/subjectaccessreviews"), json!({"spec": {"user": "{me}", "groups": ["system:authenticated"], "nonResourceAttributes": {"verb": "get", "path": "/api"}}})).await;
    }
    ["AUTH-1"] "a role with names allows only these names" => |t| {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get", "update", "list"]}, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]);
        grant(t, "named", user("{me}"), rules).await;
        t.allowed_within("{me}", "watch").await;
        let me = t.fill("{me}");
        let mine = [("impersonate-user", me.as_str())];
        t.make("{cm}", config_map("a", "1")).await;
        t.send("GET", "{cm}/a", &mine, Value::Null).await;
        t.send("GET", "{cm}/b", &mine, Value::Null).await;
        t.send("GET", "{cm}", &mine, Value::Null).await;
        t.send("GET", "{cm}?fieldSelector=metadata.name%3Da", &mine, Value::Null).await;
    }
    ["AUTH-1"] "a role may allow only a subresource" => |t| {
        let rules = json!([{"apiGroups": ["{group}"], "resources": ["widgets/status"], "verbs": ["patch", "get"]}, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
        grant(t, "status", user("{me}"), rules).await;
        t.allowed_within("{me}", "get").await;
        let me = t.fill("{me}");
        t.make("{w}", super::widget("a", json!({}))).await;
        t.send("PATCH", "{w}/a/status", &[("impersonate-user", &me), ("content-type", MERGE)], json!({"status": {"phase": "Up"}})).await;
        t.send("PATCH", "{w}/a", &[("impersonate-user", &me), ("content-type", MERGE)], json!({"spec": {"color": "red"}})).await;
        t.send("GET", "{w}/a/scale", &[("impersonate-user", &me)], Value::Null).await;
    }
    ["AUTH-1"] "a binding to a missing role is named in the refusal" => |t| {
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "missing"});
        let bindings = format!("{RBAC}/namespaces/{{ns}}/rolebindings");
        t.make(&bindings, json!({"metadata": {"name": "dangling"}, "roleRef": reference, "subjects": [user("{me}")]})).await;
        grant(t, "reader", user("{me}"), reader()).await;
        t.allowed_within("{me}", "get").await;
        let me = t.fill("{me}");
        t.send("DELETE", "{cm}/a", &[("impersonate-user", &me)], Value::Null).await;
        t.send("GET", "{cm}/a", &[("impersonate-user", &me)], Value::Null).await;
    }
    ["AUTH-1"] "a service account's token has the rights of the account" => |t| {
        t.make("/api/v1/namespaces/{ns}/serviceaccounts", json!({"metadata": {"name": "sa"}})).await;
        grant(t, "reader", json!({"kind": "ServiceAccount", "name": "sa", "namespace": "{ns}"}), reader()).await;
        t.allowed_within("system:serviceaccount:{ns}:sa", "list").await;
        let token = t.setup("POST", "/api/v1/namespaces/{ns}/serviceaccounts/sa/token", json!({"spec": {}})).await.text("/status/token");
        let bearer = format!("Bearer {token}");
        let list = t.setup_any("GET", "{cm}", &[("authorization", &bearer)], Value::Null).await;
        t.note("list", json!([list.code, list.body["kind"]]));
        let delete = t.setup_any("DELETE", "{cm}/a", &[("authorization", &bearer)], Value::Null).await;
        t.note("delete", delete.body);
        let impersonate = t.setup_any("GET", "{cm}", &[("authorization", &bearer), ("impersonate-user", "joe")], Value::Null).await;
        t.note("as joe", impersonate.body);
    }
    ["AUTH-1"] "a rules review lists the rules of the namespace" => |t| {
        grant(t, "reader", user("{me}"), reader()).await;
        t.allowed_within("{me}", "get").await;
        let me = t.fill("{me}");
        let answer = t.setup_any("POST", &format!("{AUTHORIZATION}/selfsubjectrulesreviews"), &[("impersonate-user", &me)], json!({"spec": {"namespace": "{ns}"}})).await;
        let mut status = answer.body["status"].clone();
        // The order of the bindings does not matter.
        for list in ["resourceRules", "nonResourceRules"] {
            if let Some(rules) = status[list].as_array_mut() {
                rules.sort_by_key(Value::to_string);
            }
        }
        t.note("status", status);
    }
    ["AUTH-1"] "a user may not grant rights that the user does not have" => |t| {
        let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
        grant(t, "granter", user("{me}"), rules).await;
        t.allowed_within("{me}", "get").await;
        let me = t.fill("{me}");
        let roles = format!("{RBAC}/namespaces/{{ns}}/roles");
        t.send("POST", &roles, &[("impersonate-user", &me)], json!({"metadata": {"name": "held"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]})).await;
        t.send("POST", &roles, &[("impersonate-user", &me)], json!({"metadata": {"name": "more"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]})).await;
    }
    ["AUTH-1"] "a role that aggregates others, or is labelled for one, needs all rights" => |t| {
        let roles = format!("{RBAC}/clusterroles");
        let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["get", "create", "update", "patch"]}]);
        t.make(&roles, json!({"metadata": {"name": "{me}"}, "rules": rules})).await;
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "{me}"});
        t.make(&format!("{RBAC}/clusterrolebindings"), json!({"metadata": {"name": "{me}"}, "roleRef": reference, "subjects": [user("joan-{me}")]})).await;
        t.make(&roles, json!({"metadata": {"name": "{me}-strong"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]})).await;
        let joan = t.fill("joan-{me}");
        t.hide(&joan, "joan");
        let path = format!("{roles}/{{me}}");
        for _ in 0..100 {
            if t.setup_any("GET", &path, &[("impersonate-user", &joan)], Value::Null).await.code == 200 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let headers = [("content-type", MERGE), ("impersonate-user", &*joan)];
        let aggregates = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"{me}": "yes"}}]}});
        for (name, patch) in [
            ("{me}", aggregates),
            ("{me}", json!({"metadata": {"labels": {"a": "b"}}})),
            ("{me}-strong", json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}})),
            ("{me}-strong", json!({"metadata": {"finalizers": ["example.com/x"]}})),
        ] {
            let answer = t.setup_any("PATCH", &format!("{roles}/{name}"), &headers, patch.clone()).await;
            t.note(&patch.to_string(), json!([answer.code, answer.body["reason"]]));
        }
        for name in ["{me}", "{me}-strong"] {
            t.setup("PATCH", &format!("{roles}/{name}"), json!({"metadata": {"finalizers": null}})).await;
            t.setup("DELETE", &format!("{roles}/{name}"), Value::Null).await;
        }
        t.setup("DELETE", &format!("{RBAC}/clusterrolebindings/{{me}}"), Value::Null).await;
    }
}
