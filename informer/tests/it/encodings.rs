//! An object is the same, whether it comes as JSON or as protobuf: for every built-in kind and every form.
//!
//! The objects are those that client-go wrote in both encodings, by `tools/protobuf`.

use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::{
    admissionregistration, apps, autoscaling, batch, certificates, coordination, core, discovery,
    events, flowcontrol, networking, node, policy, rbac, resource, scheduling, storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use kube_core::metadata::PartialObjectMeta;
use kube_core::{DynamicObject, Resource};
use reeve_informer::{Compact, Decoding, Form, Stored};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// One object in both encodings.
struct Sample {
    api_version: &'static str,
    kind: &'static str,
    body: Vec<u8>,
    json: &'static str,
}

fn samples() -> &'static [Sample] {
    static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(|| {
        let corpus = include_str!("../../../wire/tests/testdata/corpus.txt");
        let lines: Vec<_> = corpus
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        let records = lines.chunks(4);
        let samples = records.map(|record| {
            let mut words = record[0].split(' ');
            Sample {
                api_version: words.next().unwrap(),
                kind: words.next().unwrap(),
                body: BASE64.decode(record[1]).unwrap(),
                json: record[2],
            }
        });
        samples.collect()
    });
    &SAMPLES
}

/// The objects of built-in kinds, which have metadata.
fn objects() -> impl Iterator<Item = &'static Sample> {
    let objects = samples()
        .iter()
        .filter(|sample| !sample.kind.ends_with("List"));
    objects.filter(|sample| {
        let object: Value = serde_json::from_str(sample.json).unwrap();
        object["metadata"].is_object() && sample.kind != "Status"
    })
}

/// Compares the objects of one kind as their type; returns the number of those that the type accepts.
fn same<K>() -> usize
where
    K: Form<Typed = K>
        + Resource<DynamicType = ()>
        + DeserializeOwned
        + PartialEq
        + std::fmt::Debug,
{
    let decoding = Decoding::of(K::api_version(&()), K::kind(&()));
    let mut accepted = 0;
    for sample in samples() {
        if (sample.api_version, sample.kind) != (&*K::api_version(&()), &*K::kind(&())) {
            continue;
        }
        let title = format!("{} {}", sample.api_version, sample.kind);
        let binary = decoding.read_protobuf::<K>(&sample.body);
        let compact = decoding.read_protobuf::<Compact<K>>(&sample.body);
        let compact = compact.unwrap_or_else(|error| panic!("{title}: {error}"));
        let compact = Arc::new(compact).typed();
        match decoding.read::<K>(sample.json) {
            Ok(expected) => {
                assert_eq!(*compact.unwrap(), expected, "{title}");
                assert_eq!(binary.unwrap(), expected, "{title}");
                accepted += 1;
            }
            // Some fields that the type requires are null in Go's zero values.
            Err(_) => assert!(binary.is_err() && compact.is_err(), "{title}"),
        }
    }
    assert!(accepted > 0, "{} {}", K::api_version(&()), K::kind(&()));
    accepted
}

