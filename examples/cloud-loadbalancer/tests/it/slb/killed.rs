//! The controller as a process, killed with SIGKILL at each of its calls to the cloud, before and after the effect.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud_loadbalancer::provider::slb::read_key;
use futures::{StreamExt, stream};
use jiff::SignedDuration;
use serde_json::json;
use slbd::server::{Fault, Rule, Server};

use crate::process::{self, Controller, Site};

/// The histories that run at once: they mostly wait.
const AT_ONCE: usize = 6;

/// An API server and a cloud.
struct World {
    site: Site,
    cloud: Server,
}

impl World {
    async fn new() -> Self {
        // Searches lag behind: a new process cannot rely on them.
        let (lag, provision) = (
            SignedDuration::from_millis(300),
            SignedDuration::from_millis(50),
        );
        Self {
            site: Site::new("id=secret\n", |number| format!("sim://r1.i-{number}")).await,
            cloud: super::cloud(lag, provision),
        }
    }

    fn start(&self) -> Controller {
        let endpoint = format!("http://{}", self.cloud.api());
        self.site.start(&[
            "--provider=slb",
            "--slb-endpoint",
            &endpoint,
            "--slb-region=cn-loopback",
            "--slb-visible-within=1",
            "--slb-key-file",
            "KEY",
        ])
    }

    /// The ports of the load balancer's running listeners, with the number of backends of each. `None` unless there is one.
    fn listeners(&self) -> Option<Vec<(u16, usize)>> {
        let states = self.cloud.world().states();
        let state = states.borrow();
        assert!(state.balancers.len() <= 1, "a second load balancer");
        let balancer = state.balancers.values().next()?;
        let running = balancer.listeners.iter().filter(|one| one.running);
        let backends = |group: &Option<String>| {
            let group = group.as_ref().and_then(|id| state.groups.get(id));
            group.map_or(0, |group| group.backends.len())
        };
        Some(
            running
                .map(|one| (one.port, backends(&one.group)))
                .collect(),
        )
    }

    /// Waits until the Service is published with these listeners.
    async fn until(&self, listeners: &[(u16, usize)]) {
        let published = async || {
            let status = self.site.service().await.unwrap().status;
            let ingress = status.and_then(|status| status.load_balancer?.ingress);
            let ready = self.listeners().as_deref() == Some(listeners);
            ready && ingress.is_some_and(|ingress| ingress.len() == 1)
        };
        self.eventually(&format!("{listeners:?}"), published).await;
    }

    async fn eventually(&self, what: &str, holds: impl AsyncFnMut() -> bool) {
        let state = async || {
            let calls = self.cloud.world().calls().into_iter().rev().take(20);
            let last = calls.map(|call| format!("{} {:?}", call.action, call.refused));
            let last: Vec<_> = last.collect();
            format!("{:?}, last {last:#?}", self.listeners())
        };
        process::eventually(what, holds, state).await;
    }

    /// A Service from its creation to its end: two ports and two nodes at first, then one of each.
    async fn life(&self) {
        let sources = json!({ "loadBalancerSourceRanges": ["10.0.0.0/8"] });
        self.site.create(sources).await;
        self.until(&[(80, 2), (81, 2)]).await;
        self.site.shrink(json!({})).await;
        self.until(&[(80, 1)]).await;
        self.site.delete().await;
        let gone = async || self.site.service().await.is_none();
        self.eventually("gone", gone).await;
        let states = self.cloud.world().states();
        let state = Arc::clone(&states.borrow());
        assert!(
            state.balancers.is_empty(),
            "a load balancer is left: {state:?}"
        );
        assert!(state.groups.is_empty());
        // Without a call, which a fault that is still due would befall.
        let state = serde_json::to_value(&*state).unwrap();
        assert_eq!(state["access_lists"], json!({}), "a list is left");
    }
}

