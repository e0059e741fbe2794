//! Users with few rights.

use reeve_apiserver::ApiServer;
use reeve_apiserver::rbac::User;
use serde_json::json;

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube_client::Api;

use super::world::World;

/// A world whose plugin runs as a user that may list and get the blocks of one namespace.
async fn as_tenant() -> World {
    let builder = ApiServer::builder()
        .rbac()
        .token("tenant's", User::new("tenant", ["system:authenticated"]));
    let mut world = World::empty(builder).await;
    world.install().await;
    world.configure(&[]).await;
    world.operate().await;
    world
}

fn tenant(world: &World) -> String {
    let kubeconfig = std::fs::read_to_string(world.folder().join("kubeconfig")).unwrap();
    let mut config: serde_json::Value = serde_saphyr::from_str(&kubeconfig).unwrap();
    for user in config["users"].as_array_mut().unwrap() {
        user["user"] = json!({"token": "tenant's"});
    }
    world.file("tenant", &config.to_string())
}

async fn grant(world: &World, verbs: &[&str]) {
    let roles: Api<Role> = Api::namespaced(world.client.clone(), "web");
    let role = json!({"metadata": {"name": "bans"}, "rules": [
        {"apiGroups": ["ops.yiiong.top"], "resources": ["ipblocks"], "verbs": verbs}]});
    let binding = json!({"metadata": {"name": "bans"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bans"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]});
    let create = Default::default();
    roles
        .create(&create, &serde_json::from_value(role).unwrap())
        .await
        .unwrap();
    let bindings: Api<RoleBinding> = Api::namespaced(world.client.clone(), "web");
    bindings
        .create(&create, &serde_json::from_value(binding).unwrap())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_missing_right_is_named_and_answers_say_what_they_do_not_know() {
    let world = as_tenant().await;
    let tenant = tenant(&world);
    let run = |line: &str| format!("{line} --kubeconfig {tenant}");
    let refused = "Error from server (Forbidden): ";
    world.refused(&run("list -n web"), refused).await;
    world
        .refused(
            &run("list -A"),
            "The right that is missing: list on ipblocks.ops.yiiong.top in all namespaces",
        )
        .await;
    grant(&world, &["get", "list"]).await;
    world.ok(&run("list -n web")).await;
    world
        .refused(
            &run("ban 192.0.2.7 -n web"),
            "The right that is missing: create on ipblocks.ops.yiiong.top in the namespace web",
        )
        .await;
    let few = world.ipb_with(&run("import - -n web"), "192.0.2.7\n").await;
    assert_eq!(
        (few.code, few.text.as_str()),
        (Some(1), "1 entries: 0 created, 1 refused\n"),
        "{few:?}"
    );
    let list: String = (0..20).map(|n| format!("198.18.0.{n}\n")).collect();
    let ended = world
        .ipb_with(&run("import - -n web --concurrency 1"), &list)
        .await;
    assert_eq!(
        (ended.code, ended.text.as_str()),
        (
            Some(1),
            "20 entries: 0 created, 5 refused, 15 not tried or without an answer\n"
        ),
        "{ended:?}"
    );
    assert!(
        ended
            .errors
            .contains("The right that is missing: create on")
    );
    let answer = world.ok(&run("why 192.0.2.7 -n web")).await;
    assert!(answer.contains("the allowlist and the protected ranges are not known: the right to get the ConfigMap default/ipblock-operator-config is missing"), "{answer}");
    assert!(
        answer.contains("blocks and lists of other namespaces than web are not checked"),
        "{answer}"
    );
    assert!(!answer.contains("a ban would be accepted"), "{answer}");
    let missing = "BlockLists are not checked, and may ban an address: the right to list blocklists.ops.yiiong.top in the namespace web is missing";
    assert!(answer.contains(missing), "{answer}");
    world
        .refused(
            &run("unban 192.0.2.7"),
            "list on ipblocks.ops.yiiong.top in the namespace default",
        )
        .await;
}
