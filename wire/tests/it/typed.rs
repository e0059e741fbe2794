//! Typed objects without an intermediate: the same as from JSON.

use k8s_openapi::api::{
    admissionregistration, apps, authorization, autoscaling, batch, coordination, core, discovery,
    events, networking, policy, rbac, resource, storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use reeve_wire::{from_slice, to_vec};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::corpus::corpus;

/// Compares the objects of one kind; returns the number of those that the type accepts.
fn compare<T>(kind: &str) -> usize
where
    T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug,
{
    let mut accepted = 0;
    let samples = corpus().iter();
    for sample in samples.filter(|sample| sample.title.rsplit_once(' ').unwrap().0 == kind) {
        let expected = serde_json::from_str::<T>(sample.json);
        let read = from_slice::<T>(&sample.body);
        let Ok(expected) = expected else {
            // Some fields that the type requires are null in Go's zero values.
            assert!(read.is_err(), "{}", sample.title);
            continue;
        };
        let read = read.unwrap_or_else(|error| panic!("{}: {error}", sample.title));
        assert_eq!(read, expected, "{}", sample.title);
        let written = to_vec(&read).unwrap();
        let again: T = from_slice(&written).unwrap();
        assert_eq!(again, expected, "{}", sample.title);
        accepted += 1;
    }
    assert!(accepted > 0, "{kind}");
    accepted
}

#[test]
fn typed_objects_equal_those_of_json() {
    let accepted = [
        compare::<core::v1::Pod>("v1 Pod"),
        compare::<core::v1::ConfigMap>("v1 ConfigMap"),
        compare::<core::v1::Secret>("v1 Secret"),
        compare::<core::v1::Service>("v1 Service"),
        compare::<core::v1::Node>("v1 Node"),
        compare::<core::v1::Event>("v1 Event"),
        compare::<core::v1::PersistentVolume>("v1 PersistentVolume"),
        compare::<apps::v1::Deployment>("apps/v1 Deployment"),
        compare::<apps::v1::ControllerRevision>("apps/v1 ControllerRevision"),
        compare::<batch::v1::CronJob>("batch/v1 CronJob"),
        compare::<autoscaling::v2::HorizontalPodAutoscaler>(
            "autoscaling/v2 HorizontalPodAutoscaler",
        ),
        compare::<coordination::v1::Lease>("coordination.k8s.io/v1 Lease"),
        compare::<discovery::v1::EndpointSlice>("discovery.k8s.io/v1 EndpointSlice"),
        compare::<events::v1::Event>("events.k8s.io/v1 Event"),
        compare::<networking::v1::Ingress>("networking.k8s.io/v1 Ingress"),
        compare::<networking::v1::NetworkPolicy>("networking.k8s.io/v1 NetworkPolicy"),
        compare::<policy::v1::PodDisruptionBudget>("policy/v1 PodDisruptionBudget"),
        compare::<rbac::v1::ClusterRole>("rbac.authorization.k8s.io/v1 ClusterRole"),
        compare::<storage::v1::StorageClass>("storage.k8s.io/v1 StorageClass"),
        compare::<resource::v1::ResourceSlice>("resource.k8s.io/v1 ResourceSlice"),
        compare::<admissionregistration::v1::ValidatingWebhookConfiguration>(
            "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
        ),
        compare::<authorization::v1::SubjectAccessReview>(
            "authorization.k8s.io/v1 SubjectAccessReview",
        ),
        compare::<apiextensions::v1::CustomResourceDefinition>(
            "apiextensions.k8s.io/v1 CustomResourceDefinition",
        ),
        compare::<meta::v1::Status>("v1 Status"),
        compare::<k8s_openapi::List<core::v1::ConfigMap>>("v1 ConfigMapList"),
    ];
    assert!(accepted.iter().sum::<usize>() > 60, "{accepted:?}");
}

#[test]
fn texts_are_borrowed_from_the_body() {
    #[derive(serde::Deserialize)]
    struct Named<'a> {
        kind: &'a str,
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(serde::Deserialize)]
    struct Metadata<'a> {
        name: &'a str,
    }
    let object =
        serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "borrowed"}});
    let body = to_vec(&object).unwrap();
    let read: Named<'_> = from_slice(&body).unwrap();
    assert_eq!((read.kind, read.metadata.name), ("Secret", "borrowed"));
    assert!(body.as_ptr_range().contains(&read.metadata.name.as_ptr()));
}

#[test]
fn enums_options_and_newtypes_are_read_as_from_json() {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    enum Policy {
        Always,
        Never,
    }
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Seconds(i64);
    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        restart_policy: Option<Policy>,
        termination_grace_period_seconds: Option<Seconds>,
        active_deadline_seconds: Option<Seconds>,
        containers: Option<Vec<serde_json::Value>>,
    }
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Pod {
        spec: Spec,
    }
    let object = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
    }});
    let read: Pod = from_slice(&to_vec(&object).unwrap()).unwrap();
    let expected = Spec {
        restart_policy: Some(Policy::Never),
        termination_grace_period_seconds: Some(Seconds(0)),
        active_deadline_seconds: None,
        containers: None,
    };
    assert_eq!(read.spec, expected);
    assert_ne!(read.spec.restart_policy, Some(Policy::Always));
}
