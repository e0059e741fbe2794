//! The checks of CSIDrivers.

use serde_json::Value;

use super::immutable;
use crate::field::{Errors, FieldError, Path};
use crate::table::cells::{items, string};

const GROUP_POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
const MODES: &[&str] = &["Persistent", "Ephemeral"];
/// The shortest and the longest life of a token, in seconds.
const TOKEN_LIFE: (i64, i64) = (600, 1 << 32);

/// Checks a CSIDriver.
pub(super) fn driver(driver: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&driver["spec"], Path::new("spec"));
    let policy = &spec["fsGroupPolicy"];
    if !policy.is_null() && !GROUP_POLICIES.contains(&string(policy)) {
        errors.push(FieldError::not_supported(
            &path.child("fsGroupPolicy"),
            policy.clone(),
            GROUP_POLICIES,
        ));
    }
    tokens(spec, &path.child("tokenRequests"), errors);
    let modes = path.child("volumeLifecycleModes");
    for mode in items(&spec["volumeLifecycleModes"]) {
        if !MODES.contains(&string(mode)) {
            errors.push(FieldError::not_supported(&modes, mode.clone(), MODES));
        }
    }
    let period = spec["nodeAllocatableUpdatePeriodSeconds"].as_i64();
    if let Some(period) = period.filter(|period| *period < 10) {
        errors.push(FieldError::invalid(
            &path.child("nodeAllocatableUpdatePeriodSeconds"),
            period,
            "must be greater than or equal to 10 seconds",
        ));
    }
    let Some(old) = old else { return };
    let old = &old["spec"];
    // kube-apiserver misspells the field.
    let attach = path.child("attachedRequired");
    immutable::field(
        &spec["attachRequired"],
        &old["attachRequired"],
        &attach,
        errors,
    );
    let field = "volumeLifecycleModes";
    immutable::field(&spec[field], &old[field], &modes, errors);
}

fn tokens(spec: &Value, path: &Path, errors: &mut Errors) {
    let all = items(&spec["tokenRequests"]);
    for (at, token) in all.iter().enumerate() {
        let path = path.index(at);
        let audience = string(&token["audience"]);
        if all[..at]
            .iter()
            .any(|other| string(&other["audience"]) == audience)
        {
            errors.push(FieldError::duplicate(&path.child("audience"), audience));
            continue;
        }
        let Some(seconds) = token["expirationSeconds"].as_i64() else {
            continue;
        };
        let path = path.child("expirationSeconds");
        if seconds < TOKEN_LIFE.0 {
            let text = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid(&path, seconds, text));
        }
        if seconds > TOKEN_LIFE.1 {
            let text = "may not specify a duration larger than 2^32 seconds";
            errors.push(FieldError::invalid(&path, seconds, text));
        }
    }
}