#[test]
fn typed_objects_of_every_kind_are_the_same() {
    let accepted = [
        same::<admissionregistration::v1::MutatingAdmissionPolicy>(),
        same::<admissionregistration::v1::MutatingAdmissionPolicyBinding>(),
        same::<admissionregistration::v1::MutatingWebhookConfiguration>(),
        same::<admissionregistration::v1::ValidatingAdmissionPolicy>(),
        same::<admissionregistration::v1::ValidatingAdmissionPolicyBinding>(),
        same::<admissionregistration::v1::ValidatingWebhookConfiguration>(),
        same::<apps::v1::ControllerRevision>(),
        same::<apps::v1::DaemonSet>(),
        same::<apps::v1::Deployment>(),
        same::<apps::v1::ReplicaSet>(),
        same::<apps::v1::StatefulSet>(),
        same::<autoscaling::v1::HorizontalPodAutoscaler>(),
        same::<autoscaling::v2::HorizontalPodAutoscaler>(),
        same::<batch::v1::CronJob>(),
        same::<batch::v1::Job>(),
        same::<certificates::v1::CertificateSigningRequest>(),
        same::<coordination::v1::Lease>(),
        same::<core::v1::ComponentStatus>(),
        same::<core::v1::ConfigMap>(),
        same::<core::v1::Endpoints>(),
        same::<core::v1::Event>(),
        same::<core::v1::LimitRange>(),
        same::<core::v1::Namespace>(),
        same::<core::v1::Node>(),
        same::<core::v1::PersistentVolume>(),
        same::<core::v1::PersistentVolumeClaim>(),
        same::<core::v1::Pod>(),
        same::<core::v1::PodTemplate>(),
        same::<core::v1::ReplicationController>(),
        same::<core::v1::ResourceQuota>(),
        same::<core::v1::Secret>(),
        same::<core::v1::Service>(),
        same::<core::v1::ServiceAccount>(),
        same::<discovery::v1::EndpointSlice>(),
        same::<events::v1::Event>(),
        same::<flowcontrol::v1::FlowSchema>(),
        same::<flowcontrol::v1::PriorityLevelConfiguration>(),
        same::<networking::v1::IPAddress>(),
        same::<networking::v1::Ingress>(),
        same::<networking::v1::IngressClass>(),
        same::<networking::v1::NetworkPolicy>(),
        same::<networking::v1::ServiceCIDR>(),
        same::<node::v1::RuntimeClass>(),
        same::<policy::v1::PodDisruptionBudget>(),
        same::<rbac::v1::ClusterRole>(),
        same::<rbac::v1::ClusterRoleBinding>(),
        same::<rbac::v1::Role>(),
        same::<rbac::v1::RoleBinding>(),
        same::<resource::v1::DeviceClass>(),
        same::<resource::v1::ResourceClaim>(),
        same::<resource::v1::ResourceClaimTemplate>(),
        same::<resource::v1::ResourceSlice>(),
        same::<scheduling::v1::PriorityClass>(),
        same::<storage::v1::CSIDriver>(),
        same::<storage::v1::CSINode>(),
        same::<storage::v1::CSIStorageCapacity>(),
        same::<storage::v1::StorageClass>(),
        same::<storage::v1::VolumeAttachment>(),
        same::<storage::v1::VolumeAttributesClass>(),
        same::<apiextensions::v1::CustomResourceDefinition>(),
        same::<apiregistration::v1::APIService>(),
    ];
    assert!(accepted.iter().sum::<usize>() > 150, "{accepted:?}");
}

#[test]
fn metadata_of_every_kind_is_the_same() {
    let mut compared = 0;
    for sample in objects() {
        let decoding = Decoding::of(sample.api_version, sample.kind);
        let expected = decoding.read::<PartialObjectMeta<DynamicObject>>(sample.json);
        let binary = decoding.read_protobuf::<PartialObjectMeta<DynamicObject>>(&sample.body);
        match expected {
            Ok(expected) => {
                let binary = binary.unwrap();
                assert_eq!(binary.metadata, expected.metadata, "{}", sample.kind);
                assert_eq!(binary.types, expected.types, "{}", sample.kind);
                assert!(binary.metadata.managed_fields.is_none());
                compared += 1;
            }
            Err(_) => assert!(binary.is_err()),
        }
    }
    assert!(compared > 200, "{compared}");
}

fn labels<S: Stored + ?Sized>(entry: &S) -> Vec<String> {
    let mut labels = Vec::new();
    entry.each_label(&mut |name, value| labels.push(format!("{name}={value}")));
    for (name, value) in labels.iter().filter_map(|label| label.split_once('=')) {
        assert!(
            entry
                .label(name)
                .is_some_and(|found| name.contains('=') || found == value)
        );
    }
    labels
}

/// Compares all views of a compact entry, with some parts left out.
fn compare_views(sample: &Sample, decoding: &Decoding) -> bool {
    let title = format!("{} {}", sample.api_version, sample.kind);
    let Ok(json) = decoding.read::<Compact<Value>>(sample.json) else {
        return false;
    };
    let binary = decoding.read_protobuf::<Compact<Value>>(&sample.body);
    let binary = binary.unwrap_or_else(|error| panic!("{title}: {error}"));
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(value(&binary.json()), value(&json.json()), "{title}");
    assert_eq!((binary.key(), binary.uid()), (json.key(), json.uid()));
    assert_eq!(binary.resource_version(), json.resource_version());
    assert_eq!(labels(&binary), labels(&json), "{title}");
    assert_eq!(
        binary.owner_references(),
        json.owner_references(),
        "{title}"
    );
    assert_eq!(binary.dynamic().ok(), json.dynamic().ok(), "{title}");
    assert_eq!(binary.metadata().ok(), json.metadata().ok(), "{title}");
    true
}

#[test]
fn every_view_of_a_compact_object_of_every_kind_is_the_same() {
    let mut compared = 0;
    for sample in objects() {
        let of = || Decoding::of(sample.api_version, sample.kind);
        let trimmed = [
            ".status",
            ".spec",
            ".data",
            ".metadata.annotations",
            ".metadata.finalizers[*]",
        ];
        let trimmed = trimmed
            .iter()
            .fold(of(), |decoding, path| decoding.skip(&path.parse().unwrap()));
        for decoding in [of(), trimmed] {
            compared += usize::from(compare_views(sample, &decoding));
        }
    }
    assert!(compared > 150, "{compared}");
}
