//! Which resources webhooks are asked about.

use crate::resource::ResourceInfo;

/// Objects of this group that configure admission are not subject to it, so that nothing locks itself out.
const CONFIGURES: &str = "admissionregistration.k8s.io";

/// Whether a webhook may be asked about a resource.
pub(super) fn is_subject(info: &ResourceInfo) -> bool {
    !(info.group == CONFIGURES
        && matches!(
            info.kind.as_str(),
            "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        ))
}