/// One life, whose controller is killed when the call that `point` holds has arrived. Returns the actions of its calls, and
/// whether the controller was killed.
async fn history(point: Option<Rule>) -> (Vec<String>, bool) {
    let world = World::new().await;
    let cloud = world.cloud.world();
    let mut numbers = cloud.numbers();
    if let Some(point) = point.clone() {
        assert!(cloud.add_fault(point));
    }
    let held = async {
        let Some(point) = point else {
            return futures::future::pending().await;
        };
        let skip = usize::try_from(point.skip).unwrap();
        let arrived = || {
            let calls = cloud.calls().into_iter();
            let of = |action: String| point.action.as_ref().is_none_or(|own| *own == action);
            calls.filter(|call| of(call.action.clone())).count() > skip
        };
        drop(numbers.wait_for(|_| arrived()).await);
    };
    let mut controller = world.start();
    let mut killed = false;
    let mut life = Box::pin(world.life());
    tokio::select! {
        biased;
        () = &mut life => {}
        () = held => {
            drop(controller);
            controller = world.start();
            killed = true;
            life.await;
        }
    }
    drop(controller);
    let calls = cloud.calls();
    // A token makes one load balancer, however often it is sent: no second one existed even for a moment.
    let made = calls
        .iter()
        .filter(|call| call.action == "CreateLoadBalancer" && call.applied);
    let tokens: BTreeSet<&String> = made.map(|call| &call.parameters["ClientToken"]).collect();
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    (calls.into_iter().map(|call| call.action).collect(), killed)
}

/// Histories that are killed at each of these points, before and after the effect of the call. Returns how many were killed.
async fn histories(points: impl IntoIterator<Item = (Option<String>, u32)>) -> (usize, usize) {
    let points: Vec<Rule> = points
        .into_iter()
        .flat_map(|(action, skip)| {
            [Fault::HoldRequest, Fault::HoldAnswer].map(|fault| Rule {
                action: action.clone(),
                skip,
                times: Some(1),
                fault,
            })
        })
        .collect();
    let all = points.len();
    let killed = stream::iter(points)
        .map(|point| async move { history(Some(point)).await.1 })
        .buffer_unordered(AT_ONCE)
        .filter(|killed| std::future::ready(*killed))
        .count()
        .await;
    eprintln!("{killed} of {all} histories with a kill");
    (killed, all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_killed_at_a_call_of_each_kind_leaves_exactly_one_load_balancer() {
    let (actions, _) = history(None).await;
    let kinds: BTreeSet<String> = actions.into_iter().collect();
    assert!(kinds.len() >= 15, "{kinds:?}");
    let (killed, all) = histories(kinds.into_iter().map(|action| (Some(action), 0))).await;
    assert_eq!(killed, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes minutes: cargo test -p cloud-loadbalancer --test it killed -- --ignored"]
async fn a_controller_killed_at_any_call_leaves_exactly_one_load_balancer() {
    let (actions, _) = history(None).await;
    let calls = u32::try_from(actions.len()).unwrap();
    let (killed, all) = histories((0..calls).map(|number| (None, number))).await;
    // A history can have a call less than another: a search is repeated until it finds what was made.
    assert!(killed + 4 >= all, "{killed} of {all} histories with a kill");
}

#[test]
fn a_key_file_that_holds_something_else_is_refused_without_showing_it() {
    let file = std::env::temp_dir().join(format!("slb-key-{}", std::process::id()));
    for text in ["hidden", "=hidden", "hidden="] {
        std::fs::write(&file, text).unwrap();
        let error = read_key(&file).unwrap_err().to_string();
        assert!(
            !error.contains("hidden") && error.contains("ID=SECRET"),
            "{error}"
        );
    }
    std::fs::write(&file, "id=se=cret\n").unwrap();
    assert_eq!(
        read_key(&file).unwrap(),
        ("id".to_owned(), "se=cret".to_owned())
    );
    std::fs::remove_file(&file).unwrap();
    let error = read_key(&file).unwrap_err().to_string();
    assert!(error.starts_with(&file.display().to_string()), "{error}");
}
