use http::Method;
use jiff::Timestamp;

use super::*;
use crate::http::query::Parameters;
use crate::http::route::Target;
use crate::record::RequestRecord;

fn request(method: Method, uri: &str) -> RequestRecord {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let target = Target::of(&method, path, &Parameters::parse(query));
    let attributes = target.attributes(&method);
    let head = http::Request::builder().method(method).uri(uri);
    let head = head.body(()).unwrap().into_parts().0;
    RequestRecord::of(&head, &attributes, String::new(), Timestamp::UNIX_EPOCH)
}

/// The rights of requests, each as a method and a URI.
fn rights(requests: &[(Method, &str)]) -> Rights {
    let requests = requests
        .iter()
        .map(|(method, uri)| request(method.clone(), uri));
    let requests: Vec<RequestRecord> = requests.collect();
    Rights::of(&requests)
}

/// A role in YAML.
fn role(head: &str, rules: &[&str]) -> String {
    let mut text = format!("apiVersion: rbac.authorization.k8s.io/v1\n{head}\nrules:\n");
    for rule in rules {
        text.push_str(&format!("  - {rule}\n"));
    }
    text
}

const CLUSTER_ROLE: &str = "kind: ClusterRole\nmetadata: {name: all}";
const ROLE: &str = "kind: Role\nmetadata: {name: own, namespace: home}";
const BINDINGS: &str = "
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: all}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all}
subjects: [{kind: ServiceAccount, name: program, namespace: home}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: own, namespace: home}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: own}
subjects: [{kind: ServiceAccount, name: program, namespace: home}]
";

fn compare(rights: &Rights, yaml: &str) -> Comparison {
    rights.compare(&Manifest::parse(yaml).unwrap()).unwrap()
}

/// A controller in the namespace `home` with a lease, for maps everywhere.
fn controller() -> Rights {
    rights(&[
        (
            Method::GET,
            "/api/v1/configmaps?watch=true&sendInitialEvents=true",
        ),
        (Method::PATCH, "/api/v1/namespaces/shop/configmaps/a"),
        (
            Method::PATCH,
            "/api/v1/namespaces/shop/configmaps/b?dryRun=All",
        ),
        (
            Method::POST,
            "/apis/coordination.k8s.io/v1/namespaces/home/leases",
        ),
        (
            Method::PUT,
            "/apis/coordination.k8s.io/v1/namespaces/home/leases/program",
        ),
    ])
}

#[test]
fn requests_become_the_fewest_rules() {
    let expected = r#"  - apiGroups: [""]
    resources: [configmaps]
    verbs: [list, watch, patch]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create, update]
"#;
    assert_eq!(controller().to_string(), expected);
    let of_status = rights(&[(Method::PATCH, "/apis/g.io/v1/namespaces/a/foos/b/status")]);
    let rules = controller().and(of_status).rules();
    let resources: Vec<_> = rules
        .iter()
        .map(|rule| rule.resources.clone().unwrap())
        .collect();
    assert_eq!(resources, [["configmaps"], ["leases"], ["foos/status"]]);
}

#[test]
fn requests_that_every_user_may_send_need_no_rule() {
    let free = rights(&[
        (Method::GET, "/apis/g.io/v1"),
        (Method::GET, "/version"),
        (
            Method::POST,
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        ),
    ]);
    assert_eq!(free.rules(), []);
    let metrics = rights(&[(Method::GET, "/metrics/")]);
    assert_eq!(
        metrics.to_string(),
        "  - nonResourceURLs: [/metrics]\n    verbs: [get]\n"
    );
}

#[test]
fn roles_that_allow_all_requests_pass_and_unused_parts_are_returned() {
    let roles = [
        role(
            CLUSTER_ROLE,
            &["{apiGroups: [''], resources: [configmaps], verbs: [get, list, watch, patch]}"],
        ),
        role(
            ROLE,
            &[
                "{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}",
                "{apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [program, other], verbs: [update]}",
            ],
        ),
    ];
    let yaml = roles.join("---\n") + BINDINGS;
    let unused = controller().check(&yaml);
    let text: String = unused.iter().map(ToString::to_string).collect();
    let expected = r#"ClusterRole all:
  - apiGroups: [""]
    resources: [configmaps]
    verbs: [get]
Role home/own:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [other]
    verbs: [update]
"#;
    assert_eq!(text, expected);
}

#[test]
fn missing_rules_are_ready_to_paste_and_named_where_the_role_names_objects() {
    let roles = [
        role(
            CLUSTER_ROLE,
            &["{apiGroups: [''], resources: [configmaps], verbs: [list]}"],
        ),
        role(
            ROLE,
            &[
                "{apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [program], verbs: [get]}",
            ],
        ),
    ];
    let yaml = roles.join("---\n") + BINDINGS;
    let expected = r#"add to ClusterRole all:
  # for patch /api/v1/namespaces/shop/configmaps/a
  - apiGroups: [""]
    resources: [configmaps]
    verbs: [watch, patch]
add to Role home/own:
  # for create /apis/coordination.k8s.io/v1/namespaces/home/leases
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [program]
    verbs: [update]
never used of Role home/own:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [program]
    verbs: [get]"#;
    assert_eq!(compare(&controller(), &yaml).to_string(), expected);
}

