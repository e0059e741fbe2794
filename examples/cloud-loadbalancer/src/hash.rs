//! The hash of what a Service asks for: while it is the one that was applied last, only backends and the status are
//! compared, until the next full comparison is due.
//!
//! It is over an object with a name for each field, not over a list of values: a field that appears with a zero or empty
//! value changes it, and equal values in different fields do not collide.

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::identity::{NOTE_ANNOTATION, PREFIX, hex};

/// The number of hexadecimal digits: a label has at most 63 characters.
const DIGITS: usize = 56;

/// The version of the rules by which a Service becomes a load balancer. A new version of the program that applies
/// something else to the same Service has a new number.
const RULES: u32 = 1;

/// The hash of `service` for a controller with these `settings`.
#[must_use]
pub fn of(service: &Service, settings: &Value) -> String {
    let asked = json!({"rules": RULES, "settings": settings, "service": asked(service)});
    let mut text = String::new();
    canonical(&asked, &mut text);
    let mut digits = hex(&Sha256::digest(text.as_bytes()));
    digits.truncate(DIGITS);
    digits
}

/// The fields that the load balancer is a function of.
fn asked(service: &Service) -> Value {
    let annotations = service.metadata.annotations.iter().flatten();
    let own = annotations.filter(|(key, _)| key.starts_with(PREFIX) && *key != NOTE_ANNOTATION);
    let own: serde_json::Map<_, _> = own
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let spec = service.spec.as_ref();
    let mut fields = serde_json::Map::new();
    if let Some(Value::Object(all)) = spec.and_then(|spec| serde_json::to_value(spec).ok()) {
        for name in [
            "ports",
            "type",
            "externalTrafficPolicy",
            "healthCheckNodePort",
            "loadBalancerClass",
            "loadBalancerSourceRanges",
            "sessionAffinity",
            "sessionAffinityConfig",
            "ipFamilies",
        ] {
            if let Some(value) = all.get(name) {
                fields.insert(name.to_owned(), value.clone());
            }
        }
    }
    json!({"uid": service.metadata.uid, "annotations": own, "spec": fields})
}

/// JSON with the keys of objects in order.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<_> = fields.keys().collect();
            keys.sort();
            text.push('{');
            for key in keys {
                text.push_str(&Value::String(key.clone()).to_string());
                text.push(':');
                canonical(&fields[key], text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::{HASH_LABEL, ID_LABEL};

    fn service(value: Value) -> Service {
        serde_json::from_value(value).unwrap()
    }

    fn web() -> Value {
        json!({
            "metadata": {"uid": "u", "annotations": {"lb.reeve.dev/spec": "s", "other": "x"}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
        })
    }

    fn hash(value: Value) -> String {
        of(&service(value), &Value::Null)
    }

    #[test]
    fn it_fits_into_a_label() {
        assert_eq!(hash(web()).len(), 56);
    }

    #[test]
    fn every_field_that_is_applied_changes_it() {
        let before = hash(web());
        for (pointer, value) in [
            ("/spec/type", json!("ClusterIP")),
            ("/spec/ports/0/nodePort", json!(30081)),
            ("/spec/ports/0/name", json!("http")),
            ("/spec/externalTrafficPolicy", json!("Local")),
            ("/spec/healthCheckNodePort", json!(31000)),
            ("/spec/sessionAffinity", json!("ClientIP")),
            ("/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
            ("/metadata/annotations/lb.reeve.dev~1spec", json!("t")),
            ("/metadata/uid", json!("v")),
        ] {
            let mut changed = web();
            put(&mut changed, pointer, value);
            assert_ne!(hash(changed), before, "{pointer}");
        }
    }

    #[test]
    fn own_marks_and_other_fields_do_not_change_it() {
        let before = hash(web());
        for (pointer, value) in [
            ("/metadata/annotations/other", json!("y")),
            ("/metadata/annotations/lb.reeve.dev~1state", json!("{}")),
            (
                "/metadata/labels",
                json!({ID_LABEL: "lb-1", HASH_LABEL: "h"}),
            ),
            ("/metadata/resourceVersion", json!("9")),
            ("/spec/selector", json!({"app": "web"})),
            (
                "/status",
                json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}),
            ),
        ] {
            let mut changed = web();
            put(&mut changed, pointer, value);
            assert_eq!(hash(changed), before, "{pointer}");
        }
    }

    #[test]
    fn b9_an_empty_value_differs_from_none_and_equal_values_in_other_fields_do_not_collide() {
        let mut empty = web();
        put(&mut empty, "/spec/loadBalancerSourceRanges", json!([]));
        assert_ne!(hash(empty), hash(web()));
        let mut zero = web();
        put(&mut zero, "/spec/healthCheckNodePort", json!(0));
        assert_ne!(hash(zero), hash(web()));
        let mut blank = web();
        put(
            &mut blank,
            "/metadata/annotations/lb.reeve.dev~1zone",
            json!(""),
        );
        assert_ne!(hash(blank), hash(web()));
        let with = |pointer: &str| {
            let mut one = web();
            put(&mut one, pointer, json!("x"));
            hash(one)
        };
        assert_ne!(
            with("/metadata/annotations/lb.reeve.dev~1zone"),
            with("/metadata/annotations/lb.reeve.dev~1subnet")
        );
    }

    #[test]
    fn b10_a_hash_is_the_same_after_it_was_stored_where_it_is_stored() {
        let mut stored = web();
        let before = hash(web());
        put(&mut stored, "/metadata/labels", json!({HASH_LABEL: before}));
        assert_eq!(hash(stored), before);
    }

    #[test]
    fn a_setting_of_the_program_changes_it() {
        let web = service(web());
        assert_ne!(of(&web, &json!({"a": 1})), of(&web, &json!({"a": 2})));
    }

    /// Sets `pointer` in `value`; its parent exists.
    fn put(value: &mut Value, pointer: &str, new: Value) {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/");
        value.pointer_mut(parent).unwrap()[key] = new;
    }

    proptest! {
        #[test]
        fn the_order_of_keys_does_not_matter(keys in proptest::collection::hash_set("[a-z]{1,6}", 0..8)) {
            let mut keys: Vec<_> = keys.into_iter().collect();
            let text = |keys: &[String]| {
                let fields: Vec<_> = keys.iter().map(|key| format!("{key:?}:{{\"x\":1,\"a\":[]}}")).collect();
                let value: Value = serde_json::from_str(&format!("{{{}}}", fields.join(","))).unwrap();
                let mut text = String::new();
                canonical(&value, &mut text);
                text
            };
            let before = text(&keys);
            keys.reverse();
            prop_assert_eq!(text(&keys), before);
        }
    }
}
