//! The turns of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use cloud_loadbalancer::model::{ListenerKey, Probe, Protocol};
use cloud_loadbalancer::provider::{Answer, Error, Kind, Provider, Token, Turns};
use futures::FutureExt;
use slbd::server::{Fault, Rule};

use super::provider::{balancer, quick, settings, wanted};
use crate::world::new_group;

/// Counts turns, and refuses those of changes while it is closed.
#[derive(Debug, Default)]
struct Counting {
    closed: AtomicBool,
    taken: AtomicUsize,
    accepted: AtomicUsize,
    throttled: AtomicUsize,
}

fn add(to: &AtomicUsize) {
    to.fetch_add(1, Ordering::Relaxed);
}

fn of(from: &AtomicUsize) -> usize {
    from.load(Ordering::Relaxed)
}

impl Turns for Counting {
    fn take(&self, changes: bool) -> Answer<'_, ()> {
        async move {
            if changes && self.closed.load(Ordering::Relaxed) {
                return Err(Error::new(Kind::Unavailable, "Closed", "not now"));
            }
            add(&self.taken);
            Ok(())
        }
        .boxed()
    }

    fn accepted(&self) {
        add(&self.accepted);
    }

    fn throttled(&self, _: Option<Duration>) {
        add(&self.throttled);
    }
}

const KEY: ListenerKey = ListenerKey {
    port: 80,
    protocol: Protocol::Tcp,
};

#[tokio::test]
async fn every_request_takes_a_turn_also_those_of_one_call() {
    let (server, slb) = quick();
    let turns = Arc::<Counting>::default();
    assert!(slb.take_turns(Arc::<Counting>::clone(&turns)));
    let (id, group) = balancer(&slb).await;
    slb.create_group(&id, &new_group("g/81")).await.unwrap();
    assert_eq!(
        (slb.groups(&id).await.unwrap().len(), of(&turns.taken)),
        (2, 6)
    );
    let mut listener = settings(&group, Probe::Tcp);
    listener.sources = vec!["10.0.0.0/8".parse().unwrap()];
    slb.create_listener(&id, KEY, &listener).await.unwrap();
    slb.listeners(&id).await.unwrap();
    listener.sources.clear();
    slb.set_listener(&id, KEY, &listener).await.unwrap();
    slb.delete_listener(&id, KEY).await.unwrap();
    slb.delete(&id).await.unwrap();
    let sent = server.world().calls().len();
    assert!(sent > 15, "{sent}");
    assert_eq!((of(&turns.taken), of(&turns.accepted)), (sent, sent));
    let throttle = Rule {
        action: None,
        skip: 0,
        times: Some(1),
        fault: Fault::Throttle,
    };
    assert!(server.world().add_fault(throttle));
    let error = slb.describe(&id).await.unwrap_err();
    assert_eq!((error.kind, of(&turns.throttled)), (Kind::Throttled, 1));
    assert_eq!(of(&turns.accepted), sent);
}

#[tokio::test]
async fn a_change_without_a_turn_is_not_sent_though_its_call_began() {
    let (server, slb) = quick();
    let (id, group) = balancer(&slb).await;
    let turns = Arc::<Counting>::default();
    slb.take_turns(Arc::<Counting>::clone(&turns));
    turns.closed.store(true, Ordering::Relaxed);
    let before = server.world().calls().len();
    let mut listener = settings(&group, Probe::Tcp);
    listener.sources = vec!["10.0.0.0/8".parse().unwrap()];
    for refused in [
        slb.set_name(&id, "other").await,
        // Reads come first.
        slb.create_listener(&id, KEY, &listener).await,
        slb.delete(&id).await,
    ] {
        assert_eq!(refused.unwrap_err().code, "Closed");
    }
    let calls = server.world().calls();
    let mut since = calls.iter().skip(before);
    assert!(
        since.all(|call| call.action.starts_with("Describe")),
        "{calls:?}"
    );
    assert!(slb.describe(&id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_search_is_one_request_for_a_page_of_load_balancers() {
    let (server, slb) = quick();
    for number in 0..5 {
        let token = Token::new(format!("t-{number}"));
        slb.create(&token, &wanted()).await.unwrap();
    }
    let before = server.world().calls().len();
    let found = slb.find(&wanted().tags).await.unwrap();
    assert_eq!((found.len(), server.world().calls().len() - before), (5, 1));
    for one in found {
        assert_eq!(slb.describe(&one.id).await.unwrap(), Some(one));
    }
}
