//! Client certificates as identities, on the built-in server and on a real one.

use kube_client::Client;
use kube_client::config::{Config, KubeConfigOptions, Kubeconfig};
use reeve_apiserver::{ApiServer, Serving, UserCertificate, assets};
use serde_json::{Value, json};

/// A server with TLS that refuses requests without an identity any right.
async fn served() -> (ApiServer, Serving) {
    let server = ApiServer::builder()
        .rbac()
        .start()
        .await
        .expect("it starts");
    let address = "127.0.0.1:0".parse().expect("an address");
    let serving = server.serve_tls(address).await.expect("it listens");
    (server, serving)
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

/// The user that the server sees: name, groups and names of extra fields.
async fn whoami(client: &Client) -> Result<Value, u16> {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .expect("a request");
    match client.request::<Value>(request).await {
        Ok(review) => {
            let user = &review["status"]["userInfo"];
            let extra = user["extra"]
                .as_object()
                .map(|extra| extra.keys().collect::<Vec<_>>());
            Ok(json!([user["username"], user["groups"], extra]))
        }
        Err(kube_client::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

fn jane() -> Value {
    json!([
        "jane",
        ["developers", "system:authenticated"],
        ["authentication.kubernetes.io/credential-id"]
    ])
}

#[tokio::test]
async fn a_certificate_of_the_server_is_an_identity() {
    let (_server, serving) = served().await;
    let certificate = serving.user_certificate("jane", Some("developers"));
    let certificate = certificate.expect("a certificate").expect("TLS");
    let client = client(&serving.kubeconfig_of(&certificate)).await;
    assert_eq!(whoami(&client).await, Ok(jane()));
}

#[tokio::test]
async fn a_certificate_of_the_real_server_is_an_identity() {
    let Some(builder) = assets::control_plane() else {
        return;
    };
    let control_plane = builder.start().await.expect("the control plane starts");
    let certificate = control_plane.user_certificate("jane", Some("developers"));
    let certificate = certificate.expect("a certificate");
    let client = client(&control_plane.kubeconfig_of(&certificate)).await;
    assert_eq!(whoami(&client).await, Ok(jane()));
    assert_eq!(
        foreign(&control_plane.kubeconfig_of(&other().await)).await,
        Err(401)
    );
}

/// A certificate of another server.
async fn other() -> UserCertificate {
    let (_server, serving) = served().await;
    let certificate = serving.user_certificate("jane", Some("system:masters"));
    certificate.expect("a certificate").expect("TLS")
}

async fn foreign(kubeconfig: &str) -> Result<Value, u16> {
    whoami(&client(kubeconfig).await).await
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_no_identity() {
    let (_server, serving) = served().await;
    assert_eq!(
        foreign(&serving.kubeconfig_of(&other().await)).await,
        Err(401)
    );
    // A valid token still counts, as on a real server.
    let mut both = Kubeconfig::from_yaml(&serving.kubeconfig_of(&other().await)).expect("YAML");
    let admin = Kubeconfig::from_yaml(&serving.kubeconfig()).expect("YAML");
    let token = admin.auth_infos[0]
        .auth_info
        .as_ref()
        .and_then(|user| user.token.clone());
    let user = both.auth_infos[0].auth_info.as_mut().expect("a user");
    user.token = Some(token.expect("a token"));
    let config = Config::from_custom_kubeconfig(both, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.expect("a configuration")).expect("a client");
    let user = whoami(&client).await.expect("a user");
    assert_eq!(user[1][0], "system:masters");
}

#[tokio::test]
async fn a_client_without_a_certificate_is_asked_for_none_to_be_let_in() {
    let (_server, serving) = served().await;
    let client = client(&serving.kubeconfig()).await;
    let user = whoami(&client).await.expect("a user");
    assert_eq!(user[1][0], "system:masters");
}
