//! The controller as a process, killed with SIGKILL at each of its calls to moto, before and after the effect.
//!
//! moto makes a second load balancer of the same name, so nothing but the controller prevents one.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud_loadbalancer::identity::{ClusterId, FINALIZER};
use cloud_loadbalancer::provider::Provider;
use cloud_loadbalancer::provider::elbv2::Elbv2;
use futures::{StreamExt, stream};
use kube_core::ResourceExt;
use serde_json::json;

use super::proxy::{Point, Side};
use super::{Account, Moto, REGION};
use crate::process::{self, Controller, Site};

/// The histories that run at once: they mostly wait.
const AT_ONCE: usize = 4;
/// The calls without an effect: a kill after one is a kill before the next.
const READS: &str = "Describe";
/// The key of the controller. moto accepts any.
const KEY: &str = "[default]\naws_access_key_id = id\naws_secret_access_key = secret\n";

/// An API server, and an account of moto behind a proxy. The test reads through another proxy.
struct World {
    site: Site,
    account: Account,
    cloud: Elbv2,
    network: (String, String),
}

impl World {
    async fn new(moto: &Arc<Moto>, point: Option<Point>) -> Self {
        let mut account = moto.account(point).await;
        Self {
            site: Site::new(KEY, |number| format!("aws:///zone-1/i-{number}")).await,
            cloud: account.direct().await,
            network: account.network().await,
            account,
        }
    }

    fn start(&self) -> Controller {
        let (vpc, subnet) = &self.network;
        let endpoint = format!("http://{}", self.account.proxy.address);
        self.site.start(&[
            "--provider=elbv2",
            "--elbv2-endpoint",
            &endpoint,
            "--elbv2-region",
            REGION,
            "--elbv2-vpc",
            vpc,
            "--elbv2-subnets",
            subnet,
            "--elbv2-visible-within=1",
            "--elbv2-key-file",
            "KEY",
            "--drift-period=10",
        ])
    }

    /// The number of load balancers of the cluster.
    async fn balancers(&self) -> usize {
        let cluster: ClusterId = "test".parse().unwrap();
        let found = self.cloud.find(&cluster.tags()).await.unwrap();
        if !found.is_empty() {
            let service = self.site.service().await;
            let held = service.is_some_and(|one| one.finalizers().contains(&FINALIZER.to_owned()));
            assert!(held, "a load balancer whose Service has no finalizer");
        }
        found.len()
    }

    /// The ports of the listeners of the only load balancer, with the number of backends of each; and whether its name is
    /// published.
    async fn serves(&self) -> Option<(Vec<(u16, usize)>, bool)> {
        let cluster: ClusterId = "test".parse().unwrap();
        let mut found = self.cloud.find(&cluster.tags()).await.unwrap();
        let one = found.pop().filter(|_| found.is_empty())?;
        let groups = self.cloud.groups(&one.id).await.ok()?;
        let mut ports = Vec::new();
        for listener in self.cloud.listeners(&one.id).await.ok()? {
            let of = |group: &&_| -> bool {
                let group: &cloud_loadbalancer::model::Group = group;
                group.id == listener.settings.group
            };
            let group = groups.iter().find(of)?;
            ports.push((listener.key.port, group.backends.len()));
        }
        ports.sort_unstable();
        let status = self.site.service().await?.status;
        let ingress = status.and_then(|status| status.load_balancer?.ingress);
        let names = ingress.into_iter().flatten().filter_map(|one| one.hostname);
        Some((ports, names.eq([one.address.to_string()])))
    }

    async fn until(&self, ports: &[(u16, usize)]) {
        let served = async || self.serves().await == Some((ports.to_vec(), true));
        self.eventually(&format!("{ports:?}"), served).await;
    }

    async fn eventually(&self, what: &str, holds: impl AsyncFnMut() -> bool) {
        let state = async || {
            let (serves, balancers) = (self.serves().await, self.balancers().await);
            let calls = self.account.proxy.actions();
            format!("{serves:?} of {balancers} load balancers, calls {calls:?}")
        };
        process::eventually(what, holds, state).await;
    }

    async fn create(&self) {
        self.site.create(json!({})).await;
        self.until(&[(80, 2), (81, 2)]).await;
    }

    async fn delete(&self) {
        self.site.delete().await;
        let gone = async || self.site.service().await.is_none();
        self.eventually("gone", gone).await;
        assert_eq!(self.balancers().await, 0, "a load balancer is left");
        assert_eq!(self.account.target_groups().await, 0);
    }

    /// A Service from its creation to its end: two ports and two nodes at first, then one of each and a tag more.
    async fn life(&self) {
        self.create().await;
        let tag = json!({ "lb.reeve.dev/tags": "team=shop" });
        self.site.shrink(tag).await;
        self.until(&[(80, 1)]).await;
        self.delete().await;
    }
}

