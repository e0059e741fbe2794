//! Flags about the server that is started.

use serde_json::{Value, json};

use super::{Folder, Program, client, refused, send};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[tokio::test]
async fn the_line_of_json_and_the_port_file_name_the_server() {
    let folder = Folder::new();
    let file = folder.path("port");
    let program = Program::start(&["--port-file", &file]).await;
    let port = std::fs::read_to_string(&file).unwrap();
    assert_eq!(port.trim(), program.ready["port"].to_string());
    assert_eq!(program.url(), format!("http://127.0.0.1:{}", port.trim()));
    assert_eq!(program.ready["pid"], json!(program.child.id()));
    assert_eq!(program.get("/version").await.unwrap()["minor"], "36");
    let missing = folder.path("missing/port");
    let error = refused(&["--port-file", &missing]).await;
    assert!(
        error.contains(&format!("--port-file {missing}: ")),
        "{error}"
    );
}

#[tokio::test]
async fn the_minor_version_is_that_of_the_flag() {
    let program = Program::start(&["--minor", "33"]).await;
    assert_eq!(program.get("/version").await.unwrap()["minor"], "33");
}

#[tokio::test]
async fn names_of_the_flag_are_in_the_certificate() {
    let program = Program::start(&["--tls", "--tls-san", "api.test", "--tls-san=10.1.2.3"]).await;
    let kubeconfig = program.ready["kubeconfig"].as_str().unwrap();
    for (name, is_valid) in [
        ("api.test", true),
        ("10.1.2.3", true),
        ("other.test", false),
    ] {
        let with_name = kubeconfig.replace(
            "certificate-authority-data",
            &format!("tls-server-name: {name}\n    certificate-authority-data"),
        );
        let client = client(&with_name).await;
        let answered = client.apiserver_version().await;
        assert_eq!(answered.is_ok(), is_valid, "{name}: {answered:?}");
    }
    let error = refused(&["--tls-san", "api.test"]).await;
    assert!(error.contains("add --tls"), "{error}");
}

#[tokio::test]
async fn the_kubeconfig_of_a_server_on_all_interfaces_names_loopback() {
    let folder = Folder::new();
    let file = folder.path("kubeconfig");
    let words = ["--listen", "0.0.0.0:0", "--allow-remote", "--tls"];
    let program = Program::start(&[&words[..], &["--kubeconfig", &file]].concat()).await;
    assert_eq!(program.ready["host"], "0.0.0.0");
    let written = std::fs::read_to_string(&file).unwrap();
    let port = &program.ready["port"];
    assert!(
        written.contains(&format!("https://127.0.0.1:{port}")),
        "{written}"
    );
    client(&written).await.apiserver_version().await.unwrap();
}

#[tokio::test]
async fn a_token_of_the_file_is_its_user() {
    let folder = Folder::new();
    let file = folder.write(
        "tokens",
        "s3cret,jane,7,\"dev,ops\"\nmaster,root,,system:masters\n",
    );
    let words = ["--authorization-mode", "RBAC", "--token-file", &file];
    let program = Program::start(&words).await;
    let administrator = program.ready["token"].as_str().unwrap();
    let kubeconfig = program.ready["kubeconfig"].as_str().unwrap();
    let with = async |token: &str| client(&kubeconfig.replace(administrator, token)).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let jane = with("s3cret").await;
    let user = &send(&jane, "POST", path, &review).await.unwrap()["status"]["userInfo"];
    assert_eq!(
        (&user["username"], &user["uid"]),
        (&json!("jane"), &json!("7"))
    );
    assert_eq!(
        user["groups"],
        json!(["dev", "ops", "system:authenticated"])
    );
    assert_eq!(send(&jane, "GET", MAPS, &Value::Null).await, Err(403));
    let root = with("master").await;
    assert!(send(&root, "GET", MAPS, &Value::Null).await.is_ok());
    let wrong = with("wrong").await;
    assert_eq!(send(&wrong, "GET", MAPS, &Value::Null).await, Err(401));

    let file = folder.write("wrong", "s3cret,jane,7\ns3cret\n");
    let error = refused(&["--token-file", &file]).await;
    assert!(error.contains(&format!("{file}, line 2: ")), "{error}");
}

