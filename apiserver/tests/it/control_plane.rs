//! The real control plane starts, survives a restart of its API server, and leaves nothing behind.

use std::time::Duration;

use reeve_apiserver::assets;

async fn get(client: &kube_client::Client, path: &str) -> Result<String, kube_client::Error> {
    let request = http::Request::get(path)
        .body(Vec::new())
        .expect("a path is a legal request");
    client.request_text(request).await
}

async fn post(
    client: &kube_client::Client,
    path: &str,
    body: &serde_json::Value,
) -> Result<String, kube_client::Error> {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .expect("a path is a legal request");
    client.request_text(request).await
}

#[tokio::test]
async fn objects_and_the_port_survive_a_restart_of_the_real_api_server() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let mut control_plane = builder.start().await.expect("the control plane starts");
    let client = control_plane.client().expect("a client");
    let config_map = serde_json::json!({"metadata": {"name": "kept"}, "data": {"a": "b"}});
    post(
        &client,
        "/api/v1/namespaces/default/configmaps",
        &config_map,
    )
    .await
    .expect("created");

    control_plane.stop_apiserver();
    let down = tokio::time::timeout(Duration::from_secs(10), get(&client, "/readyz")).await;
    assert!(
        !matches!(down, Ok(Ok(_))),
        "a stopped API server does not answer"
    );

    control_plane
        .start_apiserver()
        .await
        .expect("the API server starts again");
    let text = get(&client, "/api/v1/namespaces/default/configmaps/kept")
        .await
        .expect("still there");
    assert!(text.contains("\"a\":\"b\""), "{text}");

    let directory = control_plane.directory().to_owned();
    drop(control_plane);
    assert!(
        !directory.exists(),
        "the data is removed with the control plane"
    );
    let gone = tokio::time::timeout(Duration::from_secs(10), get(&client, "/readyz")).await;
    assert!(
        !matches!(gone, Ok(Ok(_))),
        "no program outlives the control plane"
    );
}

#[tokio::test]
async fn the_controller_manager_makes_service_accounts_whose_tokens_are_refused_by_rbac() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let control_plane = builder
        .controller_manager(true)
        .start()
        .await
        .expect("the control plane starts");
    let client = control_plane.client().expect("a client");
    let body = serde_json::json!({"spec": {"expirationSeconds": 600}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let answer = post(&client, path, &body).await.expect("a token");
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let token = answer["status"]["token"].as_str().expect("a token");
    let account = control_plane.client_for(token).expect("a client");
    let error = get(&account, "/api/v1/namespaces/default/configmaps")
        .await
        .expect_err("no role allows it");
    let text = error.to_string();
    assert!(
        text.contains("system:serviceaccount:default:default"),
        "{text}"
    );
    assert!(
        get(&account, "/version").await.is_ok(),
        "the version needs no rights"
    );
}

#[tokio::test]
async fn a_reset_removes_the_new_objects_and_leaves_a_working_server() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let control_plane = builder
        .controller_manager(true)
        .start()
        .await
        .expect("the control plane starts");
    let client = control_plane.client().expect("a client");
    let names = serde_json::json!({"plural": "widgets", "singular": "widget", "kind": "Widget"});
    let schema = serde_json::json!({"openAPIV3Schema": {"type": "object"}});
    let version = serde_json::json!(
        {"name": "v1", "served": true, "storage": true, "schema": schema});
    let definition = serde_json::json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let widgets = "/apis/example.com/v1/namespaces/mine/widgets";
    let widget = serde_json::json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "one", "finalizers": ["example.com/never"]},
    });
    for round in 1..=3 {
        let namespace = serde_json::json!({"metadata": {"name": "mine"}});
        post(&client, "/api/v1/namespaces", &namespace)
            .await
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        post(&client, definitions, &definition)
            .await
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while let Err(error) = post(&client, widgets, &widget).await {
            assert!(
                tokio::time::Instant::now() < deadline,
                "round {round}: {error}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }

        control_plane.reset().await.expect("a reset");
        for path in [
            "/api/v1/namespaces/mine".to_owned(),
            format!("{definitions}/widgets.example.com"),
        ] {
            let error = get(&client, &path).await.expect_err("it is gone");
            assert!(error.to_string().contains("not found"), "{error}");
        }
        get(
            &client,
            "/api/v1/namespaces/default/serviceaccounts/default",
        )
        .await
        .expect("the objects of the control plane stay");
    }
}
