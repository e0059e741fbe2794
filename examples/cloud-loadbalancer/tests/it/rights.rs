//! The ClusterRole. All other cases run with it, so it suffices. This shows that every right in it is used, and that the
//! other manifests fit together.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use reeve_controller::testing::Rule;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{World, key, manifest, run};

#[test]
fn the_granted_rights_are_exactly_the_used_ones() {
    run(async |world: World| {
        let first = world.start_copy("a").await;
        let lost = Rule::new()
            .verb("patch")
            .resource("services")
            .times(1)
            .lose_answer();
        world.cluster.faults().add(lost);
        world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        let second = world.start_copy("b").await;
        sleep(Duration::from_secs(1300)).await;
        // A repeated Event becomes a series.
        for round in 0..4 {
            let wrong = json!({"bandwidth": "much", "name": format!("web-{round}")});
            world.annotate("web", wrong).await;
            world.quiet().await;
        }
        world.delete::<Service>(&key("web")).await;
        world.until_gone("web").await;
        second.end().await;
        first.end().await;
        let requests = world.cluster.requests().all();
        let refused = requests.iter().find(|request| request.code == 403);
        assert_eq!(refused, None);
        let role = include_str!("../../manifests/rbac.yaml");
        world.cluster.rights().check_exactly(role);
    });
}

#[test]
fn the_manifests_fit_together() {
    let account: ServiceAccount = manifest("ServiceAccount");
    let role: ClusterRole = manifest("ClusterRole");
    let binding: ClusterRoleBinding = manifest("ClusterRoleBinding");
    assert_eq!(Some(binding.role_ref.name), role.metadata.name);
    let subject = &binding.subjects.unwrap()[0];
    assert_eq!(Some(&subject.name), account.metadata.name.as_ref());
    assert_eq!(subject.namespace, account.metadata.namespace);
    let deployment: Deployment =
        serde_saphyr::from_str(include_str!("../../manifests/deploy.yaml")).unwrap();
    assert_eq!(deployment.metadata.namespace, account.metadata.namespace);
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.service_account_name, account.metadata.name);
}

#[test]
fn the_image_has_the_program_and_the_name_in_the_deployment() {
    let dockerfile = include_str!("../../Dockerfile");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_ccm"));
    let program = program.file_name().unwrap().to_str().unwrap();
    let package = env!("CARGO_PKG_NAME");
    assert!(dockerfile.contains(&format!(" -p {package} --bin {program} ")));
    assert!(dockerfile.contains(&format!("ENTRYPOINT [\"/{program}\"]")));
    let deployment = include_str!("../../manifests/deploy.yaml");
    let image = deployment
        .lines()
        .find_map(|line| line.trim().strip_prefix("image: "))
        .unwrap();
    assert!(dockerfile.contains(&format!(" -t {image} .")));
}
