//! The spans that a collector receives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use reeve_apiserver::ApiServer;
use reeve_controller::client::connect::{self, connect};
use reeve_controller::kube_client::Config;
use reeve_controller::server::{Budget, Request, Router, Server, StatusCode, text};
use reeve_controller::{CancellationToken, Client, Manager, ObjectKey};
use traced::{Exporter, WORDS};
use tracing_subscriber::prelude::*;

/// A collector: the requests that it received.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

// === impl Collector ===

impl Collector {
    fn server(&self) -> Router {
        let (collector, budget) = (self.clone(), Budget::mebibytes(16));
        Router::new()
            .route("/v1/traces", move |request: Request| {
                let (collector, budget) = (collector.clone(), budget.clone());
                async move {
                    let body = budget.read(request.into_body(), 1 << 20).await.unwrap();
                    let request = ExportTraceServiceRequest::decode(&*body).unwrap();
                    collector.0.lock().unwrap().push(request);
                    text(StatusCode::OK, "")
                }
            })
            .unwrap()
    }

    fn services(&self) -> Vec<String> {
        let requests = self.0.lock().unwrap();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        resources
            .filter_map(|spans| spans.resource.as_ref())
            .map(|resource| attribute(&resource.attributes, "service.name"))
            .collect()
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.0.lock().unwrap();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }
}

fn attribute(attributes: &[KeyValue], name: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|attribute| attribute.value.clone()) {
        Some(AnyValue {
            value: Some(Value::StringValue(text)),
        }) => text,
        Some(AnyValue {
            value: Some(Value::IntValue(number)),
        }) => number.to_string(),
        _ => String::new(),
    }
}

fn map(name: &str, text: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some("default".into());
    map.metadata.name = Some(name.into());
    map.data = Some([("text".into(), text.into())].into());
    map
}

/// One thread, whose subscriber is that of this test.
#[tokio::test]
async fn each_reconcile_is_a_span_and_its_requests_are_the_children() {
    let collector = Collector::default();
    let receiver = Server::bind(
        "collector",
        ([127, 0, 0, 1], 0).into(),
        collector.server().into_handler(),
    );
    let receiver = receiver.await.unwrap();
    let endpoint = format!("http://{}/v1/traces", receiver.local_addr().unwrap());
    let stop = CancellationToken::new();
    let receiving = tokio::spawn(receiver.run(stop.clone()));
    let exporter = tokio::task::spawn_blocking(move || {
        Exporter::start("traced", Some(&endpoint)).map_err(|error| error.to_string())
    });
    let exporter = exporter.await.unwrap().unwrap();
    let subscriber = tracing_subscriber::registry().with(exporter.layer());
    let guard = tracing::subscriber::set_default(subscriber);

    let server = ApiServer::builder().start().await.unwrap();
    let serving = server.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    let config = Config::new(serving.url().parse().unwrap());
    let kube = connect(config, &connect::Options::new()).unwrap();
    let user = Client::new(server.client());
    for (name, text) in [("good", "one two"), ("empty", "")] {
        user.create(&map(name, text)).await.unwrap();
    }
    let manager = Manager::builder(kube).build().await.unwrap();
    traced::add(&manager).unwrap();
    let (running, ended) = (manager.clone(), CancellationToken::new());
    let token = ended.clone();
    let run = tokio::spawn(async move { running.run(token).await });
    let key = ObjectKey::namespaced("default", "good");
    let limit = Duration::from_secs(60);
    let counted = |map: &ConfigMap| {
        let annotations = map.metadata.annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.get(WORDS) == Some(&"2".to_owned()))
    };
    user.wait_for(&key, limit, counted).await.unwrap();
    ended.cancel();
    run.await.unwrap().unwrap();
    drop(guard);
    // The spans of the last seconds are sent before the program ends.
    let stopped =
        tokio::task::spawn_blocking(move || exporter.stop().map_err(|error| error.to_string()));
    stopped.await.unwrap().unwrap();
    stop.cancel();
    receiving.await.unwrap().unwrap();

    assert!(collector.services().iter().all(|name| name == "traced"));
    let spans = collector.spans();
    let reconciles: HashMap<_, _> = spans
        .iter()
        .filter(|span| span.name == "reconcile")
        .map(|span| (span.span_id.clone(), span))
        .collect();
    let metrics = manager.metrics().encode();
    let total: f64 = metrics
        .lines()
        .filter(|line| line.starts_with("controller_runtime_reconcile_total"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert_eq!(reconciles.len() as f64, total, "one span a reconcile");
    let (mut outcomes, mut requests) = (Vec::new(), Vec::new());
    for span in &spans {
        let value = |name| attribute(&span.attributes, name);
        if span.name == "reconcile" {
            let status = span.status.clone().unwrap_or_default();
            let shown = (value("key"), value("outcome"), status.code, status.message);
            outcomes.push(shown);
            continue;
        }
        let parent = reconciles[&span.parent_span_id];
        assert_eq!(span.trace_id, parent.trace_id);
        let client = opentelemetry_proto::tonic::trace::v1::span::SpanKind::Client;
        assert_eq!(span.kind, client as i32);
        let path = value("url.path");
        let code = value("http.response.status_code");
        requests.push((span.name.clone(), path, code));
    }
    let done = ("default/good".into(), "success".into(), 0, String::new());
    let failed = (
        "default/empty".into(),
        "error".into(),
        2,
        "the text has no words".into(),
    );
    assert!(outcomes.contains(&done), "{outcomes:?}");
    assert!(outcomes.contains(&failed), "{outcomes:?}");
    for method in ["GET", "PUT"] {
        let request = (
            format!("{method} /api/v1/namespaces/{{namespace}}/configmaps/{{name}}"),
            "/api/v1/namespaces/default/configmaps/good".to_owned(),
            "200".to_owned(),
        );
        assert!(requests.contains(&request), "{requests:?}");
    }
}
