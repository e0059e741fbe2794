//! Create or update, and the writes of a difference, on the built-in API server.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PodDNSConfig};
use kube_core::CustomResourceExt;
use kube_core::params::DeleteParams;
use kube_derive::CustomResource;
use reeve_controller::Client;
use reeve_controller::client::{Change, DEFAULT_RETRY, Patch, retry_on_conflict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::sleep;

use super::client::{deployment, key, map, server};

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}

/// A Deployment from a program, without the defaults of the server.
fn wanted(web: &mut Deployment, image: &str) {
    web.spec = deployment().spec;
    let spec = web.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
    spec.containers[0].image = Some(image.to_owned());
}

#[tokio::test(start_paused = true)]
async fn create_or_update_writes_only_when_needed() {
    let (server, client) = server().await;
    let writes = || {
        let all = server.requests().all();
        server.requests().clear();
        let writes = all.iter().filter(|request| request.verb != "get");
        writes
            .map(|request| request.verb.clone())
            .collect::<Vec<_>>()
    };
    let mut name = deployment();
    name.spec = None;
    let upsert = async |image: &str| {
        let image = image.to_owned();
        client
            .create_or_update(name.clone(), |web| wanted(web, &image))
            .await
            .unwrap()
    };
    assert_eq!(upsert("web:1").await.1, Change::Created);
    assert_eq!(writes(), ["create"]);
    // The server has added defaults that `wanted` does not have: found once, then known.
    for (case, image, change, sent) in [
        ("defaults", "web:1", Change::Unchanged, &["update"][..]),
        ("known", "web:1", Change::Unchanged, &[]),
        ("still", "web:1", Change::Unchanged, &[]),
        ("changed", "web:2", Change::Updated, &["update"]),
        ("defaults again", "web:2", Change::Unchanged, &["update"]),
        ("known again", "web:2", Change::Unchanged, &[]),
    ] {
        let (object, found) = upsert(image).await;
        assert_eq!((found, writes()), (change, strings(sent)), "{case}");
        let containers = object.spec.unwrap().template.spec.unwrap().containers;
        assert_eq!(containers[0].image.as_deref(), Some(image), "{case}");
    }
    // The change of another client is undone, although the same write was without effect before.
    client
        .objects::<Deployment>()
        .set_replicas(&key("web"), 7)
        .await
        .unwrap();
    server.requests().clear();
    assert_eq!(upsert("web:2").await.1, Change::Updated);
    assert_eq!(writes(), ["update"]);
}

#[tokio::test(start_paused = true)]
async fn create_or_patch_writes_object_and_status_separately() {
    let (server, client) = server().await;
    let set = async |replicas: i32, observed: i64| {
        let (web, change) = client
            .create_or_patch(deployment(), |web| {
                web.spec.as_mut().unwrap().replicas = Some(replicas);
                web.status.get_or_insert_default().observed_generation = Some(observed);
            })
            .await
            .unwrap();
        assert_eq!(web.spec.unwrap().replicas, Some(replicas));
        assert_eq!(web.status.unwrap().observed_generation, Some(observed));
        let all = server.requests().all();
        server.requests().clear();
        let writes = all.iter().filter(|request| request.verb != "get");
        let sent = writes.map(|request| format!("{} {}", request.verb, request.subresource));
        (change, sent.collect::<Vec<_>>())
    };
    for (case, replicas, observed, change, sent) in [
        (
            "new",
            1,
            1,
            Change::Created,
            &["create ", "patch status"][..],
        ),
        ("the same", 1, 1, Change::Unchanged, &[]),
        (
            "both",
            2,
            2,
            Change::UpdatedStatus,
            &["patch ", "patch status"],
        ),
        ("the object", 3, 2, Change::Updated, &["patch "]),
        (
            "the status",
            3,
            3,
            Change::UpdatedStatusOnly,
            &["patch status"],
        ),
    ] {
        let (found, writes) = set(replicas, observed).await;
        assert_eq!(found, change, "{case}");
        assert_eq!(writes, sent, "{case}");
    }
    // The field of another client stays unchanged and causes no conflict.
    let label = Patch::merge(json!({"metadata": {"labels": {"theirs": "1"}}}));
    client
        .patch::<Deployment>(&key("web"), label)
        .await
        .unwrap();
    set(4, 3).await;
    let web: Deployment = client.get(&key("web")).await.unwrap();
    assert_eq!(web.metadata.labels.unwrap()["theirs"], "1");
}

