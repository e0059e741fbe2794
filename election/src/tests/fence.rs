//! The fence of clients that write under the lease.

use std::time::Duration;

use reeve_client::ObjectKey;
use tokio::time::sleep;

use super::fixture::{CONFIG_MAPS, Fixture, config_map, create_through_kube};

#[tokio::test(start_paused = true)]
async fn a_process_that_was_paused_finds_its_fence_closed() {
    let fixture = Fixture::new();
    let one = fixture.leader("one").await;
    tokio::time::advance(Duration::from_millis(9_999)).await;
    assert!(one.fence.is_open());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!one.fence.is_open(), "it closes by itself");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_check_again_when_it_sends_is_detected_by_its_first_answer() {
    let fixture = Fixture::new();
    let one = fixture.leader("one").await;
    let checking = fixture.checking_client(Duration::ZERO);
    let names = std::cell::Cell::new(0);
    let write = async |kube: kube_client::Client, through_kube: bool| {
        let client = one.client(kube);
        let map = config_map(&format!("work-{}", names.replace(names.get() + 1)));
        if through_kube {
            create_through_kube(&client, &map).await.unwrap();
        } else {
            client.create(&map).await.unwrap();
        }
    };
    for through_kube in [false, true] {
        write(checking.clone(), through_kube).await;
        assert!(!one.fence.is_bypassed());
    }
    for through_kube in [false, true] {
        write(fixture.fake.client(), through_kube).await;
        assert!(one.fence.is_bypassed(), "{through_kube}");
        one.fence.forget_bypassed();
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_prepared_before_and_sent_after_is_not_sent() {
    let fixture = Fixture::new();
    let one = fixture.leader("one").await;
    let client = one.client(fixture.checking_client(Duration::from_secs(3)));
    sleep(Duration::from_secs(8)).await;
    let refused = client.create(&config_map("work")).await.unwrap_err();
    assert!(
        matches!(refused, reeve_client::Error::NotLeader { .. }),
        "{refused}"
    );
    assert!(!refused.is_ambiguous());
    let refused = create_through_kube(&client, &config_map("work")).await;
    let refused = format!("{:?}", refused.unwrap_err());
    assert!(refused.contains("Closed"), "{refused}");
    assert!(fixture.fake.objects(CONFIG_MAPS).is_empty());
    // Reading needs no lease.
    let key = ObjectKey::namespaced("ns", "work");
    let read = client.get::<k8s_openapi::api::core::v1::ConfigMap>(&key);
    assert!(read.await.unwrap_err().is_not_found());
}
