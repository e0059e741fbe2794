//! What admission sees and when, and how long a request may take.

use super::*;
use crate::admission::Operation;

type Mutate = fn(&mut AdmissionRequest<'_>) -> Result<(), Status>;
type Validate = fn(&AdmissionRequest<'_>) -> Result<(), Status>;

const BUDGETLESS: &str = "/api/v1/namespaces/default/pods/p";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Acts by two functions, and records the objects that it sees.
#[derive(Debug)]
struct Script {
    wait: Duration,
    mutate: Mutate,
    validate: Validate,
    mutated: Mutex<Vec<(String, Value)>>,
    validated: Mutex<Vec<String>>,
}

// === impl Script ===

impl Admission for Script {
    fn name(&self) -> &'static str {
        "Script"
    }

    fn handles(&self, request: &AdmissionRequest<'_>) -> bool {
        request.request.agent == "test"
    }

    fn mutate<'a>(
        &'a self,
        _: &'a Server<'_>,
        request: &'a mut AdmissionRequest<'_>,
    ) -> Answer<'a> {
        let object = request.object.as_deref().cloned().unwrap_or_default();
        self.mutated.lock().push((question(request), object));
        async move {
            sleep(self.wait).await;
            (self.mutate)(request)
        }
        .boxed()
    }

    fn validate<'a>(&'a self, _: &'a Server<'_>, request: &'a AdmissionRequest<'_>) -> Answer<'a> {
        self.validated.lock().push(question(request));
        async move { (self.validate)(request) }.boxed()
    }
}

async fn scripted(wait: Duration, mutate: Mutate, validate: Validate) -> (ApiServer, Arc<Script>) {
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
    let script = Arc::new(Script {
        wait,
        mutate,
        validate,
        mutated: Mutex::default(),
        validated: Mutex::default(),
    });
    let builder = ApiServer::builder().clock(clock).admission(script.clone());
    (builder.start().await.unwrap(), script)
}

fn nothing(_: &mut AdmissionRequest<'_>) -> Result<(), Status> {
    Ok(())
}

fn allow(_: &AdmissionRequest<'_>) -> Result<(), Status> {
    Ok(())
}

fn deployment() -> Value {
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}})
}

async fn with_pod(mutate: Mutate, validate: Validate) -> (ApiServer, Arc<Script>) {
    let (server, script) = scripted(Duration::ZERO, mutate, validate).await;
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(send(&server, "POST", PODS, pod).await.0, 201);
    script.validated.lock().clear();
    (server, script)
}

#[tokio::test(start_paused = true)]
async fn admission_sees_the_defaults_that_decoding_sets() {
    let (server, script) = scripted(Duration::ZERO, nothing, allow).await;
    let seen = || script.mutated.lock().pop().unwrap().1;
    let apply = "application/apply-patch+yaml";
    let one = format!("{DEPLOYMENTS}/d");
    let applied = format!("{DEPLOYMENTS}/e?fieldManager=m");
    let mut other = deployment();
    other["metadata"]["name"] = json!("e");
    let no_replicas = json!({"spec": {"replicas": null}});
    for (method, path, content_type, body) in [
        ("POST", DEPLOYMENTS, "application/json", deployment()),
        ("PUT", &one, "application/json", deployment()),
        ("PATCH", &one, MERGE, no_replicas),
        ("PATCH", &applied, apply, other),
    ] {
        let (code, answer) = send_as(server.service(), method, path, content_type, body).await;
        assert!(code < 300, "{method}: {answer}");
        let spec = &seen()["spec"];
        assert_eq!(spec["replicas"], 1, "{method}");
        assert_eq!(spec["strategy"]["type"], "RollingUpdate", "{method}");
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["restartPolicy"], "Always", "{method}");
        assert_eq!(
            pod["containers"][0]["imagePullPolicy"], "Always",
            "{method}"
        );
    }
    // What the server chooses later is not there yet.
    let made = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    send(&server, "POST", SERVICES, made).await;
    let service = seen();
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert_eq!(service["spec"].get("clusterIP"), None);
    assert_eq!(service["metadata"].get("uid"), None);
}

