//! One policy, read once.

use std::sync::Arc;

use serde_json::Value;

use super::parameters::ParameterKind;
use crate::admission::matching::Matcher;
use crate::cel::{Composition, Conditions};
use crate::meta;
use crate::resource::ResourceInfo;

/// One policy, with the expressions `E`.
#[derive(Debug)]
pub(super) struct Policy<E> {
    pub(super) name: String,
    /// Whether a policy that fails lets the write pass.
    pub(super) ignores_failures: bool,
    pub(super) matcher: Matcher,
    /// The type of its parameters; `None` without any.
    pub(super) parameter_kind: Option<ParameterKind>,
    pub(super) conditions: Conditions,
    pub(super) expressions: E,
}

/// The expressions of a kind of policies.
pub(super) trait Expressions: Sized {
    /// Compiles the expressions of a policy; they may use the variables of `composition`.
    fn compile(spec: &Value, composition: &Arc<Composition>) -> Self;
}

/// Policies are not subject to policies, so that nothing locks itself out.
pub(super) fn is_subject(info: &ResourceInfo) -> bool {
    !(info.group == "admissionregistration.k8s.io" && info.kind.contains("AdmissionPolicy"))
}

// === impl Policy ===

impl<E: Expressions> Policy<E> {
    /// Reads a stored policy.
    pub(super) fn read(object: &Value) -> Self {
        let spec = &object["spec"];
        let composition = Arc::new(Composition::read(&spec["variables"]));
        Self {
            name: meta::text(object, "name").to_owned(),
            ignores_failures: spec["failurePolicy"] == "Ignore",
            matcher: Matcher::of_policy(&spec["matchConstraints"]),
            parameter_kind: ParameterKind::read(&spec["paramKind"]),
            conditions: Conditions::read(&spec["matchConditions"], &composition),
            expressions: E::compile(spec, &composition),
        }
    }
}
