//! One kind in three versions through its life: a conversion webhook, lists and watches in each version, and the migration
//! of storage while others write. `REEVE_OBJECTS` sets the number of objects.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{StreamExt, TryStreamExt};
use http::{Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::{Api, WatchEvent, WatchParams};
use kube_client::client::Body;
use kube_core::crd::merge_crds;
use kube_core::params::ListParams;
use kube_core::{CustomResourceExt, ObjectMeta};
use kube_derive::CustomResource;
use reeve_apiserver::ApiServer;
use reeve_client::{Client, Object, ObjectKey, Patch};
use reeve_webhook::testing::RoundTrips;
use reeve_webhook::{Conversion, Server};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;
use tower::service_fn;

mod v1alpha1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(
        group = "example.com",
        version = "v1alpha1",
        kind = "Site",
        namespaced,
        derive = "PartialEq",
        crates(kube_core = "::kube_core")
    )]
    pub(crate) struct SiteSpec {
        pub(crate) host: String,
        pub(crate) replicas: i64,
    }
}

mod v1beta1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(
        group = "example.com",
        version = "v1beta1",
        kind = "Site",
        namespaced,
        derive = "PartialEq",
        crates(kube_core = "::kube_core")
    )]
    pub(crate) struct SiteSpec {
        pub(crate) hosts: Vec<String>,
        pub(crate) replicas: i64,
    }
}

mod v1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(
        group = "example.com",
        version = "v1",
        kind = "Site",
        namespaced,
        derive = "PartialEq",
        crates(kube_core = "::kube_core")
    )]
    pub(crate) struct SiteSpec {
        pub(crate) hosts: Vec<String>,
        pub(crate) replicas: i64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) color: Option<String>,
    }
}

/// The annotation with what an older version has no field for.
const KEPT: &str = "sites.example.com/kept";

/// What an older version has no field for.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    color: Option<String>,
}

// === impl Kept ===

impl Kept {
    fn put(self, metadata: &mut ObjectMeta) {
        if self != Self::default() {
            let text = serde_json::to_string(&self).unwrap();
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.insert(KEPT.to_owned(), text);
        }
    }

    fn take(metadata: &mut ObjectMeta) -> Self {
        let annotations = metadata.annotations.as_mut();
        let text = annotations.and_then(|annotations| annotations.remove(KEPT));
        if metadata
            .annotations
            .as_ref()
            .is_some_and(BTreeMap::is_empty)
        {
            metadata.annotations = None;
        }
        text.and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default()
    }
}

impl From<v1::Site> for v1alpha1::Site {
    fn from(new: v1::Site) -> Self {
        let (mut metadata, spec) = (new.metadata, new.spec);
        let mut hosts = spec.hosts.into_iter();
        let host = hosts.next().unwrap_or_default();
        let kept = Kept {
            hosts: hosts.collect(),
            color: spec.color,
        };
        kept.put(&mut metadata);
        let replicas = spec.replicas;
        Self {
            metadata,
            spec: v1alpha1::SiteSpec { host, replicas },
        }
    }
}

impl From<v1alpha1::Site> for v1::Site {
    fn from(old: v1alpha1::Site) -> Self {
        let (mut metadata, spec) = (old.metadata, old.spec);
        let kept = Kept::take(&mut metadata);
        let first = Some(spec.host).filter(|host| !host.is_empty());
        let spec = v1::SiteSpec {
            hosts: first.into_iter().chain(kept.hosts).collect(),
            replicas: spec.replicas,
            color: kept.color,
        };
        Self { metadata, spec }
    }
}

impl From<v1::Site> for v1beta1::Site {
    fn from(new: v1::Site) -> Self {
        let (mut metadata, spec) = (new.metadata, new.spec);
        let kept = Kept {
            hosts: Vec::new(),
            color: spec.color,
        };
        kept.put(&mut metadata);
        let (hosts, replicas) = (spec.hosts, spec.replicas);
        Self {
            metadata,
            spec: v1beta1::SiteSpec { hosts, replicas },
        }
    }
}

impl From<v1beta1::Site> for v1::Site {
    fn from(old: v1beta1::Site) -> Self {
        let (mut metadata, spec) = (old.metadata, old.spec);
        let color = Kept::take(&mut metadata).color;
        let spec = v1::SiteSpec {
            hosts: spec.hosts,
            replicas: spec.replicas,
            color,
        };
        Self { metadata, spec }
    }
}

fn conversion() -> Conversion<v1::Site> {
    Conversion::hub::<v1::Site>()
        .spoke::<v1alpha1::Site>()
        .spoke::<v1beta1::Site>()
}

/// The definition of the kind, stored as `stored`.
fn definition(stored: &str) -> CustomResourceDefinition {
    let versions = vec![v1alpha1::Site::crd(), v1beta1::Site::crd(), v1::Site::crd()];
    merge_crds(versions, stored).unwrap()
}