#[tokio::test(start_paused = true)]
async fn admission_sees_the_defaults_of_a_definition() {
    let (server, script) = scripted(Duration::ZERO, nothing, allow).await;
    let spec = json!({"type": "object", "properties": {"a": {"type": "string", "default": "b"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let definition = json!({"metadata": {"name": "foos.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster",
        "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&server, "POST", definitions, definition).await.0, 201);
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "x"}, "spec": {}});
    let made = send(&server, "POST", "/apis/example.com/v1/foos", foo).await;
    assert_eq!(made.0, 201);
    let (_, seen) = script.mutated.lock().pop().unwrap();
    assert_eq!(seen["spec"], json!({"a": "b"}));
}

#[tokio::test(start_paused = true)]
async fn each_object_of_a_collection_is_admitted_without_a_name() {
    let refuse_b = |request: &AdmissionRequest<'_>| match request.old_object() {
        Some(old) if old["metadata"]["name"] == "b" && request.operation == Operation::Delete => {
            Err(Status::bad_request("b stays"))
        }
        _ => Ok(()),
    };
    let (server, script) = scripted(Duration::ZERO, nothing, refuse_b).await;
    for name in ["a", "b", "c"] {
        send(&server, "POST", MAPS, map(name)).await;
    }
    script.mutated.lock().clear();
    let (code, refused) = send(&server, "DELETE", MAPS, Value::Null).await;
    assert_eq!((code, &refused["message"]), (400, &json!("b stays")));
    let asked = script.mutated.lock().clone();
    let asked: Vec<&str> = asked
        .iter()
        .map(|(question, _)| question.as_str())
        .collect();
    assert_eq!(asked, ["Delete configmaps :  < v1 ConfigMap"; 2]);
    let left = server.core().store.list("configmaps", "default/").1;
    let left: Vec<&str> = left.iter().map(|object| object.name()).collect();
    assert_eq!(left, ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_binding_is_checked_as_mutating_admission_left_it() {
    let choose_node: Mutate = |request| {
        if let Some(object) = &mut request.object
            && request.request.subresource == "binding"
        {
            let given = object["target"]["name"].as_str().unwrap_or_default();
            object["target"]["name"] = match given {
                "" => json!("chosen"),
                _ => json!(""),
            };
        }
        Ok(())
    };
    let refuse: Validate = |request| match request.request.subresource.as_str() {
        "binding" => Err(Status::bad_request("refused")),
        _ => Ok(()),
    };
    let binding =
        |node: &str| json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    let path = format!("{BUDGETLESS}/binding");
    // An invalid one that becomes valid.
    let (server, _) = with_pod(choose_node, allow).await;
    let (code, answer) = send(&server, "POST", &path, binding("")).await;
    assert_eq!(code, 201, "{answer}");
    let pod = server.core().store.get("pods", "default/p").unwrap();
    assert_eq!(pod.value()["spec"]["nodeName"], "chosen");
    // A valid one that becomes invalid; validating admission is not asked about it.
    let (server, script) = with_pod(choose_node, refuse).await;
    let (code, answer) = send(&server, "POST", &path, binding("n")).await;
    let why = json!("target.name: Required value");
    assert_eq!((code, &answer["message"]), (500, &why));
    assert_eq!(*script.validated.lock(), [""; 0]);
    // Validating admission comes after the check.
    let (code, answer) = send(&server, "POST", &path, binding("")).await;
    assert_eq!((code, &answer["message"]), (400, &json!("refused")));
    let pod = server.core().store.get("pods", "default/p").unwrap();
    assert_eq!(pod.value()["spec"].get("nodeName"), None);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_checked_and_done_as_mutating_admission_left_it() {
    let rename: Mutate = |request| {
        if let Some(object) = &mut request.object
            && request.request.subresource == "eviction"
        {
            object["metadata"]["name"] = json!("other");
        }
        Ok(())
    };
    let only_try: Mutate = |request| {
        if let Some(object) = &mut request.object
            && request.request.subresource == "eviction"
        {
            object["deleteOptions"] = json!({"dryRun": ["All"]});
        }
        Ok(())
    };
    let eviction = json!({"metadata": {"name": "p"}});
    let path = format!("{BUDGETLESS}/eviction");
    let (server, script) = with_pod(rename, allow).await;
    let (code, answer) = send(&server, "POST", &path, eviction.clone()).await;
    assert_eq!(code, 400, "{answer}");
    assert_eq!(*script.validated.lock(), [""; 0]);
    let is_there = |server: &ApiServer| server.core().store.get("pods", "default/p").is_some();
    assert!(is_there(&server));
    let (server, _) = with_pod(only_try, allow).await;
    assert_eq!(send(&server, "POST", &path, eviction.clone()).await.0, 201);
    assert!(
        is_there(&server),
        "its options are those that admission set"
    );
    let (server, _) = with_pod(nothing, allow).await;
    assert_eq!(send(&server, "POST", &path, eviction).await.0, 201);
    assert!(!is_there(&server));
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_write_is_the_one_in_its_query_and_34_seconds_at_most() {
    let (server, _) = server(SLOW * 20).await;
    for (query, seconds) in [
        ("timeout=10s", 10),
        ("timeout=1m30s", 34),
        ("timeout=0s", 34),
        ("timeout=-1s", 34),
        ("timeout=", 34),
    ] {
        let start = Instant::now();
        let path = format!("{MAPS}?{query}");
        let (code, status) = send(&server, "POST", &path, map("slow")).await;
        let why = "Timeout: request did not complete within requested timeout - context deadline exceeded";
        assert_eq!((code, &status["message"]), (504, &json!(why)), "{query}");
        assert_eq!(start.elapsed().as_secs(), seconds, "{query}");
    }
    let path = format!("{MAPS}?timeout=5");
    let (code, status) = send(&server, "POST", &path, map("fast")).await;
    let why =
        r#"invalid timeout specified in the request URL - time: missing unit in duration "5""#;
    assert_eq!((code, &status["message"]), (400, &json!(why)));
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_deleted_collection_is_that_of_the_request() {
    let slow_deletions: Mutate = nothing;
    let (server, _) = scripted(Duration::from_secs(25), slow_deletions, allow).await;
    for name in ["a", "b", "c"] {
        send(&server, "POST", MAPS, map(name)).await;
    }
    let left = || server.core().store.list("configmaps", "default/").1.len();
    let start = Instant::now();
    let path = format!("{MAPS}?timeout=10s");
    assert_eq!(send(&server, "DELETE", &path, Value::Null).await.0, 504);
    assert_eq!((start.elapsed().as_secs(), left()), (10, 3));
    // Longer than one write, as on a real server, but not once for each object.
    let start = Instant::now();
    let (code, status) = send(&server, "DELETE", MAPS, Value::Null).await;
    assert_eq!((code, &status["reason"]), (504, &json!("Timeout")));
    assert_eq!((start.elapsed().as_secs(), left()), (60, 1));
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_read_is_the_one_in_its_query() {
    let (server, _) = scripted(Duration::ZERO, nothing, allow).await;
    send(&server, "POST", MAPS, map("a")).await;
    let start = Instant::now();
    let later = server.resource_version() + 1_000;
    let path = format!("{MAPS}/a?resourceVersion={later}&timeout=1s");
    let (code, status) = send(&server, "GET", &path, Value::Null).await;
    let why = "Timeout: request did not complete within the allotted timeout";
    assert_eq!((code, &status["message"]), (504, &json!(why)));
    assert_eq!(start.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_without_labels_gets_all_those_of_its_template_and_its_manager_owns_the_sent_ones() {
    let (server, _) = scripted(Duration::ZERO, nothing, allow).await;
    let job = |name: &str, labels: Value| {
        let pod = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
        json!({"metadata": {"name": name, "labels": labels}, "spec": {
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}})
    };
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let (_, made) = send(&server, "POST", jobs, job("x", Value::Null)).await;
    let template = &made["spec"]["template"]["metadata"]["labels"];
    assert_eq!(template["controller-uid"], made["metadata"]["uid"]);
    assert_eq!(&made["metadata"]["labels"], template);
    let owned = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"];
    assert_eq!(*owned, json!({"f:labels": {".": {}, "f:a": {}}}));
    let (_, made) = send(&server, "POST", jobs, job("y", json!({"a": "b"}))).await;
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}));
}
