//! Policies in effect, on a server in this process.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{DeleteParams, PostParams};
use kube_client::{Api, Client};
use serde_json::{Value, json};

use crate::server::ApiServer;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A policy for ConfigMaps and policies that needs `expression` to be true.
async fn require(client: &Client, name: &str, expression: &str) {
    let rules = json!([{"operations": ["*"], "apiGroups": ["", "admissionregistration.k8s.io"], "apiVersions": ["*"],
        "resources": ["configmaps", "validatingadmissionpolicies", "validatingadmissionpolicybindings"]}]);
    let policy: ValidatingAdmissionPolicy = read(json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression, "message": "no"}]}}));
    let binding: ValidatingAdmissionPolicyBinding = read(json!({"metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]}}));
    let parameters = PostParams::default();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    policies.create(&parameters, &policy).await.unwrap();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.create(&parameters, &binding).await.unwrap();
}

/// The code of a creation.
async fn create(client: &Client, name: &str) -> u16 {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map: ConfigMap = read(json!({"metadata": {"name": name}}));
    match maps.create(&PostParams::default(), &map).await {
        Ok(_) => 201,
        Err(kube_client::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

async fn server() -> (ApiServer, Client) {
    let server = ApiServer::builder().start().await.unwrap();
    let client = server.client();
    (server, client)
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_in_effect_with_the_next_write_until_it_is_removed() {
    let (_server, client) = server().await;
    require(&client, "a", "object.metadata.name != 'a'").await;
    assert_eq!(create(&client, "a").await, 422);
    assert_eq!(create(&client, "b").await, 201);
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let parameters = DeleteParams::default();
    bindings.delete("a", &parameters).await.unwrap();
    assert_eq!(create(&client, "a").await, 201);
}

#[tokio::test(start_paused = true)]
async fn policies_are_not_subject_to_policies() {
    let (_server, client) = server().await;
    require(&client, "a", "false").await;
    require(&client, "b", "true").await;
    assert_eq!(create(&client, "a").await, 422);
}

#[tokio::test(start_paused = true)]
async fn deep_expressions_are_evaluated_on_a_large_stack() {
    let (_server, client) = server().await;
    let deep = format!(
        "{}object.metadata.name{} != 'a'",
        "(".repeat(40),
        ")".repeat(40)
    );
    let sum = format!("({}) > 0", vec!["1"; 400].join(" + "));
    require(&client, "a", &format!("{deep} && {sum}")).await;
    assert_eq!(create(&client, "a").await, 422);
    assert_eq!(create(&client, "b").await, 201);
}
