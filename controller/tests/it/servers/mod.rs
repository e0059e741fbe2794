//! The servers of a manager: access to them, and their pages.

mod client;
mod debug;
mod log;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube_client::Api;
use kube_core::params::PostParams;
use reeve_controller::access::{Access, Refusal};
use reeve_controller::certificates::Certificates;
use reeve_controller::debug::Pages;
use reeve_controller::metrics_server::Certificate;
use reeve_controller::testing::{Cluster, Rule, Running, Server, Setup};
use reeve_controller::{
    Caches, Client, Context, Controller, MetricsServer, Outcome, Request, reconcile,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use client::get;

fn anywhere() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// A controller that fails for `broken`, and finishes `slow` when it stops.
fn greeter() -> Controller {
    let reconciler = reconcile::function(|ctx: Context, request: Request| async move {
        match &*request.name {
            "broken" => Err(reconcile::Error::message("the gateway <is> down")),
            "slow" => {
                ctx.stopping().cancelled().await;
                Ok(Outcome::done())
            }
            _ => Ok(Outcome::requeue_after(Duration::from_secs(3600))),
        }
    });
    let builder = Controller::builder("greeter").for_kind::<ConfigMap>();
    builder.workers(2).complete(reconciler).unwrap()
}

/// A manager with this metrics server and a [`greeter`].
async fn serving(cluster: &Cluster, server: MetricsServer) -> (Running, SocketAddr) {
    let manager = cluster
        .manager()
        .namespace("default")
        .metrics_server(server)
        .build()
        .await
        .unwrap();
    manager.add_controller(greeter()).unwrap();
    let address = manager.metrics_address().unwrap();
    (cluster.start(&manager), address)
}

async fn create(cluster: &Cluster, name: &str) {
    let map = json!({"metadata": {"name": name, "namespace": "default"}});
    cluster.create::<ConfigMap>(map).await;
}

#[tokio::test]
async fn the_debug_pages_show_the_state_of_each_key_and_informer() {
    let cluster = Cluster::in_process().await;
    for name in ["broken", "slow", "later"] {
        create(&cluster, name).await;
    }
    let (running, address) = serving(&cluster, MetricsServer::at(anywhere())).await;
    let page = async |path: &str, headers: &[(&str, &str)]| {
        get(address, path, headers, None).await.unwrap()
    };
    let queue = cluster
        .eventually("each key has run", async || {
            let got = page("/debug/queues?format=json", &[]).await;
            let document: Value = serde_json::from_str(&got.body).unwrap();
            let queue = document["queues"][0].clone();
            let ran = queue["waiting"] == 2 && queue["inFlight"] == 1;
            ran.then_some(queue.clone()).ok_or(queue)
        })
        .await;
    assert_eq!(queue["name"], "greeter");
    let item = |name: &str| {
        let mut items = queue["items"].as_array().unwrap().iter();
        items
            .find(|item| item["key"] == format!("default/{name}"))
            .unwrap()
    };
    assert_eq!(item("slow")["state"], "inFlight");
    assert!(item("slow")["since"].is_string());
    assert_eq!(item("later")["state"], "waiting");
    assert!(item("later")["due"].is_string());
    assert!(item("broken")["failures"].as_u64().unwrap() > 0);
    assert_eq!(
        item("broken")["lastError"]["message"],
        "the gateway <is> down"
    );
    assert_eq!(item("broken")["reasons"], json!(["retry"]));

    let got = page("/debug/queues?limit=1&name=greeter", &[]).await;
    assert!(
        got.body.contains("default/slow  in flight for "),
        "{}",
        got.body
    );
    assert!(!got.body.contains("default/later") && got.body.contains("?limit="));
    let got = page("/debug/queues?name=other", &[]).await;
    assert_eq!((got.code, got.body.as_str()), (200, "no queues\n"));
    let got = page("/debug/queues", &[("accept", "text/html,*/*")]).await;
    assert!(got.body.starts_with("<!doctype html>"), "{}", got.body);
    assert!(
        got.body.contains("the gateway &lt;is&gt; down"),
        "{}",
        got.body
    );
    assert_eq!(page("/debug/queues?limit=x", &[]).await.code, 400);

    let got = page("/debug/informers", &[("accept", "application/json")]).await;
    let document: Value = serde_json::from_str(&got.body).unwrap();
    let informer = &document["informers"][0];
    assert_eq!(informer["name"], "configmaps");
    assert_eq!(informer["activity"], "watching");
    assert_eq!(informer["objects"], 3);
    assert!(informer["bytes"].as_u64().unwrap() > 0);
    assert_eq!(informer["handlers"][0]["name"], "greeter");
    assert!(informer["resourceVersion"].is_string() && informer["lastChange"].is_string());
    let got = page("/debug/informers", &[]).await;
    assert!(got.body.contains("\n  the store changed "), "{}", got.body);
    assert!(
        got.body
            .contains("informer configmaps: synced, watching for "),
        "{}",
        got.body
    );

    // A foreign host name that resolves to this machine (DNS rebinding).
    let got = page("/debug/queues", &[("host", "evil.example.com")]).await;
    assert_eq!(got.code, 403);
    assert_eq!(
        page("/metrics", &[("host", "evil.example.com")]).await.code,
        200
    );
    running.end().await;

    let off = MetricsServer::at(anywhere()).debug_pages(Pages::Off);
    let (running, address) = serving(&cluster, off).await;
    let got = get(address, "/debug/queues", &[], None).await.unwrap();
    assert_eq!(got.code, 404);
    running.end().await;
}

#[tokio::test]
async fn the_informers_of_every_cluster_are_shown_with_its_name() {
    let (here, there) = (Cluster::in_process().await, Cluster::in_process().await);
    create(&there, "far").await;
    let manager = here.manager().metrics_server(MetricsServer::at(anywhere()));
    let manager = manager.build().await.unwrap();
    let address = manager.metrics_address().unwrap();
    let edge = reeve_controller::Cluster::builder("edge", there.kube());
    let edge = manager.add_cluster(edge).unwrap();
    let _maps = [manager.caches(), edge.caches()].map(Caches::informer::<ConfigMap>);
    let running = here.start(&manager);
    let page = async |path: &str| get(address, path, &[], None).await.unwrap().body;
    let informers = async |path: &str| -> Vec<Value> {
        let document: Value = serde_json::from_str(&page(path).await).unwrap();
        let informers = document["informers"].as_array().unwrap().iter();
        let shown = informers.map(|it| json!([it["cluster"], it["name"], it["objects"]]));
        shown.collect()
    };
    let (ours, theirs) = (
        json!([null, "configmaps", 0]),
        json!(["edge", "configmaps", 1]),
    );
    let both = vec![ours, theirs.clone()];
    here.eventually_eq("both", both.clone(), async || {
        informers("/debug/informers?format=json").await
    })
    .await;
    assert_eq!(
        informers("/debug/informers?format=json&name=configmaps").await,
        both
    );
    let named = informers("/debug/informers?format=json&name=edge/configmaps").await;
    assert_eq!(named, [theirs]);
    let text = page("/debug/informers").await;
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("synced"))
        .collect();
    assert!(
        lines[0].starts_with("informer configmaps: synced, watching for "),
        "{text}"
    );
    assert!(
        lines[1].starts_with("informer edge/configmaps: synced, watching for "),
        "{text}"
    );
    manager.remove_cluster(edge).await;
    assert_eq!(informers("/debug/informers?format=json").await, both[..1]);
    running.end().await;
}

