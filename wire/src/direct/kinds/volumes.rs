//! Volumes, and the objects of storage.

use k8s_openapi::api::core::v1 as core;

use crate::direct::message::messages;

messages! {
    "core.v1.AWSElasticBlockStoreVolumeSource" core::AWSElasticBlockStoreVolumeSource { must 1 volume_id, opt 2 fs_type, opt 3 partition, opt 4 read_only, }
    "core.v1.AzureDiskVolumeSource" core::AzureDiskVolumeSource {
        must 1 disk_name, must 2 disk_uri, any 3 caching_mode, any 4 fs_type, any 5 read_only, any 6 kind,
    }
    "core.v1.AzureFilePersistentVolumeSource" core::AzureFilePersistentVolumeSource {
        must 1 secret_name, must 2 share_name, opt 3 read_only, any 4 secret_namespace,
    }
    "core.v1.AzureFileVolumeSource" core::AzureFileVolumeSource { must 1 secret_name, must 2 share_name, opt 3 read_only, }
    "core.v1.CSIPersistentVolumeSource" core::CSIPersistentVolumeSource {
        must 1 driver, must 2 volume_handle, opt 3 read_only, opt 4 fs_type, any 5 volume_attributes,
        any 6 controller_publish_secret_ref, any 7 node_stage_secret_ref, any 8 node_publish_secret_ref,
        any 9 controller_expand_secret_ref, any 10 node_expand_secret_ref,
    }
    "core.v1.CSIVolumeSource" core::CSIVolumeSource {
        must 1 driver, any 2 read_only, any 3 fs_type, any 4 volume_attributes, any 5 node_publish_secret_ref,
    }
    "core.v1.CephFSPersistentVolumeSource" core::CephFSPersistentVolumeSource {
        any 1 monitors, opt 2 path, opt 3 user, opt 4 secret_file, any 5 secret_ref, opt 6 read_only,
    }
    "core.v1.CephFSVolumeSource" core::CephFSVolumeSource {
        any 1 monitors, opt 2 path, opt 3 user, opt 4 secret_file, any 5 secret_ref, opt 6 read_only,
    }
    "core.v1.CinderPersistentVolumeSource" core::CinderPersistentVolumeSource { must 1 volume_id, opt 2 fs_type, opt 3 read_only, any 4 secret_ref, }
    "core.v1.CinderVolumeSource" core::CinderVolumeSource { must 1 volume_id, opt 2 fs_type, opt 3 read_only, any 4 secret_ref, }
    "core.v1.ClusterTrustBundleProjection" core::ClusterTrustBundleProjection {
        any 1 name, any 2 signer_name, any 3 label_selector, must 4 path, any 5 optional,
    }
    "core.v1.ConfigMapProjection" core::ConfigMapProjection {
        any 2 items, any 4 optional,
        @1 {
            opt 1 name,
        }
    }
    "core.v1.ConfigMapVolumeSource" core::ConfigMapVolumeSource {
        any 2 items, any 3 default_mode, any 4 optional,
        @1 {
            opt 1 name,
        }
    }
    "core.v1.DownwardAPIProjection" core::DownwardAPIProjection { any 1 items, }
    "core.v1.DownwardAPIVolumeFile" core::DownwardAPIVolumeFile { must 1 path, any 2 field_ref, any 3 resource_field_ref, any 4 mode, }
    "core.v1.DownwardAPIVolumeSource" core::DownwardAPIVolumeSource { any 1 items, any 2 default_mode, }
    "core.v1.EmptyDirVolumeSource" core::EmptyDirVolumeSource { opt 1 medium, any 2 size_limit, }
    "core.v1.EphemeralVolumeSource" core::EphemeralVolumeSource { any 1 volume_claim_template, }
    "core.v1.FCVolumeSource" core::FCVolumeSource { any 1 target_wwns, any 2 lun, opt 3 fs_type, opt 4 read_only, any 5 wwids, }
    "core.v1.FlexPersistentVolumeSource" core::FlexPersistentVolumeSource {
        must 1 driver, opt 2 fs_type, any 3 secret_ref, opt 4 read_only, any 5 options,
    }
    "core.v1.FlexVolumeSource" core::FlexVolumeSource {
        must 1 driver, opt 2 fs_type, any 3 secret_ref, opt 4 read_only, any 5 options,
    }
    "core.v1.FlockerVolumeSource" core::FlockerVolumeSource { opt 1 dataset_name, opt 2 dataset_uuid, }
    "core.v1.GCEPersistentDiskVolumeSource" core::GCEPersistentDiskVolumeSource { must 1 pd_name, opt 2 fs_type, opt 3 partition, opt 4 read_only, }
    "core.v1.GitRepoVolumeSource" core::GitRepoVolumeSource { must 1 repository, opt 2 revision, opt 3 directory, }
    "core.v1.GlusterfsPersistentVolumeSource" core::GlusterfsPersistentVolumeSource { must 1 endpoints, must 2 path, opt 3 read_only, any 4 endpoints_namespace, }
    "core.v1.GlusterfsVolumeSource" core::GlusterfsVolumeSource { must 1 endpoints, must 2 path, opt 3 read_only, }
    "core.v1.HostPathVolumeSource" core::HostPathVolumeSource { must 1 path, any 2 type_, }
    "core.v1.ISCSIPersistentVolumeSource" core::ISCSIPersistentVolumeSource {
        must 1 target_portal, must 2 iqn, must 3 lun, opt 4 iscsi_interface, opt 5 fs_type, opt 6 read_only,
        any 7 portals, opt 8 chap_auth_discovery, any 10 secret_ref, opt 11 chap_auth_session, any 12 initiator_name,
    }
    "core.v1.ISCSIVolumeSource" core::ISCSIVolumeSource {
        must 1 target_portal, must 2 iqn, must 3 lun, opt 4 iscsi_interface, opt 5 fs_type, opt 6 read_only,
        any 7 portals, opt 8 chap_auth_discovery, any 10 secret_ref, opt 11 chap_auth_session, any 12 initiator_name,
    }
    "core.v1.ImageVolumeSource" core::ImageVolumeSource { opt 1 reference, opt 2 pull_policy, }
    "core.v1.KeyToPath" core::KeyToPath { must 1 key, must 2 path, any 3 mode, }
    "core.v1.LocalObjectReference" core::LocalObjectReference { opt 1 name, }
    "core.v1.LocalVolumeSource" core::LocalVolumeSource { must 1 path, any 2 fs_type, }
    "core.v1.ModifyVolumeStatus" core::ModifyVolumeStatus { opt 1 target_volume_attributes_class_name, must 2 status, }
    "core.v1.NFSVolumeSource" core::NFSVolumeSource { must 1 server, must 2 path, opt 3 read_only, }
    "core.v1.NodeSelector" core::NodeSelector { any 1 node_selector_terms, }
    "core.v1.NodeSelectorRequirement" core::NodeSelectorRequirement { must 1 key, must 2 operator, any 3 values, }
    "core.v1.NodeSelectorTerm" core::NodeSelectorTerm { any 1 match_expressions, any 2 match_fields, }
    "core.v1.ObjectFieldSelector" core::ObjectFieldSelector { opt 1 api_version, must 2 field_path, }
    "core.v1.ObjectReference" core::ObjectReference {
        opt 1 kind, opt 2 namespace, opt 3 name, opt 4 uid, opt 5 api_version, opt 6 resource_version,
        opt 7 field_path,
    }
    "core.v1.PersistentVolume" core::PersistentVolume { must 1 metadata, must 2 spec, must 3 status, }
    "core.v1.PersistentVolumeClaim" core::PersistentVolumeClaim { must 1 metadata, must 2 spec, must 3 status, }
    "core.v1.PersistentVolumeClaimCondition" core::PersistentVolumeClaimCondition {
        must 1 type_, must 2 status, any 3 last_probe_time, any 4 last_transition_time, opt 5 reason, opt 6 message,
    }
    "core.v1.PersistentVolumeClaimSpec" core::PersistentVolumeClaimSpec {
        any 1 access_modes, must 2 resources, opt 3 volume_name, any 4 selector, any 5 storage_class_name,
        any 6 volume_mode, any 7 data_source, any 8 data_source_ref, any 9 volume_attributes_class_name,
    }
    "core.v1.PersistentVolumeClaimStatus" core::PersistentVolumeClaimStatus {
        opt 1 phase, any 2 access_modes, any 3 capacity, any 4 conditions, any 5 allocated_resources,
        any 7 allocated_resource_statuses, any 8 current_volume_attributes_class_name, any 9 modify_volume_status,
    }
    "core.v1.PersistentVolumeClaimTemplate" core::PersistentVolumeClaimTemplate { must 1 metadata, must 2 spec, }
    "core.v1.PersistentVolumeClaimVolumeSource" core::PersistentVolumeClaimVolumeSource { must 1 claim_name, opt 2 read_only, }
    "core.v1.PersistentVolumeSpec" core::PersistentVolumeSpec {
        any 1 capacity, any 3 access_modes, any 4 claim_ref, opt 5 persistent_volume_reclaim_policy,
        opt 6 storage_class_name, any 7 mount_options, any 8 volume_mode, any 9 node_affinity,
        any 10 volume_attributes_class_name,
        @2 {
            any 1 gce_persistent_disk, any 2 aws_elastic_block_store, any 3 host_path, any 4 glusterfs, any 5 nfs,
            any 6 rbd, any 7 iscsi, any 8 cinder, any 9 cephfs, any 10 fc, any 11 flocker, any 12 flex_volume,
            any 13 azure_file, any 14 vsphere_volume, any 15 quobyte, any 16 azure_disk,
            any 17 photon_persistent_disk, any 18 portworx_volume, any 19 scale_io, any 20 local, any 21 storageos,
            any 22 csi,
        }
    }
    "core.v1.PersistentVolumeStatus" core::PersistentVolumeStatus {
        opt 1 phase, opt 2 message, opt 3 reason, any 4 last_phase_transition_time,
    }
    "core.v1.PhotonPersistentDiskVolumeSource" core::PhotonPersistentDiskVolumeSource { must 1 pd_id, opt 2 fs_type, }
    "core.v1.PortworxVolumeSource" core::PortworxVolumeSource { must 1 volume_id, opt 2 fs_type, opt 3 read_only, }
    "core.v1.ProjectedVolumeSource" core::ProjectedVolumeSource { any 1 sources, any 2 default_mode, }
    "core.v1.QuobyteVolumeSource" core::QuobyteVolumeSource {
        must 1 registry, must 2 volume, opt 3 read_only, opt 4 user, opt 5 group, opt 6 tenant,
    }
    "core.v1.RBDPersistentVolumeSource" core::RBDPersistentVolumeSource {
        any 1 monitors, must 2 image, opt 3 fs_type, opt 4 pool, opt 5 user, opt 6 keyring, any 7 secret_ref,
        opt 8 read_only,
    }
    "core.v1.RBDVolumeSource" core::RBDVolumeSource {
        any 1 monitors, must 2 image, opt 3 fs_type, opt 4 pool, opt 5 user, opt 6 keyring, any 7 secret_ref,
        opt 8 read_only,
    }
    "core.v1.ResourceFieldSelector" core::ResourceFieldSelector { opt 1 container_name, must 2 resource, must 3 divisor, }
    "core.v1.ScaleIOPersistentVolumeSource" core::ScaleIOPersistentVolumeSource {
        must 1 gateway, must 2 system, any 3 secret_ref, opt 4 ssl_enabled, opt 5 protection_domain,
        opt 6 storage_pool, opt 7 storage_mode, opt 8 volume_name, opt 9 fs_type, opt 10 read_only,
    }
    "core.v1.ScaleIOVolumeSource" core::ScaleIOVolumeSource {
        must 1 gateway, must 2 system, any 3 secret_ref, opt 4 ssl_enabled, opt 5 protection_domain,
        opt 6 storage_pool, opt 7 storage_mode, opt 8 volume_name, opt 9 fs_type, opt 10 read_only,
    }
    "core.v1.SecretProjection" core::SecretProjection {
        any 2 items, any 4 optional,
        @1 {
            opt 1 name,
        }
    }
    "core.v1.SecretReference" core::SecretReference { opt 1 name, opt 2 namespace, }
    "core.v1.SecretVolumeSource" core::SecretVolumeSource { opt 1 secret_name, any 2 items, any 3 default_mode, any 4 optional, }
    "core.v1.ServiceAccountTokenProjection" core::ServiceAccountTokenProjection { opt 1 audience, any 2 expiration_seconds, must 3 path, }
    "core.v1.StorageOSPersistentVolumeSource" core::StorageOSPersistentVolumeSource {
        opt 1 volume_name, opt 2 volume_namespace, opt 3 fs_type, opt 4 read_only, any 5 secret_ref,
    }
    "core.v1.StorageOSVolumeSource" core::StorageOSVolumeSource {
        opt 1 volume_name, opt 2 volume_namespace, opt 3 fs_type, opt 4 read_only, any 5 secret_ref,
    }
    "core.v1.TypedLocalObjectReference" core::TypedLocalObjectReference { any 1 api_group, must 2 kind, must 3 name, }
    "core.v1.TypedObjectReference" core::TypedObjectReference { any 1 api_group, must 2 kind, must 3 name, any 4 namespace, }
    "core.v1.Volume" core::Volume {
        must 1 name,
        @2 {
            any 1 host_path, any 2 empty_dir, any 3 gce_persistent_disk, any 4 aws_elastic_block_store,
            any 5 git_repo, any 6 secret, any 7 nfs, any 8 iscsi, any 9 glusterfs, any 10 persistent_volume_claim,
            any 11 rbd, any 12 flex_volume, any 13 cinder, any 14 cephfs, any 15 flocker, any 16 downward_api,
            any 17 fc, any 18 azure_file, any 19 config_map, any 20 vsphere_volume, any 21 quobyte,
            any 22 azure_disk, any 23 photon_persistent_disk, any 24 portworx_volume, any 25 scale_io,
            any 26 projected, any 27 storageos, any 28 csi, any 29 ephemeral, any 30 image,
        }
    }
    "core.v1.VolumeNodeAffinity" core::VolumeNodeAffinity { any 1 required, }
    "core.v1.VolumeProjection" core::VolumeProjection {
        any 1 secret, any 2 downward_api, any 3 config_map, any 4 service_account_token, any 5 cluster_trust_bundle,
    }
    "core.v1.VolumeResourceRequirements" core::VolumeResourceRequirements { any 1 limits, any 2 requests, }
    "core.v1.VsphereVirtualDiskVolumeSource" core::VsphereVirtualDiskVolumeSource {
        must 1 volume_path, opt 2 fs_type, opt 3 storage_policy_name, opt 4 storage_policy_id,
    }
}
