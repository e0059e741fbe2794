//! The descriptions of the built-in types, from `k8s-openapi`.
//!
//! Its feature `schemars` describes every type; only the texts are used. They are built on first use. The final binary
//! chooses the version of Kubernetes for `k8s-openapi`, so the newest types may have no texts.

use std::sync::LazyLock;

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value};

static COMPONENTS: LazyLock<Map<String, Value>> = LazyLock::new(build);

/// The description of a type by its name in OpenAPI; empty when there is none.
pub(crate) fn of_type(name: &str) -> &'static str {
    text(
        COMPONENTS
            .get(name)
            .map(|component| &component["description"]),
    )
}

/// The description of a field of a type; empty when there is none.
pub(crate) fn of_field(name: &str, field: &str) -> &'static str {
    let component = COMPONENTS.get(name);
    text(component.map(|component| &component["properties"][field]["description"]))
}

fn text(value: Option<&'static Value>) -> &'static str {
    value.and_then(Value::as_str).unwrap_or_default()
}

fn build() -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    macro_rules! add {
        ($($kind:ty),* $(,)?) => { $( register::<$kind>(&mut generator); )* };
    }
    add!(
        api::admissionregistration::v1::MutatingWebhookConfiguration,
        api::admissionregistration::v1::ValidatingAdmissionPolicy,
        api::admissionregistration::v1::ValidatingAdmissionPolicyBinding,
        api::admissionregistration::v1::ValidatingWebhookConfiguration,
        api::apps::v1::ControllerRevision,
        api::apps::v1::DaemonSet,
        api::apps::v1::Deployment,
        api::apps::v1::ReplicaSet,
        api::apps::v1::StatefulSet,
        api::authentication::v1::SelfSubjectReview,
        api::authentication::v1::TokenReview,
        api::authorization::v1::LocalSubjectAccessReview,
        api::authorization::v1::SelfSubjectAccessReview,
        api::authorization::v1::SelfSubjectRulesReview,
        api::authorization::v1::SubjectAccessReview,
        api::autoscaling::v1::HorizontalPodAutoscaler,
        api::autoscaling::v1::Scale,
        api::autoscaling::v2::HorizontalPodAutoscaler,
        api::batch::v1::CronJob,
        api::batch::v1::Job,
        api::certificates::v1::CertificateSigningRequest,
        api::coordination::v1::Lease,
        api::core::v1::Binding,
        api::core::v1::ComponentStatus,
        api::core::v1::ConfigMap,
        api::core::v1::Endpoints,
        api::core::v1::Event,
        api::core::v1::LimitRange,
        api::core::v1::Namespace,
        api::core::v1::Node,
        api::core::v1::PersistentVolume,
        api::core::v1::PersistentVolumeClaim,
        api::core::v1::Pod,
        api::core::v1::PodTemplate,
        api::core::v1::ReplicationController,
        api::core::v1::ResourceQuota,
        api::core::v1::Secret,
        api::core::v1::Service,
        api::core::v1::ServiceAccount,
        api::discovery::v1::EndpointSlice,
        api::events::v1::Event,
        api::flowcontrol::v1::FlowSchema,
        api::flowcontrol::v1::PriorityLevelConfiguration,
        api::networking::v1::IPAddress,
        api::networking::v1::Ingress,
        api::networking::v1::IngressClass,
        api::networking::v1::NetworkPolicy,
        api::networking::v1::ServiceCIDR,
        api::node::v1::RuntimeClass,
        api::policy::v1::Eviction,
        api::policy::v1::PodDisruptionBudget,
        api::rbac::v1::ClusterRole,
        api::rbac::v1::ClusterRoleBinding,
        api::rbac::v1::Role,
        api::rbac::v1::RoleBinding,
        api::scheduling::v1::PriorityClass,
        api::storage::v1::CSIDriver,
        api::storage::v1::CSINode,
        api::storage::v1::CSIStorageCapacity,
        api::storage::v1::StorageClass,
        api::storage::v1::VolumeAttachment,
        apiextensions::CustomResourceDefinition,
        apiregistration::APIService,
    );
    k8s_openapi::k8s_if_ge_1_34! {
        add!(
            api::resource::v1::DeviceClass,
            api::resource::v1::ResourceClaim,
            api::resource::v1::ResourceClaimTemplate,
            api::resource::v1::ResourceSlice,
            api::storage::v1::VolumeAttributesClass,
        );
    }
    k8s_openapi::k8s_if_ge_1_36! {
        add!(
            api::admissionregistration::v1::MutatingAdmissionPolicy,
            api::admissionregistration::v1::MutatingAdmissionPolicyBinding,
        );
    }
    generator.take_definitions(true)
}

fn register<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}
