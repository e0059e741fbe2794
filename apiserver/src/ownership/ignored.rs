//! The fields that a write through a resource or a subresource cannot change, and so does not come to own.
//!
//! (kubernetes: `GetResetFields` of the strategies.)

use crate::apply::Set;
use crate::resource::ResourceInfo;

/// Kinds whose status subresource does not change metadata.
const WITHOUT_METADATA: &[(&str, &str)] = &[
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
    ),
    ("networking.k8s.io", "servicecidrs"),
    ("resource.k8s.io", "resourceclaims"),
    ("storage.k8s.io", "volumeattachments"),
];

/// The fields that a write to `subresource` cannot change.
pub(super) fn ignored(info: &ResourceInfo, subresource: &str) -> Set {
    let kind = (info.group.as_str(), info.plural.as_str());
    let is_request = kind == ("certificates.k8s.io", "certificatesigningrequests");
    match subresource {
        "" if is_request => Set::of(&[&["spec"], &["status"]]),
        "" if !info.status => Set::default(),
        "" | "finalize" => Set::of(&[&["status"]]),
        "status" if info.custom || WITHOUT_METADATA.contains(&kind) => {
            Set::of(&[&["metadata"], &["spec"]])
        }
        "status" if is_request => Set::of(&[&["spec"], &["status", "conditions"]]),
        "status" if kind == ("apps", "deployments") => {
            Set::of(&[&["spec"], &["metadata", "labels"]])
        }
        "status" if kind == ("", "pods") => Set::of(&[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ]),
        "status" => Set::of(&[&["spec"]]),
        "approval" => Set::of(&[&["spec"], &["status", "certificate"]]),
        _ => Set::default(),
    }
}