#[tokio::test]
async fn https_offers_http2_if_enabled_and_accepts_no_plain_requests() {
    let cluster = Cluster::in_process().await;
    for http2 in [false, true] {
        let certificates = Certificates::self_signed(cluster.clock()).unwrap();
        let server = MetricsServer::at(anywhere())
            .http2(http2)
            .secure(Certificate::Ready(certificates.clone()));
        let (running, address) = serving(&cluster, server).await;
        let got = get(address, "/metrics", &[], Some(&certificates))
            .await
            .unwrap();
        assert_eq!((got.code, got.http2), (200, http2));
        assert!(
            got.body.contains("certwatcher_read_certificate_total 0"),
            "{}",
            got.body
        );
        let got = get(address, "/debug/queues", &[], Some(&certificates)).await;
        assert_eq!(got.unwrap().code, 200, "requested as localhost");
        assert!(get(address, "/metrics", &[], None).await.is_err());
        let other = Certificates::self_signed(cluster.clock()).unwrap();
        assert!(get(address, "/metrics", &[], Some(&other)).await.is_err());
        running.end().await;
    }
}

/// Creates the ClusterRole of the guide with this name, and its binding.
async fn apply(cluster: &Cluster, name: &str) {
    let guide = include_str!("../../../guide/servers.md");
    let (_, rest) = guide.split_once("```yaml\n").unwrap();
    let (yaml, _) = rest.split_once("```").unwrap();
    let mut created = 0;
    for document in yaml.split("---\n") {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        if object["metadata"]["name"] != name {
            continue;
        }
        created += 1;
        match object["kind"].as_str() {
            Some("ClusterRole") => drop(cluster.create::<ClusterRole>(object).await),
            _ => drop(cluster.create::<ClusterRoleBinding>(object).await),
        }
    }
    assert_eq!(created, 2, "{name}");
}

