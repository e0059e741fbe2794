//! G11, two leaders: a request of the old leader arrives after the new one has done the work.

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use reeve_controller::Controller;
use reeve_controller::leader_election::Options;
use reeve_controller::testing::explore::{Explorer, Process, World};
use serde::Serialize;
use serde_json::json;

use super::answers::{Orders, generated, ordered};
use super::corpus::{Bug, bug, explored};
use super::kinds::{App, Child, Parent, change, make, one};
use super::toggles::toggle;

/// Two replicas, of which the leader works.
fn replicas<S: Default + Serialize + Send + 'static>(
    controllers: impl Fn(&Process<S>) -> Vec<Controller> + Send + Sync + 'static,
) -> Explorer<S> {
    Explorer::of_manager(move |process| {
        let controllers = controllers(&process);
        let lease = Options::new("default", "corpus").identity(process.name());
        async move {
            let builder = process.manager().leader_election(lease);
            let manager = builder.build().await.unwrap();
            for controller in controllers {
                manager.add_controller(controller).unwrap();
            }
            manager
        }
        .boxed()
    })
    .processes(2)
    .install::<App>()
}

async fn made<S, P: Parent>(world: &World<S>) {
    make::<P>(world, json!({"size": "1"})).await;
}

async fn off_and_on<P: Parent>(world: &World<()>) {
    make::<P>(world, json!({"child": "on"})).await;
    change::<P>(world, json!({"child": "off"})).await;
    change::<P>(world, json!({"child": "on"})).await;
}

fn bugs() -> Vec<Bug> {
    fn order<P: Parent>(name: &'static str) -> Bug {
        let explorer = |right| {
            replicas(move |process: &Process<Orders>| {
                let outside = process.outside();
                one::<P, Secret, _, _>(move |ctx, it| ordered::<P>(ctx, it, outside.clone(), right))
            })
        };
        let finds = &["late", "crash-after", "lose"];
        bug(name, "", finds, explorer, made::<Orders, P>)
    }
    fn generates<P: Parent, C: Child>(name: &'static str) -> Bug {
        let explorer = |right| {
            replicas(move |_| one::<P, C, _, _>(move |ctx, it| generated::<P, C>(ctx, it, right)))
        };
        let finds = &["late", "crash-after", "lose"];
        bug(name, "", finds, explorer, made::<(), P>)
    }
    fn toggles<P: Parent, C: Child>(name: &'static str) -> Bug {
        let explorer = |right| {
            replicas(move |_| one::<P, C, _, _>(move |ctx, it| toggle::<P, C>(ctx, it, right)))
        };
        bug(name, "", &["late-on"], explorer, off_and_on::<P>)
    }
    vec![
        toggles::<App, Secret>("a deletion of the old leader meets the new child"),
        toggles::<ConfigMap, Service>("a Service of the new leader is deleted by the old one"),
        order::<App>("two leaders order"),
        generates::<ConfigMap, Pod>("two leaders create under generated names"),
    ]
}

#[test]
fn a_request_of_a_leader_that_was_is_found() {
    explored("G11", &bugs());
}
