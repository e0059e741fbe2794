//! Protobuf from the built-in API server, and a connection that damages it: the store ends up equal to that of JSON.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_client::client::Body;
use kube_client::{Api, Client};
use kube_core::metadata::PartialObjectMeta;
use kube_core::{ApiResource, DynamicObject};
use parking_lot::Mutex;
use reeve_apiserver::ApiServer;
use reeve_informer::{
    Compact, Endpoint, Form, Gauges, InformerIdentity, InformerMetrics, Measurement,
    MetricsProvider, ReflectorOptions, Scope, SharedInformer, SkipPath, Stored,
};
use reeve_wire::watch::split;

use crate::script::{Answered, streamed};
use crate::setup::{clock, map, run};

/// What happens to an answer in protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// The connection breaks within a frame.
    Break,
    /// The body ends within a frame.
    Cut,
    /// The bytes of the frame are others.
    Garbage,
    /// The length is three bytes too long.
    WrongLength,
    /// The length is beyond every limit.
    Oversize,
    /// The frame is whole, and the object in it is not.
    Truncated,
    /// JSON, called protobuf.
    Json,
    /// 406 for protobuf.
    Refused,
}

const ALL: [Damage; 8] = [
    Damage::Break,
    Damage::Cut,
    Damage::Garbage,
    Damage::WrongLength,
    Damage::Oversize,
    Damage::Truncated,
    Damage::Json,
    Damage::Refused,
];

/// A connection that damages one answer.
#[derive(Clone, Default)]
struct Wire {
    /// The damage, and the number of events or lists in protobuf before it.
    next: Arc<Mutex<Option<(Damage, usize)>>>,
    /// The `Accept` header of each request.
    asked: Arc<Mutex<Vec<String>>>,
    /// That of each request that was answered, and the `Content-Type` of the answer.
    seen: Arc<Mutex<Vec<(String, String)>>>,
}

impl Wire {
    fn client(&self, server: &ApiServer) -> Client {
        self.client_of(server.client())
    }

