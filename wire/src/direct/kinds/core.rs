//! The other kinds of the core.

use k8s_openapi::api::core::v1 as core;

use crate::direct::message::messages;

messages! {
    "core.v1.AttachedVolume" core::AttachedVolume { must 1 name, must 2 device_path, }
    "core.v1.ClientIPConfig" core::ClientIPConfig { any 1 timeout_seconds, }
    "core.v1.ConfigMap" core::ConfigMap { must 1 metadata, any 2 data, any 3 binary_data, any 4 immutable, }
    "core.v1.ConfigMapNodeConfigSource" core::ConfigMapNodeConfigSource {
        must 1 namespace, must 2 name, opt 3 uid, opt 4 resource_version, must 5 kubelet_config_key,
    }
    "core.v1.ContainerImage" core::ContainerImage { any 1 names, opt 2 size_bytes, }
    "core.v1.ContainerState" core::ContainerState { any 1 waiting, any 2 running, any 3 terminated, }
    "core.v1.ContainerStateRunning" core::ContainerStateRunning { any 1 started_at, }
    "core.v1.ContainerStateTerminated" core::ContainerStateTerminated {
        must 1 exit_code, opt 2 signal, opt 3 reason, opt 4 message, any 5 started_at, any 6 finished_at,
        opt 7 container_id,
    }
    "core.v1.ContainerStateWaiting" core::ContainerStateWaiting { opt 1 reason, opt 2 message, }
    "core.v1.ContainerStatus" core::ContainerStatus {
        must 1 name, must 2 state, must 3 last_state, must 4 ready, must 5 restart_count, must 6 image,
        must 7 image_id, opt 8 container_id, any 9 started, any 10 allocated_resources, any 11 resources,
        any 12 volume_mounts, any 13 user, any 14 allocated_resources_status, any 15 stop_signal,
    }
    "core.v1.ContainerUser" core::ContainerUser { any 1 linux, }
    "core.v1.DaemonEndpoint" core::DaemonEndpoint { must 1 port, }
    "core.v1.EndpointAddress" core::EndpointAddress { must 1 ip, any 2 target_ref, opt 3 hostname, any 4 node_name, }
    "core.v1.EndpointPort" core::EndpointPort { opt 1 name, must 2 port, opt 3 protocol, any 4 app_protocol, }
    "core.v1.EndpointSubset" core::EndpointSubset { any 1 addresses, any 2 not_ready_addresses, any 3 ports, }
    "core.v1.Endpoints" core::Endpoints { must 1 metadata, any 2 subsets, }
    "core.v1.Event" core::Event {
        must 1 metadata, must 2 involved_object, opt 3 reason, opt 4 message, must 5 source, any 6 first_timestamp,
        any 7 last_timestamp, opt 8 count, opt 9 type_, any 10 event_time, any 11 series, opt 12 action,
        any 13 related, must 14 reporting_component, must 15 reporting_instance,
    }
    "core.v1.EventSeries" core::EventSeries { opt 1 count, any 2 last_observed_time, }
    "core.v1.EventSource" core::EventSource { opt 1 component, opt 2 host, }
    "core.v1.HostIP" core::HostIP { must 1 ip, }
    "core.v1.LinuxContainerUser" core::LinuxContainerUser { must 1 uid, must 2 gid, any 3 supplemental_groups, }
    "core.v1.LoadBalancerIngress" core::LoadBalancerIngress { opt 1 ip, opt 2 hostname, any 3 ip_mode, any 4 ports, }
    "core.v1.LoadBalancerStatus" core::LoadBalancerStatus { any 1 ingress, }
    "core.v1.Namespace" core::Namespace { must 1 metadata, must 2 spec, must 3 status, }
    "core.v1.NamespaceCondition" core::NamespaceCondition {
        must 1 type_, must 2 status, any 4 last_transition_time, opt 5 reason, opt 6 message,
    }
    "core.v1.NamespaceSpec" core::NamespaceSpec { any 1 finalizers, }
    "core.v1.NamespaceStatus" core::NamespaceStatus { opt 1 phase, any 2 conditions, }
    "core.v1.Node" core::Node { must 1 metadata, must 2 spec, must 3 status, }
    "core.v1.NodeAddress" core::NodeAddress { must 1 type_, must 2 address, }
    "core.v1.NodeCondition" core::NodeCondition {
        must 1 type_, must 2 status, any 3 last_heartbeat_time, any 4 last_transition_time, opt 5 reason,
        opt 6 message,
    }
    "core.v1.NodeConfigSource" core::NodeConfigSource { any 2 config_map, }
    "core.v1.NodeConfigStatus" core::NodeConfigStatus { any 1 assigned, any 2 active, any 3 last_known_good, opt 4 error, }
    "core.v1.NodeDaemonEndpoints" core::NodeDaemonEndpoints { must 1 kubelet_endpoint, }
    "core.v1.NodeFeatures" core::NodeFeatures { any 1 supplemental_groups_policy, }
    "core.v1.NodeRuntimeHandler" core::NodeRuntimeHandler { must 1 name, any 2 features, }
    "core.v1.NodeRuntimeHandlerFeatures" core::NodeRuntimeHandlerFeatures { any 1 recursive_read_only_mounts, any 2 user_namespaces, }
    "core.v1.NodeSpec" core::NodeSpec {
        opt 1 pod_cidr, opt 2 external_id, opt 3 provider_id, opt 4 unschedulable, any 5 taints, any 6 config_source,
        any 7 pod_cidrs,
    }
    "core.v1.NodeStatus" core::NodeStatus {
        any 1 capacity, any 2 allocatable, opt 3 phase, any 4 conditions, any 5 addresses, must 6 daemon_endpoints,
        must 7 node_info, any 8 images, any 9 volumes_in_use, any 10 volumes_attached, any 11 config,
        any 12 runtime_handlers, any 13 features, v1_35 14 declared_features,
    }
    "core.v1.NodeSwapStatus" core::NodeSwapStatus { any 1 capacity, }
    "core.v1.NodeSystemInfo" core::NodeSystemInfo {
        must 1 machine_id, must 2 system_uuid, must 3 boot_id, must 4 kernel_version, must 5 os_image,
        must 6 container_runtime_version, must 7 kubelet_version, must 8 kube_proxy_version, must 9 operating_system,
        must 10 architecture, any 11 swap,
    }
    "core.v1.Pod" core::Pod { must 1 metadata, must 2 spec, must 3 status, }
    "core.v1.PodCondition" core::PodCondition {
        must 1 type_, must 2 status, any 3 last_probe_time, any 4 last_transition_time, opt 5 reason, opt 6 message,
        opt 7 observed_generation,
    }
    "core.v1.PodIP" core::PodIP { must 1 ip, }
    "core.v1.PodResourceClaimStatus" core::PodResourceClaimStatus { must 1 name, any 2 resource_claim_name, }
    "core.v1.PodStatus" core::PodStatus {
        opt 1 phase, any 2 conditions, opt 3 message, opt 4 reason, opt 5 host_ip, opt 6 pod_ip, any 7 start_time,
        any 8 container_statuses, opt 9 qos_class, any 10 init_container_statuses, opt 11 nominated_node_name,
        any 12 pod_ips, any 13 ephemeral_container_statuses, opt 14 resize, any 15 resource_claim_statuses,
        any 16 host_ips, opt 17 observed_generation, v1_35 19 allocated_resources, v1_35 20 resources,
    }
    "core.v1.PortStatus" core::PortStatus { must 1 port, must 2 protocol, any 3 error, }
    "core.v1.ResourceHealth" core::ResourceHealth { must 1 resource_id, opt 2 health, v1_36 6 message, }
    "core.v1.ResourceStatus" core::ResourceStatus { must 1 name, any 2 resources, }
    "core.v1.Secret" core::Secret {
        must 1 metadata, any 2 data, opt 3 type_, any 4 string_data, any 5 immutable,
    }
    "core.v1.Service" core::Service { must 1 metadata, must 2 spec, must 3 status, }
    "core.v1.ServiceAccount" core::ServiceAccount {
        must 1 metadata, any 2 secrets, any 3 image_pull_secrets, any 4 automount_service_account_token,
    }
    "core.v1.ServicePort" core::ServicePort {
        opt 1 name, opt 2 protocol, must 3 port, must 4 target_port, opt 5 node_port, any 6 app_protocol,
    }
    "core.v1.ServiceSpec" core::ServiceSpec {
        any 1 ports, any 2 selector, opt 3 cluster_ip, opt 4 type_, any 5 external_ips, opt 7 session_affinity,
        opt 8 load_balancer_ip, any 9 load_balancer_source_ranges, opt 10 external_name,
        opt 11 external_traffic_policy, opt 12 health_check_node_port, opt 13 publish_not_ready_addresses,
        any 14 session_affinity_config, any 17 ip_family_policy, any 18 cluster_ips, any 19 ip_families,
        any 20 allocate_load_balancer_node_ports, any 21 load_balancer_class, any 22 internal_traffic_policy,
        any 23 traffic_distribution,
    }
    "core.v1.ServiceStatus" core::ServiceStatus { must 1 load_balancer, }
    "core.v1.SessionAffinityConfig" core::SessionAffinityConfig { any 1 client_ip, }
    "core.v1.Taint" core::Taint { must 1 key, opt 2 value, must 3 effect, any 4 time_added, }
    "core.v1.VolumeMountStatus" core::VolumeMountStatus {
        must 1 name, must 2 mount_path, opt 3 read_only, any 4 recursive_read_only,
    }
}
