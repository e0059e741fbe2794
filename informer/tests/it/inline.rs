//! Handlers that share the informer's task.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_informer::{Event, HandlerHandle, HandlerOptions, Policy, Stored};

use crate::harness::{Maps, Received, millis, seconds, start};
use crate::informer::three;
use crate::script::*;

fn add(informer: &Maps, received: &Received, policy: Policy) -> HandlerHandle<ConfigMap> {
    let options = HandlerOptions::new().policy(policy).inline();
    informer.add_handler(received.handler(), options).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_inline_handler_receives_present_objects_and_changes_in_the_informers_task() {
    let (script, say) = three();
    let running = start(&script);
    let tasks = Arc::new(Mutex::new(Vec::new()));
    let note = {
        let tasks = Arc::clone(&tasks);
        move |_: Event<ConfigMap>| tasks.lock().push(tokio::task::id())
    };
    let options = HandlerOptions::new().inline();
    let handle = running.informer.add_handler(note.clone(), options).unwrap();
    handle.wait_synced().await.unwrap();
    say(modified("a", "11"));
    millis(1).await;
    let own = running.task.id();
    assert_eq!(*tasks.lock(), [own; 4]);
    // Without the option it has a task of its own.
    let handle = running.informer.add_handler(note, HandlerOptions::new());
    handle.unwrap().wait_synced().await.unwrap();
    assert!(tasks.lock()[4..].iter().all(|task| *task != own));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn under_each_policy_an_inline_handler_receives_every_change_at_once() {
    let (script, say) = three();
    let running = start(&script);
    let policies = [
        Policy::Coalesce { bound: 1 },
        Policy::Block { bound: 1 },
        Policy::DropToResync { bound: 10 },
    ];
    let handlers = policies.map(|policy| {
        let received = Received::default();
        (add(&running.informer, &received, policy), received)
    });
    for (handle, _) in &handlers {
        handle.wait_synced().await.unwrap();
    }
    for version in 11..16 {
        say(modified("a", &version.to_string()));
        millis(1).await;
    }
    for (handle, received) in &handlers {
        assert_eq!(
            received.take().split_off(3),
            ["~a@1-11", "~a@11-12", "~a@12-13", "~a@13-14", "~a@14-15"]
        );
        assert_eq!((handle.delivered(), handle.backlog()), (8, 0));
    }
    running.stop().await;
    for (handle, _) in &handlers {
        handle.remove().await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_can_be_removed_and_drained_and_add_and_remove_others_from_within() {
    let (script, say) = three();
    let running = start(&script);
    let received = Received::default();
    let handle = add(&running.informer, &received, Policy::default());
    handle.wait_synced().await.unwrap();
    handle.remove().await;
    say(modified("a", "11"));
    millis(1).await;
    assert_eq!(received.take().len(), 3);

    let handle = add(&running.informer, &received, Policy::default());
    handle.wait_synced().await.unwrap();
    handle.drain().await;
    say(modified("a", "12"));
    millis(1).await;
    assert_eq!(received.take().len(), 3);

    let (informer, late) = (running.informer.clone(), received.clone());
    let newcomer = Arc::new(Mutex::new(None));
    let adds = {
        let newcomer = Arc::clone(&newcomer);
        move |event: Event<ConfigMap>| {
            if event.key().name.as_ref() == "d" {
                *newcomer.lock() = Some(add(&informer, &late, Policy::default()));
            }
        }
    };
    let options = HandlerOptions::new().inline();
    let handle = running.informer.add_handler(adds, options).unwrap();
    handle.wait_synced().await.unwrap();
    say(added("d", "13"));
    seconds(1).await;
    assert_eq!(received.take(), ["+a@12*", "+b@2*", "+c@3*", "+d@13*"]);
    assert!(
        newcomer
            .lock()
            .take()
            .is_some_and(|handle| handle.has_synced())
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_an_inline_handler_costs_one_event_of_its_own() {
    let (script, say) = three();
    let running = start(&script);
    let bad = |event: Event<ConfigMap>| {
        let version = event
            .object()
            .map(|object| object.resource_version().to_owned());
        assert_ne!(version.as_deref(), Some("11"), "on purpose");
    };
    let options = HandlerOptions::new().inline();
    let handle = running.informer.add_handler(bad, options).unwrap();
    handle.wait_synced().await.unwrap();
    say(modified("a", "11"));
    say(modified("a", "12"));
    millis(1).await;
    assert_eq!((handle.panics(), handle.delivered()), (1, 5));
    assert_eq!(running.received.last().unwrap(), "~a@11-12");
    running.stop().await;
}