/// The tokens of three ServiceAccounts: of one that may scrape, of one that may not, and of a program.
async fn tokens(cluster: &Cluster) -> [String; 3] {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.kube(), "default");
    let mut tokens = Vec::new();
    for name in ["scraper", "stranger", "greeter"] {
        let account = json!({"metadata": {"name": name, "namespace": "default"}});
        cluster.create::<ServiceAccount>(account).await;
        let request = TokenRequest {
            spec: Some(TokenRequestSpec::default()),
            ..TokenRequest::default()
        };
        let answered = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .unwrap();
        tokens.push(answered.status.unwrap().token.unwrap());
    }
    apply(cluster, "metrics-reader").await;
    <[String; 3]>::try_from(tokens).unwrap()
}

async fn only_an_allowed_client_may_scrape(cluster: Cluster) {
    let [scraper, stranger, _] = tokens(&cluster).await;
    let certificates = Certificates::self_signed(cluster.clock()).unwrap();
    let server = MetricsServer::at(anywhere())
        .secure(Certificate::Ready(certificates.clone()))
        .protected();
    let (running, address) = serving(&cluster, server).await;
    let asked = async |path: &str, token: Option<&str>| {
        let header = token.map(|token| format!("Bearer {token}"));
        let headers = header.as_deref().map(|header| ("authorization", header));
        let headers: Vec<(&str, &str)> = headers.into_iter().collect();
        let got = get(address, path, &headers, Some(&certificates)).await;
        let got = got.unwrap();
        (got.code, got.body)
    };
    // The roles of a real server take effect after a moment.
    cluster
        .eventually("the scraper may", async || {
            let access = Access::new(cluster.client(), cluster.clock().clone());
            check(&access, &scraper).await
        })
        .await;
    assert_eq!(asked("/metrics", Some(&scraper)).await.0, 200);
    assert_eq!(
        asked("/metrics", None).await,
        (401, "Unauthorized\n".into())
    );
    assert_eq!(asked("/metrics", Some("unknown")).await.0, 401);
    let denied = "Authorization denied for user system:serviceaccount:default:stranger\n";
    assert_eq!(
        asked("/metrics", Some(&stranger)).await,
        (403, denied.into())
    );
    assert_eq!(asked("/debug/queues", Some(&scraper)).await.0, 403);
    let reviews = |resource: &str| cluster.requests().count("create", resource);
    let before = (reviews("tokenreviews"), reviews("subjectaccessreviews"));
    for _ in 0..5 {
        assert_eq!(asked("/metrics", Some(&scraper)).await.0, 200);
    }
    let after = (reviews("tokenreviews"), reviews("subjectaccessreviews"));
    assert_eq!(before, after, "remembered");
    running.end().await;
}

async fn check(access: &Access, token: &str) -> Result<(), Refusal> {
    let mut headers = http::HeaderMap::new();
    let value = format!("bearer {token}").parse().unwrap();
    headers.insert("authorization", value);
    let checked = access.check(&http::Method::GET, "/metrics", &headers).await;
    checked.map(|user| assert!(user.name.starts_with("system:serviceaccount:default:")))
}

#[tokio::test]
async fn only_an_allowed_client_may_scrape_on_the_built_in_server() {
    let setup = Setup::new().server(Server::BuiltIn);
    let cluster = setup
        .api_server(reeve_apiserver::Builder::rbac)
        .cluster()
        .await;
    only_an_allowed_client_may_scrape(cluster.unwrap()).await;
}

#[test]
fn only_an_allowed_client_may_scrape_on_a_real_server() {
    Setup::new()
        .server(Server::Assets)
        .run(only_an_allowed_client_may_scrape);
}