#[tokio::test(start_paused = true)]
async fn mutate_sends_the_difference_to_the_object_that_was_read() {
    let (server, client) = server().await;
    let read: Deployment = client.create(&deployment()).await.unwrap();
    let label = Patch::merge(json!({"metadata": {"labels": {"theirs": "1"}}}));
    client
        .patch::<Deployment>(&key("web"), label)
        .await
        .unwrap();
    server.requests().clear();
    let set = async |read: &Deployment, observed: i64| {
        let set = |web: &mut Deployment| {
            web.status.get_or_insert_default().observed_generation = Some(observed);
        };
        client.mutate(read, set).await
    };
    let (web, change) = set(&read, 1).await.unwrap();
    assert_eq!(change, Change::UpdatedStatusOnly);
    assert_eq!(
        web.metadata.labels.as_ref().unwrap()["theirs"],
        "1",
        "an outdated state causes no conflict"
    );
    assert_eq!(set(&web, 1).await.unwrap().1, Change::Unchanged);
    let all = server.requests().all();
    let sent: Vec<_> = all
        .iter()
        .map(|request| format!("{} {}", request.verb, request.subresource))
        .collect();
    assert_eq!(sent, ["patch status"]);

    client
        .delete::<Deployment>(&key("web"), &DeleteParams::default())
        .await
        .unwrap();
    assert!(set(&web, 2).await.unwrap_err().is_not_found());
    client.create(&deployment()).await.unwrap();
    let other = set(&web, 2).await.unwrap_err();
    assert!(
        other.is_conflict() || other.is_invalid(),
        "the object was created again: {other}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_function_that_fails_or_changes_the_name_writes_nothing() {
    let (server, client) = server().await;
    client.create(&map("a")).await.unwrap();
    let version = server.resource_version();
    for existing in ["a", "none"] {
        let failed = client
            .create_or_update(map(existing), |_| Err::<(), _>("no such colour"))
            .await
            .unwrap_err();
        assert_eq!(
            failed.to_string(),
            format!("configmap default/{existing} is not written")
        );
        let source = std::error::Error::source(&failed).unwrap();
        assert_eq!(source.to_string(), "no such colour");
        let renamed = client
            .create_or_patch(map(existing), |map| {
                map.metadata.name = Some("b".into());
            })
            .await;
        let moved = client
            .create_or_update(map(existing), |map| {
                map.metadata.namespace = Some("other".into());
            })
            .await;
        for error in [renamed.unwrap_err(), moved.unwrap_err()] {
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(
                source.contains("changed the name or the namespace"),
                "{source}"
            );
        }
    }
    assert_eq!(server.resource_version(), version);
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_tried_again_in_a_task() {
    let (_server, client) = server().await;
    client.create(&map("a")).await.unwrap();
    let clock = reeve_clock::Clock::system();
    // The future can be spawned.
    let counting = client.clone();
    let count = async move {
        for _ in 0..5 {
            let counted = retry_on_conflict(&clock, DEFAULT_RETRY, || async {
                let mut map: ConfigMap = counting.get(&key("a")).await?;
                sleep(Duration::from_millis(3)).await;
                let data = map.data.get_or_insert_default();
                let count: u32 = data
                    .get("count")
                    .and_then(|count| count.parse().ok())
                    .unwrap_or(0);
                data.insert("count".to_owned(), (count + 1).to_string());
                counting.update(&map).await
            });
            counted.await.unwrap();
        }
    };
    let other = client.clone();
    let disturb = tokio::spawn(async move {
        for number in 0..10 {
            let patch = Patch::merge(json!({"data": {"other": number.to_string()}}));
            other.patch::<ConfigMap>(&key("a"), patch).await.unwrap();
            sleep(Duration::from_millis(4)).await;
        }
    });
    tokio::spawn(count).await.unwrap();
    disturb.await.unwrap();
    let map: ConfigMap = client.get(&key("a")).await.unwrap();
    assert_eq!(map.data.unwrap()["count"], "5");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_reports_the_change_and_a_later_call_still_makes_it() {
    let (server, client) = server().await;
    client.create(&map("a")).await.unwrap();
    client.create(&deployment()).await.unwrap();
    let dry = client.clone().dry_run();
    let update = async |client: &Client, value: &str| {
        let value = value.to_owned();
        let mutate = |map: &mut ConfigMap| {
            let data = map.data.get_or_insert_default();
            data.insert("key".to_owned(), value.clone());
        };
        client.create_or_update(map("a"), mutate).await.unwrap().1
    };
    let patch = async |client: &Client, name: &str, replicas: i32, observed: i64| {
        let mut web = deployment();
        web.metadata.name = Some(name.to_owned());
        let mutate = |web: &mut Deployment| {
            web.spec.as_mut().unwrap().replicas = Some(replicas);
            web.status.get_or_insert_default().observed_generation = Some(observed);
        };
        client.create_or_patch(web, mutate).await.unwrap().1
    };
    patch(&client, "web", 1, 1).await;
    let version = server.resource_version();
    for (value, change) in [
        ("1", Change::Updated),
        ("1", Change::Updated),
        ("0", Change::Unchanged),
    ] {
        assert_eq!(update(&dry, value).await, change, "{value}");
    }
    for (name, replicas, observed, change) in [
        ("web", 1, 1, Change::Unchanged),
        ("web", 2, 1, Change::Updated),
        ("web", 1, 2, Change::UpdatedStatusOnly),
        ("web", 2, 2, Change::UpdatedStatus),
        ("new", 2, 2, Change::Created),
    ] {
        let case = format!("{name} {replicas} {observed}");
        assert_eq!(
            patch(&dry, name, replicas, observed).await,
            change,
            "{case}"
        );
    }
    assert_eq!(server.resource_version(), version, "nothing was kept");
    assert_eq!(update(&client, "1").await, Change::Updated);
    assert_eq!(patch(&client, "web", 2, 2).await, Change::UpdatedStatus);
}

#[tokio::test(start_paused = true)]
async fn a_field_whose_presence_has_a_meaning_is_written() {
    let (server, client) = server().await;
    for patched in [false, true] {
        client.create(&deployment()).await.unwrap();
        let mutate = |web: &mut Deployment| {
            let pods = &mut web.spec.as_mut().unwrap().template;
            pods.spec.as_mut().unwrap().dns_config = Some(PodDNSConfig::default());
        };
        let upsert = async || {
            let upserted = if patched {
                client.create_or_patch(deployment(), mutate).await
            } else {
                client.create_or_update(deployment(), mutate).await
            };
            upserted.unwrap().1
        };
        assert_eq!(upsert().await, Change::Updated, "{patched}");
        let web: Deployment = client.get(&key("web")).await.unwrap();
        let pods = web.spec.unwrap().template.spec.unwrap();
        assert_eq!(pods.dns_config, Some(PodDNSConfig::default()), "{patched}");
        assert_eq!(upsert().await, Change::Unchanged, "{patched}");
        // All forms of no labels are equal.
        let version = server.resource_version();
        let none = |web: &mut Deployment| {
            web.metadata.labels.get_or_insert_default();
            web.metadata.annotations.get_or_insert_default();
        };
        server.requests().clear();
        let (_, change) = client.create_or_update(deployment(), none).await.unwrap();
        assert_eq!(change, Change::Unchanged);
        assert_eq!(server.resource_version(), version);
        assert_eq!(server.requests().count("update", "deployments"), 0);
        let params = DeleteParams::default();
        client
            .delete::<Deployment>(&key("web"), &params)
            .await
            .unwrap();
    }
}

/// A kind whose lists are required.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Route",
    namespaced,
    status = "RouteStatus",
    crates(kube_core = "::kube_core", serde_json = "::serde_json")
)]
struct RouteSpec {
    hosts: Vec<String>,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Rule {
    name: String,
    methods: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct RouteStatus {
    phase: String,
    conditions: Vec<String>,
}

#[tokio::test(start_paused = true)]
async fn a_patch_keeps_empty_lists_which_a_schema_may_require() {
    let (server, client) = server().await;
    client.create(&Route::crd()).await.unwrap();
    let set = async |hosts: &[&str], rule: &str, phase: &str| {
        let mut route = Route::new(
            "web",
            RouteSpec {
                hosts: Vec::new(),
                rules: Vec::new(),
            },
        );
        route.metadata.namespace = Some("default".to_owned());
        let mutate = |route: &mut Route| {
            route.spec.hosts = strings(hosts);
            route.spec.rules = vec![Rule {
                name: rule.to_owned(),
                methods: Vec::new(),
            }];
            route.status.get_or_insert_default().phase = phase.to_owned();
        };
        server.requests().clear();
        let (_, change) = client.create_or_patch(route, mutate).await.unwrap();
        (change, server.requests().count("patch", "routes"))
    };
    for (case, hosts, rule, phase, change) in [
        ("new", &["a"][..], "all", "Up", (Change::Created, 1)),
        ("emptied", &[], "all", "Up", (Change::Updated, 1)),
        ("beside one", &[], "any", "Up", (Change::Updated, 1)),
        (
            "a status",
            &[],
            "any",
            "Down",
            (Change::UpdatedStatusOnly, 1),
        ),
        ("the same", &[], "any", "Down", (Change::Unchanged, 0)),
    ] {
        assert_eq!(set(hosts, rule, phase).await, change, "{case}");
    }
    let route: Route = client.get(&key("web")).await.unwrap();
    assert_eq!(route.status.unwrap().phase, "Down");
    let rule = &route.spec.rules[0];
    assert!(route.spec.hosts.is_empty() && rule.methods.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_that_the_server_omits_is_not_written_again() {
    let (server, client) = server().await;
    client.create(&deployment()).await.unwrap();
    let mutate = |web: &mut Deployment| {
        let pods = web.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
        pods.tolerations = Some(Vec::new());
        pods.containers[0].args = Some(Vec::new());
        web.metadata.finalizers = Some(Vec::new());
        let status = web.status.get_or_insert_default();
        status.conditions = Some(Vec::new());
    };
    server.requests().clear();
    let (_, change) = client.create_or_patch(deployment(), mutate).await.unwrap();
    assert_eq!(change, Change::Unchanged);
    assert_eq!(server.requests().count("patch", "deployments"), 0);
}