/// One life, whose controller is killed when the call of `point` is held. Returns the actions of its calls, and whether the
/// controller was killed.
async fn history(moto: &Arc<Moto>, point: Option<Point>) -> (Vec<String>, bool) {
    let world = World::new(moto, point).await;
    let mut controller = world.start();
    let mut life = Box::pin(world.life());
    let killed = tokio::select! {
        biased;
        () = &mut life => false,
        () = world.account.proxy.held() => true,
    };
    if killed {
        drop(controller);
        controller = world.start();
        life.await;
    }
    drop(controller);
    (world.account.proxy.actions(), killed)
}

/// Histories that are killed at each of these points. Returns how many were killed, and how many there are.
async fn histories(
    moto: &Arc<Moto>,
    points: impl IntoIterator<Item = (Option<String>, usize, bool)>,
) -> (usize, usize) {
    let points: Vec<Point> = points
        .into_iter()
        .flat_map(|(action, skip, reads)| {
            let sides: &[Side] = if reads {
                &[Side::Before]
            } else {
                &[Side::Before, Side::After]
            };
            let point = move |side: &Side| Point {
                action: action.clone(),
                skip,
                side: *side,
            };
            sides.iter().map(point).collect::<Vec<_>>()
        })
        .collect();
    let all = points.len();
    let killed = stream::iter(points)
        .map(|point| async move { history(moto, Some(point)).await.1 })
        .buffer_unordered(AT_ONCE)
        .filter(|killed| std::future::ready(*killed))
        .count()
        .await;
    eprintln!("{killed} of {all} histories with a kill");
    (killed, all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_killed_at_a_call_of_each_kind_leaves_one_load_balancer_at_moto() {
    let Some(moto) = Moto::start().await else {
        return;
    };
    let (actions, _) = history(&moto, None).await;
    let kinds: BTreeSet<String> = actions.into_iter().collect();
    assert!(kinds.len() >= 17, "{kinds:?}");
    let points = kinds.into_iter().map(|action| {
        let reads = action.starts_with(READS);
        (Some(action), 0, reads)
    });
    let (killed, all) = histories(&moto, points).await;
    assert_eq!(killed, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes minutes: cargo test -p cloud-loadbalancer --test it killed_at_any_call_leaves_one -- --ignored"]
async fn a_controller_killed_at_any_call_leaves_one_load_balancer_at_moto() {
    let Some(moto) = Moto::start().await else {
        return;
    };
    let (actions, _) = history(&moto, None).await;
    let points = actions.iter().enumerate();
    let points = points.map(|(number, action)| (None, number, action.starts_with(READS)));
    let (killed, all) = histories(&moto, points).await;
    // A history can have fewer calls than the first: it polls less.
    assert!(
        killed * 10 >= all * 9,
        "{killed} of {all} histories with a kill"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_load_balancers_that_moto_made_for_one_service_one_is_left() {
    let Some(moto) = Moto::start().await else {
        return;
    };
    let point = Point {
        action: Some("CreateLoadBalancer".to_owned()),
        skip: 0,
        side: Side::Late,
    };
    let world = World::new(&moto, Some(point)).await;
    let controller = world.start();
    let mut created = Box::pin(world.create());
    tokio::select! {
        biased;
        () = &mut created => panic!("the creation is held"),
        () = world.account.proxy.held() => {}
    }
    // The controller ends while its call is on the way. The next one creates the load balancer, and then the call arrives.
    drop(controller);
    let controller = world.start();
    created.await;
    let published = world.site.service().await.unwrap().status;
    let proxy = &world.account.proxy;
    proxy.release().await;
    assert_eq!(proxy.count("CreateLoadBalancer"), 2);
    let one = async || world.balancers().await == 1 && proxy.count("DeleteLoadBalancer") == 1;
    world.eventually("one load balancer again", one).await;
    // The one that was published stays.
    world.until(&[(80, 2), (81, 2)]).await;
    assert_eq!(world.site.service().await.unwrap().status, published);
    world.delete().await;
    drop(controller);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_moto_throttles_is_sent_again_and_makes_nothing_twice() {
    let Some(moto) = Moto::start().await else {
        return;
    };
    let world = World::new(&moto, None).await;
    let throttled = ["CreateLoadBalancer", "CreateListener", "DeleteLoadBalancer"];
    world.account.proxy.throttle(&throttled);
    let controller = world.start();
    world.create().await;
    world.delete().await;
    drop(controller);
    let count = |action| world.account.proxy.count(action);
    assert_eq!(throttled.map(count), [2, 3, 2], "one listener a port");
    assert_eq!(count("CreateTargetGroup"), 2);
}
