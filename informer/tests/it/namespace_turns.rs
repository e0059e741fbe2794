//! Namespaces of a set, each with more objects than one turn of a task works on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::client::Body;
use reeve_informer::{
    Event, HandlerOptions, NamespaceSet, Policy, ReflectorOptions, SharedInformer,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::harness::{clock, seconds};
use crate::script::*;
use crate::turns::{Known, state, watch_until_expired};

/// The objects of the namespace `n`: three pieces.
const FEW: usize = 700;

/// Those of `many`, beside which the others are few.
const MANY: usize = 1600;

/// A client of one server for each namespace.
fn client(servers: [(&'static str, &Script); 2]) -> Client {
    let servers: BTreeMap<_, _> = servers.map(|(name, script)| (name, script.client())).into();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let mut path = request.uri().path().split('/');
        path.find(|part| *part == "namespaces");
        let server = servers[path.next().unwrap()].clone();
        async move { server.send(request).await }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn any_number_of_informers_of_a_set_is_built_in_one_turn() {
    let (set, script) = (NamespaceSet::new(["blue", "red"]), Script::new([]));
    let build = |_| {
        let builder = SharedInformer::<ConfigMap>::builder(script.client());
        builder.namespaces(set.clone()).build()
    };
    let informers: Vec<_> = (0..200).map(build).collect();
    let watches = |informer: &SharedInformer<ConfigMap>| informer.health().watches.len();
    assert!(informers.iter().all(|informer| watches(informer) == 2));
}

/// A server of the namespace `n` with a few objects, and one of `many` with many.
fn servers() -> (Script, Script) {
    let objects = |count| state(1, false, 0..count).into_iter();
    let few: Vec<_> = objects(FEW).collect();
    let moved = |object: String| object.replace(r#""namespace":"n""#, r#""namespace":"many""#);
    let many: Vec<_> = objects(MANY).map(moved).collect();
    let server = |objects| Script::new([list("5000", objects), Answer::Hang]);
    (server(&few), server(&many))
}

fn informer(few: &Script, many: &Script, set: &NamespaceSet) -> SharedInformer<ConfigMap> {
    SharedInformer::builder(client([("n", few), ("many", many)]))
        .clock(clock())
        .reflector(ReflectorOptions::new().streaming(false))
        .namespaces(set.clone())
        .build()
}

#[tokio::test(start_paused = true)]
async fn a_removed_namespace_goes_at_the_pace_of_a_blocking_handler() {
    const BOUND: usize = 10;
    let (few, many) = servers();
    let set = NamespaceSet::new(["many", "n"]);
    let informer = informer(&few, &many, &set);
    let gate = Arc::new(Semaphore::new(0));
    let closed = Arc::clone(&gate);
    let handler = move |event: Event<ConfigMap>| {
        let closed = Arc::clone(&closed);
        async move {
            if matches!(event, Event::Deleted { .. }) {
                closed.acquire().await.unwrap().forget();
            }
        }
    };
    let options = HandlerOptions::new().policy(Policy::Block { bound: BOUND });
    let slow = informer.add_async_handler(handler, options).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    slow.wait_synced().await.unwrap();
    seconds(1).await;
    assert!(set.remove("n"));
    seconds(60).await;
    let backlog = slow.backlog();
    assert!((BOUND..=BOUND + 256).contains(&backlog), "{backlog} wait");
    assert!(informer.has_synced(), "readers need not wait");
    let gone = informer.wait_synced().now_or_never();
    assert!(gone.is_none(), "objects of the namespace are left");
    let late = Known::added(&informer, 1);
    late.0.wait_synced().await.unwrap();
    gate.add_permits(FEW);
    informer.wait_synced().await.unwrap();
    assert_eq!(informer.lister().snapshot().len(), MANY);
    seconds(1).await;
    assert_eq!((slow.backlog(), gate.available_permits()), (0, 0));
    assert!(late.1.is(&informer));
    stop.cancel();
    running.await.unwrap().unwrap();
}

/// What happens to the namespace `n`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Happens {
    Relisted,
    Removed,
}

/// The turn in which everything is over, if a handler is added in the turn `late` after the watch ended or the
/// namespace was removed, and another one is removed.
async fn with_handlers_that_change_in_turn(happens: Happens, late: usize) -> usize {
    let (watch, expire) = watch_until_expired();
    let few = Script::new([
        list("5000", &state(1, false, 0..FEW)),
        watch,
        list("9000", &state(6000, true, 50..FEW + 50)),
        Answer::Hang,
    ]);
    let (_, many) = servers();
    let set = NamespaceSet::new(["many", "n"]);
    let informer = informer(&few, &many, &set);
    let mut handlers: Vec<_> = (0..6)
        .map(|number| Known::added(&informer, number))
        .collect();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    for (handle, _) in &handlers {
        handle.wait_synced().await.unwrap();
    }
    let end = match happens {
        Happens::Relisted => {
            expire();
            while few.count("list") < 2 {
                tokio::time::advance(Duration::from_millis(1)).await;
            }
            (MANY + FEW, "9000")
        }
        Happens::Removed => {
            assert!(set.remove("n"));
            (MANY, "5000")
        }
    };
    for turn in 0..10_000 {
        if turn == late {
            handlers.push(Known::added(&informer, turn));
            handlers.swap_remove(turn % 6).0.unregister();
        }
        for (handle, _) in &handlers {
            assert_eq!(handle.panics(), 0, "{} in turn {turn}", handle.name());
        }
        let snapshot = informer.lister().snapshot();
        let reached = (snapshot.len(), snapshot.resource_version().as_str());
        if reached == end && handlers.iter().all(|(_, known)| known.is(&informer)) {
            stop.cancel();
            running.await.unwrap().unwrap();
            return turn;
        }
        tokio::task::yield_now().await;
    }
    panic!("it does not end");
}

#[tokio::test(start_paused = true)]
async fn handlers_that_come_and_go_while_a_namespace_is_relisted_or_removed_see_legal_histories() {
    for (happens, few) in [(Happens::Relisted, 15), (Happens::Removed, 3)] {
        let mut late = 0;
        while with_handlers_that_change_in_turn(happens, late).await >= late {
            late += 1;
        }
        assert!(late > few, "{late} turns are few");
    }
}
