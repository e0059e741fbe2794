//! Pods, and the templates of workloads.

use k8s_openapi::api::core::v1 as core;

use crate::direct::message::messages;

messages! {
    "core.v1.Affinity" core::Affinity { any 1 node_affinity, any 2 pod_affinity, any 3 pod_anti_affinity, }
    "core.v1.AppArmorProfile" core::AppArmorProfile { must 1 type_, any 2 localhost_profile, }
    "core.v1.Capabilities" core::Capabilities { any 1 add, any 2 drop, }
    "core.v1.ConfigMapEnvSource" core::ConfigMapEnvSource {
        any 2 optional,
        @1 {
            opt 1 name,
        }
    }
    "core.v1.ConfigMapKeySelector" core::ConfigMapKeySelector {
        must 2 key, any 3 optional,
        @1 {
            opt 1 name,
        }
    }
    "core.v1.Container" core::Container {
        must 1 name, opt 2 image, any 3 command, any 4 args, opt 5 working_dir, any 6 ports, any 7 env,
        must 8 resources, any 9 volume_mounts, any 10 liveness_probe, any 11 readiness_probe, any 12 lifecycle,
        opt 13 termination_message_path, opt 14 image_pull_policy, any 15 security_context, opt 16 stdin,
        opt 17 stdin_once, opt 18 tty, any 19 env_from, opt 20 termination_message_policy, any 21 volume_devices,
        any 22 startup_probe, any 23 resize_policy, any 24 restart_policy,
    }
    "core.v1.ContainerPort" core::ContainerPort {
        opt 1 name, opt 2 host_port, must 3 container_port, opt 4 protocol, opt 5 host_ip,
    }
    "core.v1.ContainerResizePolicy" core::ContainerResizePolicy { must 1 resource_name, must 2 restart_policy, }
    "core.v1.EnvFromSource" core::EnvFromSource { opt 1 prefix, any 2 config_map_ref, any 3 secret_ref, }
    "core.v1.EnvVar" core::EnvVar { must 1 name, opt 2 value, any 3 value_from, }
    "core.v1.EnvVarSource" core::EnvVarSource {
        any 1 field_ref, any 2 resource_field_ref, any 3 config_map_key_ref, any 4 secret_key_ref,
    }
    "core.v1.EphemeralContainer" core::EphemeralContainer {
        opt 2 target_container_name,
        @1 {
            must 1 name, opt 2 image, any 3 command, any 4 args, opt 5 working_dir, any 6 ports, any 7 env,
            must 8 resources, any 9 volume_mounts, any 10 liveness_probe, any 11 readiness_probe, any 12 lifecycle,
            opt 13 termination_message_path, opt 14 image_pull_policy, any 15 security_context, opt 16 stdin,
            opt 17 stdin_once, opt 18 tty, any 19 env_from, opt 20 termination_message_policy, any 21 volume_devices,
            any 22 startup_probe, any 23 resize_policy, any 24 restart_policy,
        }
    }
    "core.v1.ExecAction" core::ExecAction { any 1 command, }
    "core.v1.GRPCAction" core::GRPCAction { must 1 port, any 2 service, }
    "core.v1.HTTPGetAction" core::HTTPGetAction { opt 1 path, must 2 port, opt 3 host, opt 4 scheme, any 5 http_headers, }
    "core.v1.HTTPHeader" core::HTTPHeader { must 1 name, must 2 value, }
    "core.v1.HostAlias" core::HostAlias { must 1 ip, any 2 hostnames, }
    "core.v1.Lifecycle" core::Lifecycle { any 1 post_start, any 2 pre_stop, any 3 stop_signal, }
    "core.v1.LifecycleHandler" core::LifecycleHandler { any 1 exec, any 2 http_get, any 3 tcp_socket, any 4 sleep, }
    "core.v1.NodeAffinity" core::NodeAffinity {
        any 1 required_during_scheduling_ignored_during_execution,
        any 2 preferred_during_scheduling_ignored_during_execution,
    }
    "core.v1.PodAffinity" core::PodAffinity {
        any 1 required_during_scheduling_ignored_during_execution,
        any 2 preferred_during_scheduling_ignored_during_execution,
    }
    "core.v1.PodAffinityTerm" core::PodAffinityTerm {
        any 1 label_selector, any 2 namespaces, must 3 topology_key, any 4 namespace_selector,
        any 5 match_label_keys, any 6 mismatch_label_keys,
    }
    "core.v1.PodAntiAffinity" core::PodAntiAffinity {
        any 1 required_during_scheduling_ignored_during_execution,
        any 2 preferred_during_scheduling_ignored_during_execution,
    }
    "core.v1.PodDNSConfig" core::PodDNSConfig { any 1 nameservers, any 2 searches, any 3 options, }
    "core.v1.PodDNSConfigOption" core::PodDNSConfigOption { opt 1 name, any 2 value, }
    "core.v1.PodOS" core::PodOS { must 1 name, }
    "core.v1.PodReadinessGate" core::PodReadinessGate { must 1 condition_type, }
    "core.v1.PodResourceClaim" core::PodResourceClaim {
        must 1 name, any 3 resource_claim_name, any 4 resource_claim_template_name,
    }
    "core.v1.PodSchedulingGate" core::PodSchedulingGate { must 1 name, }
    "core.v1.PodSecurityContext" core::PodSecurityContext {
        any 1 se_linux_options, any 2 run_as_user, any 3 run_as_non_root, any 4 supplemental_groups, any 5 fs_group,
        any 6 run_as_group, any 7 sysctls, any 8 windows_options, any 9 fs_group_change_policy,
        any 10 seccomp_profile, any 11 app_armor_profile, any 12 supplemental_groups_policy,
        any 13 se_linux_change_policy,
    }
    "core.v1.PodSpec" core::PodSpec {
        any 1 volumes, any 2 containers, opt 3 restart_policy, any 4 termination_grace_period_seconds,
        any 5 active_deadline_seconds, opt 6 dns_policy, any 7 node_selector, opt 8 service_account_name,
        opt 9 service_account, opt 10 node_name, opt 11 host_network, opt 12 host_pid, opt 13 host_ipc,
        any 14 security_context, any 15 image_pull_secrets, opt 16 hostname, opt 17 subdomain, any 18 affinity,
        opt 19 scheduler_name, any 20 init_containers, any 21 automount_service_account_token, any 22 tolerations,
        any 23 host_aliases, opt 24 priority_class_name, any 25 priority, any 26 dns_config,
        any 27 share_process_namespace, any 28 readiness_gates, any 29 runtime_class_name,
        any 30 enable_service_links, any 31 preemption_policy, any 32 overhead, any 33 topology_spread_constraints,
        any 34 ephemeral_containers, any 35 set_hostname_as_fqdn, any 36 os, any 37 host_users,
        any 38 scheduling_gates, any 39 resource_claims, any 40 resources, v1_34 41 hostname_override,
    }
    "core.v1.PodTemplateSpec" core::PodTemplateSpec { must 1 metadata, must 2 spec, }
    "core.v1.PreferredSchedulingTerm" core::PreferredSchedulingTerm { must 1 weight, must 2 preference, }
    "core.v1.Probe" core::Probe {
        opt 2 initial_delay_seconds, opt 3 timeout_seconds, opt 4 period_seconds, opt 5 success_threshold,
        opt 6 failure_threshold, any 7 termination_grace_period_seconds,
        @1 {
            any 1 exec, any 2 http_get, any 3 tcp_socket, any 4 grpc,
        }
    }
    "core.v1.ResourceClaim" core::ResourceClaim { must 1 name, opt 2 request, }
    "core.v1.ResourceRequirements" core::ResourceRequirements { any 1 limits, any 2 requests, any 3 claims, }
    "core.v1.SELinuxOptions" core::SELinuxOptions { opt 1 user, opt 2 role, opt 3 type_, opt 4 level, }
    "core.v1.SeccompProfile" core::SeccompProfile { must 1 type_, any 2 localhost_profile, }
    "core.v1.SecretEnvSource" core::SecretEnvSource {
        any 2 optional,
        @1 {
            opt 1 name,
        }
    }
    "core.v1.SecretKeySelector" core::SecretKeySelector {
        must 2 key, any 3 optional,
        @1 {
            opt 1 name,
        }
    }
    "core.v1.SecurityContext" core::SecurityContext {
        any 1 capabilities, any 2 privileged, any 3 se_linux_options, any 4 run_as_user, any 5 run_as_non_root,
        any 6 read_only_root_filesystem, any 7 allow_privilege_escalation, any 8 run_as_group, any 9 proc_mount,
        any 10 windows_options, any 11 seccomp_profile, any 12 app_armor_profile,
    }
    "core.v1.SleepAction" core::SleepAction { must 1 seconds, }
    "core.v1.Sysctl" core::Sysctl { must 1 name, must 2 value, }
    "core.v1.TCPSocketAction" core::TCPSocketAction { must 1 port, opt 2 host, }
    "core.v1.Toleration" core::Toleration {
        opt 1 key, opt 2 operator, opt 3 value, opt 4 effect, any 5 toleration_seconds,
    }
    "core.v1.TopologySpreadConstraint" core::TopologySpreadConstraint {
        must 1 max_skew, must 2 topology_key, must 3 when_unsatisfiable, any 4 label_selector, any 5 min_domains,
        any 6 node_affinity_policy, any 7 node_taints_policy, any 8 match_label_keys,
    }
    "core.v1.VolumeDevice" core::VolumeDevice { must 1 name, must 2 device_path, }
    "core.v1.VolumeMount" core::VolumeMount {
        must 1 name, opt 2 read_only, must 3 mount_path, opt 4 sub_path, any 5 mount_propagation,
        opt 6 sub_path_expr, any 7 recursive_read_only,
    }
    "core.v1.WeightedPodAffinityTerm" core::WeightedPodAffinityTerm { must 1 weight, must 2 pod_affinity_term, }
    "core.v1.WindowsSecurityContextOptions" core::WindowsSecurityContextOptions {
        any 1 gmsa_credential_spec_name, any 2 gmsa_credential_spec, any 3 run_as_user_name, any 4 host_process,
    }
}
