//! The ClusterRole. All other cases run with it, so it suffices. These tests show that every right in it is used, and
//! that the other manifests fit together.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use reeve_apiserver::faults::Rule;
use reeve_apiserver::rights::Rights;
use service_ingress::{Form, NAME};

use crate::behaviour::world::{World, manifest};

/// The rights that the program needs over its life.
async fn used(form: Form) -> Rights {
    let clock = World::new(form).await.clock;
    let world = World::with(form, clock, |server| server.garbage_collection(false)).await;
    // The first run finds an orphan, and lists in pages.
    world.server.faults().refuse_streaming_lists(true);
    let owner = serde_json::json!({"apiVersion": "v1", "kind": "Service", "name": "left", "uid": "gone", "controller": true});
    let left = serde_json::json!({
        "metadata": {"namespace": "default", "name": "left", "ownerReferences": [owner]},
        "spec": {"defaultBackend": {"service": {"name": "left", "port": {"number": 80}}}},
    });
    let _: Ingress = world.create(left).await;
    let program = world.start_copy("pod-0").await;
    world.until_no_ingress("left").await;
    let standby = world.start_copy("pod-1").await;
    // A whole life, with a lost answer.
    world.server.faults().add(
        Rule::new()
            .verb("create")
            .resource("ingresses")
            .times(1)
            .lose_answer(),
    );
    world.service("web", Some("on")).await;
    world.until_ingress("web").await;
    world.quiet().await;
    world.annotate("web", Some("class=other")).await;
    world.until_event("web", "IngressUpdated").await;
    // A repeated Event becomes a series.
    for round in 0..4 {
        world
            .annotate("web", Some(&format!("host=,path={round}")))
            .await;
        world.quiet().await;
    }
    world.annotate("web", None).await;
    world.until_no_ingress("web").await;
    standby.end().await;
    program.end().await;

    let requests = world.requests();
    for request in &requests {
        assert_ne!(request.code, 403, "it was refused: {request}");
    }
    Rights::of(&requests)
}

#[test]
fn the_granted_rights_are_exactly_the_used_ones() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let by_hand = runtime().block_on(used(Form::Raw));
    let on_the_builder = runtime().block_on(used(Form::Managed));
    let role = include_str!("../../../manifests/role/role.yaml");
    by_hand.and(on_the_builder).check_exactly(role);
}

#[test]
fn the_manifests_fit_together() {
    let account: ServiceAccount = manifest("role/sa.yaml");
    let role: ClusterRole = manifest("role/role.yaml");
    let binding: ClusterRoleBinding = manifest("role/rolebinding.yaml");
    let deployment: Deployment = manifest("deploy.yaml");
    assert_eq!(account.metadata.name.as_deref(), Some("mycontroller-sa"));
    assert_eq!(role.metadata.name.as_deref(), Some("mycontroller-role"));
    assert_eq!(binding.metadata.name.as_deref(), Some("mycontroller-rb"));
    assert_eq!(Some(binding.role_ref.name), role.metadata.name);
    let subjects = binding.subjects.unwrap();
    assert_eq!(
        (subjects[0].kind.as_str(), Some(&subjects[0].name)),
        ("ServiceAccount", account.metadata.name.as_ref())
    );
    assert_eq!(subjects[0].namespace, account.metadata.namespace);
    assert_eq!(deployment.metadata.namespace, account.metadata.namespace);
    let spec = deployment.spec.unwrap();
    assert_eq!(
        (deployment.metadata.name.as_deref(), spec.replicas),
        (Some("mycontroller-deploy"), Some(1))
    );
    let pod = spec.template.spec.unwrap();
    assert_eq!(pod.service_account_name, account.metadata.name);
    assert_eq!(
        pod.containers[0].image_pull_policy.as_deref(),
        Some("Never")
    );
}

/// The Dockerfile copies the program that it builds into the image that the Deployment runs.
#[test]
fn the_image_has_the_program_of_its_build() {
    let dockerfile = include_str!("../../../Dockerfile");
    let after = |word: &str| {
        let rest = dockerfile.split_once(word).map(|(_, rest)| rest);
        let found = rest.and_then(|rest| rest.split_whitespace().next());
        found.unwrap_or_else(|| panic!("{word} in the Dockerfile"))
    };
    assert_eq!((after(" -p "), after("--bin ")), (NAME, NAME));
    let built = format!(
        "{}/{}/{}/{NAME}",
        after("--target-dir "),
        after("--target "),
        after("--profile ")
    );
    assert_eq!(after("&& cp "), built);
    assert!(dockerfile.contains(&format!("ENTRYPOINT [\"/{NAME}\"]")));
    let deployment: Deployment = manifest("deploy.yaml");
    let image = deployment.spec.unwrap().template.spec.unwrap().containers[0]
        .image
        .clone()
        .unwrap();
    assert!(dockerfile.contains(&format!("-t {image} .")));
}
