//! Servers that other clients fail on. `docs/peers-faults.md` has the results of kube-runtime with the same servers.

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_informer::{SharedInformer, Stored};
use reeve_scripted::{Follower, SERVERS, observe};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::harness::clock;

struct Informed {
    informer: SharedInformer<ConfigMap>,
    running: JoinHandle<()>,
}

impl Follower for Informed {
    fn contents(&self) -> Vec<String> {
        let objects = self.informer.lister().list();
        objects
            .iter()
            .map(|object| format!("{}@{}", object.name(), object.resource_version()))
            .collect()
    }
}

impl Drop for Informed {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// The named server is followed correctly, with at most 120 requests an hour.
async fn follow(name: &str) {
    let server = SERVERS.iter().find(|server| server.name == name).unwrap();
    let report = observe(server, |client, _| {
        let informer = SharedInformer::<ConfigMap>::builder(client)
            .clock(clock())
            .build();
        let running = tokio::spawn({
            let informer = informer.clone();
            async move { informer.run(CancellationToken::new()).await.unwrap() }
        });
        Informed { informer, running }
    })
    .await;
    assert!(
        report.verdict.right,
        "{}: {}",
        server.does, report.verdict.observed
    );
    let requests = report.seen.requests();
    assert!((1..=120).contains(&requests), "{}: {requests}", server.does);
}

macro_rules! servers {
    ($($name:literal => $test:ident,)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $test() {
                follow($name).await;
            }
        )*

        #[test]
        fn each_server_has_its_test() {
            let names: Vec<_> = SERVERS.iter().map(|server| server.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

servers! {
    "A" => a_410_as_http_status,
    "A2" => a2_410_in_the_stream,
    "B" => b_streaming_list_then_410_then_a_lagging_replica,
    "C" => c_deleted_before_the_end_of_the_initial_events,
    "D" => d_one_undecodable_object_in_a_list,
    "E" => e_lists_fail_for_an_hour,
    "F" => f_a_connection_that_is_dead_and_open,
    "G" => g_200_and_an_empty_body_at_once,
}
