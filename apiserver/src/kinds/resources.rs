//! The built-in resources, from the table of types and the rules of each kind.

use std::collections::HashMap;
use std::sync::Arc;

use super::data::{Data, Resource, Version};
use super::strategy::{Plain, Strategy};
use super::workloads::Workload;
use super::{
    admission, autoscaling, certificates, config, controllers, devices, endpoints, events, flow,
    leases, namespaces, networking, nodes, pods, policy, rbac, registration, services, storage,
};
use crate::apply::LazySchema;
use crate::resource::{Conversion, Generation, ResourceInfo, Scale, StatusUpdate};
use crate::table::cells::aged;

/// All built-in resources.
pub(crate) fn builtin() -> Vec<ResourceInfo> {
    let versions = Data::get().versions.iter();
    let mut all: Vec<ResourceInfo> = versions
        .flat_map(|version| version.resources.iter().map(|one| describe(version, one)))
        .collect();
    let is_stored = |info: &&ResourceInfo| info.storage_version && !info.storage.is_empty();
    let stored: HashMap<String, String> = all
        .iter()
        .filter(is_stored)
        .map(|info| (info.storage.clone(), info.api_version()))
        .collect();
    for info in &mut all {
        if let Some(stored) = stored.get(&info.storage) {
            info.stored_in.clone_from(stored);
        }
    }
    all
}

/// The rules of a kind.
fn strategy(group: &str, plural: &str) -> &'static dyn Strategy {
    match (group, plural) {
        ("", "configmaps") => &config::ConfigMaps,
        ("", "endpoints") => &endpoints::Endpoints,
        ("" | "events.k8s.io", "events") => &events::Events,
        ("", "limitranges") => &policy::LimitRanges,
        ("", "namespaces") => &namespaces::Namespaces,
        ("", "nodes") => &nodes::Nodes,
        ("", "persistentvolumeclaims") => &storage::Claims,
        ("", "persistentvolumes") => &storage::Volumes,
        ("", "pods") => &pods::Pods,
        ("", "podtemplates") => &controllers::Templates,
        ("", "replicationcontrollers") => &controllers::ReplicationControllers,
        ("", "resourcequotas") => &policy::Quotas,
        ("", "secrets") => &config::Secrets,
        ("", "serviceaccounts") => &config::ServiceAccounts,
        ("", "services") => &services::Services,
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => &admission::Webhooks,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => {
            &admission::Policies::Mutating
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            &admission::Policies::Validating
        }
        ("admissionregistration.k8s.io", _) => &admission::PolicyBindings,
        ("apiextensions.k8s.io", _) => &registration::Definitions,
        ("apiregistration.k8s.io", _) => &registration::ApiServices,
        ("apps", "controllerrevisions") => &controllers::Revisions,
        ("apps", "daemonsets") => &Workload::DaemonSet,
        ("apps", "deployments") => &Workload::Deployment,
        ("apps", "replicasets") => &Workload::ReplicaSet,
        ("apps", "statefulsets") => &Workload::StatefulSet,
        ("autoscaling", _) => &autoscaling::Autoscalers,
        ("batch", "cronjobs") => &controllers::CronJobs,
        ("batch", "jobs") => &Workload::Job,
        ("certificates.k8s.io", _) => &certificates::SigningRequests,
        ("coordination.k8s.io", _) => &leases::Leases,
        ("discovery.k8s.io", _) => &endpoints::EndpointSlices,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => &flow::FlowSchemas,
        ("flowcontrol.apiserver.k8s.io", _) => &flow::PriorityLevels,
        ("networking.k8s.io", "ingressclasses") => &networking::IngressClasses,
        ("networking.k8s.io", "ingresses") => &networking::Ingresses,
        ("networking.k8s.io", "ipaddresses") => &networking::IpAddresses,
        ("networking.k8s.io", "networkpolicies") => &networking::NetworkPolicies,
        ("networking.k8s.io", _) => &networking::ServiceCidrs,
        ("node.k8s.io", _) => &policy::RuntimeClasses,
        ("policy", _) => &policy::Budgets,
        ("rbac.authorization.k8s.io", "clusterroles" | "roles") => &rbac::Roles,
        ("rbac.authorization.k8s.io", _) => &rbac::Bindings,
        ("resource.k8s.io", "deviceclasses") => &devices::DeviceClasses,
        ("resource.k8s.io", "resourceclaims") => &devices::ResourceClaims,
        ("resource.k8s.io", "resourceclaimtemplates") => &devices::ClaimTemplates,
        ("resource.k8s.io", _) => &devices::Slices,
        ("scheduling.k8s.io", _) => &policy::PriorityClasses,
        ("storage.k8s.io", "csidrivers") => &storage::Drivers,
        ("storage.k8s.io", "csinodes") => &storage::DriverNodes,
        ("storage.k8s.io", "csistoragecapacities") => &storage::Capacities,
        ("storage.k8s.io", "storageclasses") => &storage::Classes,
        ("storage.k8s.io", "volumeattachments") => &storage::Attachments,
        ("storage.k8s.io", _) => &storage::AttributesClasses,
        _ => &Plain,
    }
}

fn describe(version: &'static Version, resource: &'static Resource) -> ResourceInfo {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let has = |name: &str| resource.subresources.iter().any(|one| one.name == name);
    // A resource that cannot be written answers a question instead.
    let is_stored = resource.verbs.contains(&"delete");
    let storage = match (is_stored, version.group) {
        (false, _) => String::new(),
        (true, "") => resource.plural.to_owned(),
        (true, group) => format!("{}.{group}", resource.plural),
    };
    let strategy = strategy(version.group, resource.plural);
    let mut info = ResourceInfo {
        group: version.group.to_owned(),
        version: version.name.to_owned(),
        kind: resource.kind.to_owned(),
        list_kind: format!("{}List", resource.kind),
        plural: resource.plural.to_owned(),
        singular: resource.singular.to_owned(),
        short_names: owned(&resource.short_names),
        categories: owned(&resource.categories),
        namespaced: resource.namespaced,
        verbs: &resource.verbs,
        subresources: &resource.subresources,
        of: resource.root(),
        strategy,
        status: has("status"),
        status_update: StatusUpdate::Metadata { except: &[] },
        scale: has("scale").then(|| Scale {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: Some(".spec.selector".to_owned()),
        }),
        generation: Generation::None,
        unconditional_update: true,
        orphans_by_default: false,
        create_on_update: false,
        delete_returns_object: false,
        columns: strategy.columns(),
        selectable_fields: Vec::new(),
        schema: None,
        structural: None,
        types: LazySchema::default(),
        storage_version: true,
        stored_in: String::new(),
        conversion: Conversion::BuiltIn,
        webhook: None,
        schemas: Arc::default(),
        stored: None,
        converted_up_to: 0,
        served: true,
        deprecation: None,
        custom: false,
        storage,
    };
    if info.columns.is_empty() {
        info.columns.push(aged());
    }
    strategy.describe(&mut info);
    info
}
