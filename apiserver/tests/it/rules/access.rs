//! RBAC end to end, over one server.

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube_client::api::{Api, ListParams, PostParams};
use kube_client::core::{ApiResource, DynamicObject, GroupVersionKind};
use reeve_apiserver::ApiServer;
use serde_json::json;

use crate::rules::raw::clock;

async fn server() -> ApiServer {
    ApiServer::builder()
        .clock(clock())
        .rbac()
        .start()
        .await
        .unwrap()
}

async fn apply(server: &ApiServer, kind: &str, object: serde_json::Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "rbac.authorization.k8s.io",
        "v1",
        kind,
    ));
    let api: Api<DynamicObject> = Api::default_namespaced_with(server.client(), &resource);
    api.create(
        &PostParams::default(),
        &serde_json::from_value(object).unwrap(),
    )
    .await
    .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_account_nobody_has_no_rights_and_is_named_in_the_refusal() {
    let server = server().await;
    let anonymous: Api<ConfigMap> = Api::default_namespaced(server.client_with(None));
    let refused = anonymous
        .list(&ListParams::default())
        .await
        .unwrap_err()
        .to_string();
    let text = "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert!(refused.contains(text), "{refused}");
    let wrong: Api<ConfigMap> = Api::default_namespaced(server.client_with(Some("wrong")));
    assert!(
        wrong
            .list(&ListParams::default())
            .await
            .unwrap_err()
            .to_string()
            .contains("Unauthorized")
    );
    let admin: Api<ConfigMap> = Api::default_namespaced(server.client());
    admin.list(&ListParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_account_may_what_its_role_says() {
    let server = server().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(server.client());
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "bot"}})).unwrap();
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let token = accounts
        .create_token_request("bot", &PostParams::default(), &request)
        .await
        .unwrap()
        .status
        .unwrap()
        .token;
    let bot = server.client_with(token.as_deref());
    let maps: Api<ConfigMap> = Api::default_namespaced(bot.clone());
    let secrets: Api<Secret> = Api::default_namespaced(bot);
    assert!(
        maps.list(&ListParams::default()).await.is_err(),
        "no role yet"
    );
    apply(
        &server,
        "Role",
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}],
        }),
    )
    .await;
    apply(
        &server,
        "RoleBinding",
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "bot-reads"},
            "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        }),
    )
    .await;
    maps.list(&ListParams::default()).await.unwrap();
    assert!(secrets.list(&ListParams::default()).await.is_err());
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    let refused = maps
        .create(&PostParams::default(), &map)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("system:serviceaccount:default:bot"),
        "{refused}"
    );
}