fn definition_key() -> ObjectKey {
    ObjectKey::cluster("sites.example.com")
}

/// A server with the kind and its webhook. The number counts the objects that the webhook was asked to convert.
async fn world() -> (ApiServer, Client, Arc<AtomicU64>) {
    let server = ApiServer::builder()
        .record_requests(false)
        .start()
        .await
        .unwrap();
    let client = Client::new(server.client());
    let webhooks = Server::at(([127, 0, 0, 1], 0).into()).conversion(conversion());
    let webhooks = webhooks.in_process().unwrap();
    let mut definition = definition("v1alpha1");
    let (group, kind, strategy) = webhooks.conversions("ops", "sites").remove(0);
    assert_eq!((group.as_str(), kind.as_str()), ("example.com", "Site"));
    definition.spec.conversion = Some(serde_json::from_value(strategy).unwrap());
    let asked = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&asked);
    let service = service_fn(move |request: Request<Body>| {
        let (webhooks, counts) = (webhooks.clone(), Arc::clone(&counts));
        async move {
            let uri = request.uri().clone();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let objects = body
                .windows(11)
                .filter(|part| part == b"\"apiVersion")
                .count();
            counts.fetch_add(objects.saturating_sub(1) as u64, Ordering::Relaxed);
            let answer = webhooks.answer(&uri, &body).await;
            Ok::<_, Infallible>(answer.map(Body::from)) as Result<Response<Body>, Infallible>
        }
    });
    server.serve_webhooks("ops", "sites", service);
    client.create(&definition).await.unwrap();
    (server, client, asked)
}

fn name(number: u64) -> String {
    format!("site-{number:05}")
}

fn key(number: u64) -> ObjectKey {
    ObjectKey::namespaced("default", name(number))
}

/// The object as v1 shows it: one of three has all that only v1 has.
fn site(number: u64, replicas: i64) -> v1::Site {
    let all = number % 3 == 2;
    let more = all.then(|| format!("www-{number}.example.com"));
    let hosts = std::iter::once(format!("{number}.example.com"))
        .chain(more)
        .collect();
    let color = all.then(|| format!("color {number}"));
    let mut site = v1::Site::new(
        &name(number),
        v1::SiteSpec {
            hosts,
            replicas,
            color,
        },
    );
    site.metadata.namespace = Some("default".to_owned());
    site
}

/// Every object, in one list and in pages.
async fn list<K: Object + PartialEq + std::fmt::Debug>(client: &Client) -> Vec<K> {
    let whole = client
        .list::<K>(Some("default"), &ListParams::default())
        .await
        .unwrap();
    let pages = client
        .objects::<K>()
        .pages(Some("default"), &ListParams::default().limit(97));
    let paged = pages.all().await.unwrap();
    assert!(paged == whole.items, "the pages have what the list has");
    paged
}

/// Checks name, labels and spec of every object in each version.
async fn check(client: &Client, replicas: &[i64]) {
    let expected: Vec<v1::Site> = (0..)
        .zip(replicas)
        .map(|(number, replicas)| site(number, *replicas))
        .collect();
    let spec = |site: v1::Site| (site.metadata.name, site.metadata.annotations, site.spec);
    let wanted: Vec<_> = expected.into_iter().map(spec).collect();
    let found: Vec<_> = list::<v1::Site>(client)
        .await
        .into_iter()
        .map(spec)
        .collect();
    assert!(found == wanted, "v1 has another object");
    let found = list::<v1alpha1::Site>(client).await.into_iter();
    assert!(
        found.map(v1::Site::from).map(spec).eq(wanted.clone()),
        "v1alpha1 has another object"
    );
    let found = list::<v1beta1::Site>(client).await.into_iter();
    assert!(
        found.map(v1::Site::from).map(spec).eq(wanted),
        "v1beta1 has another object"
    );
}

