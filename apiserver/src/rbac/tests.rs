use super::*;

fn policy(rules: Value) -> Policy {
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    let binding = json!({"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"kind": "ClusterRole", "name": "r"}});
    Policy::new([], [&role], [], [&binding])
}

fn jane() -> User {
    User::new("jane", [AUTHENTICATED])
}

#[test]
fn a_rule_allows_what_it_names_and_nothing_else() {
    let get = |group: &str, resource: &str| Attributes::resource("get", group, resource);
    let all = || json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let table = [
        (
            "everything",
            all(),
            get("g.io", "foos").subresource("status"),
            true,
        ),
        (
            "another verb",
            json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}),
            get("", "pods"),
            false,
        ),
        (
            "another group",
            json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["pods"]}),
            get("", "pods"),
            false,
        ),
        (
            "a resource is not its subresource",
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}),
            get("", "pods").subresource("log"),
            false,
        ),
        (
            "a subresource by name",
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}),
            get("", "pods").subresource("log"),
            true,
        ),
        (
            "a subresource is not its resource",
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}),
            get("", "pods"),
            false,
        ),
        (
            "any resource's subresource",
            json!({"verbs": ["get"], "apiGroups": ["*"], "resources": ["*/scale"]}),
            get("apps", "deployments").subresource("scale"),
            true,
        ),
        (
            "any resource's other subresource",
            json!({"verbs": ["get"], "apiGroups": ["*"], "resources": ["*/scale"]}),
            get("apps", "deployments").subresource("status"),
            false,
        ),
        (
            "the name",
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}),
            get("", "pods").named("a"),
            true,
        ),
        (
            "another name",
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}),
            get("", "pods").named("b"),
            false,
        ),
        (
            "no name where one is asked",
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}),
            get("", "pods"),
            false,
        ),
        (
            "a path",
            json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}),
            Attributes::path("get", "/metrics"),
            true,
        ),
        (
            "a path below",
            json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}),
            Attributes::path("get", "/metrics/x"),
            false,
        ),
        (
            "paths by prefix",
            json!({"verbs": ["get"], "nonResourceURLs": ["/apis/*"]}),
            Attributes::path("get", "/apis/a/b"),
            true,
        ),
        (
            "resources do not cover paths",
            all(),
            Attributes::path("get", "/metrics"),
            false,
        ),
    ];
    for (name, rule, attributes, allowed) in table {
        let decision = policy(json!([rule])).authorize(&jane(), &attributes);
        assert_eq!(decision.allowed, allowed, "{name}");
    }
}

#[test]
fn a_role_binding_reaches_its_own_namespace_only_also_with_a_cluster_role() {
    let role = json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    let binding = json!({"metadata": {"name": "b", "namespace": "a"}, "subjects": [{"kind": "ServiceAccount", "name": "s"}],
        "roleRef": {"kind": "ClusterRole", "name": "r"}});
    let policy = Policy::new([], [&role], [&binding], []);
    let account = User::service_account("a", "s", "");
    let get = Attributes::resource("get", "", "pods").named("p");
    assert_eq!(
        policy
            .authorize(&account, &get.clone().in_namespace("a"))
            .reason,
        r#"RBAC: allowed by RoleBinding "b/a" of ClusterRole "r" to ServiceAccount "s/""#
    );
    assert!(
        !policy
            .authorize(&account, &get.clone().in_namespace("b"))
            .allowed
    );
    assert!(!policy.authorize(&account, &get).allowed);
    let namesake = User::service_account("b", "s", "");
    assert!(
        !policy
            .authorize(
                &namesake,
                &Attributes::resource("get", "", "pods").in_namespace("a")
            )
            .allowed
    );
}