#[tokio::test]
async fn a_short_history_answers_an_old_watch_with_410() {
    for (words, is_gone) in [
        (
            &["--history-min-events=0", "--history-max-events=2"][..],
            true,
        ),
        (&[], false),
    ] {
        let program = Program::start(words).await;
        let client = program.client().await;
        let list = send(&client, "GET", MAPS, &Value::Null).await.unwrap();
        let start = list["metadata"]["resourceVersion"].as_str().unwrap();
        for name in ["a", "b", "c"] {
            send(&client, "POST", MAPS, &map(name)).await.unwrap();
        }
        let watch = format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={start}");
        let request = http::Request::get(watch).body(Vec::new()).unwrap();
        let events = client.request_text(request).await.unwrap();
        assert_eq!(
            events.contains("too old resource version"),
            is_gone,
            "{events}"
        );
    }
}

#[tokio::test]
async fn streaming_lists_are_refused_on_request() {
    let watch = "watch=true&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true\
                 &resourceVersionMatch=NotOlderThan";
    for (words, is_offered) in [(&["--streaming-lists=false"][..], false), (&[], true)] {
        let program = Program::start(words).await;
        let request = http::Request::get(format!("{MAPS}?{watch}"));
        let request = request.body(Vec::new()).unwrap();
        let answered = program.client().await.request_text(request).await;
        assert_eq!(answered.is_ok(), is_offered, "{answered:?}");
    }
}

#[tokio::test]
async fn dependents_stay_where_garbage_is_not_collected() {
    for (words, stays) in [(&["--gc=false"][..], true), (&[], false)] {
        let program = Program::start(words).await;
        let client = program.client().await;
        let owner = send(&client, "POST", MAPS, &map("owner")).await.unwrap();
        let mut dependent = map("dependent");
        dependent["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        }]);
        let dependent = send(&client, "POST", MAPS, &dependent).await.unwrap();
        let version = dependent["metadata"]["resourceVersion"].as_str().unwrap();
        let owner = format!("{MAPS}/owner");
        send(&client, "DELETE", &owner, &Value::Null).await.unwrap();
        // The watch ends at the event, or after its time if there is none.
        let watch = format!(
            "{MAPS}?watch=true&timeoutSeconds=2&resourceVersion={version}&fieldSelector=metadata.name=dependent"
        );
        let request = http::Request::get(watch).body(Vec::new()).unwrap();
        let events = client.request_text(request).await.unwrap();
        assert_eq!(events.contains("DELETED"), !stays, "{events}");
    }
}

#[tokio::test]
async fn events_expire_after_the_time_of_the_flag() {
    let program = Program::start(&["--event-ttl", "200ms"]).await;
    let client = program.client().await;
    let path = "/api/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}});
    let event = send(&client, "POST", path, &event).await.unwrap();
    let version = event["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("{path}?watch=true&timeoutSeconds=3&resourceVersion={version}");
    let request = http::Request::get(watch).body(Vec::new()).unwrap();
    let events = client.request_text(request).await.unwrap();
    assert!(events.contains("DELETED"), "{events}");
    let error = refused(&["--event-ttl", "soon"]).await;
    assert!(error.contains("--event-ttl"), "{error}");
}

#[tokio::test]
async fn the_control_api_is_served_on_request_and_resets_to_the_objects_of_the_start() {
    let folder = Folder::new();
    let seed = folder.write(
        "seed.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: seed}\n",
    );
    let program = Program::start(&["--control", "--tls", "--manifests", &seed]).await;
    assert_eq!(program.ready["control"], true);
    let client = program.client().await;
    let count = async || {
        send(&client, "GET", "/reeve/v1/requests", &Value::Null)
            .await
            .unwrap()["count"]
            .clone()
    };
    assert_eq!(count().await, 0, "the seed is not a request of a client");
    send(&client, "DELETE", &format!("{MAPS}/seed"), &Value::Null)
        .await
        .unwrap();
    send(&client, "POST", MAPS, &map("other")).await.unwrap();
    assert_eq!(count().await, 2);
    send(&client, "POST", "/reeve/v1/reset", &json!({}))
        .await
        .unwrap();
    let maps = send(&client, "GET", MAPS, &Value::Null).await.unwrap();
    assert_eq!(maps["items"].as_array().unwrap().len(), 1);
    assert_eq!(maps["items"][0]["metadata"]["name"], "seed");

    let program = Program::start(&[]).await;
    assert_eq!(program.ready["control"], false);
    assert_eq!(program.get("/reeve/v1").await, Err(404));
}
