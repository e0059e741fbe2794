//! The client against a small API server, under paused time.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_core::params::{DeleteParams, ListParams, Patch};
use reeve_informer::ObjectKey;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

use reeve_client::{Error, Interceptor, optional};

use super::Client;
use super::client::Observer;
use super::effect::{Effect, Notes};
use crate::fake::{Fake, Fate, clock};
use crate::leader_election::Fence;

const WEB: &str = "/api/v1/namespaces/ns/configmaps/web";

fn key() -> ObjectKey {
    ObjectKey::namespaced("ns", "web")
}

fn noting(fake: &Fake) -> (Client, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let client = Client::new(fake.client()).with_notes(Arc::clone(&notes));
    (client, notes)
}

fn data(value: &str) -> Patch<serde_json::Value> {
    Patch::Merge(json!({"data": {"key": value}}))
}

#[tokio::test(start_paused = true)]
async fn each_verb_does_what_it_says() {
    let fake = Fake::default();
    let (client, _) = noting(&fake);
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some("ns".into());
    map.metadata.name = Some("web".into());
    let created = client.create(&map).await.unwrap();
    assert!(created.metadata.uid.is_some());
    assert!(client.create(&map).await.unwrap_err().is_already_exists());
    let patched: ConfigMap = client.patch(&key(), &data("1")).await.unwrap();
    assert!(client.update(&created).await.unwrap_err().is_conflict());
    client.update(&patched).await.unwrap();
    let listed = client
        .list::<ConfigMap>(None, &ListParams::default())
        .await
        .unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!(
        client.get::<ConfigMap>(&key()).await.unwrap().data,
        patched.data
    );
    client
        .delete::<ConfigMap>(&key(), &DeleteParams::default())
        .await
        .unwrap();
    let gone = client.get::<ConfigMap>(&key()).await;
    assert_eq!(
        gone.as_ref().unwrap_err().to_string(),
        "get configmap ns/web: test: NotFound (404)"
    );
    assert!(optional(gone).unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_at_its_deadline() {
    let fake = Fake::default();
    fake.hook(|_, _| Some(Fate::Hang));
    let client = Client::new(fake.client()).with_deadline(Duration::from_secs(3));
    let start = Instant::now();
    let error = client.get::<ConfigMap>(&key()).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert!(matches!(error, Error::Deadline { .. }) && error.is_ambiguous());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_decode_is_described_without_its_text() {
    let fake = Fake::default();
    let path = "/api/v1/namespaces/ns/secrets/web";
    fake.put(path, json!({"metadata": {}, "data": "hunter2"}));
    let client = Client::new(fake.client());
    let error = client.get::<Secret>(&key()).await.unwrap_err();
    assert!(matches!(error, Error::Decode { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn each_way_a_write_can_end_is_noted() {
    let fake = Fake::default();
    fake.put(WEB, json!({"metadata": {}, "data": {"key": "0"}}));
    let (client, notes) = noting(&fake);
    let effect = |writes: Vec<super::effect::Write>| writes.into_iter().map(|w| w.effect).next();

    let patched: ConfigMap = client.patch(&key(), &data("1")).await.unwrap();
    assert_eq!(
        effect(notes.take()),
        Some(Effect::of_written(&patched.metadata))
    );

    fake.hook(|_, _| Some(Fate::Refuse(422)));
    assert!(
        client
            .patch::<ConfigMap>(&key(), &data("2"))
            .await
            .unwrap_err()
            .is_invalid()
    );
    assert_eq!(effect(notes.take()), None, "refused: nothing happened");

    for fate in [Fate::Lose, Fate::Refuse(500), Fate::Hang] {
        let named = format!("{fate:?}");
        fake.hook(move |_, _| Some(fate.clone()));
        assert!(
            client
                .patch::<ConfigMap>(&key(), &data(&named))
                .await
                .is_err()
        );
        assert_eq!(effect(notes.take()), Some(Effect::UNKNOWN), "{named}");
    }
    let (key_of_it, change) = (key(), data("3"));
    let call = client.patch::<ConfigMap>(&key_of_it, &change);
    drop(tokio::time::timeout(Duration::from_secs(1), call).await);
    assert_eq!(effect(notes.take()), Some(Effect::UNKNOWN), "cancelled");

    fake.no_hook();
    client
        .delete::<ConfigMap>(&key(), &DeleteParams::default())
        .await
        .unwrap();
    let uid = patched.metadata.uid;
    assert_eq!(
        effect(notes.take()),
        Some(Effect::Gone { uid, after: None })
    );

    let plain = client.without_read_your_writes();
    fake.put(WEB, json!({"metadata": {}}));
    plain.patch::<ConfigMap>(&key(), &data("4")).await.unwrap();
    assert!(notes.take().is_empty(), "opted out");
}

#[tokio::test(start_paused = true)]
async fn a_client_behind_a_closed_fence_sends_no_write() {
    let fake = Fake::default();
    fake.put(WEB, json!({"metadata": {}}));
    let clock = clock();
    let fence = Fence::closed(clock.clone());
    let client = Client::new(fake.client()).with_gate(Some(fence.gate()));
    let refused = client
        .patch::<ConfigMap>(&key(), &data("1"))
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::NotLeader { .. }) && !refused.is_ambiguous());
    assert!(
        client
            .delete::<ConfigMap>(&key(), &DeleteParams::default())
            .await
            .is_err()
    );
    assert!(fake.log().is_empty());
    client.get::<ConfigMap>(&key()).await.expect("reads go on");
    let seconds = Duration::from_secs;
    fence.renewed(clock.since_boot(), seconds(10), seconds(15));
    client
        .patch::<ConfigMap>(&key(), &data("1"))
        .await
        .expect("leading");
}

#[tokio::test(start_paused = true)]
async fn the_client_that_a_client_dereferences_to_keeps_its_gate_and_its_notes() {
    let fake = Fake::default();
    fake.put(WEB, json!({"metadata": {}}));
    let (clock, notes) = (clock(), Arc::new(Notes::default()));
    let (fence, open) = (Fence::closed(clock.clone()), Fence::closed(clock.clone()));
    let seconds = Duration::from_secs;
    open.renewed(clock.since_boot(), seconds(10), seconds(15));
    let client = Client::new(fake.client())
        .with_notes(Arc::clone(&notes))
        .with_gate(Some(fence.gate()));
    let base = (*client).clone().gated(open.gate());
    let base = base.observed(Arc::new(Observer {
        notes: Arc::default(),
        reading: None,
    }));
    for (sent, client) in [reeve_client::Client::unbound(&base), base]
        .iter()
        .enumerate()
    {
        let refused = client
            .patch::<ConfigMap>(&key(), &data("1"))
            .await
            .unwrap_err();
        assert!(matches!(refused, Error::NotLeader { .. }), "{refused}");
        assert!(notes.take().is_empty());
        assert_eq!(fake.log().len(), sent);
        fence.renewed(clock.since_boot(), seconds(10), seconds(15));
        client
            .patch::<ConfigMap>(&key(), &data("1"))
            .await
            .expect("leading");
        assert!(!notes.take().is_empty());
        fence.close();
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_an_interceptor_held_up_past_the_end_of_the_lease_is_not_sent() {
    let fake = Fake::default();
    fake.put(WEB, json!({"metadata": {}}));
    let clock = clock();
    let fence = Fence::closed(clock.clone());
    let seconds = Duration::from_secs;
    fence.renewed(clock.since_boot(), seconds(10), seconds(15));
    let slow = Interceptor::new().patch(|next, call| async move {
        tokio::time::sleep(Duration::from_secs(11)).await;
        next.send(call).await
    });
    let client = Client::new(fake.client())
        .with_gate(Some(fence.gate()))
        .intercepted(slow);
    let refused = client
        .patch::<ConfigMap>(&key(), &data("1"))
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::NotLeader { .. }), "{refused}");
    assert!(fake.log().is_empty());
    assert_eq!(
        fence.lands_in(seconds(5)),
        Some(Duration::ZERO),
        "nothing is under way"
    );
}