#[test]
fn a_binding_of_a_missing_role_allows_nothing_and_is_named_in_the_refusal() {
    let dangling = json!({"metadata": {"name": "c"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"kind": "ClusterRole", "name": "missing"}});
    let gone = json!({"metadata": {"name": "b2", "namespace": "a1"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"kind": "Role", "name": "gone"}});
    let policy = Policy::new([], [], [&gone], [&dangling]);
    let delete = Attributes::resource("delete", "", "configmaps")
        .in_namespace("a1")
        .named("x");
    let status = delete.forbidden(&jane(), &policy.authorize(&jane(), &delete));
    assert_eq!(
        status.message,
        r#"configmaps "x" is forbidden: User "jane" cannot delete resource "configmaps" in API group "" in the namespace "a1": RBAC: [clusterrole.rbac.authorization.k8s.io "missing" not found, role.rbac.authorization.k8s.io "gone" not found]"#
    );
}

#[test]
fn masters_may_do_everything_without_any_role() {
    let decision = Policy::default().authorize(&User::admin(), &Attributes::path("get", "/x"));
    assert!(decision.allowed);
    assert_eq!(decision.reason, "");
}

#[test]
fn refused_paths_and_cluster_scoped_requests_have_their_own_texts() {
    let path = Attributes::path("get", "/metrics");
    let status = path.forbidden(&User::anonymous(), &Decision::default());
    assert_eq!(
        status.message,
        r#"forbidden: User "system:anonymous" cannot get path "/metrics""#
    );
    let scale = Attributes::resource("get", "apps", "deployments")
        .subresource("scale")
        .named("d");
    assert_eq!(
        scale.forbidden(&jane(), &Decision::default()).message,
        r#"deployments.apps "d" is forbidden: User "jane" cannot get resource "deployments/scale" in API group "apps" at the cluster scope"#
    );
}

#[test]
fn the_bootstrap_roles_aggregate_view_into_edit_into_admin() {
    let objects = bootstrap_objects();
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let binding = json!({"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"kind": "ClusterRole", "name": "admin"}});
    let bindings: Vec<&Value> = of_kind("ClusterRoleBinding").chain([&binding]).collect();
    let policy = Policy::new([], of_kind("ClusterRole"), [], bindings);
    for (verb, group, resource) in [
        ("list", "", "pods"),
        ("create", "", "secrets"),
        ("update", "rbac.authorization.k8s.io", "roles"),
    ] {
        let attributes = Attributes::resource(verb, group, resource).in_namespace("a");
        assert!(
            policy.authorize(&jane(), &attributes).allowed,
            "{verb} {resource}"
        );
    }
    assert!(
        !policy
            .authorize(&jane(), &Attributes::resource("delete", "", "nodes"))
            .allowed
    );
    assert!(
        policy
            .authorize(&User::anonymous(), &Attributes::path("get", "/healthz"))
            .allowed
    );
    assert!(
        !policy
            .authorize(&User::anonymous(), &Attributes::path("get", "/apis"))
            .allowed
    );
}

#[test]
fn no_account_may_grant_what_it_does_not_hold() {
    let policy = policy(
        json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/status"]}]),
    );
    let wanted = |rule: Value| {
        policy
            .uncovered(&jane(), "a", &[serde_json::from_value(rule).unwrap()])
            .len()
    };
    assert_eq!(
        wanted(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "nodes/status"]})),
        0
    );
    assert_eq!(
        wanted(json!({"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["pods"]})),
        1
    );
    assert_eq!(
        wanted(json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]})),
        1
    );
}

#[test]
fn each_line_of_the_roles_of_controllers_is_an_object_with_a_name_of_its_own() {
    let objects: Vec<Value> = bootstrap::of_controllers().collect();
    assert_eq!(
        objects.len(),
        include_str!("controllers.jsonl").lines().count()
    );
    let key = |object: &Value| {
        let meta = &object["metadata"];
        format!("{} {} {}", object["kind"], meta["namespace"], meta["name"])
    };
    let all: Vec<Value> = objects.into_iter().chain(bootstrap_objects()).collect();
    let keys: std::collections::BTreeSet<String> = all.iter().map(key).collect();
    assert_eq!(keys.len(), all.len());
}