/// Adds one replica through a version, again after a conflict.
macro_rules! grow {
    ($client:expr, $key:expr, $version:ident) => {
        loop {
            let mut site = $client.get::<$version::Site>($key).await.unwrap();
            site.spec.replicas += 1;
            match $client.update(&site).await {
                Ok(_) => break,
                Err(error) if error.is_conflict() => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
}

/// Follows the objects in v1beta1, the last state of each by name, until a replica count of `end` is seen.
async fn follow(
    kube: kube_client::Client,
    mut version: String,
    end: i64,
) -> BTreeMap<String, v1beta1::Site> {
    let sites: Api<v1beta1::Site> = Api::namespaced(kube, "default");
    let mut last = BTreeMap::new();
    loop {
        let events = sites
            .watch(&WatchParams::default().timeout(290), &version)
            .await
            .unwrap();
        let mut events = events.boxed();
        while let Some(event) = events.try_next().await.unwrap() {
            let site = match event {
                WatchEvent::Added(site) | WatchEvent::Modified(site) => site,
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                other => panic!("{other:?}"),
            };
            version = site.metadata.resource_version.clone().unwrap();
            let is_end = site.spec.replicas == end;
            last.insert(site.metadata.name.clone().unwrap(), site);
            if is_end {
                return last;
            }
        }
    }
}

#[test]
fn no_pair_of_versions_loses_a_field() {
    let mut all = site(2, 1);
    all.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
    RoundTrips::of(&conversion())
        .definition(&definition("v1"))
        .object(&all)
        .object(&site(0, 1))
        .check();
}

#[tokio::test(start_paused = true)]
async fn a_kind_moves_to_another_storage_version_while_it_is_read_and_written() {
    const WRITERS: u64 = 3;
    const END: i64 = 1_000_000;
    let number = std::env::var("REEVE_OBJECTS").map_or(1000, |text| text.parse::<u64>().unwrap());
    let (server, client, asked) = world().await;

    // Each third is created in another version.
    for number in 0..number {
        let site = site(number, 1);
        match number % 3 {
            0 => client
                .create(&v1alpha1::Site::from(site))
                .await
                .map(drop)
                .unwrap(),
            1 => client
                .create(&v1beta1::Site::from(site))
                .await
                .map(drop)
                .unwrap(),
            _ => client.create(&site).await.map(drop).unwrap(),
        }
    }
    let mut replicas = vec![1; usize::try_from(number).unwrap()];
    check(&client, &replicas).await;

    let one = ListParams::default().limit(1);
    let now = client.list::<v1beta1::Site>(Some("default"), &one).await;
    let version = now.unwrap().metadata.resource_version.unwrap();
    let watch = AbortOnDropHandle::new(tokio::spawn(follow(server.client(), version, END)));

    // The other version is stored from now on.
    let current: CustomResourceDefinition = client.get(&definition_key()).await.unwrap();
    assert_eq!(
        current.status.unwrap().stored_versions,
        Some(vec!["v1alpha1".to_owned()])
    );
    let versions = serde_json::to_value(definition("v1").spec.versions).unwrap();
    let patch = Patch::merge(json!({"spec": {"versions": versions}}));
    let moved: CustomResourceDefinition = client.patch(&definition_key(), patch).await.unwrap();
    let both = ["v1alpha1", "v1"].map(str::to_owned).to_vec();
    assert_eq!(moved.status.unwrap().stored_versions, Some(both));

    // Writers in each version, while every object is written once without a change.
    let writes = number / 5;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let client = client.clone();
            AbortOnDropHandle::new(tokio::spawn(async move {
                for write in 0..writes {
                    let key = key((write * 7 + writer * 13) % number);
                    match writer {
                        0 => grow!(client, &key, v1alpha1),
                        1 => grow!(client, &key, v1beta1),
                        _ => grow!(client, &key, v1),
                    }
                }
            }))
        })
        .collect();
    let mut conflicts = 0;
    let mut pages = client
        .objects::<v1::Site>()
        .pages(Some("default"), &ListParams::default().limit(100));
    while let Some(page) = pages.next().await.unwrap() {
        for mut site in page.items {
            loop {
                match client.update(&site).await {
                    Ok(_) => break,
                    Err(error) if error.is_conflict() => conflicts += 1,
                    Err(error) => panic!("{error}"),
                }
                site = client.get(&ObjectKey::of(&site)).await.unwrap();
            }
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for writer in 0..WRITERS {
        for write in 0..writes {
            let number = (write * 7 + writer * 13) % number;
            replicas[usize::try_from(number).unwrap()] += 1;
        }
    }
    println!(
        "{number} objects, {} writes, {conflicts} conflicts of the migration",
        WRITERS * writes
    );

    // Nothing is lost, and nothing is left in the old form: v1 needs no conversion.
    check(&client, &replicas).await;
    asked.store(0, Ordering::Relaxed);
    list::<v1::Site>(&client).await;
    assert_eq!(
        asked.load(Ordering::Relaxed),
        0,
        "every object is stored as v1"
    );
    let done = Patch::merge(json!({"status": {"storedVersions": ["v1"]}}));
    let done = client
        .patch_status::<CustomResourceDefinition>(&definition_key(), done)
        .await
        .unwrap();
    assert_eq!(
        done.status.unwrap().stored_versions,
        Some(vec!["v1".to_owned()])
    );

    // The watch in another version saw each object's last state.
    let mut end = client.get::<v1::Site>(&key(0)).await.unwrap();
    end.spec.replicas = END;
    client.update(&end).await.unwrap();
    let seen = watch.await.unwrap();
    for site in list::<v1beta1::Site>(&client).await {
        let name = site.metadata.name.clone().unwrap();
        assert_eq!(seen.get(&name), Some(&site), "{name}");
    }
}