#[test]
fn the_missing_rules_are_those_of_roles_that_allow_exactly_the_requests() {
    let missing = compare(&controller(), "").missing;
    let roles: Vec<&str> = missing.iter().map(|part| &*part.role).collect();
    assert_eq!(
        roles,
        [
            "a new ClusterRole, with a ClusterRoleBinding",
            "a new Role in home, with a RoleBinding"
        ]
    );
    let roles = missing
        .iter()
        .zip([CLUSTER_ROLE, ROLE])
        .map(|(part, head)| {
            let text = part.to_string();
            let (_, rules) = text.split_once('\n').unwrap();
            format!("apiVersion: rbac.authorization.k8s.io/v1\n{head}\nrules:\n{rules}")
        });
    let roles: Vec<String> = roles.collect();
    controller().check_exactly(&(roles.join("---\n") + BINDINGS));
}

#[test]
fn the_example_of_missing_rules_needs_the_first_of_them() {
    let needed = rights(&[
        (Method::POST, "/apis/apps/v1/namespaces/shop/deployments"),
        (Method::GET, "/api/v1/namespaces/shop/configmaps/a"),
    ]);
    let missing = compare(&needed, "").missing;
    let first = missing[0].rules[0].resources.as_ref().unwrap();
    assert_eq!(first, &["configmaps"]);
    let example = missing[0].example.as_ref().unwrap();
    assert!(example.contains("configmaps"), "{example}");
}

#[test]
fn a_role_counts_in_the_namespace_of_its_binding_only() {
    let rule = "{apiGroups: ['*'], resources: ['*'], verbs: ['*']}";
    let yaml = role(ROLE, &[rule]);
    let found = compare(&controller(), &yaml);
    let roles: Vec<&str> = found.missing.iter().map(|part| &*part.role).collect();
    assert_eq!(roles, ["a new ClusterRole, with a ClusterRoleBinding"]);
    assert_eq!(found.missing[0].rules[0].verbs, ["list", "watch", "patch"]);
    assert_eq!(found.missing[0].rules.len(), 1);
    // Without a namespace it has that of the manifest.
    let yaml = role("kind: Role\nmetadata: {name: own}", &[rule]);
    let manifest = Manifest::parse(&yaml).unwrap().namespace("shop");
    let local = rights(&[(Method::GET, "/api/v1/namespaces/shop/pods")]);
    assert!(local.compare(&manifest).unwrap().is_exact());
    let elsewhere = local.compare(&manifest.namespace("home")).unwrap();
    assert_eq!(
        elsewhere.missing[0].role,
        "a new Role in shop, with a RoleBinding"
    );
}

#[test]
fn wildcards_and_aggregated_roles_count() {
    let aggregated = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: all}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {part: 'yes'}}]}
---
";
    let part = "kind: ClusterRole\nmetadata: {name: part, labels: {part: 'yes'}}";
    let part = role(
        part,
        &["{apiGroups: ['*'], resources: [configmaps, leases], verbs: ['*']}"],
    );
    let yaml = format!("{aggregated}{part}{BINDINGS}");
    assert_eq!(compare(&controller(), &yaml), Comparison::default());
}

#[test]
fn roles_that_are_bound_to_others_do_not_count() {
    let viewer = role(
        "kind: ClusterRole\nmetadata: {name: viewer}",
        &["{apiGroups: [''], resources: [configmaps], verbs: [get, list, watch, patch]}"],
    );
    let yaml = format!("{viewer}{BINDINGS}");
    let found = compare(&controller(), &yaml);
    assert_eq!(found.unused, []);
    assert_eq!(found.missing, compare(&controller(), "").missing);
}

#[test]
fn the_account_is_chosen_where_bindings_name_several() {
    let role = role(
        CLUSTER_ROLE,
        &["{apiGroups: ['*'], resources: ['*'], verbs: ['*']}"],
    );
    let others = BINDINGS
        .replace("name: program", "name: scraper")
        .replace("name: all}\nrole", "name: metrics}\nrole");
    let yaml = format!("{role}{BINDINGS}{others}");
    let manifest = Manifest::parse(&yaml).unwrap();
    let error = controller().compare(&manifest).unwrap_err().to_string();
    let expected = "the bindings name 2 ServiceAccounts (home/program, home/scraper); choose one with `Manifest::account`";
    assert_eq!(error, expected);
    let manifest = manifest.account("home", "program");
    assert!(controller().compare(&manifest).unwrap().is_exact());
}

#[test]
fn texts_and_rules_that_cannot_be_read_are_errors() {
    assert!(matches!(
        Manifest::parse("a: ["),
        Err(ManifestError::Yaml(_))
    ));
    let wrong = role(CLUSTER_ROLE, &["{verbs: [get]}", "{verbs: get}"]);
    let error = Manifest::parse(&wrong).unwrap_err().to_string();
    assert!(
        error.starts_with("rule 2 of ClusterRole all is not valid: "),
        "{error}"
    );
}

#[test]
#[should_panic(expected = "never used of ClusterRole all")]
fn an_exact_check_refuses_unused_rules() {
    let rule = "{apiGroups: ['', coordination.k8s.io], resources: [configmaps, leases, pods], verbs: ['*']}";
    controller().check_exactly(&role(CLUSTER_ROLE, &[rule]));
}