    fn client_of(&self, inner: Client) -> Client {
        let wire = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (wire, inner) = (wire.clone(), inner.clone());
            async move { wire.answer(&inner, request).await }
        });
        Client::new(service, "default")
    }

    async fn answer(
        &self,
        inner: &Client,
        request: Request<Body>,
    ) -> Result<Answered, std::io::Error> {
        let text = |headers: &http::HeaderMap, name| {
            headers
                .get(name)
                .map_or("", |value| value.to_str().unwrap())
                .to_owned()
        };
        let accept = text(request.headers(), ACCEPT);
        self.asked.lock().push(accept.clone());
        let is_watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch="));
        if accept.contains("protobuf") && self.take(|damage| damage == Damage::Refused) {
            let body = Body::from(b"not acceptable".to_vec());
            return Ok(plain(Response::builder().status(406).body(body).unwrap()));
        }
        let response = inner.send(request).await.map_err(std::io::Error::other)?;
        let content_type = text(response.headers(), CONTENT_TYPE);
        if !response.status().is_success() {
            return Ok(plain(response));
        }
        self.seen.lock().push((accept, content_type.clone()));
        if !content_type.contains("protobuf") {
            return Ok(plain(response));
        }
        let (parts, body) = response.into_parts();
        if !is_watch {
            let whole = body
                .collect()
                .await
                .map_err(std::io::Error::other)?
                .to_bytes();
            let mut bytes = whole.to_vec();
            let mut broken = false;
            self.take(|damage| {
                let end = bytes.len();
                match damage {
                    Damage::Break | Damage::Cut => broken = true,
                    Damage::Truncated => bytes.truncate(end - 7),
                    Damage::Json => bytes = br#"{"kind":"ConfigMapList","items":[]}"#.to_vec(),
                    _ => bytes[4..].fill(0x5a),
                }
                damage != Damage::Refused
            });
            if broken {
                return Err(std::io::ErrorKind::ConnectionReset.into());
            }
            return Ok(plain(Response::from_parts(parts, Body::from(bytes))));
        }
        let (sender, streamed) = streamed();
        let wire = self.clone();
        tokio::spawn(async move { wire.pass_on(body, &sender).await });
        Ok(Response::from_parts(parts, streamed.into_body()))
    }

    /// Passes frames of a watch on.
    async fn pass_on(&self, mut body: Body, sender: &crate::script::Sender) {
        let mut buffer = Vec::new();
        loop {
            let frame = tokio::select! {
                biased;
                () = sender.closed() => return,
                frame = body.frame() => frame,
            };
            let Some(Ok(frame)) = frame else { return };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            buffer.extend_from_slice(&data);
            let mut rest = buffer.as_slice();
            let mut sent = Vec::new();
            while let Some(event) = split(&mut rest, usize::MAX).unwrap() {
                let mut frame = framed(event);
                let mut end = None;
                self.take(|damage| {
                    let half = frame.len() / 2;
                    match damage {
                        Damage::Break => {
                            frame.truncate(half);
                            end = Some(Err(std::io::ErrorKind::ConnectionReset.into()));
                        }
                        Damage::Cut => {
                            frame.truncate(half);
                            end = Some(Ok(Bytes::new()));
                        }
                        Damage::Garbage => frame[4..].fill(0xff),
                        Damage::WrongLength => frame[3] = frame[3].wrapping_add(3),
                        Damage::Oversize => frame[..4].fill(0xff),
                        Damage::Truncated => {
                            // An event whose object ends within its envelope.
                            let mut object = b"\x0a\x08MODIFIED\x12\x08\x0a\x06k8s\0\x0a".to_vec();
                            object.push(0x7f);
                            frame = framed(&object);
                        }
                        Damage::Json => frame = br#"{"type":"MODIFIED","object":{}}"#.to_vec(),
                        Damage::Refused => return false,
                    }
                    true
                });
                sent.push((frame, end));
            }
            let rest = rest.to_vec();
            buffer = rest;
            for (frame, end) in sent {
                if sender.send(Ok(frame.into())).await.is_err() {
                    return;
                }
                if let Some(end) = end {
                    let _ = sender.send(end).await;
                    return;
                }
            }
        }
    }

    /// Applies the damage by `damage`, which returns whether it was its place, once it is due.
    fn take(&self, damage: impl FnOnce(Damage) -> bool) -> bool {
        let mut next = self.next.lock();
        match &mut *next {
            Some((kind, 0)) if damage(*kind) => {
                *next = None;
                true
            }
            None => false,
            Some((_, before)) => {
                *before = before.saturating_sub(1);
                false
            }
        }
    }
}

fn plain(response: Response<Body>) -> Answered {
    response.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
}

fn framed(event: &[u8]) -> Vec<u8> {
    let length = u32::try_from(event.len()).unwrap();
    [&length.to_be_bytes(), event].concat()
}

/// Counts the fall-backs.
#[derive(Clone, Default)]
struct FellBack(Arc<Mutex<usize>>);

impl MetricsProvider for FellBack {
    fn informer(
        &self,
        _: &InformerIdentity,
        _: std::sync::Weak<dyn Gauges>,
    ) -> Box<dyn InformerMetrics> {
        Box::new(self.clone())
    }
}

impl InformerMetrics for FellBack {
    fn record(&self, measurement: Measurement) {
        *self.0.lock() += usize::from(measurement == Measurement::FellBackToJson);
    }
}

async fn server(streaming: bool) -> ApiServer {
    let server = ApiServer::builder()
        .clock(clock(1))
        .streaming_lists(streaming);
    server.start().await.unwrap()
}

fn informer<S: Form>(
    server: &ApiServer,
    client: Client,
    endpoint: Endpoint,
    protobuf: bool,
    fell_back: &FellBack,
) -> SharedInformer<S> {
    SharedInformer::<S>::builder_for(client, endpoint)
        .scope(Scope::namespace("default"))
        .clock(server.clock().clone())
        .metrics(Arc::new(fell_back.clone()))
        .reflector(ReflectorOptions::new().protobuf(protobuf))
        .build()
}