#[tokio::test(start_paused = true)]
async fn the_roles_of_the_guide_are_enough_and_needed() {
    let setup = Setup::new().server(Server::BuiltIn);
    let cluster = setup
        .api_server(reeve_apiserver::Builder::rbac)
        .cluster()
        .await;
    let cluster = cluster.unwrap();
    let [scraper, _, program] = tokens(&cluster).await;
    let asks = cluster.built_in().unwrap().client_with(Some(&program));
    let access = Access::new(Client::new(asks), cluster.clock().clone());
    let refused = check(&access, &scraper).await;
    assert!(
        matches!(refused, Err(Refusal::Authentication(_))),
        "{refused:?}"
    );
    apply(&cluster, "metrics-auth").await;
    check(&access, &scraper).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn reviews_are_cached_as_long_as_in_controller_runtime() {
    let setup = Setup::new().server(Server::BuiltIn);
    let cluster = setup
        .api_server(reeve_apiserver::Builder::rbac)
        .cluster()
        .await;
    let cluster = cluster.unwrap();
    let [scraper, stranger, _] = tokens(&cluster).await;
    let access = Access::new(cluster.client(), cluster.clock().clone());
    cluster.requests().clear();
    // Seconds since the row before, token, result, and the total reviews of each kind.
    for (after, token, allowed, token_reviews, access_reviews) in [
        (0, &scraper, true, 1, 1),
        (0, &scraper, true, 1, 1),
        (0, &stranger, false, 2, 2),
        (29, &stranger, false, 2, 2),
        (2, &stranger, false, 2, 3),
        (30, &scraper, true, 3, 3),
        (61, &stranger, false, 4, 4),
        (150, &scraper, true, 5, 4),
        (40, &scraper, true, 5, 5),
    ] {
        sleep(Duration::from_secs(after)).await;
        let checked = check(&access, token).await;
        assert_eq!(checked.is_ok(), allowed, "{checked:?}");
        let reviews = |resource: &str| cluster.requests().count("create", resource);
        assert_eq!(
            (reviews("tokenreviews"), reviews("subjectaccessreviews")),
            (token_reviews, access_reviews),
            "after {after} s more"
        );
    }
    // The server reports a token without a user as an error, like a failed authenticator. It is cached for two seconds.
    for (after, reviews) in [(0, 6), (1, 6), (1, 7)] {
        sleep(Duration::from_secs(after)).await;
        let refused = check(&access, "unknown").await;
        assert!(matches!(refused, Err(Refusal::Unknown)), "{refused:?}");
        assert_eq!(cluster.requests().count("create", "tokenreviews"), reviews);
    }
}

#[tokio::test(start_paused = true)]
async fn a_review_that_fails_is_tried_five_times_and_then_the_request_is_refused() {
    let setup = Setup::new().server(Server::BuiltIn);
    let cluster = setup
        .api_server(reeve_apiserver::Builder::rbac)
        .cluster()
        .await;
    let cluster = cluster.unwrap();
    let [scraper, ..] = tokens(&cluster).await;
    let access = Access::new(cluster.client(), cluster.clock().clone());
    let busy = Rule::new().resource("tokenreviews").status(503, "busy");
    let four = cluster.faults().add(busy.clone().times(4));
    let begin = tokio::time::Instant::now();
    check(&access, &scraper).await.unwrap();
    let took = begin.elapsed().as_secs_f64();
    assert_eq!(four.hits(), 4);
    // 0.5 + 0.75 + 1.125 + 1.6875 s, and up to a fifth more.
    assert!((4.06..=4.9).contains(&took), "{took}");

    sleep(Duration::from_secs(61)).await;
    let always = cluster.faults().add(busy);
    let refused = check(&access, &scraper).await;
    assert!(
        matches!(refused, Err(Refusal::Authentication(_))),
        "{refused:?}"
    );
    assert_eq!(always.hits(), 5);
    always.remove();
    let silent = Rule::new().resource("tokenreviews").stall();
    let silent = cluster.faults().add(silent);
    let refused = check(&access, &scraper).await;
    assert!(matches!(refused, Err(Refusal::Silence(_))), "{refused:?}");
    silent.remove();
    check(&access, &scraper).await.unwrap();
    let refuse = Rule::new().resource("tokenreviews").status(403, "no");
    sleep(Duration::from_secs(61)).await;
    let once = cluster.faults().add(refuse);
    check(&access, &scraper).await.unwrap_err();
    assert_eq!(
        once.hits(),
        1,
        "the program's own account may not create reviews: no retry"
    );
}
