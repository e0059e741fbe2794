//! What the controller has to do for a Service: a pure function of the Service.

use k8s_openapi::api::core::v1::Service;
use reeve_controller::finalizer;

use crate::identity::{CLASS, FINALIZER, NOTE_ANNOTATION, recorded};

/// What to do for a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Nothing: it is not this controller's.
    Ignore,
    /// Give it a load balancer.
    Ensure,
    /// Remove its load balancer, and then its marks and the finalizer.
    Remove(Rest),
}

/// The finalizer at the end of a removal. All cloud controllers use the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Remove it.
    Finalizer,
    /// Leave it: the Service has no class and is the default controller's, which relies on it too.
    Marks,
    /// Remove it, and leave the status: the Service has the class of another controller, which sets its own finalizer. A
    /// finalizer that stayed would hold a deletion without end.
    OtherClass,
    /// Remove it if the cloud has a load balancer of the Service. The marks are gone, so it may be another controller's.
    FinalizerIfFound,
}

/// What to do for `service`; with `default_class` those without a class are this controller's.
#[must_use]
pub fn intent(service: &Service, default_class: bool) -> Intent {
    let spec = service.spec.as_ref();
    let balanced = spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"));
    let class = spec.and_then(|spec| spec.load_balancer_class.as_deref());
    let ours = class.map_or(default_class, |class| class == CLASS);
    let annotations = service.metadata.annotations.as_ref();
    let noted = annotations.is_some_and(|all| all.contains_key(NOTE_ANNOTATION));
    let marked = noted || recorded(service).is_some();
    let held = finalizer::contains(service, FINALIZER);
    let deleting = finalizer::is_deleting(service);
    match (balanced, ours) {
        (true, true) if !deleting => Intent::Ensure,
        (true, true) if held || marked => Intent::Remove(Rest::Finalizer),
        (true, false) if marked && class.is_some() => Intent::Remove(Rest::OtherClass),
        (true, false) if marked => Intent::Remove(Rest::Marks),
        (false, _) if marked => Intent::Remove(Rest::Finalizer),
        (false, _) if held => Intent::Remove(Rest::FinalizerIfFound),
        _ => Intent::Ignore,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::identity::ID_LABEL;

    #[test]
    fn the_matrix_of_type_class_marks_finalizer_and_deletion() {
        use Intent::{Ensure, Ignore, Remove};
        let other = Some("example.com/lb");
        // type, class, marked, finalizer, deleting, as default class, not as default class
        for (kind, class, marked, held, deleting, default, other_default) in [
            ("LoadBalancer", None, false, false, false, Ensure, Ignore),
            (
                "LoadBalancer",
                Some(CLASS),
                false,
                false,
                false,
                Ensure,
                Ensure,
            ),
            ("LoadBalancer", other, false, false, false, Ignore, Ignore),
            ("LoadBalancer", other, false, true, false, Ignore, Ignore),
            ("LoadBalancer", other, false, true, true, Ignore, Ignore),
            (
                "LoadBalancer",
                other,
                true,
                true,
                false,
                Remove(Rest::OtherClass),
                Remove(Rest::OtherClass),
            ),
            (
                "LoadBalancer",
                None,
                true,
                true,
                false,
                Ensure,
                Remove(Rest::Marks),
            ),
            ("LoadBalancer", None, false, false, true, Ignore, Ignore),
            (
                "LoadBalancer",
                None,
                false,
                true,
                true,
                Remove(Rest::Finalizer),
                Ignore,
            ),
            (
                "LoadBalancer",
                Some(CLASS),
                true,
                true,
                true,
                Remove(Rest::Finalizer),
                Remove(Rest::Finalizer),
            ),
            ("ClusterIP", None, false, false, false, Ignore, Ignore),
            (
                "ClusterIP",
                None,
                true,
                true,
                false,
                Remove(Rest::Finalizer),
                Remove(Rest::Finalizer),
            ),
            (
                "NodePort",
                None,
                false,
                true,
                false,
                Remove(Rest::FinalizerIfFound),
                Remove(Rest::FinalizerIfFound),
            ),
            (
                "ExternalName",
                None,
                true,
                false,
                true,
                Remove(Rest::Finalizer),
                Remove(Rest::Finalizer),
            ),
        ] {
            let service = json!({
                "metadata": {
                    "labels": marked.then(|| json!({ID_LABEL: "lb-1"})),
                    "finalizers": held.then(|| json!([FINALIZER])),
                    "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z"),
                },
                "spec": {"type": kind, "loadBalancerClass": class},
            });
            let case = service.to_string();
            let service: Service = serde_json::from_value(service).unwrap();
            assert_eq!(intent(&service, true), default, "default class: {case}");
            assert_eq!(intent(&service, false), other_default, "not: {case}");
        }
        assert_eq!(
            intent(
                &serde_json::from_value(Value::Object(Default::default())).unwrap(),
                true
            ),
            Ignore
        );
    }
}