/// The whole content of a store.
fn content<S: Stored>(informer: &SharedInformer<S>) -> Vec<String> {
    let stored = informer.lister().list();
    let mut content: Vec<_> = stored
        .iter()
        .map(|entry| format!("{:?}", entry.dynamic().unwrap()))
        .collect();
    content.sort();
    content
}

async fn change(maps: &Api<ConfigMap>, round: usize) {
    for number in 0..6 {
        let name = format!("m{round}-{number}");
        maps.create(&PostParams::default(), &map(&name, "first"))
            .await
            .unwrap();
    }
    let patch = Patch::Merge(serde_json::json!({"data": {"value": "second"}}));
    for number in 0..3 {
        let name = format!("m{round}-{number}");
        maps.patch(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
    let name = format!("m{round}-5");
    maps.delete(&name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_damage_ends_in_the_store_that_json_has_and_none_is_met_twice() {
    for streaming in [true, false] {
        for (damage, before) in ALL
            .into_iter()
            .flat_map(|damage| [(damage, 0), (damage, 9)])
        {
            let title = format!("{damage:?} after {before}, streaming {streaming}");
            let server = server(streaming).await;
            let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
            change(&maps, 0).await;
            let (wire, fell_back) = (Wire::default(), FellBack::default());
            // The first request may be a streaming list, which JSON does not help either.
            let before = if damage == Damage::Refused { 1 } else { before };
            *wire.next.lock() = Some((damage, before));
            let endpoint = Endpoint::of::<ConfigMap>();
            let binary = informer::<ConfigMap>(
                &server,
                wire.client(&server),
                endpoint.clone(),
                true,
                &fell_back,
            );
            let none = FellBack::default();
            let json = informer::<ConfigMap>(&server, server.client(), endpoint, false, &none);
            let (stop, _) = run(&binary);
            let (stop_json, _) = run(&json);
            binary.wait_synced().await.unwrap();
            for round in 1..5 {
                change(&maps, round).await;
                tokio::time::sleep(std::time::Duration::from_secs(30)).await;
            }
            server.close_watches();
            server.forget_history(None);
            change(&maps, 5).await;
            tokio::time::sleep(std::time::Duration::from_secs(300)).await;
            assert_eq!(*wire.next.lock(), None, "{title}: it did not happen");
            assert_eq!(content(&binary), content(&json), "{title}");
            assert_eq!(content(&binary).len(), 30, "{title}");
            assert_eq!(binary.health().quarantined_count, 0, "{title}");
            let lost = matches!(damage, Damage::Break | Damage::Cut);
            assert_eq!(*fell_back.0.lock(), usize::from(!lost), "{title}");
            let seen = wire.seen.lock();
            let (accept, content_type) = seen.last().unwrap();
            assert_eq!(accept.contains("protobuf"), lost, "{title}");
            assert_eq!(content_type.contains("protobuf"), lost, "{title}");
            stop.cancel();
            stop_json.cancel();
        }
    }
}

/// The content of two stores of one form, of both encodings, after the same changes.
async fn both<S: Form>(server: &ApiServer, endpoint: Endpoint) -> [(Vec<String>, usize); 2] {
    let mut contents = Vec::new();
    for protobuf in [true, false] {
        let wire = Wire::default();
        let fell_back = FellBack::default();
        let client = wire.client(server);
        let informer = informer::<S>(server, client, endpoint.clone(), protobuf, &fell_back);
        let (stop, task) = run(&informer);
        informer.wait_synced().await.unwrap();
        let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
        let name = format!("extra-{protobuf}");
        maps.create(&PostParams::default(), &map(&name, "x"))
            .await
            .unwrap();
        maps.delete(&name, &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let entries = informer.lister().list();
        let bytes = entries.iter().map(|entry| entry.owned_bytes()).sum();
        contents.push((content(&informer), bytes));
        let seen = wire.seen.lock().clone();
        assert!(!seen.is_empty());
        for (accept, content_type) in seen {
            assert_eq!(accept.contains("protobuf"), protobuf, "{accept}");
            assert_eq!(
                content_type.contains("protobuf"),
                protobuf,
                "{content_type}"
            );
        }
        assert_eq!(*fell_back.0.lock(), 0);
        stop.cancel();
        task.await.unwrap();
    }
    contents.try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn typed_compact_and_metadata_stores_are_the_same_in_both_encodings() {
    for streaming in [true, false] {
        let server = server(streaming).await;
        let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
        change(&maps, 0).await;
        let endpoint = Endpoint::of::<ConfigMap>();
        let [binary, json] = both::<ConfigMap>(&server, endpoint.clone()).await;
        assert_eq!(binary.0, json.0);
        assert!(binary.0.len() >= 5);
        let [binary, json] = both::<Compact<ConfigMap>>(&server, endpoint).await;
        assert_eq!(binary.0, json.0);
        let (binary, json) = (binary.1, json.1);
        assert!(
            binary < json,
            "not the bytes of protobuf: {binary}, JSON {json}"
        );
        type Metadata = PartialObjectMeta<ConfigMap>;
        let [binary, json] = both::<Metadata>(&server, Endpoint::of::<Metadata>()).await;
        assert_eq!(binary.0, json.0);
    }
}

/// The first request of an informer that prefers protobuf.
async fn accepted<S: Form>(endpoint: Endpoint, skip: &[&str]) -> String {
    accepted_by::<S>(ReflectorOptions::new().protobuf(true), endpoint, skip).await
}

/// The first request of an informer.
async fn accepted_by<S: Form>(
    options: ReflectorOptions,
    endpoint: Endpoint,
    skip: &[&str],
) -> String {
    let server = server(false).await;
    let wire = Wire::default();
    let mut builder =
        SharedInformer::<S>::builder_for(wire.client(&server), endpoint).reflector(options);
    for path in skip {
        builder = builder.skip(path.parse::<SkipPath>().unwrap());
    }
    let informer = builder.clock(server.clock().clone()).build();
    let (stop, task) = run(&informer);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    stop.cancel();
    task.await.unwrap();
    let asked = wire.asked.lock();
    asked[0].clone()
}

#[tokio::test(start_paused = true)]
async fn untyped_objects_custom_kinds_and_forms_that_read_json_only_are_requested_as_json() {
    #[derive(
        Clone, Debug, Default, serde::Serialize, serde::Deserialize, kube_derive::Resource,
    )]
    #[resource(inherit = Secret, crates(kube_core = "::kube_core"))]
    struct Names {
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    }
    let pods = Endpoint::of::<Pod>;
    let is_binary = |accept: String| accept.contains("protobuf");
    assert!(is_binary(accepted::<Pod>(pods(), &[]).await));
    assert!(is_binary(
        accepted::<Compact<Pod>>(pods(), &[".status"]).await
    ));
    assert!(is_binary(
        accepted::<Names>(Endpoint::of::<Secret>(), &[]).await
    ));
    // By default only entries that take less time to read from protobuf are.
    let default = ReflectorOptions::new;
    assert!(is_binary(accepted_by::<Pod>(default(), pods(), &[]).await));
    assert!(is_binary(
        accepted_by::<Compact<Pod>>(default(), pods(), &[]).await
    ));
    let untyped = Endpoint::for_type::<DynamicObject>(&ApiResource::erase::<Pod>(&()));
    assert!(!is_binary(accepted::<DynamicObject>(untyped, &[]).await));
    let mut custom = ApiResource::erase::<Pod>(&());
    custom.group = "example.org".to_owned();
    custom.api_version = "example.org/v1".to_owned();
    let custom = Endpoint::for_type::<DynamicObject>(&custom);
    assert!(!is_binary(
        accepted::<Compact<DynamicObject>>(custom, &[]).await
    ));
    // A part within a JSON text.
    type Revision = k8s_openapi::api::apps::v1::ControllerRevision;
    let revisions = Endpoint::of::<Revision>;
    assert!(is_binary(accepted::<Revision>(revisions(), &[]).await));
    assert!(!is_binary(
        accepted_by::<Revision>(default(), revisions(), &[]).await
    ));
    assert!(!is_binary(
        accepted::<Revision>(revisions(), &[".data.spec"]).await
    ));
}

/// The stores of one kind of a real server, in both encodings. Three informers are compiled for each kind, which takes
/// seconds: `encodings` compares the objects of every kind without them.
async fn compare_real<K>(client: &Client) -> usize
where
    K: Form + kube_core::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
{
    let mut contents = Vec::new();
    for (streaming, protobuf) in [(true, true), (false, true), (false, false)] {
        let wire = Wire::default();
        let options = ReflectorOptions::new()
            .streaming(streaming)
            .protobuf(protobuf);
        let client = wire.client_of(client.clone());
        let typed = SharedInformer::<K>::builder(client.clone())
            .reflector(options)
            .build();
        let endpoint = Endpoint::of::<K>();
        let compact = SharedInformer::<Compact<K>>::builder_for(client.clone(), endpoint)
            .reflector(options)
            .build();
        let metadata = SharedInformer::<PartialObjectMeta<K>>::builder(client)
            .reflector(options)
            .build();
        let (stops, tasks): (Vec<_>, Vec<_>) = [run(&typed), run(&compact), run(&metadata)]
            .into_iter()
            .unzip();
        typed.wait_synced().await.unwrap();
        compact.wait_synced().await.unwrap();
        metadata.wait_synced().await.unwrap();
        contents.push([content(&typed), content(&compact), content(&metadata)]);
        stops
            .iter()
            .for_each(tokio_util::sync::CancellationToken::cancel);
        for task in tasks {
            task.await.unwrap();
        }
        let seen = wire.seen.lock().clone();
        assert!(seen.len() >= 3);
        for (accept, content_type) in seen {
            assert_eq!(
                content_type.contains("protobuf"),
                protobuf,
                "{accept} {content_type}"
            );
        }
    }
    let kind = K::kind(&());
    for (number, form) in ["typed", "compact", "metadata"].into_iter().enumerate() {
        for (streamed, binary) in [("streamed", &contents[0]), ("in pages", &contents[1])] {
            for (one, other) in binary[number].iter().zip(&contents[2][number]) {
                assert_eq!(one, other, "{kind}, {form}, {streamed}");
            }
            assert_eq!(binary[number].len(), contents[2][number].len());
        }
    }
    contents[0][0].len()
}

/// Runs when `KUBEBUILDER_ASSETS` names a directory with kube-apiserver and etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_a_real_server_are_the_same_in_both_encodings() {
    use k8s_openapi::api::{apps, rbac};
    use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
    let assets = reeve_apiserver::control_plane::ControlPlane::from_assets();
    let Some(control_plane) = assets.await.unwrap() else {
        return;
    };
    let client = control_plane.client().unwrap();
    let deployments = Api::<apps::v1::Deployment>::namespaced(client.clone(), "default");
    let deployment = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "d", "labels": {"app": "a"}, "annotations": {"note": "é\n"}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": {
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "0.5"}},
                "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": "web", "path": "/"}}}]},
        }},
    }));
    deployments
        .create(&PostParams::default(), &deployment.unwrap())
        .await
        .unwrap();
    let mut secret = Secret::default();
    secret.metadata.name = Some("s".to_owned());
    secret.data = Some([("k".to_owned(), k8s_openapi::ByteString(vec![0, 255, 7]))].into());
    let secrets = Api::<Secret>::namespaced(client.clone(), "default");
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    let counts = [
        compare_real::<apps::v1::Deployment>(&client).await,
        compare_real::<Secret>(&client).await,
        compare_real::<rbac::v1::ClusterRole>(&client).await,
        compare_real::<apiregistration::v1::APIService>(&client).await,
    ];
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}
